"""Retention: floors over plain states, and the executor on a local folder."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.journals import TABLE_IDS, Journal, table_schema
from support.killed import killed_at
from support.states import chunk, segment
from support.transactions import numbered
from tailrace.changelog import writer
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import bundle_path, record_path, rollup_path, segment_path
from tailrace.changelog.records import Event, Heartbeat, Origin
from tailrace.changelog.records.snapshots import (
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import (
    Applied,
    SegmentsRemoved,
    TableAdded,
    TableRemoved,
    TransactionsRemoved,
    Truncated,
)
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.retention import Ages, Pins, floor, removal
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.state import LogState, SegmentList, fold
from tailrace.changelog.trim import sweep, trim, trim_journal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.errors import Fenced
from tailrace.storage import local
from tailrace.storage.store import AlreadyExists, Storage

HOUR = 3_600_000_000
LATE = Ages(now=10 * HOUR, retention=HOUR, retry=HOUR)


def log(*steps: tuple[Event, ...]) -> LogState:
    """Table 1 with the segments 1..10, 11..20 and 21..30, then a record for each of `steps`."""
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=tuple(TableAdded(table=table_schema(i), edge="5") for i in TABLE_IDS))
    for first in (1, 11, 21):
        journal.plain(rows=10, segments=(segment(1, first, first + 9, path=f"{first}", size=7),))
    for events in steps:
        journal.plain(events=events)
    return journal.state


def applied(seq: int, record: int = 4) -> tuple[Event, ...]:
    return (Applied(table_id=1, applied_seq=Seq(seq), applied_record=RecordNumber(record)),)


def snapshot(replay_point: int) -> tuple[Event, ...]:
    return (
        SnapshotPlanned(snapshot_id="s", tables=(1,)),
        SnapshotTableStarted(snapshot_id="s", table_id=1, max_key=("9",), estimated_rows=9),
        chunk(1, path="c", rows=1, size=1, replay_point=replay_point),
    )


FINISHED = (SnapshotTableFinished(snapshot_id="s", table_id=1, chunks=1, complete=True),)
ENDED = (SnapshotEnded(snapshot_id="s", outcome="stopped"),)
REMOVED = (TableRemoved(table_id=1, reason="excluded"),)
ALL = ("1", "11", "21")

CASES: dict[str, tuple[LogState, Pins, Ages, tuple[str, ...]]] = {
    "nothing before the target has said anything": (log(), Pins(Seq(31)), LATE, ()),
    "everything applied and old": (log(applied(30)), Pins(Seq(31)), LATE, ALL),
    "what the target lacks stays": (log(applied(25)), Pins(Seq(31)), LATE, ("1", "11")),
    "what is young stays": (log(applied(30)), Pins(Seq(31)), Ages(now=HOUR, retention=HOUR, retry=HOUR), ()),
    "what a snapshot taken now would replay stays": (log(applied(30)), Pins(Seq(15)), LATE, ("1",)),
    "what a chunk being read may replay stays": (log(applied(30)), Pins(Seq(31), {1: Seq(11)}), LATE, ("1",)),
    "a chunk of another table pins nothing here": (log(applied(30)), Pins(Seq(31), {2: Seq(1)}), LATE, ALL),
    "what a registered chunk replays stays": (log(applied(30), snapshot(12)), Pins(Seq(31)), LATE, ("1",)),
    "an applied chunk pins while its snapshot goes on": (
        log(snapshot(12), applied(30, 5)), Pins(Seq(31)), LATE, ("1",),
    ),
    "a finish that is not applied pins": (log(snapshot(12), FINISHED, applied(30, 5)), Pins(Seq(31)), LATE, ("1",)),
    "an applied finish pins no more": (log(snapshot(12), FINISHED, applied(30, 6)), Pins(Seq(31)), LATE, ALL),
    "a stopped snapshot whose chunk is applied pins no more": (
        log(snapshot(12), ENDED, applied(30, 5)), Pins(Seq(31)), LATE, ALL,
    ),
    "a removed table pins nothing after the retry time": (log(REMOVED), Pins(Seq(31)), LATE, ALL),
    "a removed table pins until then": (
        log(REMOVED), Pins(Seq(31)), Ages(now=10 * HOUR, retention=HOUR, retry=20 * HOUR), (),
    ),
    "a table that is cut off keeps only what snapshots need": (
        log(snapshot(12)), Pins(Seq(31), cut_off=frozenset({1})), LATE, ("1",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_segments_go_when_they_are_old_and_below_the_floor(case: str) -> None:
    state, pins, ages, paths = CASES[case]
    assert removal(state, pins, ages).paths == paths


@pytest.mark.parametrize(("later", "paths"), [(2 * HOUR, ALL), (10 * HOUR, ("1",)), (98 * HOUR, ("1",))])
def test_what_was_written_while_the_clock_was_ahead_is_as_old_as_what_follows(
    later: int, paths: tuple[str, ...]
) -> None:
    state = log(applied(30))
    times = (HOUR, 99 * HOUR, later)
    segments = (s.model_copy(update={"written_at": at}) for s, at in zip(state.tables[1].segments, times, strict=True))
    table = state.tables[1].model_copy(update={"segments": SegmentList.of(segments)})
    ahead = state.model_copy(update={"tables": state.tables | {1: table}})
    assert removal(ahead, Pins(Seq(31)), LATE).paths == paths


def test_an_idle_table_pins_nothing_and_a_truncate_goes_like_a_segment() -> None:
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(TableAdded(table=table_schema(1), edge="5"), TableAdded(table=table_schema(2), edge="5")))
    journal.plain(rows=1, events=(Truncated(table_id=1, seq=Seq(1), transaction="1001"),))
    journal.plain(events=(Applied(table_id=1, applied_seq=Seq(1), applied_record=RecordNumber(2)),))
    going = removal(journal.state, Pins(Seq(2)), LATE)
    assert going.events == (SegmentsRemoved(table_id=1, through_seq=Seq(1)), TransactionsRemoved(through_seq=Seq(1)))


def test_transactions_stay_back_to_where_a_replay_point_may_still_fall() -> None:
    state = log()
    (event,) = removal(state, Pins(Seq(25), {2: Seq(14)}), LATE).events
    assert event == TransactionsRemoved(through_seq=Seq(13))
    after = fold(state, Journal.following(state, events=(event,)))
    assert after.transactions.starts[0].first_seq == 14
    assert removal(after, Pins(Seq(25), {2: Seq(14)}), LATE).events == ()


def paths(state: LogState) -> set[str]:
    return {logged.segment.path for table in state.tables.values() for logged in table.segments}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_after_a_removal_all_that_is_above_a_floor_is_still_there(seed: int) -> None:
    random = Random(seed)
    journal = Journal(random)
    for _ in journal.records(25):
        pass
    state = journal.state
    now = random.randint(state.transactions.trimmed_through + 1, state.last_seq + 1)
    reading = {
        t: Seq(random.randint(state.transactions.trimmed_through + 1, now)) for t in TABLE_IDS if random.random() < 0.3
    }
    pins, ages = Pins(Seq(now), reading), Ages(now=HOUR, retention=0, retry=HOUR)
    going = removal(state, pins, ages)
    after = fold(state, Journal.following(state, events=going.events))
    for table in state.tables.values():
        low = floor(state, table, pins, ages)
        kept = {s.segment.path for s in after.tables[table.table_id].segments}
        assert {s.segment.path for s in table.segments if s.segment.last_seq >= low} <= kept
        assert kept.isdisjoint(going.paths), "a bundle stays while any table has a segment in it"
        assert [c.chunk for c in after.tables[table.table_id].chunks] == [c.chunk for c in table.chunks]
        points = [c.chunk.replay_point for c in table.chunks if c.chunk.replay_point > table.trimmed_through]
        assert all(point > after.tables[table.table_id].trimmed_through for point in points)
    assert set(going.paths) == paths(state) - paths(after), "and goes with the last one"
    assert len(set(going.paths)) == len(going.paths)
    first = min([now, *reading.values()])
    assert [s for s in state.transactions.starts if s.first_seq >= first] == after.transactions.starts
    assert removal(after, pins, ages).paths == ()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))


def filled(storage: Storage) -> JournalWriter:
    """Three applied segments of table 1 with their files."""
    origin = Journal(Random(1)).origin().events[0]
    assert isinstance(origin, Origin)
    one = JournalWriter.create(storage, origin, Position(5), "a", clock=lambda: 1.0)
    one.append(Position(5), events=(TableAdded(table=table_schema(1), edge="5"),))
    for seq in (1, 2, 3):
        path = segment_path(table_schema(1), Seq(seq), Seq(seq), "ab")
        storage.put(path, b"rows")
        segments = (segment(1, seq, path=path, size=4),)
        one.append(Position(5), Seq(seq), transactions=numbered((seq,), (seq,)), segments=segments)
    one.append(Position(5), events=(Applied(table_id=1, applied_seq=Seq(2), applied_record=RecordNumber(3)),))
    return one


def files(storage: Storage) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in storage.list("segments/")]


def test_trim_records_the_removal_and_names_what_to_delete(storage: Storage) -> None:
    one = filled(storage)
    gone = trim(one, Pins(Seq(4)), LATE)
    assert gone.size == 8
    storage.delete_many(gone.paths)
    storage.delete_many(gone.paths)
    assert files(storage) == ["3-3-ab.parquet"]
    assert JournalReader.open(storage).state.tables[1].trimmed_through == 2
    head = one.state.number
    assert trim(one, Pins(Seq(4)), LATE).events == ()
    assert one.state.number == head


def test_dying_between_record_and_deletion_leaves_what_the_sweep_finds(storage: Storage) -> None:
    one = filled(storage)
    killed_at("retention.after-event", lambda: trim(one, Pins(Seq(4)), LATE))
    assert len(files(storage)) == 3
    being_written = segment_path(table_schema(1), Seq(4), Seq(9), "cd")
    storage.put(being_written, b"rows")
    state = JournalReader.open(storage).state
    assert len(sweep(storage, state)) == 2
    assert files(storage) == ["3-3-ab.parquet", "4-9-cd.parquet"]


def bundled(storage: Storage) -> JournalWriter:
    """Records with a bundle each of both tables; only table 1 has applied all."""
    origin = Journal(Random(1)).origin().events[0]
    assert isinstance(origin, Origin)
    one = JournalWriter.create(storage, origin, Position(5), "a", clock=lambda: 1.0)
    one.append(Position(5), events=tuple(TableAdded(table=table_schema(i), edge="5") for i in (1, 2)))
    for seq in (1, 3):
        path = bundle_path(Seq(seq), Seq(seq + 1), "ab")
        storage.put(path, b"rows")
        segments = tuple(segment(i, at, path=path, size=4) for i, at in ((1, seq), (2, seq + 1)))
        one.append(Position(5), Seq(seq + 1), transactions=numbered((seq,), (seq,)), segments=segments)
    one.append(Position(5), events=applied(4, 3))
    return one


def test_a_bundle_goes_when_its_last_table_lets_it_go(storage: Storage) -> None:
    one = bundled(storage)
    gone = trim(one, Pins(Seq(5)), LATE)
    assert (gone.paths, gone.size) == ((), 8), "table 2 has applied nothing"
    assert [len(table.segments) for table in one.state.tables.values()] == [0, 2]
    one.append(Position(5), events=(Applied(table_id=2, applied_seq=Seq(2), applied_record=RecordNumber(2)),))
    assert trim(one, Pins(Seq(5)), LATE).paths == ("segments/bundles/1-2-ab.arrow",)
    assert trim(one, Pins(Seq(5), cut_off=frozenset({2})), LATE).paths == ("segments/bundles/3-4-ab.arrow",)


def test_the_sweep_takes_bundles_that_no_table_names(storage: Storage) -> None:
    one = bundled(storage)
    trim(one, Pins(Seq(5)), LATE)
    for first, last in ((2, 4), (5, 9)):
        storage.put(bundle_path(Seq(first), Seq(last), "cd"), b"rows")
    storage.put("segments/bundles/theirs.txt", b"x")
    assert sweep(storage, one.state) == ["segments/bundles/2-4-cd.arrow"]
    kept = ["1-2-ab.arrow", "3-4-ab.arrow", "5-9-cd.arrow", "theirs.txt"]
    assert files(storage) == kept, "what is being written ends above the last record"


@pytest.mark.parametrize(
    "foreign", ["README", ".DS_Store", "zzz", "_SUCCESS", "public.t-1/.nfs0001", "public.t-1/x", "bundles/.nfs1"]
)
@pytest.mark.parametrize("make", [filled, bundled])
def test_files_that_are_not_ours_change_nothing_for_those_that_are(
    storage: Storage, make: Callable[[Storage], JournalWriter], foreign: str
) -> None:
    """One of them made the sweep take its neighbours for what no record names."""
    one = make(storage)
    before = files(storage)
    storage.put(f"segments/{foreign}", b"x")
    assert sweep(storage, one.state) == []
    assert sorted(files(storage)) == sorted([*before, foreign.rpartition("/")[2]])


def test_the_sweep_takes_unfinished_files_of_dead_writers_only(storage: Storage) -> None:
    one = filled(storage)
    folder = Path(storage.access.prefix) / "segments" / "public.t-1"
    for name, age in (("dead", 2 * local.ABANDONED), ("writing", 0.0)):
        path = folder / f"{local.TEMPORARY}{name}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    assert len(sweep(storage, one.state)) == 1
    assert [p.name for p in folder.glob(f"{local.TEMPORARY}*")] == [f"{local.TEMPORARY}writing"]


def test_a_fenced_writer_deletes_nothing(storage: Storage) -> None:
    one = filled(storage)
    JournalWriter.claim(storage, "b")
    with pytest.raises(Fenced):
        trim(one, Pins(Seq(4)), LATE)
    assert len(files(storage)) == 3


def test_old_records_below_a_roll_up_go_in_order_and_nobody_misses_them(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    now = [0.0]
    origin = Journal(Random(1)).origin().events[0]
    assert isinstance(origin, Origin)
    one = JournalWriter.create(storage, origin, Position(5), "a", clock=lambda: now[0])
    for hour in range(1, 20):
        now[0] = hour * 3600.0
        one.append(Position(5 + hour), events=(Heartbeat(),))
    assert Rollups.load(storage)[1].number == 19
    killed_at("retention.between-records", lambda: trim_journal(storage, now=20 * HOUR, retention=8 * HOUR), visit=4)
    assert [n for n in range(20) if storage.exists(record_path(n))] == list(range(4, 20))
    assert JournalReader.open(storage).state == one.state
    assert trim_journal(storage, now=20 * HOUR, retention=8 * HOUR) == 8
    assert [n for n in range(20) if storage.exists(record_path(n))] == list(range(12, 20))
    assert [path for path, _ in storage.list("journal/rollup/")] == [rollup_path(14), rollup_path(19)]
    assert trim_journal(storage, now=20 * HOUR, retention=8 * HOUR) == 0
    assert JournalReader.open(storage).state == one.state
    with pytest.raises(AlreadyExists):
        JournalWriter.create(storage, origin, Position(5), "b")
    assert not storage.exists(record_path(0))
