"""A log of what a database could write, and of a snapshot that reads it in ranges, for targets under test."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from typing_extensions import override

from support.conforming import LogOf
from support.random_log import KeyOf
from support.states import chunk as made_chunk
from support.states import log_state
from support.states import snapshot as planned
from tailrace.batch.rule import UNCHANGED, Change
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LoggedChunk, LoggedFinish, LoggedSegment, LogState
from tailrace.databases.wire import WireForm, WireRows
from tailrace.targets.api import WrittenChunk
from tailrace.targets.postgresql.binary import encodings, tuples


@dataclass(frozen=True)
class ReadRange:
    """A range that was read and is not registered yet."""

    number: int
    keys: range
    written: WrittenChunk | None
    replay_point: Seq
    layout: str
    schema_version: int


class ReadRanges(LogOf):
    """What a database could write, and a snapshot that reads it in three ranges."""

    source: dict[int, tuple[object, ...]]

    @property
    @override
    def state(self) -> LogState:
        plan = SnapshotPlanned(snapshot_id="s", reason="repair", tables=(self.schema.table_id,))
        return log_state(self.table, number=self.record, last_seq=self.seq, snapshots={"s": planned(plan, record=2)})

    def change(self, rows: int, *, lacking: bool = False) -> None:
        """`lacking`: changes of rows do not carry their texts."""
        self.record, made = RecordNumber(self.record + 1), list[Change[KeyOf]]()
        for _ in range(rows):
            key = self.rnd.randrange(40)
            row = self._row((key,))
            if key in self.source and self.rnd.random() < 0.4:
                made.append(self._add("D", (key,)))
                del self.source[key]
                continue
            before = self.source.get(key) if lacking else None
            kept = [before is not None and column.type == "string" for column in self.schema.columns]
            carried = tuple(UNCHANGED if keep else value for keep, value in zip(kept, row, strict=True))
            made.append(self._add("U" if key in self.source else "I", (key,), carried))
            self.source[key] = tuple(
                before[at] if before is not None and kept[at] else value for at, value in enumerate(row)
            )
        self._update(
            segments=self.table.segments.append(LoggedSegment(record=self.record, segment=self._write(made, False)))
        )

    def read(self, number: int, keys: range) -> None:
        self.register(self.look(number, keys))

    def look(self, number: int, keys: range) -> ReadRange:
        written = self.put(number, self.found(keys))
        return ReadRange(number, keys, written, Seq(self.seq + 1), self.form, self.schema.version)

    def found(self, keys: range) -> pa.Table:
        """The rows that a reader finds in a range."""
        rows = [self.source[key] for key in keys if key in self.source]
        return pa.table(self._columns(rows), names=[column.name for column in self.schema.columns])

    def register(self, read: ReadRange) -> None:
        written, keys = read.written, read.keys
        registered = made_chunk(
            self.schema.table_id, read.number, path=written and written.path, rows=written.rows if written else 0,
            layout=read.layout, size=written.size if written else 0, schema_version=read.schema_version,
            replay_point=read.replay_point, lower=(str(keys.start),), upper=(str(keys.stop),),
        )  # fmt: skip
        self._update(chunks=(*self.table.chunks, LoggedChunk(record=self.record, chunk=registered)))

    def finish(self) -> None:
        chunks = tuple(self.table.chunks)
        point = min(logged.chunk.replay_point for logged in chunks)
        self.record = RecordNumber(self.record + 1)
        ended = LoggedFinish(record=self.record, snapshot_id="s", complete=True, replay_point=point, chunks=chunks)
        self._update(finishes=(ended,))


class SentRanges(ReadRanges):
    """The same, out of a database of the target's own product."""

    @override
    def put(self, number: int, rows: pa.Table) -> WrittenChunk | None:
        writer = self.writer.wire
        assert writer is not None
        return writer.write("s", number, sent(rows, writer.form))


def sent(rows: pa.Table, form: WireForm) -> list[WireRows]:
    """The rows as PostgreSQL's server sends them."""
    if not rows.num_rows:
        return []
    ordered = rows.select([name for name, _ in form.columns])
    written = encodings(form.columns, ordered.schema)
    assert written is not None
    parts = [tuples(ordered.slice(at, 1), written) for at in range(ordered.num_rows)]
    (keys,) = rows.select([rows.column_names[0]]).combine_chunks().to_batches()
    return [WireRows(b"".join(parts), np.cumsum([len(part) for part in parts]), keys)]
