"""The apply loop's surroundings in memory: logs of tables, and targets that fail as told."""

from threading import Barrier
from typing import cast

from typing_extensions import override

from support.origins import origin as make_origin
from tailrace.apply.applier import Applier
from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.slice import TableSlice
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.records import ChunkRegistered, Column, Position, RecordNumber, Segment, Seq, TableSchema
from tailrace.changelog.state import LoggedChunk, LoggedSchema, LoggedSegment, LogState, SegmentList, TableLog
from tailrace.targets.api import ChunkLost, ChunkWriter, NeededChunks

CHUNK = ChunkRegistered(
    snapshot_id="s", table_id=7, chunk=0, lower=None, upper=None, path="file:///c", rows=2, size=1,
    schema_version=1, replay_point=Seq(1), layout="form", high=Position(1),
)  # fmt: skip


def table(table_id: int, *records: int, rows: int = 1, chunk: bool = False) -> TableLog:
    column = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
    schema = TableSchema(table_id=table_id, schema_name="s", table_name=f"t{table_id}", version=1, columns=(column,))
    segments = SegmentList.of(
        LoggedSegment(
            record=RecordNumber(r),
            segment=Segment(
                table_id=table_id,
                schema_version=1,
                path="p",
                rows=rows,
                size=1,
                first_seq=Seq(r),
                last_seq=Seq(r),
                inserts=rows,
            ),
        )
        for r in records
    )
    return TableLog(
        table_id=table_id,
        added_record=RecordNumber(1),
        edge="1",
        initial_snapshot=False,
        schemas=(LoggedSchema(record=RecordNumber(1), after_seq=Seq(0), table=schema),),
        segments=segments,
        chunks=AppendList([LoggedChunk(record=RecordNumber(2), chunk=CHUNK)] if chunk else ()),
    )


def log(*tables: TableLog, number: int = 9) -> LogState:
    origin = make_origin("log")
    return LogState(
        number=RecordNumber(number), last_seq=Seq(number), origin=origin, tables={t.table_id: t for t in tables}
    )


class Work:
    """What several targets do, together."""

    def __init__(self, missing: tuple[ChunkRegistered, ...] = ()) -> None:
        self.missing = missing
        """Chunks whose files are gone."""
        self.slices: list[TableSlice] = []
        self.tidied: list[AppliedState] = []
        self.together: Barrier | None = None

    def tidy(self, applied: AppliedState) -> None:
        self.tidied.append(applied)


class Target:
    """A `TargetTable` that remembers what it has applied and fails as told."""

    def __init__(self, *faults: Exception, work: Work | None = None) -> None:
        self.faults = list(faults)
        self.work = work or Work()
        self.applied: list[AppliedState] = []
        self.opened = 0
        self.tidied: list[tuple[float, bool]] = []
        """When, and whether a snapshot was under way."""

    def open(self, schema: TableSchema, log_id: str, generation: Generation) -> AppliedState:
        self.opened += 1
        return self.applied[-1] if self.applied else AppliedState(log_id)

    @property
    def replacing(self) -> bool:
        return False

    def publish(self) -> None: ...

    def apply(self, part: TableSlice) -> AppliedState:
        if lost := set(self.work.missing) & set(part.chunks):
            raise ChunkLost("chunk files are gone", "", tuple(lost))
        if self.work.together is not None:
            self.work.together.wait(5)
        self.work.slices.append(part)
        if self.faults:
            raise self.faults.pop(0)
        self.applied.append(AppliedState("log", part.through_seq, part.through_record, frozenset(), 1, part.table_id))
        return self.applied[-1]

    def chunk_writer(self, schema: TableSchema) -> ChunkWriter:
        return cast(ChunkWriter, None)

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        self.work.tidy(applied)
        self.tidied.append((now, needed.reading))


class Loop(Applier):
    """Takes the numbers of records as the tests write them."""

    @override
    def offer(self, through: int, patience: float = 0.0) -> None:
        super().offer(RecordNumber(through), patience)


class Journal:
    def __init__(self, state: LogState) -> None:
        self.state = state

    def refresh(self) -> LogState:
        return self.state
