"""The apply loop's surroundings in memory: logs of tables, a target and an engine that fail as told."""

from threading import Barrier
from typing import Any, cast

import pyarrow as pa

from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.batch.slice import TableSlice
from tailrace.changelog.grown import Grown
from tailrace.changelog.records import ChunkRegistered, Column, Origin, Segment, TableSchema
from tailrace.changelog.state import LoggedChunk, LoggedSchema, LoggedSegment, LogState, SegmentList, TableLog
from tailrace.storage.store import NotFound
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.kept import KeptChunks
from tailrace.targets.lake.model import Commit, DataFile, LakeTable

CHUNK = ChunkRegistered(
    snapshot_id="s", table_id=7, chunk=0, lower=None, upper=None, path="file:///c", rows=2, size=1,
    schema_version=1, replay_point=1, high=1,
)  # fmt: skip


def table(table_id: int, *records: int, rows: int = 1, chunk: bool = False) -> TableLog:
    column = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
    schema = TableSchema(table_id=table_id, schema_name="s", table_name=f"t{table_id}", version=1, columns=(column,))
    segments = SegmentList.of(
        LoggedSegment(
            record=r,
            segment=Segment(
                table_id=table_id, schema_version=1, path="p", rows=rows, size=1, first_seq=r, last_seq=r, inserts=rows
            ),
        )
        for r in records
    )
    return TableLog(
        table_id=table_id,
        added_record=1,
        edge=1,
        initial_snapshot=False,
        schemas=(LoggedSchema(record=1, after_seq=0, table=schema),),
        segments=segments,
        chunks=Grown([LoggedChunk(record=2, chunk=CHUNK)] if chunk else ()),
    )


def log(*tables: TableLog, number: int = 9) -> LogState:
    origin = Origin(
        log_id="log", system_identifier="1", timeline=1, database="d", slot="s", publication="p", slot_created=True
    )
    return LogState(number=number, last_seq=number, origin=origin, tables={t.table_id: t for t in tables})


class Target:
    """A `LakeTable` that remembers its commits and fails as told."""

    location = "file:///t"

    def __init__(self, *faults: Exception) -> None:
        self.commits: list[Commit] = []
        self.faults = list(faults)
        self.opened = 0
        self.expired: list[tuple[float, bool]] = []
        self.swept: list[float] = []

    def ensure(self, schema: TableSchema, log_id: str, generation: Generation = FIRST) -> AppliedState:
        self.opened += 1
        return self.commits[-1].applied if self.commits else AppliedState(log_id)

    def refresh(self) -> AppliedState:
        return self.ensure(cast(Any, None), "")

    def files(self) -> list[DataFile]:
        return []

    def commit(self, change: Commit) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.commits.append(change)

    def arrow_schema(self, schema: TableSchema) -> pa.Schema:
        return pa.schema([pa.field("c1", pa.int64())])

    def expire(self, older_than: float, chunks: KeptChunks) -> bool:
        self.expired.append((older_than, chunks.reading))
        return True

    def sweep(self, older_than: float, chunks: KeptChunks) -> int:
        self.swept.append(older_than)
        return 0


class Engine:
    def __init__(self, missing: tuple[ChunkRegistered, ...] = (), fault: Exception | None = None) -> None:
        self.missing = missing
        self.fault = fault or NotFound("file:///c")
        self.slices: list[TableSlice] = []
        self.compacted: list[AppliedState] = []
        self.together: Barrier | None = None

    def build(self, part: TableSlice, target: LakeTable, layout: Layout) -> Commit:
        if set(self.missing) & set(part.chunks):
            raise self.fault
        if self.together is not None:
            self.together.wait(5)
        self.slices.append(part)
        return Commit(AppliedState("log", part.through_seq, part.through_record, frozenset(), 1, part.table_id))

    def lost(self, part: TableSlice) -> tuple[ChunkRegistered, ...]:
        return self.missing

    def compact(self, target: LakeTable, layout: Layout, applied: AppliedState) -> int:
        self.compacted.append(applied)
        return 0


class Journal:
    def __init__(self, state: LogState) -> None:
        self.state = state

    def refresh(self) -> LogState:
        return self.state
