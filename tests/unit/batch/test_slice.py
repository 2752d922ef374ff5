"""What a batch of one table consists of."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

import pytest

from support import states
from support.states import logged, table_log
from tailrace.batch import slice as table_slice
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.tables import TableStopped
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import (
    LoggedChunk,
    LoggedFinish,
    LoggedSegment,
    LoggedTruncate,
    LogState,
    SegmentList,
)
from tailrace.errors import CorruptLog, LogTrimmed

COLUMNS = (Column(name="id", id=1, source_type="bigint", type="int64", key=0),)
SCHEMA = TableSchema(table_id=7, schema_name="public", table_name="t", version=1, columns=COLUMNS)
NEXT = SCHEMA.model_copy(update={"version": 2})


def segment(record: int, first: int, last: int) -> LoggedSegment:
    return LoggedSegment(record=RecordNumber(record), segment=states.segment(7, first, last, path=f"s{first}"))


def chunk(record: int, number: int, replay_point: int) -> LoggedChunk:
    made = states.chunk(7, number, path=f"c{number}", rows=1, size=1, replay_point=replay_point)
    return LoggedChunk(record=RecordNumber(record), chunk=made)


def finish(record: int, *chunks: LoggedChunk) -> LoggedFinish:
    point = min(c.chunk.replay_point for c in chunks)
    return LoggedFinish(record=RecordNumber(record), snapshot_id="s", complete=True, replay_point=point, chunks=chunks)


def log(
    last_seq: int,
    record: int,
    snapshot_record: int | None = None,
    **parts: object,
) -> LogState:
    segments = SegmentList.of(cast("Sequence[LoggedSegment]", parts.pop("segments", ())))
    table = table_log(SCHEMA, 0, segments=segments, **parts)
    snapshots = {}
    if snapshot_record is not None:
        snapshots["s"] = states.snapshot(SnapshotPlanned(snapshot_id="s", tables=(7,)), snapshot_record)
    return states.log_state(table, number=record, last_seq=Seq(last_seq), snapshots=snapshots)


def applied(seq: int, record: int, version: int = 1, gap: int | None = None) -> AppliedState:
    after = None if gap is None else RecordNumber(gap)
    return AppliedState("log", Seq(seq), RecordNumber(record), schema_version=version, table_id=7, gap=after)


def cut(state: LogState, table_id: int, held: AppliedState, through: int) -> TableSlice | None:
    return table_slice.cut(state, table_id, held, RecordNumber(through))


def ended(state: LogState, record: int, outcome: Literal["completed", "stopped"] = "stopped") -> LogState:
    """The snapshot is over in `record`."""
    over = SnapshotEnded(snapshot_id="s", outcome=outcome)
    snapshots = {key: s.model_copy(update={"ended": over}) for key, s in state.snapshots.items()}
    return state.model_copy(update={"number": record, "snapshots": snapshots})


def must(found: TableSlice | None) -> TableSlice:
    assert found is not None
    return found


def paths(found: TableSlice) -> list[str]:
    return [s.path for s in found.segments]


SEGMENTS = (segment(1, 1, 10), segment(2, 11, 20), segment(3, 21, 30))


def test_a_batch_has_the_segments_after_what_is_applied() -> None:
    found = must(cut(log(30, 3, segments=SEGMENTS), 7, applied(10, 1), 3))
    assert paths(found) == ["s11", "s21"]
    assert (found.start_seq, found.through_seq, found.through_record) == (10, 30, 3)


def test_a_batch_may_end_before_the_newest_record() -> None:
    found = must(cut(log(30, 3, segments=SEGMENTS), 7, applied(0, 0), 2))
    assert paths(found) == ["s1", "s11"]
    assert found.through_seq == 20


def test_a_record_that_is_applied_brings_nothing() -> None:
    state = log(30, 3, segments=SEGMENTS, chunks=(chunk(2, 0, 5),))
    assert cut(state, 7, applied(30, 3), 3) is None
    assert cut(state, 7, applied(30, 5), 3) is None


def test_a_record_that_the_state_does_not_hold_is_never_claimed() -> None:
    with pytest.raises(ValueError, match="record 4 is asked for, and the state ends at 3"):
        cut(log(30, 3, segments=SEGMENTS), 7, applied(10, 1), 4)


def test_records_without_anything_for_the_table_bring_nothing() -> None:
    assert cut(log(50, 9, segments=SEGMENTS), 7, applied(30, 3), 9) is None


def test_a_chunk_in_a_record_without_changes_is_a_batch() -> None:
    found = must(cut(log(30, 4, segments=SEGMENTS, chunks=(chunk(4, 0, 31),)), 7, applied(30, 3), 4))
    assert [c.chunk for c in found.chunks] == [0]
    assert found.segments == ()


def test_a_chunk_brings_the_segments_that_it_replays() -> None:
    found = must(cut(log(30, 4, segments=SEGMENTS, chunks=(chunk(4, 0, 15),)), 7, applied(30, 3), 4))
    assert paths(found) == ["s11", "s21"]
    assert found.new_segments == ()


def test_a_chunk_of_an_applied_record_does_not_come_again() -> None:
    state = log(30, 3, segments=SEGMENTS, chunks=(chunk(2, 0, 1), chunk(3, 1, 30)))
    assert [c.chunk for c in must(cut(state, 7, applied(20, 2), 3)).chunks] == [1]


def truncate(record: int, seq: int) -> LoggedTruncate:
    return LoggedTruncate(record=RecordNumber(record), seq=Seq(seq), transaction="1", written_at=0)


def test_a_truncate_drops_what_is_before_it() -> None:
    state = log(30, 3, segments=SEGMENTS, truncates=(truncate(2, 20),))
    found = must(cut(state, 7, applied(5, 0), 3))
    assert found.clear
    assert (paths(found), found.start_seq) == (["s21"], 20)


def test_a_truncate_that_is_applied_clears_nothing_but_empties_the_chunk_that_did_not_see_it() -> None:
    state = log(30, 4, segments=SEGMENTS, truncates=(truncate(2, 20),), chunks=(chunk(4, 0, 12),))
    found = must(cut(state, 7, applied(30, 3), 4))
    assert not found.clear
    assert found.emptied_at(found.chunks[0]) == 20
    assert found.replayed_from(found.chunks[0]) == 21
    assert paths(found) == ["s21"]


def test_a_finished_snapshot_brings_the_segments_since_its_smallest_replay_point() -> None:
    first, second = chunk(1, 0, 8), chunk(2, 1, 25)
    state = log(30, 4, segments=SEGMENTS, finishes=(finish(4, first, second),))
    found = must(cut(state, 7, applied(30, 3), 4))
    assert paths(found) == ["s1", "s11", "s21"]
    assert found.finished[0].paths == ("c0", "c1")
    assert found.repair


def test_a_snapshot_of_some_rows_replaces_nothing() -> None:
    some = finish(4, chunk(1, 0, 8)).model_copy(update={"complete": False})
    assert cut(log(30, 4, segments=SEGMENTS, finishes=(some,)), 7, applied(30, 3), 4) is None


def test_moves_take_nothing_from_a_table_that_a_complete_snapshot_is_reading() -> None:
    assert must(cut(log(30, 3, 2, segments=SEGMENTS), 7, applied(20, 2), 3)).repair
    assert not must(cut(log(30, 3, segments=SEGMENTS), 7, applied(20, 2), 3)).repair


def test_a_stopped_table_is_applied_up_to_its_stop() -> None:
    stop = TableStopped(table_id=7, seq=Seq(25), error="E", message="m", fix="f", where="source")
    assert must(cut(log(90, 9, segments=SEGMENTS, stopped=stop), 7, applied(20, 2), 9)).through_seq == 25


def test_the_newest_schema_of_the_batch_is_the_targets() -> None:
    later = logged(NEXT, 3, 20)
    state = log(30, 4, segments=SEGMENTS, schemas=(logged(SCHEMA, 0), later))
    assert must(cut(state, 7, applied(10, 1), 2)).evolve is None
    assert must(cut(state, 7, applied(10, 1), 3)).evolve == NEXT
    assert cut(state, 7, applied(30, 3, version=2), 4) is None


def test_a_log_without_the_next_changes_is_refused() -> None:
    state = log(30, 3, segments=SEGMENTS[2:], trimmed_through=20)
    assert must(cut(state, 7, applied(20, 2), 3)).start_seq == 20
    with pytest.raises(LogTrimmed, match="from sequence 20 on"):
        cut(state, 7, applied(19, 1), 3)


def test_a_log_without_what_a_chunk_replays_is_refused() -> None:
    with pytest.raises(LogTrimmed, match="from sequence 20 on"):
        cut(log(30, 4, segments=SEGMENTS[2:], trimmed_through=20, chunks=(chunk(4, 0, 20),)), 7, applied(30, 3), 4)


def test_a_gap_is_crossed_by_a_complete_snapshot_that_began_after_it() -> None:
    state = log(30, 3, 3, segments=SEGMENTS[2:], trimmed_through=20)
    found = must(cut(state, 7, applied(5, 1), 3))
    assert found.repair
    assert paths(found) == ["s21"]
    with pytest.raises(LogTrimmed):
        cut(log(30, 4, 2, segments=SEGMENTS[2:], trimmed_through=20), 7, applied(5, 2), 4)


def test_a_target_that_lost_the_chunks_that_the_log_has_forgotten_is_refused_until_a_snapshot_begins() -> None:
    """Deleted, or put back to an older copy, with not one change to replay: nothing else would tell."""
    for record in (-1, 2):
        with pytest.raises(LogTrimmed, match="deleted, emptied or put back"):
            cut(log(0, 5, trimmed_record=3), 7, applied(0, record), 5)
    assert cut(log(0, 5, trimmed_record=3), 7, applied(0, 3), 5) is None
    again = log(0, 6, 4, chunks=(chunk(5, 0, 1),), trimmed_record=3)
    assert len(must(cut(again, 7, applied(0, -1), 6)).chunks) == 1
    with pytest.raises(LogTrimmed):  # of the new snapshot, too, chunks were applied and forgotten
        cut(log(0, 6, 4, trimmed_record=5), 7, applied(0, -1), 6)


GAP: dict[str, object] = {"segments": SEGMENTS[2:], "trimmed_through": 20}


def test_a_gap_is_remembered_until_the_target_holds_the_end_of_the_snapshot_that_reads_it_again() -> None:
    crossed = must(cut(log(30, 3, 3, **GAP), 7, applied(5, 1), 3))
    assert (crossed.gap, crossed.gap_left) == (1, 1)
    chunked = must(cut(log(30, 4, 3, chunks=(chunk(4, 0, 25),), **GAP), 7, applied(30, 3, gap=1), 4))
    assert chunked.gap_left == 1
    done = ended(log(30, 5, 3, finishes=(finish(5, chunk(4, 0, 25)),), **GAP), 5, "completed")
    healed = must(cut(done, 7, applied(30, 4, gap=1), 5))
    assert (healed.gap, healed.gap_left) == (1, None)
    assert must(cut(log(30, 3, segments=SEGMENTS), 7, applied(20, 2), 3)).gap_left is None


@pytest.mark.parametrize("parts", [GAP, {"trimmed_record": 2}], ids=["trimmed log", "deleted target"])
def test_a_snapshot_that_is_stopped_before_it_has_filled_the_gap_leaves_a_table_that_is_refused(
    parts: dict[str, object],
) -> None:
    """Its first chunk has moved the applied record to the log's end: nothing else would tell that rows are missing."""
    state = log(30, 4, 3, chunks=(chunk(4, 0, 30),), **parts)
    first = must(cut(state, 7, applied(5, 1), 4))
    after = applied(30, 4, gap=first.gap_left)
    assert cut(state.model_copy(update={"number": 5}), 7, after, 5) is None
    with pytest.raises(LogTrimmed, match=f"planned after record {first.gap_left}"):
        cut(ended(state, 6), 7, after, 6)
    again = log(30, 9, 8, chunks=(chunk(9, 0, 30),), **parts)
    assert must(cut(again, 7, after, 9)).gap_left == first.gap_left == parts.get("trimmed_record", 1)


def test_chunks_whose_replay_has_left_the_log_are_passed_over_once_a_later_snapshot_reads_everything_again() -> None:
    """The target was away for longer than the retry time, so the log was not kept for what it still lacked."""
    old, young = chunk(4, 0, 15), chunk(4, 1, 25)
    state = log(30, 6, None, chunks=(old, young), finishes=(finish(5, old, young),), **GAP)
    with pytest.raises(LogTrimmed, match="from sequence 15 on"):
        cut(state, 7, applied(30, 3), 6)
    again = log(30, 9, 8, chunks=(old, young), finishes=(finish(5, old, young),), **GAP)
    again = again.model_copy(update={"snapshots": {"again": again.snapshots["s"]}})
    found = must(cut(again, 7, applied(30, 3), 9))
    assert ([c.chunk for c in found.chunks], found.finished, found.gap_left) == ([1], (), 3)
    assert paths(found) == ["s21"]


def test_a_snapshot_whose_own_end_has_left_the_log_rescues_nothing() -> None:
    done = ended(log(30, 9, 3, finishes=(finish(8, chunk(4, 0, 15)),), **GAP), 9, "completed")
    with pytest.raises(LogTrimmed):
        cut(done, 7, applied(5, 1), 5)


def test_a_truncate_fills_every_gap() -> None:
    state = log(30, 3, segments=SEGMENTS, truncates=(truncate(3, 25),))
    assert must(cut(state, 7, applied(20, 2, gap=1), 3)).gap_left is None


def test_a_second_gap_needs_a_snapshot_of_its_own() -> None:
    with pytest.raises(LogTrimmed, match="from sequence 16 on"):
        cut(log(30, 9, 3, **GAP), 7, applied(15, 5, gap=1), 9)


def test_a_gap_is_crossed_in_several_batches_when_the_snapshot_has_ended_already() -> None:
    state = ended(log(30, 9, 3, finishes=(finish(8, chunk(4, 0, 30), chunk(7, 1, 30)),), **GAP), 9, "completed")
    assert must(cut(state, 7, applied(5, 1), 5)).gap_left == 1


def test_records_from_before_the_table_came_or_came_back_bring_nothing() -> None:
    """Another thread may have read on while this batch's end was chosen."""
    state = log(
        30,
        9,
        added_record=8,
        trimmed_through=30,
        schemas=(logged(NEXT, 8, 30),),
    )
    assert cut(state, 7, applied(20, 2), 7) is None
    with pytest.raises(LogTrimmed):
        cut(state, 7, applied(20, 2), 8)


def test_a_table_that_came_back_lacks_what_was_written_meanwhile_even_if_no_sequence_lies_between() -> None:
    newer = (logged(NEXT, 5, 30),)
    state = log(30, 9, 6, added_record=5, trimmed_through=30, schemas=newer)
    assert must(cut(state, 7, applied(30, 4), 9)).gap_left == 4
    with pytest.raises(LogTrimmed, match="after record 4"):
        cut(log(30, 9, added_record=5, trimmed_through=30, schemas=newer), 7, applied(30, 4), 9)
    fresh = log(30, 9, added_record=5, schemas=(logged(SCHEMA, 5, 30),))
    assert cut(fresh, 7, applied(0, 0), 9) is None


def test_holes_of_a_table_that_has_come_back_since_are_dropped() -> None:
    """Its key may have other columns now; the snapshot that it begins with reads every row."""
    held = replace(applied(20, 2), holes=frozenset({("1",)}))
    for added, holes in ((2, {("1",)}), (3, set())):
        found = must(cut(log(30, 3, 3, segments=SEGMENTS, added_record=added), 7, held, 3))
        assert found.applied.holes == holes


def test_a_table_that_the_log_does_not_know_is_refused() -> None:
    with pytest.raises(CorruptLog):
        cut(LogState(number=RecordNumber(1)), 7, applied(0, 0), 1)
