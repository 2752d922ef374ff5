"""Ids of the source's transactions: a prefix and a number. Pure.

The text of an id is its prefix, then its number in decimal digits: `812345` where a source just counts, `<uuid>:23`
where each of its servers counts. A source has few prefixes and millions of numbers, so records and state hold a small
table of prefixes and columns of integers (`records.Transactions`, `logged.TransactionLog`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TransactionStart(NamedTuple):
    """A transaction, and the first sequence that it took."""

    prefix: str
    number: int
    """Fits into int64."""
    first_seq: int


@dataclass(frozen=True)
class TransactionIds:
    """Ids of many transactions, in log order."""

    prefixes: tuple[str, ...]
    prefix: NDArray[np.int64]
    """The place in `prefixes` of each transaction."""
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.number)
