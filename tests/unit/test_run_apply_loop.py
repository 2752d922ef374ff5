"""The apply loop around the engine: workers, isolation and back-off, with a target in memory."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tailrace.apply import worker as worker_module
from tailrace.apply.applier import Applier
from tailrace.apply.journal import SharedJournal
from tailrace.apply.progress import Progress
from tailrace.apply.slice import TableSlice, cut
from tailrace.apply.worker import ChunkLost, TableWorker, batch_end, snapshot_open, without_lost
from tailrace.changelog.records import ChunkRegistered, Column, Origin, Segment, SnapshotPlanned, TableSchema
from tailrace.changelog.state import (
    LoggedChunk,
    LoggedFinish,
    LoggedSchema,
    LoggedSegment,
    LogState,
    SnapshotState,
    SnapshotTable,
    TableLog,
)
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.errors import CorruptLog, ForeignChange, InvalidManifest, Retry, TargetRefused
from tailrace.run.targets import LakeEngine
from tailrace.snapshot.planner import rereads_of_lost
from tailrace.storage import NotFound, Storage
from tailrace.targets.lake.layout import Layout
from tailrace.targets.lake.model import AppliedState, Commit, DataFile, LakeTable

CHUNK = ChunkRegistered(
    snapshot_id="s", table_id=7, chunk=0, lower=None, upper=None, path="file:///c", rows=2, size=1,
    schema_version=1, replay_point=1, high=1,
)  # fmt: skip


def table(table_id: int, *records: int, rows: int = 1, chunk: bool = False) -> TableLog:
    column = Column(name="id", attnum=1, source_type="bigint", type="int64", nullable=False, key=0)
    schema = TableSchema(table_id=table_id, schema_name="s", table_name=f"t{table_id}", version=1, columns=(column,))
    segments = tuple(
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
        edge_xid=1,
        initial_snapshot=False,
        schemas=(LoggedSchema(record=1, after_seq=0, table=schema),),
        segments=segments,
        chunks=(LoggedChunk(record=2, chunk=CHUNK),) if chunk else (),
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

    def ensure(self, schema: TableSchema, log_id: str) -> AppliedState:
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

    def expire(self, older_than: float) -> bool:
        return False


class Engine:
    def __init__(self, missing: tuple[ChunkRegistered, ...] = (), fault: Exception | None = None) -> None:
        self.missing = missing
        self.fault = fault or NotFound("file:///c")
        self.slices: list[TableSlice] = []

    def build(self, part: TableSlice, target: LakeTable, layout: Layout) -> Commit:
        if set(self.missing) & set(part.chunks):
            raise self.fault
        self.slices.append(part)
        return Commit(AppliedState("log", part.through_seq, part.through_record, frozenset(), 1, part.table_id))

    def lost(self, part: TableSlice) -> tuple[ChunkRegistered, ...]:
        return self.missing

    def compact(self, target: LakeTable, layout: Layout, applied: AppliedState) -> int:
        return 0


class Journal:
    def __init__(self, state: LogState) -> None:
        self.state = state

    def refresh(self) -> LogState:
        return self.state


def applier(
    state: LogState, targets: dict[int, Target], clock: Callable[[], float] = time.time, retry: float = 60.0
) -> tuple[Applier, Progress]:
    progress = Progress()
    engine = Engine()

    def make(log_table: TableLog) -> TableWorker:
        return TableWorker(log_table.table_id, targets[log_table.table_id], engine, progress)

    journal = cast(SharedJournal, Journal(state))
    return Applier(journal, progress, make, lambda: None, retry_seconds=retry, clock=clock), progress


def test_a_table_is_brought_to_the_end_and_records_that_bring_nothing_are_covered() -> None:
    target = Target()
    loop, progress = applier(log(table(7, 3, 5)), {7: target})
    loop.offer(9, patience=5)
    assert [c.applied.applied_record for c in target.commits] == [9]
    loop.offer(9, patience=5)
    assert len(target.commits) == 1
    found = progress.of(7)
    assert (found.applied_record, found.committed_record, found.counters.inserts) == (9, 9, 2)
    loop.stop()


def test_a_batch_is_bounded_in_rows_but_takes_at_least_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "MAX_ROWS", 10)
    big = table(7, 3, 5, 6, rows=8)
    assert [batch_end(big, after, 9) for after in (0, 4, 5)] == [4, 5, 9]
    target = Target()
    loop, _ = applier(log(big), {7: target})
    loop.offer(9, patience=5)
    assert [c.applied.applied_record for c in target.commits] == [4, 5, 9]
    loop.stop()


def test_one_table_that_fails_is_named_and_retried_and_the_other_goes_on() -> None:
    now = [100.0]
    bad, good = Target(ForeignChange("s.t7", "rows changed"), Retry("away")), Target()
    loop, progress = applier(log(table(7, 3), table(8, 3)), {7: bad, 8: good}, lambda: now[0])
    loop.offer(9, patience=5)
    assert len(good.commits) == 1
    fault = progress.of(7).fault
    assert fault is not None
    assert (fault.name, progress.of(7).stopped) == ("ForeignChange", True)
    loop.offer(9, patience=5)
    assert bad.opened == 1, "the pause is not over"
    for _ in range(2):
        now[0] += 10
        loop.offer(9, patience=5)
    assert [c.applied.applied_record for c in bad.commits] == [9]
    assert progress.of(7).fault is None
    assert bad.opened == 3, "the target is read anew after every failure"
    loop.stop()


def test_a_passing_fault_becomes_a_stopped_table_when_it_lasts_too_long() -> None:
    now = [100.0]
    loop, progress = applier(log(table(7, 3)), {7: Target(*[Retry("away")] * 9)}, lambda: now[0], retry=60)
    loop.offer(9, patience=5)
    assert not progress.of(7).stopped
    now[0] += 61
    loop.offer(9, patience=5)
    assert progress.of(7).stopped
    loop.stop()


def test_a_target_that_refuses_altogether_ends_the_process() -> None:
    loop, _ = applier(log(table(7, 3)), {7: Target(TargetRefused("another log"))})
    loop.offer(9, patience=5)
    with pytest.raises(TargetRefused, match="another log"):
        loop.offer(9)
    loop.stop()


def test_a_target_that_refuses_one_table_stops_that_table_alone_until_it_is_put_right() -> None:
    now = [100.0]
    bad, good = Target(TargetRefused("a table of somebody else")), Target()
    loop, progress = applier(log(table(7, 3), table(8, 3)), {7: bad, 8: good}, lambda: now[0])
    loop.offer(9, patience=5)
    loop.offer(9, patience=5)
    fault = progress.of(7).fault
    assert fault is not None and fault.name == "TargetRefused" and progress.of(7).stopped
    assert len(good.commits) == 1
    now[0] += 60
    loop.offer(9, patience=5)
    assert progress.of(7).fault is None
    loop.stop()


def test_a_table_that_the_target_cannot_even_name_does_not_stop_the_others() -> None:
    progress, good = Progress(), Target()

    def make(log_table: TableLog) -> TableWorker:
        if log_table.table_id == 7:
            raise InvalidManifest("table s.a/b cannot be a folder's name")
        return TableWorker(8, good, Engine(), progress)

    journal = cast(SharedJournal, Journal(log(table(7, 3), table(8, 3))))
    loop = Applier(journal, progress, make, lambda: None, retry_seconds=60)
    for _ in range(2):
        loop.offer(9, patience=5)
    assert len(good.commits) == 1
    fault = progress.of(7).fault
    assert fault is not None and "a/b" in fault.message
    assert loop.worker(7) is None
    loop.stop()


def test_a_table_that_is_no_longer_captured_leaves_nothing_behind() -> None:
    targets = {7: Target(), 8: Target()}
    loop, progress = applier(log(table(7, 3), table(8, 3)), targets)
    loop.offer(9, patience=5)
    assert loop.worker(7) is not None
    gone = table(7, 3).model_copy(update={"removed": True})
    cast(Any, loop)._journal.state = log(gone, table(8, 3))
    loop.offer(9, patience=5)
    assert loop.worker(7) is None and loop.worker(8) is not None
    assert set(progress.all()) == {8}
    loop.stop()


def test_a_broken_change_log_ends_the_process_whichever_table_meets_it() -> None:
    targets = {7: Target(CorruptLog("record 4 is missing")), 8: Target()}
    loop, _ = applier(log(table(7, 3), table(8, 3)), targets)
    loop.offer(9, patience=5)
    with pytest.raises(CorruptLog):
        loop.offer(9)
    loop.stop()


@pytest.mark.parametrize("fault", [NotFound("file:///c"), PySparkException("NotFound: in a task")])
def test_a_lost_chunk_file_is_told_and_left_out_once_the_journal_orders_it_again(fault: Exception) -> None:
    """A large batch is worked by tasks: what is missing there comes back as Spark's error."""
    state = log(table(7, 3, chunk=True))
    engine, progress = Engine(missing=(CHUNK,), fault=fault), Progress()
    target = Target()
    worker = TableWorker(7, target, engine, progress)
    with pytest.raises(ChunkLost) as caught:
        worker.advance(state, 9)
    assert caught.value.chunks == (CHUNK,)
    (plan,) = rereads_of_lost(state, caught.value.chunks)
    ordered = SnapshotState(plan=plan, record=8, tables={7: SnapshotTable(table_id=7)})
    assert not worker.advance(state.model_copy(update={"snapshots": {plan.snapshot_id: ordered}}), 9)
    assert engine.slices[0].chunks == ()
    assert engine.slices[0].gap_left == 0, "until the end of the snapshot that makes up for it"
    assert len(target.commits) == 1


def test_lost_files_of_a_snapshot_that_ends_are_found_among_those_adopted_before(tmp_path: Path) -> None:
    """They were compacted away, and somebody's clean-up took them: the snapshot's end still reads their keys."""
    kept = CHUNK.model_copy(update={"chunk": 1, "path": (tmp_path / "kept").as_uri()})
    gone = CHUNK.model_copy(update={"chunk": 2, "path": (tmp_path / "gone").as_uri()})
    (tmp_path / "kept").write_bytes(b"x")
    ends = LoggedFinish(
        record=8, snapshot_id="s", complete=True, replay_point=1,
        chunks=tuple(LoggedChunk(record=2, chunk=c) for c in (kept, gone, CHUNK.model_copy(update={"path": None}))),
    )  # fmt: skip
    state = log(table(7, 3).model_copy(update={"finishes": (ends,)}))
    part = cut(state, 7, AppliedState("log", 3, 3, schema_version=1, table_id=7), 9)
    assert part is not None
    lake = Storage.open(StorageConfig(location=tmp_path.as_uri()))
    assert LakeEngine(cast(Any, None), lake, lake).lost(part) == (gone,)
    (plan,) = rereads_of_lost(state, [gone])
    ordered = SnapshotState(plan=plan, record=8, tables={7: SnapshotTable(table_id=7)})
    left = without_lost(state.model_copy(update={"snapshots": {plan.snapshot_id: ordered}}), part)
    assert left is not None
    assert left.finished == ()


def test_versions_are_kept_until_the_target_holds_the_end_of_a_snapshot() -> None:
    ends = LoggedFinish(record=8, snapshot_id="s", complete=True, replay_point=1, chunks=())
    ended = table(7, 3).model_copy(update={"finishes": (ends,)})
    assert snapshot_open(ended, log(ended), AppliedState("log", 3, 7))
    assert not snapshot_open(ended, log(ended), AppliedState("log", 3, 8))
    part = {7: SnapshotTable(table_id=7)}
    running = SnapshotState(plan=SnapshotPlanned(snapshot_id="r", tables=(7,)), record=9, tables=part)
    state = log(ended).model_copy(update={"snapshots": {"r": running}})
    assert snapshot_open(ended, state, AppliedState("log", 3, 8))


def test_what_fails_while_no_chunk_file_is_gone_is_told_as_it_is() -> None:
    engine = Engine(missing=(CHUNK,), fault=PySparkException("out of memory"))
    engine.lost = lambda part: ()  # type: ignore[method-assign]
    with pytest.raises(PySparkException, match="out of memory"):
        TableWorker(7, Target(), engine, Progress()).advance(log(table(7, 3, chunk=True)), 9)


def test_nothing_is_left_out_while_nothing_is_lost() -> None:
    state = log(table(7, 3, chunk=True))
    part = cut(state, 7, AppliedState("log", 0, 0, schema_version=1, table_id=7), 9)
    assert part is not None and part.chunks == (CHUNK,)
    assert without_lost(state, part) is part
    assert without_lost(state, None) is None
