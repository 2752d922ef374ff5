"""One table's worker: chunk files that are lost, and versions that must stay."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from typing_extensions import override

from support.apply_loop import CHUNK, LIMITS, Target, TargetUnit, Work, alone, log, table
from support.states import logged, snapshot, with_snapshots
from tailrace.apply.lost import snapshot_open, without_lost_chunks
from tailrace.apply.progress import Progress
from tailrace.apply.unit_worker import NamesOfPlaces, TableCopy, UnitWorker
from tailrace.batch.applied import AppliedState
from tailrace.batch.limits import batch_end
from tailrace.batch.slice import cut
from tailrace.changelog.records.snapshots import SnapshotPlanned, SnapshotTableFinished
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedChunk, LoggedFinish, SnapshotTable
from tailrace.errors import Retry
from tailrace.snapshot.planner import rereads_of_lost
from tailrace.targets.api import ChunkLost, ChunkWriter, TableFailed, UnitBatch


def test_a_lost_chunk_file_is_told_and_left_out_once_the_journal_orders_it_again() -> None:
    state = log(table(7, 3, chunk=True))
    target = Target(work=Work(missing=(CHUNK,)))
    worker = alone(target, Progress())
    with pytest.raises(ChunkLost) as caught:
        worker.advance(state, RecordNumber(9))
    assert caught.value.chunks == (CHUNK,)
    (plan,) = rereads_of_lost(state, caught.value.chunks)
    ordered = snapshot(plan, 8)
    assert not worker.advance(with_snapshots(state, {plan.snapshot_id: ordered}), RecordNumber(9))
    assert target.work.slices[0].chunks == ()
    assert target.work.slices[0].gap_left == 0, "until the end of the snapshot that makes up for it"
    assert len(target.applied) == 1


def test_the_end_of_a_snapshot_one_of_whose_files_is_lost_is_left_out() -> None:
    """They were compacted away, and somebody's clean-up took one: the snapshot's end still reads their keys."""
    chunks = [CHUNK.model_copy(update={"chunk": number, "path": f"file:///c{number}"}) for number in range(3)]
    ends = LoggedFinish(
        record=RecordNumber(8), snapshot_id="s", complete=True, replay_point=Seq(1),
        chunks=tuple(LoggedChunk(record=RecordNumber(2), chunk=chunk) for chunk in chunks),
    )  # fmt: skip
    state = log(table(7, 3).model_copy(update={"finishes": (ends,)}))
    part = cut(state, 7, AppliedState("log", Seq(3), RecordNumber(3), schema_version=1, table_id=7), RecordNumber(9))
    assert part is not None
    (plan,) = rereads_of_lost(state, [chunks[1]])
    ordered = snapshot(plan, 8)
    left = without_lost_chunks(with_snapshots(state, {plan.snapshot_id: ordered}), part)
    assert left is not None
    assert (left.finished, left.gap_left) == ((), 3)


@pytest.mark.parametrize(("held", "planned", "gap"), [(True, 3, None), (False, 9, 7), (False, 3, 2)])
def test_the_end_of_a_snapshot_that_lost_a_file_leaves_a_gap_that_the_one_that_makes_up_for_it_fills(
    held: bool, planned: int, gap: int | None
) -> None:
    """Another gap nobody would fill: the table would be stopped (`LogTrimmed`) though nothing is missing."""
    ends = LoggedFinish(record=RecordNumber(8), snapshot_id="s", complete=True, replay_point=Seq(1), chunks=())
    (plan,) = rereads_of_lost(log(table(7, 3, chunk=True)), [CHUNK])
    read = SnapshotTableFinished(snapshot_id=plan.snapshot_id, table_id=7, chunks=1, complete=True)
    repair = SnapshotTable(table_id=7, finished=read if held else None)
    snapshots = {plan.snapshot_id: snapshot(plan, planned, tables={7: repair})}
    state = with_snapshots(log(table(7, 3).model_copy(update={"finishes": (ends,)})), snapshots)
    left = without_lost_chunks(
        state,
        cut(state, 7, AppliedState("log", Seq(3), RecordNumber(7), schema_version=1, table_id=7), RecordNumber(9)),
    )
    assert left is not None and left.finished == ()
    assert left.gap_left == gap


def test_the_end_of_a_complete_snapshot_ends_a_batch() -> None:
    """Chunks of a later snapshot may follow it."""
    ends = LoggedFinish(record=RecordNumber(5), snapshot_id="s", complete=True, replay_point=Seq(1), chunks=())
    for complete, end in ((True, 5), (False, 9)):
        ended = table(7, 3).model_copy(update={"finishes": (ends.model_copy(update={"complete": complete}),)})
        assert [batch_end([(ended, RecordNumber(after))], RecordNumber(9), LIMITS) for after in (3, 5)] == [end, 9]
        assert batch_end([(ended, RecordNumber(3))], RecordNumber(4), LIMITS) == 4


def test_versions_are_kept_until_the_target_holds_the_end_of_a_snapshot() -> None:
    ends = LoggedFinish(record=RecordNumber(8), snapshot_id="s", complete=True, replay_point=Seq(1), chunks=())
    ended = table(7, 3).model_copy(update={"finishes": (ends,)})
    assert snapshot_open(ended, log(ended), AppliedState("log", Seq(3), RecordNumber(7)))
    assert not snapshot_open(ended, log(ended), AppliedState("log", Seq(3), RecordNumber(8)))
    running = snapshot(SnapshotPlanned(snapshot_id="r", tables=(7,)), 9)
    state = with_snapshots(log(ended), {"r": running})
    assert snapshot_open(ended, state, AppliedState("log", Seq(3), RecordNumber(8)))


def test_a_table_that_comes_back_is_left_alone_until_its_record_is_offered() -> None:
    """The journal may be read on while an older record is still the end of the batch."""
    target, progress = Target(), Progress()
    worker = alone(target, progress)
    before = log(table(7, 3))
    assert not worker.advance(before, RecordNumber(5))
    again = table(7)
    newer = logged(again.schema.model_copy(update={"version": 2}), 8, 7)
    back = again.model_copy(update={"added_record": 8, "trimmed_through": 7, "schemas": (newer,)})
    assert not worker.advance(log(back), RecordNumber(7))
    worker.tidy(7, log(back), 1e9)
    assert (len(target.applied), progress.of(7).applied_record, target.tidied) == (1, 7, [])


def test_nothing_is_left_out_while_nothing_is_lost() -> None:
    state = log(table(7, 3, chunk=True))
    part = cut(state, 7, AppliedState("log", Seq(0), RecordNumber(0), schema_version=1, table_id=7), RecordNumber(9))
    assert part is not None and part.chunks == (CHUNK,)
    assert without_lost_chunks(state, part) is part
    assert without_lost_chunks(state, None) is None


@pytest.mark.parametrize("keyless", [True, False])
def test_of_a_table_without_a_key_all_files_of_a_reading_are_left_out_if_one_is_lost(keyless: bool) -> None:
    """They are one reading: some of them would be taken for the whole table."""
    others = [CHUNK.model_copy(update={"chunk": 1}), CHUNK.model_copy(update={"snapshot_id": "later"})]
    known = table(7, 3)
    schema = known.schema.model_copy(update={"keyless": keyless})
    chunks = tuple(LoggedChunk(record=RecordNumber(4), chunk=chunk) for chunk in (CHUNK, *others))
    schemas = (known.schemas[0].model_copy(update={"table": schema}),)
    state = log(known.model_copy(update={"schemas": schemas, "chunks": chunks}))
    part = cut(state, 7, AppliedState("log", Seq(0), RecordNumber(0), schema_version=1, table_id=7), RecordNumber(9))
    (plan,) = rereads_of_lost(state, [CHUNK])
    ordered = snapshot(plan, 8)
    left = without_lost_chunks(with_snapshots(state, {plan.snapshot_id: ordered}), part)
    assert left is not None
    assert list(left.chunks) == (others[1:] if keyless else others)


def test_a_table_that_is_forgotten_while_it_is_tidied_gives_no_writer() -> None:
    """Whoever waits for one while a table is compacted would write for a table that is over."""
    begun, release = Event(), Event()

    class Slow(Work):
        @override
        def tidy(self, applied: AppliedState) -> None:
            begun.set()
            assert release.wait(20)

    class Over(Target):
        @override
        def chunk_writer(self, schema: TableSchema) -> ChunkWriter:
            raise AssertionError("it has been forgotten")

    worker = alone(Over(work=Slow()), Progress())
    state = log(table(7, 3))
    worker.advance(state, RecordNumber(9))
    with ThreadPoolExecutor(2) as pool:
        tidied = pool.submit(worker.tidy, 7, state, 1e9)
        assert begun.wait(10)
        writer = pool.submit(worker.chunk_writer, 7, table(7).schema)
        time.sleep(0.2)  # it waits for the lock
        worker.remove(7)
        release.set()
        assert writer.result(10) is None
        tidied.result(10)


class Divided(TargetUnit):
    """Commits table after table, as far as it comes."""

    @override
    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        done: dict[int, AppliedState] = {}
        for table_id, part in batch.slices.items():
            try:
                done |= super().apply(UnitBatch(batch.record, batch.tables, {table_id: part}))
            except TableFailed as failed:
                failed.moved = frozenset(done)
                raise
        return done


def test_tables_that_were_moved_before_another_one_failed_are_not_moved_twice() -> None:
    """Their next batch would begin with what the target held before: a history would get its rows twice."""
    targets = {table_id: Target() for table_id in (7, 8, 9)}
    unit = Divided(targets)
    worker = UnitWorker(unit, Progress(), LIMITS)
    for table_id in targets:
        worker.add(TableCopy(table_id))
    worker.advance(log(*(table(table_id, 3) for table_id in targets)), RecordNumber(9))
    unit.failing[8] = Retry("its copy is gone")
    state = log(*(table(table_id, 3, 12) for table_id in targets), number=12)
    with pytest.raises(TableFailed, match="table 8"):
        worker.advance(state, RecordNumber(12))
    worker.remove(8)
    assert not worker.advance(state, RecordNumber(12))
    held = {table_id: [applied.applied_record for applied in target.applied] for table_id, target in targets.items()}
    assert held == {7: [9, 12], 8: [9], 9: [9, 12]}
    assert [targets[table_id].opened for table_id in targets] == [2, 1, 1], "what was not moved is still known"


def test_the_places_of_all_tables_are_listed_once_for_a_state() -> None:
    """Each of thousands of tables that were opened listed them."""
    state, newer = log(table(7, 3), table(8, 3)), log(table(7, 3))
    names = NamesOfPlaces()
    assert names.of(state) == {"t7": {("s", "t7")}, "t8": {("s", "t8")}}
    assert names.of(state) is names.of(state)
    assert names.of(newer) == {"t7": {("s", "t7")}}
