"""A block: what the log has of consecutive transactions, in log order, small enough for memory; and its builder.

Filled by the assembler of each product, decoded as one by its decoder. Marks say where each transaction begins. A
transaction larger than a block goes to segments piece by piece, behind a record of what was finished before it: the log
holds only what is committed.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Item = TypeVar("Item")


class Mark(NamedTuple):
    """The start of a transaction's changes: from item `at` on. (One per transaction: a tuple is made fastest.)"""

    at: int
    prefix: str
    number: int
    commit_ts: int
    """Microseconds since the Unix epoch."""
    also: tuple[str, int] | None = None
    """Another id of the transaction."""


@dataclass
class Block(ABC, Generic[Item]):
    items: list[Item] = field(default_factory=list)
    """Row events or messages of the log."""
    marks: list[Mark] = field(default_factory=list)
    size: int = 0

    @staticmethod
    @abstractmethod
    def weight(items: list[Item]) -> int:
        """Bytes in memory."""

    @abstractmethod
    def add(self, item: Item) -> None: ...

    def begin(self, number: int, commit_ts: int, prefix: str = "") -> None:
        self.marks.append(Mark(len(self.items), prefix, number, commit_ts))

    def split(self, at: int) -> tuple[Self, Self]:
        """Before and from item `at`, which is where a transaction begins or nothing follows."""
        first = bisect_left(self.marks, at, key=attrgetter("at"))
        if at == len(self.items) and first == len(self.marks):
            return self, type(self)()
        tail = type(self)(self.items[at:], [mark._replace(at=mark.at - at) for mark in self.marks[first:]])
        tail.size = self.weight(tail.items)
        return type(self)(self.items[:at], self.marks[:first], self.size - tail.size), tail

    def drop_from(self, at: int) -> None:
        """Items from `at` on never happened."""
        self.size -= self.weight(self.items[at:])
        del self.items[at:]

    def continuation(self) -> Self:
        """An empty block that continues the last transaction."""
        return type(self)(marks=[self.marks[-1]._replace(at=0)])

    def mark_of(self) -> Places:
        """The place of its transaction's mark, for each item."""
        begins = np.array([mark.at for mark in self.marks], np.int64)
        return np.searchsorted(begins, np.arange(len(self.items)), side="right") - 1


B = TypeVar("B", bound=Block[Any])


class BlockBuilder(Generic[B]):
    """The block that is being built: items of finished transactions, then those of the open one, up to a limit."""

    def __init__(self, block: B, limit: int, rows: Callable[[B], None], cut: Callable[[bool], None]) -> None:
        """`limit`: bytes of a block. `rows`: takes a block into the record that is being built. `cut`: makes a record
        of it, True if all its rows belong to whole transactions."""
        self.block = block
        self.limit = limit
        self._rows = rows
        self._cut = cut
        self.boundary = 0
        """Items of the block that belong to finished transactions."""
        self._open = False
        """Items behind the boundary are of a transaction that has not ended."""
        self.divided = False
        """Rows of the transaction that is open, or has just ended, are in segments already."""

    @property
    def pending(self) -> bool:
        """Finished transactions wait for a record."""
        return self.boundary > 0 or (self.divided and not self._open)

    @property
    def full(self) -> bool:
        return self.block.size >= self.limit

    def begin(self, number: int, commit_ts: int, prefix: str = "") -> None:
        self._open = True
        self.block.begin(number, commit_ts, prefix)

    def add(self, item: Any) -> None:
        """An item of the open transaction."""
        self.block.add(item)
        if self.block.size >= self.limit:
            self._overflow()

    def _overflow(self) -> None:
        """The block is full inside a transaction. What is finished gets its record; then the open one gives its
        rows."""
        self.record_finished()
        if self.full:
            self.divide()

    def divide(self) -> None:
        full, self.block = self.block, self.block.continuation()
        self.divided = True
        self._rows(full)

    def record_finished(self) -> None:
        """Records what was finished before the open transaction."""
        if self.boundary:
            self.give_finished()
            self._cut(True)

    def give_finished(self) -> None:
        finished, self.block = self.block.split(self.boundary)
        self.boundary = 0
        if finished.items:
            self._rows(finished)

    def close(self) -> None:
        """The open transaction is finished."""
        if self.block.marks and self.block.marks[-1].at == len(self.block.items) and not self.divided:
            self.drop_mark()
        self._open, self.boundary = False, len(self.block.items)

    def drop_mark(self) -> None:
        """The open transaction changed nothing that we carry."""
        self._open = False
        self.block.marks.pop()

    def cut(self) -> None:
        """Make a record of all finished transactions (of none: the sink decides whether there is anything to say)."""
        if self.divided and self._open:
            self._cut(False)
            return
        self.give_finished()
        self.divided = False
        self._cut(True)
