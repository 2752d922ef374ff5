"""Decodes a block by column: all rows of one kind and one form are walked together, then put in sequence order.

Called with blocks of raw messages by the assembler (`Decoding`). Out come one Arrow table per table and schema
version, the events that have a place among the rows (TRUNCATE, schema change, table stopped), and each transaction's
first sequence. Rows of tables that are not captured, or stopped, take no sequence.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tailrace.changelog.records.terms import Position, ResumePoint, TableSchema
from tailrace.errors import NoKey, Retry, TableStop
from tailrace.sources.api import Changes, Sink, TableRows
from tailrace.sources.log.decode import BlockEvents, Evolved
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import TAKEN_BACK, FlatBlock, MessageBlock, big_endian_32
from tailrace.sources.postgresql.log.rows import assemble, first_undecodable
from tailrace.sources.postgresql.log.signal_rows import inserted
from tailrace.sources.postgresql.log.tables import CapturedTables
from tailrace.sources.postgresql.log.walk import HEADER, TUPLE, Form, Part, first_without_key, walk
from tailrace.sources.signals import SignalTable

Indexes = NDArray[np.int64]
MANY_RELATIONS = 1000
"""Relation messages kept, besides those of our tables, before some are forgotten."""


_IS_ROW = np.zeros(256, dtype=np.bool_)
_IS_ROW[list(pgoutput.ROWS)] = True
_NAMES_ROOT = _IS_ROW.copy()
_NAMES_ROOT[TAKEN_BACK] = True


@dataclass
class _Pass(BlockEvents):
    """The state of a block before sequences are assigned."""

    flat: FlatBlock
    spans: list[tuple[int, Form, Indexes]] = field(default_factory=list)
    """Row messages of one table and form: (table id, form, message indexes)."""
    leaves: list[tuple[int, int]] = field(default_factory=list)


class Decoder:
    """Keeps the Relation messages in effect between blocks."""

    def __init__(self, tables: CapturedTables, signals: SignalTable | None = None) -> None:
        self._tables = tables
        self._signals = signals
        self._relations: dict[int, pgoutput.Relation] = {}
        self._many = MANY_RELATIONS
        self._forgot = False
        """Relations of tables that are not ours were forgotten: a row of one may come without a description."""
        self._last: int | None = None
        """The relation id, where the last block ended with a Relation message."""

    def decode(self, block: MessageBlock, next_seq: int) -> Changes:
        flat = FlatBlock.of(block)
        now, parts = self._prepare(flat), None
        while parts is None:
            parts = self._attempt(now, next_seq)
        rows, counts = parts
        return now.changes(block, flat.mark_of, counts, next_seq, rows=rows, leaves=now.leaves)

    def _prepare(self, flat: FlatBlock) -> _Pass:
        """Which rows belong to which table and form."""
        now = _Pass(flat, tables=self._tables)
        announced: dict[int, list[tuple[int, pgoutput.Relation]]] = {}
        for index in np.flatnonzero(flat.kinds == pgoutput.RELATION).tolist():
            relation = pgoutput.relation(flat.message(index))
            announced.setdefault(relation.relation_id, []).append((index, relation))
        rows = np.flatnonzero(_IS_ROW[flat.kinds])
        if (flat.starts[rows] + HEADER + TUPLE > flat.ends[rows]).any():
            raise pgoutput.UnknownMessage("a row that is cut off")
        relation_ids = big_endian_32(flat.buffer, flat.starts[rows] + 1)
        for relation_id, found in _grouped(relation_ids, rows):
            self._spans(now, relation_id, found, announced.get(relation_id, []))
        now.leaves = self._leaves(flat, announced)
        for relation_id, changes in announced.items():
            self._relations[relation_id] = changes[-1][1]
        self._forget()
        now.truncates = [
            (index, pgoutput.truncate(flat.message(index)).relation_ids)
            for index in np.flatnonzero(flat.kinds == pgoutput.TRUNCATE).tolist()
        ]
        return now

    def _forget(self) -> None:
        """Relations of tables that are not ours: a source may make and drop tables, or partitions, for years."""
        if len(self._relations) <= self._many:
            return
        kept = {i: r for i, r in self._relations.items() if self._tables.is_known(i) or self._has_signals(r)}
        self._relations, self._many, self._forgot = kept, MANY_RELATIONS + 2 * len(kept), True

    def _has_signals(self, relation: pgoutput.Relation) -> bool:
        return self._signals is not None and self._signals.place == (relation.schema_name, relation.table_name)

    def _leaves(
        self, flat: FlatBlock, announced: dict[int, list[tuple[int, pgoutput.Relation]]]
    ) -> list[tuple[int, int]]:
        """The server describes a partition, too, directly before its first row, which it sends as a row of the root:
        the only word on where a row is stored. (It went there even if the row was rolled back: nothing describes the
        partition again.)"""
        described = {index: relation_id for relation_id, changes in announced.items() for index, _ in changes}
        if self._last is not None:
            described[-1] = self._last
        self._last = described.get(len(flat.starts) - 1)
        followed = [(index + 1, i) for index, i in described.items() if index + 1 < len(flat.starts)]
        rows = [(int.from_bytes(flat.message(at)[1:5], "big"), i) for at, i in followed if _NAMES_ROOT[flat.kinds[at]]]
        return [(root, leaf) for root, leaf in rows if root != leaf]

    def _spans(
        self, now: _Pass, relation_id: int, rows: Indexes, announced: list[tuple[int, pgoutput.Relation]]
    ) -> None:
        known = self._relations.get(relation_id)
        forms = [(-1, known)] if known is not None else []
        for index, relation in announced:
            # The root is described again before each partition's rows: each would be a segment of its own.
            if not forms or relation != forms[-1][1]:
                forms.append((index, relation))
        if not forms or forms[0][0] > rows[0]:
            if self._forgot and not self._tables.is_known(relation_id):
                return
            if self._forgot:  # it became ours without a change that has the server describe it again
                raise Retry(f"a row of relation {relation_id} comes without its description: the log is read again")
            raise pgoutput.UnknownMessage(f"a row of relation {relation_id} that was never described")
        limits = [index for index, _ in forms[1:]] + [len(now.flat.starts)]
        spans = [rows]
        if len(forms) > 1:
            spans = [rows[(rows > begin) & (rows < end)] for (begin, _), end in zip(forms, limits, strict=True)]
        for (_, relation), span in zip(forms, spans, strict=True):
            if len(span) and self._has_signals(relation):  # also behind what stops the table, if it is copied
                now.signals += inserted(now.flat, span)
        for (begin, relation), end, span in zip(forms, limits, spans, strict=True):
            if not len(span):
                continue  # never used: it may stem from an aborted subtransaction
            described = any(begin <= index < end for index, _ in announced)
            try:
                form = self._tables.form_of(relation, int(now.flat.xids[span[-1]]), described)
            except TableStop as error:
                now.stops[relation_id] = (int(span[0]), error)
                return
            if isinstance(form, Evolved):
                now.changed.append((int(span[0]), form.form.schema, form.reread))
                form = form.form
            if form is not None:
                now.spans.append((relation_id, form, span))

    def _attempt(self, now: _Pass, next_seq: int) -> tuple[list[TableRows], Indexes] | None:
        """Walk, count, number and assemble; None: one more table is stopped, at the message whose value cannot be taken
        over."""
        counts = np.zeros(len(now.flat.starts), dtype=np.int64)
        walked: list[tuple[int, Form, list[Part]]] = []
        for table_id, form, span in now.spans:
            limit = now.stops.get(table_id, (len(counts),))[0]
            parts = walk(now.flat, form, span[span < limit])
            for part in parts:
                counts[part.index] += 1
            without = first_without_key(form.schema, parts)
            if without is not None:
                now.stop(table_id, without, _without_key(form.schema))
                return None
            walked.append((table_id, form, parts))
        now.count_truncates(counts)
        now.count_signals(counts)
        firsts = next_seq + np.cumsum(counts) - counts
        tables: list[TableRows] = []
        for table_id, form, parts in walked:
            if not parts:
                continue
            try:
                tables.append(assemble(now.flat, form.schema, parts, firsts, form.sets_null))
            except TableStop as error:
                now.stop(table_id, first_undecodable(form.schema, parts, firsts, form.sets_null), error)
                return None
        return tables, counts


class Decoding:
    """The receiver of the assembler's blocks: decoded, they are passed to the sink."""

    def __init__(self, decoder: Decoder, sink: Sink) -> None:
        self._decoder = decoder
        self._sink = sink

    def rows(self, block: MessageBlock) -> None:
        self._sink.rows(self._decoder.decode(block, self._sink.next_seq))

    def cut(self, position: Position, rows: bool = True) -> None:
        self._sink.cut(ResumePoint(position), rows)


def _grouped(ids: Indexes, rows: Indexes) -> list[tuple[int, Indexes]]:
    """The rows of each id, ascending; often there is one only."""
    if not len(ids):
        return []
    if (ids == ids[0]).all():
        return [(int(ids[0]), rows)]
    order = np.argsort(ids, kind="stable")
    numbers, firsts = np.unique(ids[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(rows[order], firsts[1:]), strict=True))


def _without_key(schema: TableSchema) -> NoKey:
    name = schema.name
    if schema.keyless:
        what = f"a change of {name}, which has no key, came without the whole old row: its replica identity is not FULL"
        return NoKey(name, what, f"Run `ALTER TABLE {name} REPLICA IDENTITY FULL`, or add a primary key.")
    return NoKey(
        name,
        f"a change of {name} came without its key: it was logged under another replica identity",
        f"Give {name} and its partitions the same replica identity (DEFAULT); then its rows are read again.",
    )
