"""What a source's snapshot contains; of the protocols in `tailrace.sources.api`, the one that pure code asks."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailrace.changelog.transactions import TransactionIds


class Visibility(Protocol):
    """What the transaction of one chunk saw: made by the source of what `ChunkRead.snapshot` says."""

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        """For each of these committed transactions of the change log: whether the chunk contains its changes."""

    def past(self, edge: str) -> bool:
        """Whether everything that began before a table's edge had ended."""
