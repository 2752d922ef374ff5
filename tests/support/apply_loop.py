"""The apply loop's surroundings in memory: logs of tables, and targets that fail as told."""

from collections.abc import Mapping, Set
from threading import Barrier
from typing import cast

from typing_extensions import override

from support.origins import origin as make_origin
from support.states import chunk as make_chunk
from support.states import keyed, log_state, segment, table_log
from tailrace.apply.applier import Applier
from tailrace.apply.progress import Progress
from tailrace.apply.unit_worker import TableCopy, UnitWorker
from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.limits import BatchLimits
from tailrace.batch.slice import TableSlice
from tailrace.batch.written import WrittenFiles
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedChunk, LoggedSegment, LogState, SegmentList, TableLog
from tailrace.targets.api import (
    ChunkLost,
    ChunkWriter,
    Look,
    NeededChunks,
    Opened,
    Opening,
    TableFailed,
    UnitBatch,
    VersionAt,
)

LIMITS = BatchLimits(rows=400_000, size=128 << 20, chunk_rows=4_000_000, chunks=400)
CHUNK = make_chunk(path="file:///c", rows=2, size=1)


def table(table_id: int, *records: int, rows: int = 1, chunk: bool = False) -> TableLog:
    segments = [
        LoggedSegment(record=RecordNumber(r), segment=segment(table_id, r, rows=rows, inserts=rows)) for r in records
    ]
    chunks = [LoggedChunk(record=RecordNumber(2), chunk=CHUNK)] if chunk else ()
    return table_log(keyed(table_id), segments=SegmentList.of(segments), chunks=AppendList(chunks))


def log(*tables: TableLog, number: int = 9) -> LogState:
    return log_state(*tables, number=number, last_seq=Seq(number), origin=make_origin("log"))


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
    """A table of a target, which remembers what it has applied and fails as told; `TargetUnit` is its unit."""

    def __init__(self, *faults: Exception, work: Work | None = None) -> None:
        self.faults = list(faults)
        self.work = work or Work()
        self.applied: list[AppliedState] = []
        self.opened = 0
        self.tidied: list[tuple[float, bool]] = []
        """When, and whether a snapshot was under way."""
        self.kept: dict[str, int] = {}

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

    def version_at(self, record: RecordNumber) -> VersionAt | None:
        """Versions are numbered from 0."""
        found = [number for number, applied in enumerate(self.applied) if applied.applied_record <= record]
        return VersionAt(found[-1], self.applied[found[-1]]) if found else None


class TargetUnit:
    """A `Unit` of tables, each a `Target`."""

    def __init__(self, targets: Mapping[int, Target], level: Set[int] | None = None) -> None:
        """`level`: tables that are found level with the unit; None: all."""
        self.targets, self.level = targets, level
        self.batches: list[tuple[int, set[int], set[int]]] = []
        """Record, tables, and those with a slice."""
        self.failing: dict[int, Exception] = {}
        """Tables that fail, each by itself."""
        self.numbers: dict[int, int] = {}
        """The numbers of tables' versions when they are opened, where they have some."""
        self.gone: set[int] = set()
        """Tables that somebody drops."""
        self.written: dict[int, WrittenFiles] = {}
        """Files that commits have added, until they are asked for."""

    def open(self, tables: Mapping[int, Opening], log_id: str) -> Mapping[int, Opened]:
        return {
            table_id: Opened(
                self.targets[table_id].open(opening.schema, log_id, opening.generation),
                self.targets[table_id].replacing,
                self.level is None or table_id in self.level,
                self.numbers.get(table_id),
            )
            for table_id, opening in tables.items()
        }

    def forget(self, table_id: int) -> None: ...

    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        for table_id in batch.slices.keys() & self.failing:
            raise TableFailed(table_id, self.failing[table_id])
        self.batches.append((batch.record, set(batch.tables), set(batch.slices)))
        applied = {table_id: self.targets[table_id].apply(part) for table_id, part in batch.slices.items()}
        for table_id in batch.publish:
            self.targets[table_id].publish()
        return applied

    def missing(self) -> Set[int]:
        return self.gone

    def chunk_writer(self, schema: TableSchema) -> ChunkWriter:
        return self.targets[schema.table_id].chunk_writer(schema)

    def look(self, schema: TableSchema, applied: AppliedState) -> Look:
        raise AssertionError("nothing is verified")

    def version_at(self, table_id: int, record: RecordNumber) -> VersionAt | None:
        return self.targets[table_id].version_at(record)

    def newest_version(self, table_id: int) -> int | None:
        applied = self.targets[table_id].applied
        return len(applied) - 1 if applied else None

    def take_written(self, table_id: int) -> WrittenFiles | None:
        return self.written.pop(table_id, None)

    def keep(self, table_id: int, versions: Mapping[str, int]) -> None:
        self.targets[table_id].kept = dict(versions)

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        self.targets[schema.table_id].tidy(schema, applied, needed, now)


def worker_of(target: Target, progress: Progress, table_id: int = 7, limits: BatchLimits = LIMITS) -> UnitWorker:
    """The worker of a unit with this table alone, which is still to be added."""
    return UnitWorker(TargetUnit({table_id: target}), progress, limits)


def alone(target: Target, progress: Progress, table_id: int = 7) -> UnitWorker:
    """The same with the table."""
    worker = worker_of(target, progress, table_id)
    worker.add(TableCopy(table_id))
    return worker


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
