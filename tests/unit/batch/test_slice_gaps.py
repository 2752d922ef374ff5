"""A gap is filled by the snapshot that reads everything again, however many batches bring it, and by nothing else."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from support import states
from support.journals import Journal, table_schema
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import cut
from tailrace.changelog.records.snapshots import (
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import Applied, SchemaChanged, SegmentsRemoved, TableAdded, TableStopped
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import LogTrimmed
from tailrace.snapshot.planner import due_snapshots

CHUNKS = 3
TABLE = table_schema(1)


def added(version: int = 1, snapshot: bool = False) -> TableAdded:
    """Without `snapshot` it calls for none: the tests ask for theirs."""
    return TableAdded(table=TABLE.model_copy(update={"version": version}), edge="5", snapshot=snapshot)


def planned(journal: Journal, name: str) -> None:
    journal.plain(events=(SnapshotPlanned(snapshot_id=name, tables=(1,)),))
    journal.plain(events=(SnapshotTableStarted(snapshot_id=name, table_id=1, max_key=("9",), estimated_rows=9),))


def chunk(journal: Journal, name: str, number: int) -> None:
    version, point = journal.state.tables[1].schema.version, journal.state.last_seq + 1
    read = states.chunk(
        1, number, snapshot_id=name, upper=("5",), path=f"{name}-{number}", rows=3, size=9, schema_version=version,
        replay_point=point, high=journal.state.position,
    )  # fmt: skip
    journal.plain(events=(read,))


def finished(journal: Journal, name: str) -> None:
    end = SnapshotTableFinished(snapshot_id=name, table_id=1, chunks=CHUNKS, complete=True)
    journal.plain(events=(end, SnapshotEnded(snapshot_id=name, outcome="completed")))


def snapshot(journal: Journal, name: str) -> None:
    planned(journal, name)
    for number in range(CHUNKS):
        chunk(journal, name, number)
    finished(journal, name)


def filled() -> tuple[Journal, AppliedState]:
    """A table whose first snapshot the target holds, then changes that it does not."""
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(added(),))
    snapshot(journal, "initial")
    at = AppliedState("log", Seq(0), journal.state.number, schema_version=1, table_id=1)
    journal.plain(200, segments=(journal._segment(1, 1, 1, 200),))
    return journal, at


def came_back() -> tuple[Journal, AppliedState]:
    journal, at = filled()
    journal.plain(events=(TableStopped(table_id=1, seq=Seq(200), error="NoKey", message="", fix="", where="source"),))
    journal.plain(events=(added(version=2),))
    return journal, at


def trimmed() -> tuple[Journal, AppliedState]:
    journal, at = filled()
    journal.plain(events=(SegmentsRemoved(table_id=1, through_seq=Seq(200)),))
    return journal, at


def batch(journal: Journal, at: AppliedState, through: int) -> AppliedState:
    """As the worker does it: what brings nothing is not committed."""
    part = cut(journal.state, 1, at, RecordNumber(through))
    if part is None:
        return at
    return replace(
        at,
        applied_seq=part.through_seq,
        applied_record=RecordNumber(through),
        schema_version=part.schema.version,
        gap=part.gap_left,
    )


@pytest.mark.parametrize("gap", [came_back, trimmed])
def test_a_snapshot_fills_the_gap_wherever_its_batches_are_cut(gap: Callable[[], tuple[Journal, AppliedState]]) -> None:
    journal, before = gap()
    start = journal.state.number
    snapshot(journal, "again")
    journal.plain(10, segments=(journal._segment(1, journal.state.tables[1].schema.version, 201, 210),))
    end = journal.state.number
    for length in range(end - start):
        for cuts in combinations(range(start, end), length):
            at = before
            for through in (*cuts, end):
                at = batch(journal, at, through)
            assert (at.gap, at.applied_seq) == (None, 210), cuts


def test_a_snapshot_fills_the_gap_while_it_is_read_and_the_log_is_ahead() -> None:
    journal, at = came_back()
    planned(journal, "again")
    for number in range(CHUNKS):
        chunk(journal, "again", number)
        at = batch(journal, at, journal.state.number - 1)  # capture is a record ahead
    finished(journal, "again")
    assert batch(journal, at, journal.state.number).gap is None


def test_the_applied_sequence_passes_what_the_log_no_longer_has() -> None:
    """Else the next batch would take the same gap for a new one, which the same snapshot may not fill."""
    journal, at = came_back()
    snapshot(journal, "again")
    assert batch(journal, at, journal.state.number - 1).applied_seq == 200


def test_what_is_trimmed_after_a_chunk_was_applied_is_a_gap_of_its_own() -> None:
    journal, at = trimmed()
    planned(journal, "again")
    chunk(journal, "again", 0)
    at = batch(journal, at, journal.state.number)
    journal.plain(10, segments=(journal._segment(1, 1, 201, 210),))
    journal.plain(events=(SegmentsRemoved(table_id=1, through_seq=Seq(210)),))
    with pytest.raises(LogTrimmed):
        batch(journal, at, journal.state.number)


def test_a_snapshot_that_the_message_asks_for_heals_a_target_that_lags_behind_its_own_record() -> None:
    """As batches of former versions left it."""
    journal, at = came_back()
    snapshot(journal, "again")
    at = replace(at, applied_record=RecordNumber(journal.state.number - 1), gap=at.applied_record, schema_version=2)
    with pytest.raises(LogTrimmed, match="from sequence 1 on"):
        batch(journal, at, journal.state.number)
    start = journal.state.number
    snapshot(journal, "request")
    for through in range(start, journal.state.number + 1):
        at = batch(journal, at, through)
    assert at.gap is None


def test_the_end_of_a_snapshot_whose_forgotten_chunks_the_target_lost_fills_nothing() -> None:
    """The target was put back to before a chunk that the log forgot; a later snapshot lets its batches go on, and may
    be stopped. The former snapshot's end then proves nothing."""
    journal, before = filled()
    before = replace(before, applied_seq=Seq(200), applied_record=journal.state.number)
    planned(journal, "half")
    chunk(journal, "half", 0)
    journal.plain(events=(Applied(table_id=1, applied_seq=Seq(200), applied_record=journal.state.number),))
    chunk(journal, "half", 1)
    chunk(journal, "half", 2)
    finished(journal, "half")
    planned(journal, "later")
    at = batch(journal, before, journal.state.number)
    assert at.gap is not None
    journal.plain(events=(SnapshotEnded(snapshot_id="later", outcome="stopped"),))
    with pytest.raises(LogTrimmed):
        batch(journal, at, journal.state.number)


def test_a_snapshot_that_was_planned_before_the_table_came_back_fills_nothing() -> None:
    """What it read before is no longer in the log, even if no sequence lies between."""
    journal, at = filled()
    at = replace(at, applied_seq=Seq(200), applied_record=journal.state.number)
    planned(journal, "before")
    chunk(journal, "before", 0)
    journal.plain(events=(TableStopped(table_id=1, seq=Seq(200), error="NoKey", message="", fix="", where="source"),))
    journal.plain(events=(added(version=2),))
    chunk(journal, "before", 1)
    chunk(journal, "before", 2)
    finished(journal, "before")
    with pytest.raises(LogTrimmed):
        batch(journal, at, journal.state.number)


def read_again_from_here(journal: Journal) -> None:
    """A difference in the catalog: nothing has ordered the snapshot yet that it calls for."""
    version = journal.state.tables[1].schema.version + 1
    seq = journal.state.last_seq
    journal.plain(events=(SchemaChanged(table=table_schema(1, version), seq=seq, reread=True),))


def test_an_overtaken_snapshot_leaves_the_gap_to_the_one_that_is_called_for_and_not_planned_yet() -> None:
    """It removes nothing at its end, so it fills nothing; a batch that is cut before the next is planned goes on."""
    journal, at = trimmed()
    planned(journal, "again")
    chunk(journal, "again", 0)
    read_again_from_here(journal)
    chunk(journal, "again", 1)
    chunk(journal, "again", 2)
    finished(journal, "again")
    at = batch(journal, at, journal.state.number)
    assert at.gap is not None
    (call,) = due_snapshots(journal.state, {})
    snapshot(journal, call.snapshot_id)
    assert batch(journal, at, journal.state.number).gap is None


def test_a_table_that_came_back_waits_for_the_snapshot_that_it_begins_with() -> None:
    journal, at = filled()
    journal.plain(events=(TableStopped(table_id=1, seq=Seq(200), error="NoKey", message="", fix="", where="source"),))
    journal.plain(events=(added(version=2, snapshot=True),))
    at = batch(journal, at, journal.state.number)
    assert at.gap is not None
    (call,) = due_snapshots(journal.state, {})
    snapshot(journal, call.snapshot_id)
    assert batch(journal, at, journal.state.number).gap is None


def test_what_was_called_for_and_ended_before_it_had_read_the_table_fills_nothing() -> None:
    journal, at = trimmed()
    read_again_from_here(journal)
    at = batch(journal, at, journal.state.number)
    (call,) = due_snapshots(journal.state, {})
    planned(journal, call.snapshot_id)
    journal.plain(events=(SnapshotEnded(snapshot_id=call.snapshot_id, outcome="stopped"),))
    with pytest.raises(LogTrimmed):
        batch(journal, at, journal.state.number)


def test_no_snapshot_is_to_come_of_a_table_that_stopped() -> None:
    journal, at = trimmed()
    read_again_from_here(journal)
    journal.plain(events=(TableStopped(table_id=1, seq=Seq(200), error="NoKey", message="", fix="", where="source"),))
    with pytest.raises(LogTrimmed):
        batch(journal, at, journal.state.number)


def test_a_move_takes_nothing_from_rows_that_are_to_be_read_again() -> None:
    journal, at = filled()
    read_again_from_here(journal)
    part = cut(journal.state, 1, at, journal.state.number)
    assert part is not None and part.repair


def test_the_end_of_a_snapshot_from_before_the_table_came_back_removes_nothing() -> None:
    """Recorded late, between the chunks of the snapshot that the table came back with: those hold rows that were
    written while it was not captured, which no change tells of and the older one never saw."""
    journal, at = filled()
    at = replace(at, applied_seq=Seq(200), applied_record=journal.state.number)
    planned(journal, "before")
    for number in range(CHUNKS):
        chunk(journal, "before", number)
    journal.plain(events=(TableStopped(table_id=1, seq=Seq(200), error="NoKey", message="", fix="", where="source"),))
    journal.plain(events=(added(version=2, snapshot=True),))
    (call,) = due_snapshots(journal.state, {})
    planned(journal, call.snapshot_id)
    for number in range(CHUNKS):
        chunk(journal, call.snapshot_id, number)
    at = batch(journal, at, journal.state.number)
    finished(journal, "before")
    part = cut(journal.state, 1, at, journal.state.number)
    assert part is None or part.finished == ()
    finished(journal, call.snapshot_id)
    part = cut(journal.state, 1, at, journal.state.number)
    assert part is not None and [f.snapshot_id for f in part.finished] == [call.snapshot_id]
