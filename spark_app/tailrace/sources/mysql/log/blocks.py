"""A block: the row events of consecutive transactions, in log order, small enough for memory.

Filled by `assembler.Assembler`, decoded as one by `decode.Decoder`. Marks say where each transaction begins.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

EVENT_OVERHEAD = 100
"""Bytes of Python objects per event, counted towards a block's limit so that tiny rows do not fill the memory."""
TRUNCATE = 0
"""A kind of our own: the table of the form was emptied here."""


class Mark(NamedTuple):
    """The start of a transaction's changes: from event `at` on."""

    at: int
    prefix: str
    number: int
    commit_ts: int
    """Microseconds since the Unix epoch."""
    xa: int | None = None
    """MariaDB: the number of the XA transaction that it commits (`visibility.xa_number`)."""


class RowEvent(NamedTuple):
    kind: int
    form: bytes
    """The table map in force, without the table's id; of TRUNCATE the table's name."""
    body: bytes


def row_events(kinds: Iterable[int], forms: Iterable[bytes], bodies: Iterable[bytes]) -> list[RowEvent]:
    """Many at once: without a call of Python's for each they take two thirds of the time."""
    return list(map(partial(tuple.__new__, RowEvent), zip(kinds, forms, bodies, strict=True)))


def marks(at: Iterable[int], prefixes: Iterable[str], numbers: Iterable[int], times: Iterable[int]) -> list[Mark]:
    """Many at once, of transactions that are no XA COMMIT."""
    return list(map(partial(tuple.__new__, Mark), zip(at, prefixes, numbers, times, repeat(None))))


@dataclass
class EventBlock:
    events: list[RowEvent] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    size: int = 0

    def add(self, event: RowEvent) -> None:
        self.events.append(event)
        self.size += len(event.body) + EVENT_OVERHEAD

    def begin(self, prefix: str, number: int, commit_ts: int) -> None:
        self.marks.append(Mark(len(self.events), prefix, number, commit_ts))

    def split(self, at: int) -> tuple["EventBlock", "EventBlock"]:
        """Before and from event `at`, which is where a transaction begins or nothing follows."""
        first = bisect_left(self.marks, at, key=attrgetter("at"))
        if at == len(self.events) and first == len(self.marks):
            return self, EventBlock()
        tail = EventBlock(self.events[at:], [mark._replace(at=mark.at - at) for mark in self.marks[first:]])
        tail.size = sum(len(e.body) + EVENT_OVERHEAD for e in tail.events)
        return EventBlock(self.events[:at], self.marks[:first], self.size - tail.size), tail

    def drop_from(self, at: int) -> None:
        """Events from `at` on never happened."""
        self.size -= sum(len(e.body) + EVENT_OVERHEAD for e in self.events[at:])
        del self.events[at:]

    def continuation(self) -> "EventBlock":
        """An empty block that continues the last transaction."""
        return EventBlock(marks=[self.marks[-1]._replace(at=0)])
