"""The content of a source's snapshot; of the protocols in `tailrace.sources.api`, the one that pure code uses."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailrace.changelog.transactions import TransactionIds


class Visibility(Protocol):
    """The view of one chunk's transaction: made by the source of the text in `ChunkRead.snapshot`."""

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        """Returns for each of these committed transactions of the change log if the chunk contains its changes."""

    def past(self, edge: str) -> bool:
        """True if everything that began before a table's edge had ended."""
