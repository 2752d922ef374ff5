"""Decodes a block by column: all row events of one kind and one form together, then put in sequence order.

Called with blocks by the assembler (`Decoding`). Out come one Arrow table per table and schema version, the events that
have a place among the rows (TRUNCATE, schema change, table stopped), and each transaction's first sequence. Rows of
tables that are not captured, or stopped, take no sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tailrace.changelog.records.terms import with_nulled
from tailrace.changelog.segments import segment_schema
from tailrace.changelog.types import arrow_type
from tailrace.errors import LogIncomplete, TableGone, TableStop
from tailrace.sources.api import Changes, TableRows
from tailrace.sources.log.decode import BlockEvents, Evolved, first_failing
from tailrace.sources.mysql.log.blocks import TRUNCATE, UNCERTAIN, EventBlock
from tailrace.sources.mysql.log.columns import Buffer
from tailrace.sources.mysql.log.rows import INSERTS, ROW_IMAGE_FIX, Part, RowForm, Span
from tailrace.sources.mysql.log.rows import decode as decode_rows
from tailrace.sources.mysql.log.signal_rows import SignalRows
from tailrace.sources.mysql.log.tables import CapturedTables
from tailrace.sources.mysql.log.walk import Flags, Places


@dataclass
class _Pass(BlockEvents):
    """The state of a block before sequences are assigned."""

    buffer: Buffer
    starts: Places
    ends: Places
    spans: list[Span] = field(default_factory=list)
    alone: dict[int, bool | None] = field(default_factory=dict)
    """Answers of `CapturedTables.has_one_unique_index`: one look for each table of the block."""


class Decoder:
    def __init__(self, tables: CapturedTables, signals: SignalRows | None = None) -> None:
        """`signals`: reads the rows of the signal table, if there is one."""
        self._tables = tables
        self._signals = signals
        self._unknown = set[int]()

    def take_unknown(self) -> set[int]:
        """The tables with rows so far of which only the keys are known, and which have nothing but keys: no row lacks
        a value, by which it would be read again."""
        unknown, self._unknown = self._unknown, set()
        return unknown

    def decode(self, block: EventBlock, next_seq: int) -> Changes:
        now, counts, walked = self._prepare(block), np.zeros(len(block.items), np.int64), None
        while walked is None:
            walked = self._attempt(now, counts)
        now.count_truncates(counts)
        now.count_signals(counts)
        firsts = next_seq + np.cumsum(counts) - counts
        mark_of = block.mark_of()
        times = np.array([m.commit_ts for m in block.marks], np.int64)[mark_of]
        rows = [_assembled(form, parts, firsts, times) for form, parts in walked if parts]
        return now.changes(block, mark_of, counts, next_seq, rows=rows)

    def _prepare(self, block: EventBlock) -> _Pass:
        """Which events belong to which table and form, in runs: a form that comes back is resolved again."""
        bodies = [event.body for event in block.items]
        lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
        ends = np.cumsum(lengths)
        now = _Pass(Buffer.of(bodies), ends - lengths, ends, tables=self._tables)
        resolved: dict[bytes, RowForm | None] = {}
        for kind, form, places in _groups(block):
            first = int(places[0])
            if kind == TRUNCATE:
                now.truncates += [(index, [self._tables.number(form)]) for index in places.tolist()]
                continue
            if self._signals is not None and kind % UNCERTAIN in INSERTS and self._tables.has_signals(form):
                self._read_signals(now, self._signals, form, kind % UNCERTAIN, places)
            if form not in resolved:
                resolved[form] = self._resolve(now, form, first)
            found = resolved[form]
            if found is not None:
                now.spans.append(Span(found, kind, places, now.starts[places], now.ends[places]))
        return now

    def _read_signals(self, now: _Pass, signals: SignalRows, form: bytes, kind: int, places: Places) -> None:
        described = self._tables.described(form)
        for index in places.tolist():
            found = signals.of(now.buffer, described, kind, int(now.starts[index]), int(now.ends[index]))
            now.signals += [(index, place, row) for place, row in found]

    def _resolve(self, now: _Pass, form: bytes, index: int) -> RowForm | None:
        try:
            found = self._tables.form_of(form)
        except TableStop as error:
            now.stops[self._tables.number(form)] = (index, error)
            return None
        if isinstance(found, Evolved):
            now.changed.append((index, found.form.schema, found.reread))
            return found.form
        return found

    def _attempt(self, now: _Pass, counts: Places) -> list[tuple[RowForm, list[Part]]] | None:
        """Decode and count; None: one more table is stopped, at the event that cannot be taken over."""
        counts[:] = 0
        walked: dict[tuple[int, int], tuple[RowForm, list[Part]]] = {}
        for span in now.spans:
            schema = span.form.schema
            stop = now.stops.get(schema.table_id)
            kept = span if stop is None else _part(span, span.event < stop[0])
            if not len(kept.event):
                continue
            try:
                parts, taken = decode_rows(now.buffer, kept)
            except TableStop as error:
                now.stop(schema.table_id, _failing(now.buffer, kept), error)
                return None
            doubtful = [int(part.event.min()) for part in parts if part.may_have_moved]
            if doubtful and not self._is_alone(now, schema.table_id):
                now.stop(schema.table_id, min(doubtful), _may_have_moved(schema.name, now.alone[schema.table_id]))
                return None
            if span.kind >= UNCERTAIN and all(column.key is not None for column in schema.columns):
                self._unknown.add(schema.table_id)
            counts[kept.event] = taken
            walked.setdefault((schema.table_id, schema.version), (span.form, []))[1].extend(parts)
        return list(walked.values())

    def _is_alone(self, now: _Pass, table_id: int) -> bool | None:
        if table_id not in now.alone:
            now.alone[table_id] = self._tables.has_one_unique_index(table_id)
        return now.alone[table_id]


def _may_have_moved(table: str, alone: bool | None) -> TableStop:
    what = f"a change of {table} came without its new key, and may be a REPLACE by another unique index"
    if alone is None:
        what += "; the table is gone, so its indexes cannot be looked at"
        return TableGone(
            table, what, "If it was renamed, it is captured under its new name, if tables.include selects that."
        )
    return LogIncomplete(table, f"{what}: a session has set binlog_row_image", ROW_IMAGE_FIX)


def _part(span: Span, which: slice | Flags) -> Span:
    return Span(span.form, span.kind, span.event[which], span.starts[which], span.ends[which])


def _failing(buffer: Buffer, span: Span) -> int:
    """The first event that cannot be decoded."""
    return int(span.event[first_failing(len(span.event), lambda part: decode_rows(buffer, _part(span, part)))])


def _groups(block: EventBlock) -> Iterator[tuple[int, bytes, Places]]:
    """Kind, form and events, in the order of their first event."""
    keys = [event[:2] for event in block.items]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    number_of = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
    order = np.argsort(number_of, kind="stable")
    ends = np.cumsum(np.bincount(number_of, minlength=len(numbers))).tolist()
    for (kind, form), first, behind in zip(numbers, [0, *ends], ends, strict=False):
        yield kind, form, order[first:behind]


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
        _unchanged(parts),
        _old_keys(form, parts),
    ]
    arrays += [pa.concat_arrays([p.columns[i] for p in parts]) for i in range(len(schema.columns))]
    rows = pa.Table.from_arrays(arrays, schema=segment_schema(schema))
    if len(parts) > 1:
        rows = rows.take(pa.array(np.argsort(seq, kind="stable")))
    return TableRows(schema, rows, with_nulled((), [one for part in parts for one in part.nulled]))


def _unchanged(parts: list[Part]) -> pa.Array:
    kind = pa.list_(pa.int16())
    return pa.concat_arrays([
        pa.repeat(pa.scalar(list(part.unchanged), kind), len(part.event))
        if part.unchanged
        else pa.nulls(len(part.event), kind)
        for part in parts
    ])  # fmt: skip


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
