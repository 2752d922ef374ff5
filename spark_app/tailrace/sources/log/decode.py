"""The events of a decoded block, and the sequences of its transactions.

Used by the `Decoder` of each product, which finds the forms of the rows, counts the changes of each item of the block,
and puts the rows into tables.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import SchemaChanged, Truncated
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.changelog.transactions import TransactionStart
from tailrace.errors import TableStop
from tailrace.sources.api import Changes, TableRows
from tailrace.sources.log.blocks import Block, Mark, Places
from tailrace.sources.log.tables import StreamTables
from tailrace.sources.signals import SignalRow
from tailrace.sources.stops import stopping

Form = TypeVar("Form")


@dataclass(frozen=True)
class Evolved(Generic[Form]):
    """The log's description of a table meant a new schema version."""

    form: Form
    reread: bool


@dataclass(kw_only=True)
class BlockEvents:
    """The events of a block, each at an item, before sequences are assigned."""

    tables: StreamTables[Any]
    changed: list[tuple[int, TableSchema, bool]] = field(default_factory=list)
    """(item, the version that begins there, whether rows are read again)."""
    stops: dict[int, tuple[int, TableStop]] = field(default_factory=dict)
    """The stops by table id: from this item on the table is not captured."""
    truncates: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    """(item, table ids)."""
    signals: list[tuple[int, int, SignalRow]] = field(default_factory=list)
    """(item, place among the item's changes, row of the signal table)."""

    def stop(self, table_id: int, index: int, error: TableStop) -> None:
        self.stops[table_id] = (index, error)
        self.tables.stop(table_id)

    def truncated(self, index: int, table_ids: Sequence[int]) -> list[int]:
        """The captured ones, at that item."""
        return [i for i in table_ids if (index < self.stops[i][0] if i in self.stops else self.tables.is_captured(i))]

    def count_truncates(self, counts: Places) -> None:
        for index, table_ids in self.truncates:
            counts[index] = len(self.truncated(index, table_ids))

    def count_signals(self, counts: Places) -> None:
        """Counts these rows, which are no others where the table is not copied."""
        for index, place, _ in self.signals:
            counts[index] = max(int(counts[index]), place + 1)

    def changes(
        self,
        block: Block[Any],
        mark_of: Places,
        counts: Places,
        next_seq: int,
        *,
        rows: list[TableRows],
        leaves: Sequence[tuple[int, int]] = (),
    ) -> Changes:
        """`mark_of` and `counts`: of each item, the place of its transaction's mark and the number of its changes."""
        totals = np.bincount(mark_of, weights=counts, minlength=len(block.marks)).astype(np.int64)
        begins = next_seq + np.cumsum(totals) - totals
        took = np.flatnonzero(totals)
        marks = [block.marks[i] for i in took.tolist()]
        times = [mark.commit_ts for mark in marks]
        return Changes(
            tables=rows,
            events=self._in_order(next_seq + np.cumsum(counts) - counts, lambda index: block.marks[mark_of[index]]),
            last_seq=Seq(next_seq + int(counts.sum()) - 1),
            transactions=_starts(marks, begins[took].tolist()),
            commit_time=(min(times), max(times)) if times else None,
            leaves=[(root, leaf) for root, leaf in leaves if self.tables.is_captured(root)],
        )

    def _in_order(self, firsts: Places, mark: Callable[[int], Mark]) -> list[Event]:
        """The events in log order. `firsts`: the first sequence of each item."""
        events: list[tuple[int, Event]] = []
        for index, schema, reread in self.changed:
            stop = self.stops.get(schema.table_id)
            if stop is not None and stop[0] <= index:
                continue  # a value before the change has stopped the table: nothing of the new version is captured
            events.append((index, SchemaChanged(table=schema, seq=Seq(int(firsts[index]) - 1), reread=reread)))
        for index, table_ids in self.truncates:
            of = mark(index)
            known = {"transaction": f"{of.prefix}{of.number}", "commit_time": of.commit_ts}
            for seq, table_id in enumerate(self.truncated(index, table_ids), int(firsts[index])):
                events.append((index, Truncated.model_validate({"table_id": table_id, "seq": seq, **known})))
        for index, place, row in self.signals:
            events.append((index, row.event(Seq(int(firsts[index]) + place))))
        for table_id, (index, error) in self.stops.items():
            events.append((index, stopping(table_id, Seq(int(firsts[index]) - 1), error)))
        return [event for _, event in sorted(events, key=lambda e: e[0])]


def _starts(marks: list[Mark], seqs: list[int]) -> list[TransactionStart]:
    """The start of each transaction, by its other id as well."""
    prefixes, numbers = (map(itemgetter(place), marks) for place in (1, 2))
    # Without a call of Python's for each.
    starts = list(map(partial(tuple.__new__, TransactionStart), zip(prefixes, numbers, seqs, strict=True)))
    others = [(i, mark.also) for i, mark in enumerate(marks) if mark.also is not None]
    for i, also in reversed(others):
        starts.insert(i + 1, TransactionStart(*also, seqs[i]))
    return starts


def first_failing(count: int, decode: Callable[[slice], object]) -> int:
    """The first of so many rows that cannot be decoded, although not all together can. `decode` raises `TableStop` if
    one of its part cannot."""
    good, bad = 0, count  # the first `good` can, the first `bad` cannot
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            decode(slice(good, middle))
            good = middle
        except TableStop:
            bad = middle
    return good
