"""Plain transactions, many at once: a GTID, a BEGIN, table maps and their rows, an XID, and nothing else.

Most transactions are so, and small ones cost more for what surrounds their rows than for the rows: here numpy looks at
all of a stretch of the log together. Called by `Assembler.feed_many`, which feeds everything else one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from tailrace.sources.log.blocks import Mark
from tailrace.sources.mysql.log.blocks import EVENT_OVERHEAD, RowEvent, marks, row_events
from tailrace.sources.mysql.log.events import GTID_TIME, GTID_TIME_BITS, ROW_FLAGS, UNCHECKED, Kind, prefix_of
from tailrace.sources.mysql.log.framing import EventBatch
from tailrace.sources.mysql.log.rows import ROWS
from tailrace.sources.mysql.log.walk import Flags, Places

FEWEST = 16
"""Transactions that follow each other; fewer are not worth numpy's calls."""
_BEGIN_HEAD, _BEGIN = 13, b"BEGIN"
_HEAD = 8
"""Bytes of table id and flags in table maps and rows."""
_TABLE_ID = np.uint64(0xFFFF_FFFF_FFFF)
_GTID_BYTES, _MARIADB_GTID_BYTES = 49, 13
_NOT_PLAIN = 0x01 | 0x20 | 0x40 | 0x80
"""MariaDB's flags of a GTID: a statement of its own, DDL, XA."""


def _kinds(*kinds: int) -> Flags:
    found = np.zeros(512, np.bool_)
    found[list(kinds)] = True
    return found


_IS_ROWS = _kinds(*ROWS)
_IS_INSIDE = _kinds(*ROWS, Kind.TABLE_MAP, Kind.ROWS_QUERY, Kind.MARIADB_ANNOTATE_ROWS)


@dataclass(frozen=True)
class Run:
    """Plain transactions that follow each other without anything in between."""

    events: EventBatch
    opens: Places
    """The GTID event of each transaction."""
    behind: Places
    """The place behind the XID of each."""
    rows: Places
    """Row events."""
    owner: Places
    """The place in `opens` of each row event's transaction."""
    maps: Places
    """The table map of each row event."""

    def __len__(self) -> int:
        return len(self.opens)

    @property
    def mariadb(self) -> bool:
        return bool(self.events.kind[self.opens[0]] == Kind.MARIADB_GTID)

    def part(self, first: int, behind: int) -> "Run":
        """The transactions from `first` on."""
        low, high = np.searchsorted(self.owner, (first, behind))
        rows = slice(int(low), int(high))
        part = slice(first, behind)
        return Run(
            self.events, self.opens[part], self.behind[part], self.rows[rows], self.owner[rows] - first, self.maps[rows]
        )

    def forms(self) -> list[bytes]:
        """The table map of each row event, without the table's id."""
        return self._bodies(self.maps, _HEAD)

    def growth(self, captured: Flags) -> Places:
        """The bytes by which a block grows up to the end of each transaction. `captured`: for each row event."""
        sizes = (self.events.to[self.rows] - self.events.at[self.rows] + EVENT_OVERHEAD) * captured
        return np.cumsum(np.bincount(self.owner, sizes, len(self))).astype(np.int64)

    def row_events(self, forms: list[bytes], captured: Flags) -> list[RowEvent]:
        """Those that are captured."""
        rows = self.rows[captured]
        kinds = self.events.kind[rows].tolist()
        return row_events(kinds, compress(forms, captured.tolist()), self._bodies(rows))

    def marks(self, captured: Flags, first: int, file: int) -> list[Mark]:
        """The marks of transactions with captured rows, the first of which is event `first` of the block. `file`:
        position of the beginning of the log's file, so that ends in it may be added."""
        counts = np.bincount(self.owner[captured], minlength=len(self))
        at, took = first + np.cumsum(counts) - counts, counts > 0
        if self.mariadb:
            prefixes = [""] * len(self)
            numbers = file + self.events.end[self.opens] - self.events.size[self.opens]
        else:
            prefixes, numbers = self.gtids
        chosen = compress(prefixes, took.tolist())
        return marks(at[took].tolist(), chosen, numbers[took].tolist(), self._times()[took].tolist())

    @cached_property
    def gtids(self) -> tuple[list[str], Places]:
        """MySQL: of each transaction its prefix and its number."""
        at, buffer = self.events.at[self.opens], self.events.buffer
        numbers = buffer.numbers(at + 17, "<i8").astype(np.int64)
        halves = [buffer.numbers(at + place, "<u8") for place in (1, 9)]
        if all((half == half[0]).all() for half in halves):  # the usual case
            return [prefix_of(buffer.data[at[0] + 1 : at[0] + 17])] * len(self), numbers
        return [prefix_of(buffer.data[a : a + 16]) for a in (at + 1).tolist()], numbers

    @property
    def mariadb_gtids(self) -> list[tuple[int, int, int]]:
        """The domain, server and number of each transaction."""
        at, buffer = self.events.at[self.opens], self.events.buffer
        numbers, domains = buffer.numbers(at, "<u8"), buffer.numbers(at + 8, "<u4")
        return list(zip(domains.tolist(), self.events.server[self.opens].tolist(), numbers.tolist(), strict=True))

    def _times(self) -> Places:
        """The time of each commit, in microseconds since the Unix epoch."""
        stamps: Places = self.events.timestamp[self.opens] * 1_000_000
        if not self.mariadb:
            at = self.events.at[self.opens] + GTID_TIME
            exact = self.events.buffer.numbers(at, "<u8").astype(np.int64) & GTID_TIME_BITS
            stamps = np.where(exact, exact, stamps)
        return stamps

    def _bodies(self, which: Places, skip: int = 0) -> list[bytes]:
        data = self.events.buffer.data
        starts, ends = (self.events.at[which] + skip).tolist(), self.events.to[which].tolist()
        return [data[a:b] for a, b in zip(starts, ends, strict=True)]


def runs(events: EventBatch) -> Iterator[Run]:
    """The runs in log order."""
    found = _plain(events)
    if found is None:
        return
    ends = np.flatnonzero(found.opens[1:] != found.behind[:-1]) + 1
    for first, behind in zip([0, *ends.tolist()], [*ends.tolist(), len(found)], strict=True):
        if behind - first >= FEWEST:
            yield found.part(first, behind)


def _plain(events: EventBatch) -> Run | None:
    """All plain transactions, whatever stands in between."""
    kind = events.kind
    opens = np.flatnonzero((kind == Kind.GTID) | (kind == Kind.MARIADB_GTID))
    if len(opens) < FEWEST:
        return None
    mariadb = bool(kind[opens[0]] == Kind.MARIADB_GTID)
    last = np.append(opens[1:], len(kind)) - 1
    inner = opens + (1 if mariadb else 2)
    odd = np.concatenate(([0], np.cumsum(~_IS_INSIDE[kind])))
    good = (kind[last] == Kind.XID) & (last >= inner)
    good[good] &= odd[last[good]] == odd[inner[good]]
    good[good] &= _mariadb_begins(events, opens[good]) if mariadb else _begins(events, opens[good])
    rows, maps, owner, fits = _rows(events, opens)
    if mariadb:  # rows that are looked at one by one: `Assembler`
        flags = events.buffer.bytes[np.where(fits, events.at[rows] + ROW_FLAGS, 0)]
        fits &= flags & UNCHECKED != UNCHECKED
    good[owner[~fits]] = False
    number = np.cumsum(good) - 1
    kept = good[owner]
    return Run(events, opens[good], last[good] + 1, rows[kept], number[owner[kept]], maps[kept])


def _begins(events: EventBatch, opens: Places) -> Flags:
    """True where a GTID can be read and a BEGIN follows it (`events.begins`)."""
    good: Flags = (events.to[opens] - events.at[opens] >= _GTID_BYTES) & (events.kind[opens + 1] == Kind.QUERY)
    at, to = events.at[opens + 1], events.to[opens + 1]
    good &= to - at > _BEGIN_HEAD + len(_BEGIN)
    at, to = np.where(good, at, 0), np.where(good, to, len(_BEGIN))
    for i, letter in enumerate(_BEGIN):
        good &= events.buffer.bytes[to - len(_BEGIN) + i] == letter
    head = _BEGIN_HEAD + events.buffer.numbers(at + 11, "<u2").astype(np.int64) + events.buffer.bytes[at + 8] + 1
    good &= to - len(_BEGIN) - at == head
    return good


def _mariadb_begins(events: EventBatch, opens: Places) -> Flags:
    good: Flags = (events.kind[opens] == Kind.MARIADB_GTID) & (
        events.to[opens] - events.at[opens] >= _MARIADB_GTID_BYTES
    )
    flags = events.buffer.bytes[np.where(good, events.at[opens] + 12, 0)]
    good &= flags & _NOT_PLAIN == 0
    return good


def _rows(events: EventBatch, opens: Places) -> tuple[Places, Places, Places, Flags]:
    """Row events behind the first GTID, their table maps, their transactions, and whether the table map that stands
    nearest before each is its own."""
    kind = events.kind
    rows = np.flatnonzero(_IS_ROWS[kind])
    rows = rows[rows > opens[0]]
    places = np.arange(len(kind))
    maps = np.maximum.accumulate(np.where(kind == Kind.TABLE_MAP, places, -1))[rows]
    owner = np.searchsorted(opens, rows, side="right") - 1
    fits = (maps > opens[owner]) & (events.to[rows] - events.at[rows] >= _HEAD)
    fits &= events.to[maps] - events.at[maps] >= _HEAD
    own, named = (
        events.buffer.numbers(np.where(fits, events.at[e], 0), "<u8").astype(np.uint64) & _TABLE_ID
        for e in (rows, maps)
    )
    fits &= own == named
    return rows, maps, owner, fits
