"""The fold: random valid journals, and every kind of record that does not fit."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import states
from support.journals import Journal, table_schema
from support.transactions import numbered
from tailrace.changelog.records import (
    EpochStarted,
    Event,
    Heartbeat,
    Record,
    Segment,
    SourceMoved,
    SourceRenewed,
    Transactions,
)
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotSuspended,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import (
    Applied,
    SchemaChanged,
    SegmentsRemoved,
    TableAdded,
    TableFingerprint,
    TableRemoved,
    TableStopped,
    TransactionsRemoved,
    Truncated,
)
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.state import KEPT_SNAPSHOTS, LogState, fold
from tailrace.errors import CorruptLog

RANDOM = st.integers(0, 2**32).map(Random)


@given(RANDOM, st.integers(1, 40))
def test_a_journal_folds_the_same_at_once_through_json_and_through_roll_ups(random: Random, length: int) -> None:
    journal = Journal(random)
    at_once = stepwise = LogState()
    for record in journal.records(length):
        before = stepwise.model_dump_json()
        again = Record.model_validate_json(record.model_dump_json())
        assert again == record
        at_once = fold(at_once, record)
        after = fold(stepwise, again)
        assert stepwise.model_dump_json() == before, "the old state was changed in place"
        stepwise = LogState.model_validate_json(after.model_dump_json()) if random.random() < 0.5 else after
        assert stepwise == at_once


@given(RANDOM)
def test_the_state_names_exactly_the_segments_and_transactions_that_were_not_removed(random: Random) -> None:
    journal = Journal(random)
    state = LogState()
    for record in journal.records(30):
        state = fold(state, record)
    for table in state.tables.values():
        kept = {s.path: s for s in journal.segments[table.table_id] if s.last_seq > table.trimmed_through}
        assert {s.segment.path for s in table.segments} == set(kept)
        versions = {s.table.version for s in table.schemas}
        assert {s.segment.schema_version for s in table.segments} <= versions
        assert {c.chunk.schema_version for c in table.chunks} <= versions
        assert all(c.record > table.applied_record for c in table.chunks)
    known = {start.first_seq: start.number for start in state.transactions.starts}
    assert known == {s: x for s, x in journal.transactions if s > state.transactions.trimmed_through}


def start() -> LogState:
    """Table 1 and 2 captured, ten sequences, a snapshot `s` of table 1 started, a chunk registered."""
    journal = Journal(Random(1))
    state = LogState()
    events: tuple[Event, ...] = tuple(TableAdded(table=table_schema(i), edge="5") for i in (1, 2))
    plan = (
        SnapshotPlanned(snapshot_id="s", tables=(1,)),
        SnapshotTableStarted(snapshot_id="s", table_id=1, max_key=("9",), estimated_rows=1),
    )
    for record in (journal.origin(), journal.plain(events=events), journal.plain(rows=10), journal.plain(events=plan)):
        state = fold(state, record)
    return fold(state, good(state, events=(chunk(0),)))


def test_values_that_became_null_are_summed_by_column_until_the_table_is_added_again() -> None:
    state = start()
    one = segment(state, nulled=(("b", 2),))
    state = fold(state, good(state, rows=1, segments=(one,), events=(chunk(1, nulled=(("a", 1), ("b", 5))),)))
    state = LogState.model_validate_json(state.model_dump_json())
    state = fold(state, good(state, rows=1, segments=(segment(state, nulled=(("b", 1),)),)))
    assert state.tables[1].nulled == (("a", 1), ("b", 8))
    assert state.tables[2].nulled == ()
    state = fold(state, good(state, events=(TableRemoved(table_id=1, reason="gone"),)))
    again = table_schema(1, version=2)
    assert fold(state, good(state, events=(TableAdded(table=again, edge="5"),))).tables[1].nulled == ()


def test_what_became_null_is_in_a_record_only_where_something_did() -> None:
    """So an older version reads such a log as long as nothing has."""
    without = good(start(), rows=1, segments=(segment(start()),), events=(chunk(1),))
    assert "nulled" not in without.model_dump_json() and "nulled" not in start().model_dump_json()
    record = good(start(), rows=1, segments=(segment(start(), nulled=(("b", 2),)),))
    assert Record.model_validate_json(record.model_dump_json()) == record


NO_RIGHT = ReadFailure(message="ReadRefused: no right", where="source")


def chunk(number: int, **changes: Any) -> ChunkRegistered:
    return states.chunk(1, number, **{"rows": 3, "replay_point": 4 + number, **changes})


def good(state: LogState, rows: int = 0, **changes: Any) -> Record:
    first, last = state.last_seq + 1, state.last_seq + rows
    transactions = numbered((50,), (first,)) if rows else Transactions()
    values: dict[str, Any] = {
        "number": state.number + 1, "epoch": state.epoch, "nonce": state.nonce, "first_seq": first, "last_seq": last,
        "position": state.position, "written_at": 0, "transactions": transactions,
    }  # fmt: skip
    return Record(**{**values, **changes})


def segment(state: LogState, **changes: Any) -> Segment:
    return states.segment(1, state.last_seq + 1, **changes)


def finish(**changes: Any) -> SnapshotTableFinished:
    values: dict[str, Any] = {"snapshot_id": "s", "table_id": 1, "chunks": 1, "complete": True}
    return SnapshotTableFinished(**{**values, **changes})


def with_segment(**changes: Any) -> Callable[[LogState], Record]:
    return lambda s: good(s, rows=3, segments=(segment(s, **changes),))


def with_events(*events: Event) -> Callable[[LogState], Record]:
    return lambda s: good(s, rows=3, events=events)


def planned(snapshot: str, tables: tuple[int, ...]) -> SnapshotPlanned:
    return SnapshotPlanned(snapshot_id=snapshot, tables=tables)


def stopped(table_id: int, seq: int) -> TableStopped:
    return TableStopped(table_id=table_id, seq=Seq(seq), error="NoKey", message="m", fix="f", where="source")


def ids_with(state: LogState, *prefixes: str, of: tuple[int, ...] = ()) -> Transactions:
    return Transactions(prefixes=prefixes, prefix=of, numbers=(1,), first_seqs=(state.last_seq + 1,))


CORRUPTIONS: dict[str, Callable[[LogState], Record]] = {
    "a gap in the numbers": lambda s: good(s, number=s.number + 2),
    "a number twice": lambda s: good(s, number=s.number),
    "a lower epoch": lambda s: good(s, epoch=-1),
    "two writers in one epoch": lambda s: good(s, nonce="other"),
    "an epoch without its event": lambda s: good(s, epoch=s.epoch + 1),
    "an epoch event without an epoch": lambda s: good(s, events=(EpochStarted(),)),
    "a second origin": lambda s: good(s, events=(Journal(Random(1)).origin().events)),
    "a gap in the sequences": lambda s: good(s, first_seq=s.last_seq + 2, last_seq=s.last_seq + 2),
    "sequences that go back": lambda s: good(s, last_seq=s.last_seq - 1),
    "a position that goes back": lambda s: good(s, position=s.position - 1),
    "changes without a transaction": lambda s: good(s, rows=2, transactions=Transactions()),
    "a transaction without changes": lambda s: good(s, transactions=numbered((1,), (11,))),
    "arrays of two lengths": lambda s: good(
        s, rows=2, transactions=Transactions(prefixes=("",), numbers=(1, 2), first_seqs=(11,))
    ),
    "ids without a prefix": lambda s: good(s, rows=1, transactions=ids_with(s)),
    "ids with one of two prefixes": lambda s: good(s, rows=1, transactions=ids_with(s, "a:", "b:")),
    "ids with more prefixes than numbers": lambda s: good(s, rows=1, transactions=ids_with(s, "a:", of=(0, 0))),
    "ids with a prefix that is not told": lambda s: good(s, rows=1, transactions=ids_with(s, "a:", of=(1,))),
    "ids with a prefix from the end": lambda s: good(s, rows=1, transactions=ids_with(s, "a:", of=(-1,))),
    "changes before the first transaction": lambda s: good(s, rows=2, transactions=numbered((1,), (s.last_seq + 2,))),
    "transactions that do not rise": lambda s: good(
        s,
        rows=2,
        transactions=numbered((1, 2, 3), (s.last_seq + 1, s.last_seq + 2, s.last_seq + 1)),
    ),
    "commit times reversed": lambda s: good(s, rows=1, commit_time=(2, 1)),
    "a segment of an unknown table": with_segment(table_id=9),
    "a segment of an unknown version": with_segment(schema_version=2),
    "a segment before the record": with_segment(first_seq=10),
    "a segment after the record": with_segment(last_seq=14),
    "a segment without rows": with_segment(rows=0),
    "a segment with too many rows": with_segment(rows=2),
    "overlapping segments": lambda s: good(s, rows=3, segments=(segment(s), segment(s))),
    "a segment above its schema version": lambda s: good(
        s,
        rows=3,
        segments=(segment(s, last_seq=s.last_seq + 2),),
        events=(SchemaChanged(table=table_schema(1, 2), seq=Seq(s.last_seq + 1)),),
    ),
    "a segment above the table's stop": lambda s: good(
        s, rows=3, segments=(segment(s),), events=(stopped(1, s.last_seq),)
    ),
    "a table added twice": with_events(TableAdded(table=table_schema(1), edge="5")),
    "a new table with version 2": with_events(TableAdded(table=table_schema(3, 2), edge="5")),
    "an unknown table removed": with_events(TableRemoved(table_id=9, reason="r")),
    "a table removed twice": with_events(TableRemoved(table_id=1, reason=""), TableRemoved(table_id=1, reason="")),
    "a table stopped in the future": with_events(stopped(1, 99)),
    "a skipped schema version": with_events(SchemaChanged(table=table_schema(1, 3), seq=Seq(11))),
    "a schema change before the record": with_events(SchemaChanged(table=table_schema(1, 2), seq=Seq(9))),
    "a truncate outside the record": with_events(Truncated(table_id=1, seq=Seq(10), transaction="50")),
    "a truncate twice": with_events(*[Truncated(table_id=1, seq=Seq(11), transaction="50")] * 2),
    "applied in the future": with_events(Applied(table_id=1, applied_seq=Seq(3), applied_record=RecordNumber(99))),
    "applied of an unknown table": with_events(Applied(table_id=9, applied_seq=Seq(3), applied_record=RecordNumber(1))),
    "segments removed in the future": with_events(SegmentsRemoved(table_id=1, through_seq=Seq(99))),
    "transactions removed in the future": with_events(TransactionsRemoved(through_seq=Seq(99))),
    "a snapshot planned twice": with_events(planned("s", (1,))),
    "a snapshot of an unknown table": with_events(planned("t", (9,))),
    "a table started twice": with_events(
        SnapshotTableStarted(snapshot_id="s", table_id=1, max_key=None, estimated_rows=0)
    ),
    "a chunk of an unknown snapshot": with_events(chunk(1, snapshot_id="t")),
    "a chunk of a table not covered": with_events(chunk(1, table_id=2)),
    "a chunk before the start": with_events(planned("t", (2,)), chunk(1, snapshot_id="t", table_id=2)),
    "a chunk twice": with_events(chunk(0)),
    "a chunk whose high was not reached": with_events(chunk(1, high=10**9)),
    "a replay point in the future": with_events(chunk(1, replay_point=15)),
    "a replay point below the kept log": with_events(SegmentsRemoved(table_id=1, through_seq=Seq(5)), chunk(1)),
    "a replay point below the known transactions": with_events(TransactionsRemoved(through_seq=Seq(5)), chunk(1)),
    "a chunk of an unknown version": with_events(chunk(1, schema_version=2)),
    "a chunk of a removed table": with_events(TableRemoved(table_id=1, reason="r"), chunk(1)),
    "a finish that misses chunks": with_events(finish(chunks=2)),
    "a finish twice": with_events(finish(), finish()),
    "a chunk after the finish": with_events(finish(), chunk(1)),
    "an end twice": with_events(*[SnapshotEnded(snapshot_id="s", outcome="stopped")] * 2),
    "a pause after the end": with_events(
        SnapshotEnded(snapshot_id="s", outcome="stopped"), SnapshotSuspended(snapshot_id="s", suspended=True)
    ),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_a_record_that_does_not_fit_is_refused(kind: str) -> None:
    state = start()
    with pytest.raises(CorruptLog, match=r"journal record"):
        fold(state, CORRUPTIONS[kind](state))


def test_the_records_that_the_corruptions_spoil_would_fit() -> None:
    state = start()
    assert fold(state, good(state, rows=3, segments=(segment(state),), events=(Heartbeat(), chunk(1)))).last_seq == 13
    assert fold(state, good(state, events=(finish(),))).tables[1].finishes[0].complete


def test_a_journal_begins_with_its_origin() -> None:
    with pytest.raises(CorruptLog, match="origin"):
        fold(LogState(), good(LogState(), epoch=0))


def test_another_format_version_is_refused() -> None:
    record = Journal(Random(1)).origin()
    newer = record.model_copy(update={"events": (record.events[0].model_copy(update={"format_version": 7}),)})
    with pytest.raises(CorruptLog, match="format version 7, this is 6"):
        fold(LogState(), newer)


def test_a_finish_holds_the_snapshots_chunks_also_those_that_the_target_already_has() -> None:
    state = start()
    registered = state.number
    state = fold(
        state, good(state, events=(chunk(1), Applied(table_id=1, applied_seq=Seq(10), applied_record=registered)))
    )
    assert [c.chunk.chunk for c in state.tables[1].chunks] == [1]
    state = fold(state, good(state, events=(finish(chunks=2),)))
    (finished,) = state.tables[1].finishes
    assert finished.replay_point == 4
    assert [(c.chunk.chunk, c.record) for c in finished.chunks] == [(0, registered), (1, registered + 1)]
    done = Applied(table_id=1, applied_seq=Seq(10), applied_record=state.number)
    state = fold(state, good(state, events=(done,)))
    assert not state.tables[1].chunks and not state.tables[1].finishes
    assert state.tables[1].trimmed_record == registered + 2


@pytest.mark.parametrize("reread", [True, False])
def test_a_snapshot_replaces_no_rows_once_its_table_is_read_again(reread: bool) -> None:
    state = start()
    schema = state.tables[1].schema.model_copy(update={"version": 2})
    changed = SchemaChanged(table=schema, seq=state.last_seq, reread=reread)
    state = fold(state, good(state, events=(changed,)))
    state = fold(state, good(state, events=(finish(),)))
    assert [ended.complete for ended in state.tables[1].finishes] == [not reread]
    assert state.tables[1].reread_record == (state.number - 1 if reread else -1)


def test_the_end_of_a_partial_snapshot_that_is_forgotten_is_missed_by_no_target() -> None:
    """It brings the table nothing: the target covers its record without a commit, and stays at the chunk's."""
    state = start()
    registered = state.number
    state = fold(state, good(state, events=(finish(complete=False),)))
    state = fold(state, good(state, events=(Applied(table_id=1, applied_seq=Seq(10), applied_record=state.number),)))
    assert (state.tables[1].finishes, state.tables[1].trimmed_record) == ((), registered)


def test_a_table_that_comes_back_begins_anew_above_the_gap() -> None:
    state = start()
    state = fold(state, good(state, rows=2, segments=(segment(state),), events=(planned("t", (2,)),)))
    state = fold(state, good(state, events=(TableRemoved(table_id=1, reason="r"),)))
    state = fold(state, good(state, rows=3, events=(TableAdded(table=table_schema(1, 2), edge="60"),)))
    table = state.tables[1]
    assert (table.trimmed_through, len(table.segments), table.removed, table.ended_at) == (12, 0, False, None)
    assert table.schema.version == 2


@pytest.mark.parametrize(("where", "must_hide"), [(None, False), ('"id" > 1', False), (None, True)])
def test_a_stopped_table_that_comes_back_with_another_row_filter_or_mask_has_a_new_target(
    where: str | None, must_hide: bool
) -> None:
    state = start()
    state = fold(state, good(state, events=(stopped(1, state.last_seq),)))
    before, schema = state.tables[1].generation, state.tables[1].schema
    table = schema.model_copy(update={"where": where, "version": schema.version + 1})
    state = fold(state, good(state, events=(TableAdded(table=table, edge="60", must_hide=must_hide),)))
    assert (state.tables[1].generation == before) == (where is None and not must_hide)


def test_only_the_newest_ended_snapshots_are_remembered() -> None:
    state = start()
    for number in range(KEPT_SNAPSHOTS + 5):
        events = (planned(f"n{number}", (2,)), SnapshotEnded(snapshot_id=f"n{number}", outcome="completed"))
        state = fold(state, good(state, events=events))
    assert list(state.snapshots) == ["s", *(f"n{i}" for i in range(5, KEPT_SNAPSHOTS + 5))]


def test_the_outcome_of_a_request_is_not_forgotten_for_repairs() -> None:
    state = start()
    for number in range(KEPT_SNAPSHOTS + 5):
        request = "asked" if number == 0 else None
        plan = planned(f"n{number}", (2,)).model_copy(update={"request": request})
        events = (plan, SnapshotEnded(snapshot_id=f"n{number}", outcome="completed"))
        state = fold(state, good(state, events=events))
    assert "n0" in state.snapshots and "n4" not in state.snapshots and "n5" in state.snapshots


def test_a_table_that_could_not_be_read_whole_is_known_longer_than_its_snapshot() -> None:
    state = start()
    failed = SnapshotTableFinished(snapshot_id="w", table_id=2, chunks=0, complete=False, error=NO_RIGHT)
    ended = SnapshotEnded(snapshot_id="w", outcome="failed")
    state = fold(state, good(state, events=(planned("w", (2,)), failed, ended)))
    for number in range(KEPT_SNAPSHOTS + 1):
        part = planned(f"n{number}", (2,)).model_copy(update={"where": "id < 5"})
        stop = SnapshotEnded(snapshot_id=part.snapshot_id, outcome="stopped")
        state = fold(state, good(state, events=(part, stop)))
    assert "w" not in state.snapshots
    assert state.tables[2].unread == NO_RIGHT
    assert state.tables[1].unread is None


def test_a_snapshot_is_remembered_until_targets_hold_its_end_and_have_passed_the_chunks_it_makes_up_for() -> None:
    state = start()
    state = fold(state, good(state, events=(finish(), SnapshotEnded(snapshot_id="s", outcome="completed"))))
    plan = planned("lost", (1,)).model_copy(update={"reason": "repair", "replaces": (("s", 0),)})
    state = fold(state, good(state, events=(plan, SnapshotEnded(snapshot_id="lost", outcome="completed"))))

    def later(state: LogState, name: str) -> LogState:
        for number in range(KEPT_SNAPSHOTS + 5):
            events = (planned(f"{name}{number}", (2,)), SnapshotEnded(snapshot_id=f"{name}{number}", outcome="stopped"))
            state = fold(state, good(state, events=events))
        return state

    state = later(state, "n")
    assert {"s", "lost"} < set(state.snapshots)
    done = Applied(table_id=1, applied_seq=Seq(10), applied_record=state.number)
    state = later(fold(state, good(state, events=(done,))), "m")
    assert not {"s", "lost"} & set(state.snapshots)


def test_commit_times_are_kept_for_records_that_a_table_has_still_to_apply() -> None:
    state = start()
    for number in range(4):
        records = good(state, rows=1, segments=(segment(state),), commit_time=(number, number))
        state = fold(state, records)
    applied = Applied(table_id=1, applied_seq=Seq(12), applied_record=RecordNumber(state.number - 2))
    state = fold(state, good(state, events=(applied,)))
    assert [oldest for _, oldest in state.commit_times.lines().tolist()] == [2, 3]


def test_a_fingerprint_ends_with_the_table() -> None:
    state = start()
    table_id = next(iter(state.tables))
    parts = {"file": {"7": "70"}, "partition": {}}
    event = TableFingerprint(table_id=table_id, parts=parts)
    state = fold(state, Record.model_validate_json(good(state, events=(event,)).model_dump_json()))
    found = LogState.model_validate_json(state.model_dump_json()).tables[table_id]
    assert found.fingerprint == parts
    state = fold(state, good(state, events=(TableRemoved(table_id=table_id, reason=""),)))
    with pytest.raises(CorruptLog, match="no longer captured"):
        fold(state, good(state, events=(TableFingerprint(table_id=table_id, parts={}),)))


def stop(snapshot_id: str) -> SnapshotEnded:
    return SnapshotEnded(snapshot_id=snapshot_id, outcome="stopped", message="stopped by request")


def joined(*later: Event) -> LogState:
    """Table 2 is taken in again for the resync "r", then follows what is given."""
    state = start()
    asked = planned("r", (2,)).model_copy(update={"resync": True, "request": "r"})
    state = fold(state, good(state, events=(asked,)))
    added = TableAdded(table=table_schema(2, 2), edge="60", snapshot=False, resync="r")
    state = fold(state, good(state, events=(TableRemoved(table_id=2, reason="resync"), added)))
    for event in later:
        state = fold(state, good(state, events=(event,)))
    return state


def test_a_resync_that_is_stopped_after_it_emptied_the_target_leaves_a_word() -> None:
    unread = joined(stop("r")).tables[2].unread
    message = "snapshot r ended before it had read the whole table: stopped by request"
    assert unread == ReadFailure(message=message, where="driver")


@pytest.mark.parametrize("reason", ["initial", "schema", "repair"])
def test_a_snapshot_that_tailrace_ordered_is_not_stopped_without_a_word(reason: str) -> None:
    state = joined(planned("own", (2,)).model_copy(update={"reason": reason}), stop("r"))
    state = fold(state, good(state, events=(stop("own"),)))
    unread = state.tables[2].unread
    assert unread is not None
    assert "snapshot own" in unread.message


def asked(snapshot_id: str) -> SnapshotPlanned:
    return planned(snapshot_id, (2,)).model_copy(update={"request": snapshot_id})


@pytest.mark.parametrize("first", ["stopped", "failed"])
def test_what_another_snapshot_was_to_read_and_did_not_is_told(first: str) -> None:
    failed = SnapshotTableFinished(snapshot_id="r", table_id=2, chunks=0, complete=False, error=NO_RIGHT)
    over = stop("r") if first == "stopped" else failed
    state = joined(asked("q"), over, stop("q"))
    assert state.tables[2].unread is not None


def test_what_another_snapshot_has_read_is_missed_no_more() -> None:
    done = chunk(0, snapshot_id="q", table_id=2, path="p", schema_version=2, replay_point=11)
    begun = SnapshotTableStarted(snapshot_id="q", table_id=2, max_key=None, estimated_rows=9)
    read = SnapshotTableFinished(snapshot_id="q", table_id=2, chunks=1, complete=True)
    assert joined(asked("q"), stop("r"), begun, done, read).tables[2].unread is None
    assert joined(asked("q"), begun, done, read, stop("r")).tables[2].unread is None


def test_a_request_that_is_stopped_leaves_the_table_as_it_was() -> None:
    state = start()
    state = fold(state, good(state, events=(planned("q", (2,)).model_copy(update={"request": "q"}),)))
    assert fold(state, good(state, events=(stop("q"),))).tables[2].unread is None


def test_what_an_older_snapshot_reads_does_not_make_up_for_a_newer_one_that_failed() -> None:
    state = joined(
        stop("r"),
        planned("old", (2,)),
        SnapshotTableStarted(snapshot_id="old", table_id=2, max_key=None, estimated_rows=9),
        chunk(0, snapshot_id="old", table_id=2, path="p", schema_version=2, replay_point=11),
        planned("new", (2,)),
        SnapshotTableFinished(snapshot_id="new", table_id=2, chunks=0, complete=False, error=NO_RIGHT),
        SnapshotTableFinished(snapshot_id="old", table_id=2, chunks=1, complete=True),
    )
    assert state.tables[2].unread == NO_RIGHT


def registering(state: LogState, ordinals: list[int]) -> LogState:
    for ordinal in ordinals:
        read = chunk(ordinal, snapshot_id="many", table_id=2, path="p", replay_point=11)
        state = fold(state, good(state, events=(read,)))
    return state


def many() -> LogState:
    state = start()
    begun = SnapshotTableStarted(snapshot_id="many", table_id=2, max_key=None, estimated_rows=9)
    return fold(state, good(state, events=(planned("many", (2,)), begun)))


@pytest.mark.parametrize("again", [0, 3, 5])
def test_no_chunk_is_registered_twice_in_whatever_order_they_come(again: int) -> None:
    state = registering(many(), [3, 0, 5, 2, 1])
    with pytest.raises(CorruptLog, match="registered already"):
        registering(state, [again])
    whole = registering(state, [4, 6]).snapshots["many"].tables[2]
    assert (whole.next_chunk, whole.missing) == (7, ())


def test_a_chunk_is_registered_without_a_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """12,000 chunks took 12 s, most of it to see that none of them was there already."""
    state = registering(many(), list(range(200)))
    seen: list[int] = []

    def ordinal(chunk: ChunkRegistered) -> int:
        seen.append(1)
        return int(chunk.__dict__["chunk"])

    monkeypatch.setattr(ChunkRegistered, "chunk", property(ordinal), raising=False)
    registering(state, [200])
    assert 0 < len(seen) < 20


def test_a_source_that_moved_keeps_everything_and_begins_behind_what_was_read() -> None:
    state = start()
    moved = SourceMoved(identity={"server": "other"})
    at = Position(state.position + 7)
    after = fold(state, good(state, position=at, events=(moved,)))
    assert after.origin is not None and after.origin.identity == {"server": "other"}
    assert (after.source_since, after.tables, after.snapshots) == (at, state.tables, state.snapshots)
    assert after.transactions == state.transactions
    with pytest.raises(CorruptLog, match="below"):
        fold(state, good(state, position=Position(state.position - 1), events=(moved,)))


def test_a_stream_that_begins_again_may_do_so_before_where_its_source_moved() -> None:
    state = start()
    state = fold(state, good(state, position=Position(9000), events=(SourceMoved(identity={}),)))
    renewed = fold(
        state, good(state, position=Position(3), events=(SourceRenewed(id="all", request="all", identity={}),))
    )
    assert (renewed.position, renewed.source_since) == (3, 3)
