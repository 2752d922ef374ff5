"""Random change logs of one table: the same history as segments for the engine and as `Change`s for the rule.

The histories need not be possible in a database (an update without a row, a move from nowhere): engine and rule must
agree on those, too.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from support.folder_lake import FolderAccess, layout_of
from support.segment_files import write_bundle
from support.states import chunk, log_state, logged, table_log
from tailrace.batch.rule import UNCHANGED, Batch, Change, Chunk, Finish, Op
from tailrace.changelog.records import Segment
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import (
    LoggedChunk,
    LoggedFinish,
    LoggedSegment,
    LoggedTruncate,
    LogState,
    TableLog,
)
from tailrace.changelog.types import arrow_type
from tailrace.targets.api import WrittenChunk
from tailrace.targets.lake.files.write import write_file

KeyOf = tuple[object, ...]
TABLE = 7


def first_schema(composite: bool) -> TableSchema:
    region = [Column(name="region", id=4, source_type="text", type="string", key=0)] if composite else []
    return TableSchema(
        table_id=TABLE, schema_name="public", table_name="t", version=1,
        columns=(
            Column(name="id", id=1, source_type="bigint", type="int64", key=len(region)),
            Column(name="t", id=2, source_type="text", type="string"),
            *region,
            Column(name="u", id=3, source_type="float8", type="float64"),
        ),
    )  # fmt: skip


def evolved(schema: TableSchema) -> TableSchema:
    """One more column, and another name for an old one."""
    renamed = [c.model_copy(update={"name": "title"}) if c.name == "t" else c for c in schema.columns]
    added = Column(name=f"added_{schema.version}", id=90 + schema.version, source_type="text", type="string")
    return schema.model_copy(update={"version": schema.version + 1, "columns": (*renamed, added)})


@dataclass
class RandomLog:
    """Grows record by record; knows what the log says (`state`) and what the rule needs (`batch`)."""

    rnd: random.Random
    folder: Path
    schema: TableSchema
    keys: list[KeyOf]
    seq: Seq = Seq(0)
    record: RecordNumber = RecordNumber(0)
    history: list[tuple[Change[KeyOf], int]] = field(default_factory=list)
    """Changes with the schema version that they were written under."""
    table: TableLog = field(init=False)
    chunks: list[tuple[ChunkRegistered, Chunk[KeyOf]]] = field(default_factory=list)
    finishes: list[Finish[KeyOf]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = table_log(self.schema, self.record)
        self.access: FolderAccess = FolderAccess(str(self.folder))

    @property
    def state(self) -> LogState:
        return log_state(self.table, number=self.record, last_seq=self.seq)

    def grow(self) -> None:
        """One more record: changes, perhaps a TRUNCATE, a schema change, chunks, a finished snapshot."""
        self.record = RecordNumber(self.record + 1)
        if self.rnd.random() < 0.1 and self.schema.version < 3:
            self._evolve()
        for _ in range(self.rnd.randrange(3)):
            self._segment(self.rnd.randrange(1, 12), bundled=self.rnd.random() < 0.4)
            if self.rnd.random() < 0.1:
                self._truncate()
        for _ in range(self.rnd.choice((0, 0, 0, 1, 1, 2))):
            self._chunk()
        if self.rnd.random() < 0.25:
            self._finish()

    def grow_by_changes(self, rows: int) -> None:
        """One more record with a segment or two of their own files, and nothing else."""
        self.record = RecordNumber(self.record + 1)
        self._segment(rows)

    def _update(self, **changes: object) -> None:
        self.table = self.table.model_copy(update=changes)

    def _evolve(self) -> None:
        self.schema = evolved(self.schema)
        self._update(schemas=(*self.table.schemas, logged(self.schema, self.record, self.seq)))

    def _value(self, column: Column, key: KeyOf) -> object:
        if column.key is not None:
            return key[column.key]
        if self.rnd.random() < 0.15:
            return None
        return self.rnd.randrange(1000) / 4 if column.type == "float64" else f"{column.name}-{self.rnd.randrange(1000)}"

    def _row(self, key: KeyOf) -> tuple[object, ...]:
        return tuple(self._value(column, key) for column in self.schema.columns)

    def _carried(self, key: KeyOf) -> tuple[object, ...]:
        keep = self.rnd.random() < 0.5
        return tuple(
            UNCHANGED if keep and column.key is None and self.rnd.random() < 0.6 else value
            for column, value in zip(self.schema.columns, self._row(key), strict=True)
        )

    def _add(self, op: Op, key: KeyOf | None, values: tuple[object, ...] = ()) -> Change[KeyOf]:
        self.seq = Seq(self.seq + 1)
        change = Change(self.seq, op, key, values)
        self.history.append((change, self.schema.version))
        return change

    def _changes(self, count: int) -> list[Change[KeyOf]]:
        made: list[Change[KeyOf]] = []
        while len(made) < count:
            key, kind = self.rnd.choice(self.keys), self.rnd.random()
            if kind < 0.25:
                # Behind a row filter an insert may lack what the log did not carry (`selection.rows`).
                made.append(self._add("I", key, self._carried(key) if kind < 0.08 else self._row(key)))
            elif kind < 0.65:
                made.append(self._add("U", key, self._carried(key)))
            elif kind < 0.8:
                made.append(self._add("D", key))
            else:
                other = self.rnd.choice(self.keys)
                made.append(self._add("D", other))
                made.append(self._add("M", key, self._carried(key)))
            self.seq = Seq(self.seq + (self.rnd.random() < 0.2))  # another table's row
        return made

    def _segment(self, count: int, bundled: bool = False) -> None:
        made = self._changes(count)
        cut = self.rnd.randrange(len(made) + 1) if self.rnd.random() < 0.3 else 0
        for part in (made[:cut], made[cut:]):
            if part:
                logged = LoggedSegment(record=self.record, segment=self._write(part, bundled))
                self._update(segments=self.table.segments.append(logged))

    def _columns(self, rows: Sequence[Sequence[object]]) -> list[pa.Array]:
        types = [arrow_type(column.type) for column in self.schema.columns]
        return [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]

    def _write(self, changes: Sequence[Change[KeyOf]], bundled: bool) -> Segment:
        names = [column.name for column in self.schema.columns]
        key_places = {at: column.key for at, column in enumerate(self.schema.columns) if column.key is not None}
        rows, unchanged = [], []
        for change in changes:
            assert change.key is not None
            values = change.values or tuple(
                change.key[key_places[at]] if at in key_places else None for at in range(len(names))
            )
            rows.append([None if value is UNCHANGED else value for value in values])
            unchanged.append([at for at, value in enumerate(values) if value is UNCHANGED] or None)
        columns = self._columns(rows)
        table = pa.table(
            [
                pa.array([change.seq for change in changes], pa.int64()),
                pa.array([change.op for change in changes]),
                pa.array([self.moment(change.seq) for change in changes], pa.timestamp("us", "UTC")),
                pa.array(unchanged, pa.list_(pa.int16())),
                *columns,
            ],
            names=["_seq", "_op", "_commit_ts", "_unchanged", *names],
        )
        path = f"segments/{changes[0].seq}.parquet"
        if bundled:
            # Processes remember bundles by their names.
            path = f"segments/bundles/{changes[0].seq}-{changes[-1].seq}-{uuid4().hex[:16]}.arrow"
        file = self.folder / path
        file.parent.mkdir(exist_ok=True, parents=True)
        if bundled:
            write_bundle(file, [(TABLE + 1, changes[0].seq, table.slice(0, 1)), (TABLE, changes[0].seq, table)])
        else:
            pq.write_table(table, file, row_group_size=self.rnd.choice((2, 100)))
        return Segment(
            table_id=TABLE, schema_version=self.schema.version, path=path, rows=len(changes), size=file.stat().st_size,
            first_seq=Seq(changes[0].seq), last_seq=Seq(changes[-1].seq), unchanged=any(unchanged),
            moves=any(change.op == "M" for change in changes),
        )  # fmt: skip

    def moment(self, seq: int) -> int:
        """The time of the commit with this change, microseconds since the Unix epoch."""
        return seq

    def _truncate(self) -> None:
        self._add("T", None)
        logged = LoggedTruncate(record=self.record, seq=self.seq, transaction="1", written_at=0)
        self._update(truncates=self.table.truncates.append(logged))

    def _chunk(self) -> None:
        found = [key for key in self._some_range() if self.rnd.random() < 0.7]
        asked = [key for key in self.keys if self.rnd.random() < 0.3] if self.rnd.random() < 0.3 else []
        rows = {key: self._row(key) for key in (found if not asked else [key for key in asked if key in found])}
        number = len(self.chunks)
        names = [column.name for column in self.schema.columns]
        written = self.put(number, pa.table(self._columns(list(rows.values())), names=names))
        point = Seq(self.rnd.randint(max(1, self.seq - 30), self.seq + 1))
        registered = chunk(
            TABLE, number, keys=tuple(tuple(map(str, key)) for key in asked) or None, path=written and written.path,
            rows=len(rows), size=written.size if written else 0, schema_version=self.schema.version,
            replay_point=point, layout=self.form,
        )  # fmt: skip
        self.chunks.append((registered, Chunk(self.record, point, rows, frozenset(asked))))
        self._update(chunks=(*self.table.chunks, LoggedChunk(record=self.record, chunk=registered)))

    def _some_range(self) -> list[KeyOf]:
        """All keys, or those of one range, as most chunks have."""
        if self.rnd.random() < 0.5:
            return self.keys
        ends = sorted(self.rnd.choices(range(len(self.keys) + 1), k=2))
        return sorted(self.keys)[slice(*ends)]

    @property
    def form(self) -> str:
        """The form for which chunks are written."""
        return "form"

    def put(self, number: int, rows: pa.Table) -> WrittenChunk | None:
        """Write a chunk where the target takes it."""
        path = f"file://{self.folder}/data/chunk-{number}.parquet"
        written = write_file(self.access, path, layout_of(self.schema), [rows])
        return None if written is None else WrittenChunk(path, written.file.rows, written.file.size)

    def _finish(self) -> None:
        used = [chunk for chunk in self.table.chunks if self.rnd.random() < 0.6 and chunk.chunk.keys is None]
        if used:
            point = min(chunk.chunk.replay_point for chunk in used)
            logged = LoggedFinish(record=self.record, snapshot_id="s", complete=True, replay_point=point,
                                  chunks=tuple(used))  # fmt: skip
            self._update(finishes=(*self.table.finishes, logged))
            keys = frozenset(key for chunk in used for key in self.chunks[chunk.chunk.chunk][1].rows)
            self.finishes.append(Finish(self.record, point, keys))

    def batch(self, repair: bool) -> Batch[KeyOf]:
        """All that is logged, in the newest schema."""
        changes = [self._promoted(change, version) for change, version in self.history]
        chunks = [
            replace(chunk, rows={k: self._padded(row, registered.schema_version) for k, row in chunk.rows.items()})
            for registered, chunk in self.chunks
        ]
        return Batch(self.record, self.seq, changes, chunks, self.finishes, repair)

    def _padded(self, values: tuple[object, ...], version: int, fill: object = None) -> tuple[object, ...]:
        return (*values, *[fill] * (self.schema.version - version)) if values else values

    def _promoted(self, change: Change[KeyOf], version: int) -> Change[KeyOf]:
        fill = UNCHANGED if change.op == "U" else None
        return replace(change, values=self._padded(change.values, version, fill))
