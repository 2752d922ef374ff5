"""A database in memory: what `support.scripted` is the source of, and what a test writes to.

Each table has the columns `id` (the key) and `v`. A transaction is a list of changes; its number in the log is its id
and its position. One that is `hidden` is in the log and not yet visible to chunks, as a commit is for a moment in any
database: that is what the chunk rule is about.
"""

import os
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from tailrace.changelog.records.terms import Position
from tailrace.changelog.transactions import TransactionIds

PREFIX = "memory:"
"""Of the ids of transactions; the rest is the number."""


@dataclass(frozen=True)
class Change:
    """`op`: I, U, D, T (the table is emptied), or M: the row that a D just before took away, under another key."""

    op: Literal["I", "U", "D", "M", "T"]
    table: int
    id: int = 0
    v: str | None = None
    old: int = 0
    """M: the key that the row had."""
    kept: bool = False
    """U, M: `v` is what it was, and the log does not carry it."""
    n: int | None = None
    """In a database that is `numbered`."""


def toasted(table: int, id: int, to: int | None = None, n: int | None = None) -> list[Change]:
    """The row is written again, perhaps under another key, without its `v`."""
    if to is None:
        return [Change("U", table, id, kept=True, n=n)]
    return [Change("D", table, id), Change("M", table, to, old=id, kept=True, n=n)]


def move(table: int, id: int, to: int, v: str) -> list[Change]:
    return [Change("D", table, id), Change("M", table, to, v, old=id)]


Row = tuple[str | None, int | None]
"""`v` and `n`."""


@dataclass(frozen=True)
class Seen:
    """What a chunk saw: transactions up to `end` but the hidden ones."""

    end: int
    hidden: frozenset[int]

    @override
    def __str__(self) -> str:
        return f"{self.end}:{','.join(map(str, sorted(self.hidden)))}"

    def sees(self, transactions: TransactionIds) -> NDArray[np.bool_]:
        assert transactions.prefixes == (PREFIX,)
        return (transactions.number <= self.end) & ~np.isin(transactions.number, list(self.hidden))

    def past(self, edge: str) -> bool:
        return self.end >= int(edge) and not any(number <= int(edge) for number in self.hidden)


@dataclass
class Database:
    """One thread writes; capture, the planner and chunk readers look at it meanwhile."""

    names: list[str] = field(default_factory=list)
    """The tables, `main.<name>`; a table's id is its place, from 1."""
    log: list[list[Change]] = field(default_factory=list)
    """Transactions 1, 2, …"""
    hidden: set[int] = field(default_factory=set)
    readers: dict[str, int] = field(default_factory=dict)
    """By the id of the change log: the position that it has acknowledged."""
    server: str = "memory"
    """Which server answers at the source's address; another one has another log, whatever it holds."""
    continues: bool = False
    """The server that answers has taken the place of the one before, with all of its log."""
    differing: set[int] = field(default_factory=set)
    """Tables of which the catalog shows, at the next look, that their rows must be read again."""
    numbered: bool = False
    """Tables have a third column, `n`."""
    times: dict[int, int] = field(default_factory=dict)
    """The time of each transaction that was read, as the reader has told it: microseconds since the Unix epoch."""
    bells: set[int] = field(default_factory=set)
    """Event counters that rise with every commit: who waits for the log reads them."""

    def commit(self, *changes: Change, hidden: bool = False) -> int:
        if hidden:
            self.hidden.add(len(self.log) + 1)
        self.log.append(list(changes))
        for bell in tuple(self.bells):
            os.eventfd_write(bell, 1)
        return len(self.log)

    @property
    def end(self) -> Position:
        return Position(len(self.log))

    def seen(self) -> Seen:
        return Seen(self.end, frozenset(self.hidden))

    def rows(self, table: int, seen: Seen | None = None) -> dict[int, str | None]:
        """`v` of what a chunk has `seen`; None: all that is committed."""
        return {id: v for id, (v, _) in self.whole(table, seen).items()}

    def whole(self, table: int, seen: Seen | None = None) -> dict[int, Row]:
        """`rows` with all columns."""
        end, hidden = (seen.end, seen.hidden) if seen is not None else (self.end, frozenset[int]())
        found: dict[int, Row] = {}
        gone: Row | None = None
        for change in (c for number in range(1, end + 1) if number not in hidden for c in self.log[number - 1]):
            if change.table != table:
                continue
            if change.op == "T":
                found.clear()
            elif change.op == "D":
                gone = found.pop(change.id, None)
            else:
                old = gone if change.op == "M" else found.get(change.id)
                found[change.id] = old[0] if change.kept and old is not None else change.v, change.n
        return found
