"""Decodes a block by column: all row events of one kind and one form together, then put in sequence order.

Called with blocks by the assembler (`Decoding`). Out come one Arrow table per table and schema version, the events that
have a place among the rows (TRUNCATE, schema change, table stopped), and each transaction's first sequence. Rows of
tables that are not captured, or stopped, take no sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.changelog.records import Event, SchemaChanged, Seq, Truncated, with_nulled
from tailrace.changelog.segments import segment_schema
from tailrace.changelog.transactions import TransactionStart
from tailrace.errors import LogIncomplete, TableStop
from tailrace.sources.api import Changes, TableRows
from tailrace.sources.mysql.log.blocks import TRUNCATE, EventBlock, Mark
from tailrace.sources.mysql.log.columns import Buffer
from tailrace.sources.mysql.log.events import Kind
from tailrace.sources.mysql.log.rows import Part, RowForm, Span
from tailrace.sources.mysql.log.rows import decode as decode_rows
from tailrace.sources.mysql.log.walk import Places
from tailrace.sources.mysql.visibility import XA
from tailrace.sources.stops import stopping
from tailrace.types import arrow_type


@dataclass(frozen=True)
class Evolved:
    """The table map meant a new schema version."""

    form: RowForm
    reread: bool


class Forms(Protocol):
    """`tables.Tables`."""

    def form_of(self, form: bytes) -> RowForm | Evolved | None:
        """None: the table is not captured, or stopped. `TableStop` when the form cannot be followed; the table counts
        as stopped from then on."""

    def number(self, form: bytes) -> int:
        """The table's, captured or not."""

    def stop(self, table_id: int) -> None:
        """The table's later changes are not captured."""

    def is_captured(self, table_id: int) -> bool:
        """Captured and not stopped."""


@dataclass
class _Pass:
    """The state of a block before sequences are assigned."""

    buffer: Buffer
    starts: Places
    ends: Places
    spans: list[Span] = field(default_factory=list)
    schema_events: list[tuple[int, Evolved]] = field(default_factory=list)
    stops: dict[int, tuple[int, TableStop]] = field(default_factory=dict)
    """The stops by table id: from this event on the table is not captured."""
    truncates: list[tuple[int, int]] = field(default_factory=list)
    """(event, table id)."""


class Decoder:
    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    def decode(self, block: EventBlock, next_seq: int) -> Changes:
        now = self._prepare(block)
        while True:
            counts = np.zeros(len(block.events), np.int64)
            failed, walked = self._attempt(now, counts)
            if failed is None:
                break
            table_id, index, error = failed
            now.stops[table_id] = (index, error)
            self._forms.stop(table_id)
        for index, table_id in now.truncates:
            counts[index] = self._counts(now, index, table_id)
        firsts = next_seq + np.cumsum(counts) - counts
        mark_of = _mark_of(block)
        times = np.array([m.commit_ts for m in block.marks], np.int64)[mark_of]
        tables = [_assembled(form, parts, firsts, times) for form, parts in walked if parts]
        totals = np.bincount(mark_of, weights=counts, minlength=len(block.marks)).astype(np.int64)
        return self._changes(block, now, tables, (counts, totals), next_seq)

    def _changes(
        self, block: EventBlock, now: _Pass, tables: list[TableRows], changed: tuple[Places, Places], next_seq: int
    ) -> Changes:
        """`changed`: how many changes each event brings, and each transaction."""
        counts, totals = changed
        begins = next_seq + np.cumsum(totals) - totals
        took = np.flatnonzero(totals)
        chosen = [block.marks[i] for i in took.tolist()]
        starts = _starts(chosen, begins[took].tolist())
        stamps = [m.commit_ts for m in chosen]
        return Changes(
            tables=tables,
            events=self._events(block, now, next_seq + np.cumsum(counts) - counts),
            last_seq=Seq(next_seq + int(counts.sum()) - 1),
            transactions=starts,
            commit_time=(min(stamps), max(stamps)) if stamps else None,
            leaves=[],
        )

    def _prepare(self, block: EventBlock) -> _Pass:
        """Which events belong to which table and form, in runs: a form that comes back is resolved again."""
        bodies = [event.body for event in block.events]
        lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
        ends = np.cumsum(lengths)
        now = _Pass(Buffer.of(bodies), ends - lengths, ends)
        resolved: dict[bytes, RowForm | None] = {}
        for kind, form, places in _groups(block):
            first = int(places[0])
            if kind == TRUNCATE:
                now.truncates += [(index, self._forms.number(form)) for index in places.tolist()]
                continue
            if form not in resolved:
                resolved[form] = self._resolve(now, form, first)
            found = resolved[form]
            if found is not None and not self._refused(now, found, kind, first):
                now.spans.append(Span(found, kind, places, now.starts[places], now.ends[places]))
        return now

    def _resolve(self, now: _Pass, form: bytes, index: int) -> RowForm | None:
        try:
            found = self._forms.form_of(form)
        except TableStop as error:
            now.stops[self._forms.number(form)] = (index, error)
            return None
        if isinstance(found, Evolved):
            now.schema_events.append((index, found))
            return found.form
        return found

    def _refused(self, now: _Pass, form: RowForm, kind: int, index: int) -> bool:
        if kind != Kind.PARTIAL_UPDATE_ROWS:
            return False
        name = form.schema.name
        what = f"a change of {name} has parts of JSON documents only: a session has set binlog_row_value_options"
        stop = LogIncomplete(name, what, "Set binlog_row_value_options = '' there and resync the table.")
        table_id = form.schema.table_id
        if table_id not in now.stops or index < now.stops[table_id][0]:
            now.stops[table_id] = (index, stop)
        self._forms.stop(table_id)
        return True

    def _attempt(
        self, now: _Pass, counts: Places
    ) -> tuple[tuple[int, int, TableStop] | None, list[tuple[RowForm, list[Part]]]]:
        """Decode and count; or name the table and event that cannot be taken over."""
        walked: dict[tuple[int, int], tuple[RowForm, list[Part]]] = {}
        for span in now.spans:
            schema = span.form.schema
            kept = _before(span, now.stops.get(schema.table_id, (len(counts),))[0])
            if not len(kept.event):
                continue
            try:
                parts, taken = decode_rows(now.buffer, kept)
            except TableStop as error:
                return (schema.table_id, _first_failing(now.buffer, kept), error), []
            counts[kept.event] = taken
            walked.setdefault((schema.table_id, schema.version), (span.form, []))[1].extend(parts)
        return None, list(walked.values())

    def _counts(self, now: _Pass, index: int, table_id: int) -> bool:
        if table_id in now.stops:
            return index < now.stops[table_id][0]
        return self._forms.is_captured(table_id)

    def _events(self, block: EventBlock, now: _Pass, firsts: Places) -> list[Event]:
        """The events in log order."""
        events: list[tuple[int, Event]] = []
        for index, evolved in now.schema_events:
            schema = evolved.form.schema
            stop = now.stops.get(schema.table_id)
            if stop is None or stop[0] > index:
                events.append(
                    (index, SchemaChanged(table=schema, seq=Seq(int(firsts[index]) - 1), reread=evolved.reread))
                )
        for index, table_id in now.truncates:
            if self._counts(now, index, table_id):
                mark = next(m for m in reversed(block.marks) if m.at <= index)
                events.append((index, _truncated(table_id, Seq(int(firsts[index])), mark.prefix, mark.number)))
        for table_id, (index, error) in now.stops.items():
            events.append((index, stopping(table_id, Seq(int(firsts[index]) - 1), error)))
        return [event for _, event in sorted(events, key=lambda e: e[0])]


def _before(span: Span, limit: int) -> Span:
    kept = span.event < limit
    if kept.all():
        return span
    return Span(span.form, span.kind, span.event[kept], span.starts[kept], span.ends[kept])


def _first_failing(buffer: Buffer, span: Span) -> int:
    """The first event that cannot be decoded: the first `good` can, the first `bad` cannot."""
    good, bad = 0, len(span.event)
    while bad - good > 1:
        middle = (good + bad) // 2
        part = slice(good, middle)
        half = Span(span.form, span.kind, span.event[part], span.starts[part], span.ends[part])
        try:
            decode_rows(buffer, half)
            good = middle
        except TableStop:
            bad = middle
    return int(span.event[good])


def _groups(block: EventBlock) -> Iterator[tuple[int, bytes, Places]]:
    """Kind, form and events, in the order of their first event."""
    keys = [event[:2] for event in block.events]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    number_of = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
    order = np.argsort(number_of, kind="stable")
    ends = np.cumsum(np.bincount(number_of, minlength=len(numbers))).tolist()
    for (kind, form), first, behind in zip(numbers, [0, *ends], ends, strict=False):
        yield kind, form, order[first:behind]


def _mark_of(block: EventBlock) -> Places:
    """The place of its transaction's mark, for each event."""
    marks = np.array([m.at for m in block.marks], np.int64)
    return np.searchsorted(marks, np.arange(len(block.events)), side="right") - 1


def _assembled(form: RowForm, parts: list[Part], firsts: Places, times: Places) -> TableRows:
    """The parts one after the other, then in sequence order."""
    schema = form.schema
    event = np.concatenate([p.event for p in parts])
    seq = np.concatenate([firsts[p.event] + p.ordinal for p in parts])
    operations = pa.array(np.repeat([p.op for p in parts], [len(p.event) for p in parts]), pa.string())
    arrays: list[pa.Array] = [
        pa.array(seq),
        operations,
        pa.array(times[event]).cast(pa.timestamp("us", tz="UTC")),
        pa.nulls(len(seq), pa.list_(pa.int16())),
        _old_keys(form, parts),
    ]
    arrays += [pa.concat_arrays([p.columns[i] for p in parts]) for i in range(len(schema.columns))]
    rows = pa.Table.from_arrays(arrays, schema=segment_schema(schema))
    if len(parts) > 1:
        rows = rows.take(pa.array(np.argsort(seq, kind="stable")))
    return TableRows(schema, rows, with_nulled((), [one for part in parts for one in part.nulled]))


def _old_keys(form: RowForm, parts: list[Part]) -> pa.Array:
    keys = form.schema.key_columns
    fields = [pa.field(c.name, arrow_type(c.type)) for c in keys]
    pieces = []
    for part in parts:
        if part.old_key is None:
            pieces.append(pa.nulls(len(part.event), pa.struct(fields)))
        else:
            pieces.append(pa.StructArray.from_arrays(part.old_key, fields=fields))
    return pa.concat_arrays(pieces)


def _starts(marks: list[Mark], seqs: list[int]) -> list[TransactionStart]:
    """The start of each transaction, followed by the second id of an XA COMMIT."""
    prefixes, numbers = (map(itemgetter(place), marks) for place in (1, 2))
    # Without a call of Python's for each.
    starts = list(map(partial(tuple.__new__, TransactionStart), zip(prefixes, numbers, seqs, strict=True)))
    second = [(i, mark.xa) for i, mark in enumerate(marks) if mark.xa is not None]
    for i, number in reversed(second):
        starts.insert(i + 1, TransactionStart(XA, number, seqs[i]))
    return starts


def _truncated(table_id: int, seq: Seq, prefix: str, number: int) -> Truncated:
    return Truncated(table_id=table_id, seq=seq, transaction=f"{prefix}{number}")
