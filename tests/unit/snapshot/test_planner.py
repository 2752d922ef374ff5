import hashlib
import itertools
from collections.abc import Sequence
from random import Random
from typing import Literal

import pytest

from support.journals import Journal, table_schema
from support.states import chunk, keyed, logged, snapshot, table_log
from support.states import log_state as log
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import SchemaChanged, TableAdded, TableForgotten, TableRemoved
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import (
    LoggedChunk,
    LogState,
    SnapshotTable,
    TableLog,
)
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import SnapshotRequest, SnapshotRequestSpec
from tailrace.driver.telling.status import unread
from tailrace.errors import InvalidManifest
from tailrace.snapshot import planner
from tailrace.snapshot.planner import Holes
from tailrace.sources.resyncs import resyncs


def table(table_id: int, name: str, **more: object) -> TableLog:
    return table_log(keyed(table_id, name, "public"), 3, **more)


def test_an_added_table_gets_one_initial_snapshot_and_no_second() -> None:
    state = log(table(7, "a", initial_snapshot=True), table(8, "b"))
    plans = planner.due_snapshots(state, {})
    assert [(p.snapshot_id, p.reason, p.tables) for p in plans] == [("initial-7-3", "initial", (7,))]
    known = log(*state.tables.values(), snapshots={"initial-7-3": snapshot(plans[0])})
    assert planner.due_snapshots(known, {}) == ()


def test_a_long_snapshot_that_ends_late_does_not_call_for_forgotten_ones_again() -> None:
    """Its plan is old; the younger table's own snapshot was planned, ended and forgotten since."""
    young = table(7, "a", initial_snapshot=True, added_record=100)
    plan = SnapshotPlanned(snapshot_id="initial-6-1", reason="initial", tables=(6,))
    long = snapshot(plan, record=2, ended=SnapshotEnded(snapshot_id="initial-6-1", outcome="completed"))
    state = log(young, snapshots={plan.snapshot_id: long}).model_copy(update={"forgotten_plan": 101})
    assert planner.due_snapshots(state, {}) == ()
    assert [p.snapshot_id for p in planner.due_snapshots(state.model_copy(update={"forgotten_plan": 99}), {})] == [
        "initial-7-100"
    ]


def test_a_removed_table_is_not_read() -> None:
    assert planner.due_snapshots(log(table(7, "a", initial_snapshot=True, removed=True)), {}) == ()


def test_a_rewrite_of_the_table_calls_for_reading_it_again() -> None:
    old = table(7, "a")
    newer = old.schema.model_copy(update={"version": 2})
    changed = old.model_copy(update={"schemas": (*old.schemas, logged(newer, 5, 9, reread=True))})
    assert [(p.snapshot_id, p.reason) for p in planner.due_snapshots(log(changed), {})] == [("schema-7-2-5", "schema")]


def test_holes_are_repaired_one_snapshot_at_a_time_and_only_after_the_last_was_applied() -> None:
    holes = {7: Holes(RecordNumber(5), frozenset({("2",), ("1",)}))}
    (plan,) = planner.due_snapshots(log(table(7, "a")), holes)
    assert (plan.reason, plan.keys) == ("repair", (("1",), ("2",)))
    running = {plan.snapshot_id: snapshot(plan)}
    assert planner.due_snapshots(log(table(7, "a"), snapshots=running), holes) == ()
    ended = snapshot(plan, ended=SnapshotEnded(snapshot_id=plan.snapshot_id, outcome="completed"))
    read = LoggedChunk(record=RecordNumber(6), chunk=chunk(snapshot_id=plan.snapshot_id))
    state = log(table(7, "a", chunks=(read,)), snapshots={"other": ended})
    assert planner.due_snapshots(state, holes) == ()
    assert len(planner.due_snapshots(state, {7: Holes(RecordNumber(6), frozenset({("2",)}))})) == 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_REPAIR_KEYS", 10)
    monkeypatch.setattr(planner, "MANY_HOLES", 100)


def numbered(count: int) -> dict[int, Holes]:
    return {7: Holes(RecordNumber(5), frozenset((f"{i:07}",) for i in range(count)))}


@pytest.mark.usefixtures("few")
def test_holes_that_come_back_do_not_keep_a_repair_from_others() -> None:
    holes, read, state = numbered(planner.MANY_HOLES), set[Key](), log(table(7, "a"))
    for number in range(10, 500):
        (plan,) = planner.due_snapshots(state.model_copy(update={"number": number}), holes)
        assert plan.keys is not None and len(set(plan.keys)) == planner.MAX_REPAIR_KEYS
        read |= set(plan.keys)
    assert read == holes[7].keys


@pytest.mark.usefixtures("few")
def test_a_table_with_very_many_holes_is_read_again_as_a_whole_unless_it_is_being_read() -> None:
    holes = numbered(planner.MANY_HOLES + 1)
    (plan,) = planner.due_snapshots(log(table(7, "a")), holes)
    assert (plan.reason, plan.keys, plan.where) == ("repair", None, None)
    assert planner.due_snapshots(log(table(7, "a"), snapshots={plan.snapshot_id: snapshot(plan)}), holes) == ()
    read = SnapshotPlanned(snapshot_id="r", tables=(7,))
    (plan,) = planner.due_snapshots(log(table(7, "a"), snapshots={"r": snapshot(read)}), holes)
    assert plan.keys is not None


def test_a_repair_that_failed_is_not_ordered_again_at_once() -> None:
    holes = {7: Holes(RecordNumber(5), frozenset({("1",)}))}
    (plan,) = planner.due_snapshots(log(table(7, "a")), holes)
    failed = snapshot(plan, ended=SnapshotEnded(snapshot_id=plan.snapshot_id, outcome="failed"))
    state = log(table(7, "a"), snapshots={plan.snapshot_id: failed})
    assert planner.due_snapshots(state.model_copy(update={"number": 50}), holes) == ()
    assert len(planner.due_snapshots(state.model_copy(update={"number": 200}), holes)) == 1
    again = log(table(7, "a", added_record=40), snapshots={plan.snapshot_id: failed})
    assert len(planner.due_snapshots(again.model_copy(update={"number": 50}), holes)) == 1


def lost(table_id: int, number: int) -> ChunkRegistered:
    return chunk(table_id, number, path=f"file:///{number}", rows=2, size=1)


def test_however_many_chunk_files_of_a_table_are_lost_it_is_read_again_once() -> None:
    chunks = {t: tuple(LoggedChunk(record=RecordNumber(2), chunk=lost(t, n)) for n in range(4)) for t in (7, 8)}
    state = log(*(table(t, "t").model_copy(update={"chunks": chunks[t]}) for t in (7, 8)))
    plans = planner.rereads_of_lost(state, [lost(7, 1), lost(8, 0), lost(7, 2), lost(7, 1)])
    assert [(p.tables, p.keys, p.replaces) for p in plans] == [
        ((7,), None, (("s", 1), ("s", 2))),
        ((8,), None, (("s", 0),)),
    ]
    known = log(*state.tables.values(), snapshots={p.snapshot_id: snapshot(p) for p in plans})
    assert planner.rereads_of_lost(known, [lost(7, 2), lost(8, 0)]) == ()
    (more,) = planner.rereads_of_lost(known.model_copy(update={"number": 12}), [lost(7, 2), lost(7, 3)])
    assert more.replaces == (("s", 3),)
    applied = log(table(7, "t"), table(8, "t"))
    assert planner.rereads_of_lost(applied, [lost(7, 1)]) == (), "made up for, and the plan is forgotten"


def as_written(table: TableLog, keys: Sequence[Key]) -> tuple[Key, ...]:
    return tuple(keys)


def test_a_request_takes_the_tables_that_match_its_patterns() -> None:
    body = SnapshotBody(name="r", spec=SnapshotRequestSpec(replicator="shop", tables=("public.a*",), where="x > 1"))
    plan = planner.request_plan(log(table(7, "ab"), table(8, "b"), table(9, "a")), "id", body, as_written)
    assert (plan.tables, plan.where, plan.request) == ((9, 7), "x > 1", "r")


def test_a_verification_by_a_pattern_passes_over_tables_that_cannot_be_compared() -> None:
    every = keyed(8, "h", "public").model_copy(update={"history": "Changes"})
    state = log(table(7, "a"), table_log(every, 3))

    def asked(*tables: str) -> SnapshotBody:
        return SnapshotBody(name="r", spec=SnapshotRequestSpec(replicator="shop", tables=tables, mode="Verify"))

    assert planner.request_plan(state, "id", asked("*.*"), as_written).tables == (7,)
    for patterns in (("public.h",), ("public.h*",), ("*.*", "public.h")):
        with pytest.raises(InvalidManifest, match=r"public\.h has a row for each change"):
            planner.request_plan(state, "id", asked(*patterns), as_written)


@pytest.mark.parametrize("history", ["SoftDelete", "Versions"])
def test_a_copy_with_a_past_is_verified_but_not_taken_over_from_another_program(history: str) -> None:
    kept = keyed(8, "h", "public").model_copy(update={"history": history})
    state = log(table(7, "a"), table_log(kept, 3))

    def asked(mode: Literal["Verify", "Repair"], *tables: str) -> SnapshotBody:
        return SnapshotBody(name="r", spec=SnapshotRequestSpec(replicator="shop", tables=tables, mode=mode))

    modes: list[Literal["Verify", "Repair"]] = ["Verify", "Repair"]
    for mode in modes:
        assert planner.request_plan(state, "id", asked(mode, "*.*"), as_written).tables == (7, 8)
    assert planner.request_plan(state, "id", asked("Verify", "public.h"), as_written, changed={8}).tables == (8,)
    assert planner.request_plan(state, "id", asked("Repair", "*.*"), as_written, changed={8}).tables == (7,)
    with pytest.raises(InvalidManifest, match=r"another program changed the copy of public\.h"):
        planner.request_plan(state, "id", asked("Repair", "public.h"), as_written, changed={8})


def test_a_request_that_fits_no_table_names_those_there_are() -> None:
    body = SnapshotBody(name="r", spec=SnapshotRequestSpec(replicator="shop", tables=("public.x",)))
    with pytest.raises(InvalidManifest, match=r"public\.ab"):
        planner.request_plan(log(table(7, "ab")), "id", body, as_written)


def test_keys_of_the_wrong_width_are_refused_with_the_key_columns() -> None:
    spec = SnapshotRequestSpec(replicator="shop", tables=("public.a",), keys=(("1", "2"),))
    with pytest.raises(InvalidManifest, match=r"\(id\)"):
        planner.request_plan(log(table(7, "a")), "id", SnapshotBody(name="r", spec=spec), as_written)


def test_a_changed_request_of_the_same_name_is_another_snapshot_a_suspended_one_is_not() -> None:
    def request(**spec: object) -> SnapshotRequest:
        return SnapshotRequest.model_validate(
            {
                "apiVersion": "tailrace.dev/v1alpha1",
                "kind": "SnapshotRequest",
                "metadata": {"name": "r"},
                "spec": {"replicator": "shop", "tables": ["public.a"]} | spec,
            }
        )

    assert planner.request_id(request()) == planner.request_id(request(suspend=True))
    assert planner.request_id(request()) != planner.request_id(request(where="x"))
    first = {"replicator", "tables", "where", "keys", "chunk_rows", "parallelism", "suspend"}
    text = request().spec.model_dump_json(include=first)
    assert planner.request_id(request()) == f"r-{hashlib.sha256(text.encode()).hexdigest()[:12]}", "as before upgrades"


def test_a_snapshot_ends_when_its_last_table_is_finished_and_fails_when_one_failed() -> None:
    plan = SnapshotPlanned(snapshot_id="s", tables=(7, 8))
    done = SnapshotTableFinished(snapshot_id="s", table_id=7, chunks=1, complete=True)
    away = ReadFailure(message="Retry: away", fix="Wait.", where="source")
    failed = SnapshotTableFinished(snapshot_id="s", table_id=8, chunks=0, complete=False, error=away)
    half = {7: SnapshotTable(table_id=7, finished=done), 8: SnapshotTable(table_id=8)}
    assert planner.endings(log(snapshots={"s": snapshot(plan, tables=half)})) == ()
    whole = half | {8: SnapshotTable(table_id=8, finished=failed)}
    (end,) = planner.endings(log(snapshots={"s": snapshot(plan, tables=whole)}))
    assert isinstance(end, SnapshotEnded)
    assert (end.outcome, end.message) == ("failed", "Retry: away. Fix: Wait.")


def test_chunks_grow_and_shrink_towards_the_wanted_time() -> None:
    size = planner.WHOLE_BYTES
    assert planner.next_chunk_rows(None, 20_000, size, 0.1, 10) == 80_000
    assert planner.next_chunk_rows(None, 20_000, 100 * size, 100, 10) == 5_000
    assert planner.next_chunk_rows(None, 20_000, 2 * size, 20, 10) == 10_000
    assert planner.next_chunk_rows(500, 20_000, size, 20, 10) == 500


def test_chunks_take_up_to_three_times_as_long_where_their_files_would_be_compacted_again() -> None:
    size = planner.WHOLE_BYTES
    assert planner.next_chunk_rows(None, 20_000, size // 2, 10, 10) == 40_000
    assert planner.next_chunk_rows(None, 20_000, size // 100, 10, 10) == 60_000
    assert planner.next_chunk_rows(None, 20_000, size, 20, 10) == 20_000


def test_the_last_chunks_of_a_large_table_are_shared_among_its_readers() -> None:
    assert planner.shared_chunk_rows(1_280_000, 20_000_000, 2) == 1_280_000
    assert planner.shared_chunk_rows(1_280_000, 3_600_000, 2) == 900_000
    assert planner.shared_chunk_rows(1_280_000, 400_000, 2) == 320_000
    assert planner.shared_chunk_rows(160_000, 200_000, 4) == 100_000
    assert planner.shared_chunk_rows(20_000, 30_000, 2) == 20_000


def test_too_low_an_estimate_does_not_keep_the_chunks_of_a_large_table_small() -> None:
    """A quarter of each chunk cancelled that the next may have four times its rows: 100,000 to the table's end."""
    assert planner.shared_chunk_rows(1_280_000, 0, 2) == planner.shared_chunk_rows(1_280_000, -50_000, 2) == 1_280_000
    rows, cut, sizes = planner.FIRST_CHUNK_ROWS, 0, list[int]()
    while cut < 100_000_000:
        sizes.append(planner.shared_chunk_rows(rows, 500_000 - cut, 2))
        cut += sizes[-1]
        rows = planner.next_chunk_rows(None, sizes[-1], 25 * sizes[-1], 0.3 + sizes[-1] / 150_000, 10)
    assert max(sizes) > 1_000_000 and len(sizes) < 80


def test_an_ended_snapshot_forgets_its_keys_and_still_knows_its_request() -> None:
    """Ten thousand keys of each of a hundred ended snapshots stayed in the state and in every roll-up."""
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(TableAdded(table=table_schema(1), edge="5"),))
    keys = [[str(number)] for number in range(99)]
    asked = SnapshotBody.model_validate(
        {"name": "again", "spec": {"replicator": "shop", "tables": ["public.t1"], "keys": keys}}
    )
    plan = planner.request_plan(journal.state, "id", asked, as_written)
    journal.plain(events=(plan,))
    assert planner.is_plan_of(journal.state.snapshots["id"], "id", asked)
    journal.plain(events=(SnapshotEnded(snapshot_id="id", outcome="stopped"),))
    ended = journal.state.snapshots["id"]
    assert ended.plan.keys == ()
    assert planner.is_plan_of(ended, "id", asked)
    other = asked.model_copy(update={"spec": asked.spec.model_copy(update={"keys": (("1",),)})})
    whole = asked.model_copy(update={"spec": asked.spec.model_copy(update={"keys": None})})
    assert not planner.is_plan_of(ended, "id", other)
    assert not planner.is_plan_of(ended, "id", whole)
    assert LogState.model_validate_json(journal.state.model_dump_json()) == journal.state


def reread(journal: Journal, version: int) -> None:
    schema = table_schema(1).model_copy(update={"version": version})
    journal.plain(events=(SchemaChanged(table=schema, seq=journal.state.last_seq, reread=True, edge="7"),))


def wanted(journal: Journal) -> list[str]:
    return [p.snapshot_id for p in planner.due_snapshots(journal.state, {})]


def plan_and_end(journal: Journal, snapshot_id: str) -> None:
    end = SnapshotEnded(snapshot_id=snapshot_id, outcome="stopped")
    journal.plain(events=(SnapshotPlanned(snapshot_id=snapshot_id, reason="schema", tables=(1,)), end))


def test_a_table_that_was_forgotten_and_comes_back_is_read_again_whenever_it_is_rewritten() -> None:
    """Its schema versions begin anew, while the snapshots of its first time are still remembered."""
    journal = Journal(Random(1))
    journal.origin()
    added = TableAdded(table=table_schema(1), edge="5", snapshot=False)
    journal.plain(events=(added,))
    reread(journal, 2)
    (first,) = wanted(journal)
    plan_and_end(journal, first)
    journal.plain(events=(TableRemoved(table_id=1, reason="excluded"), TableForgotten(table_id=1)))
    journal.plain(events=(added,))
    reread(journal, 2)
    (second,) = wanted(journal)
    plan_and_end(journal, second)
    assert wanted(journal) == []


def turn(journal: Journal) -> list[str]:
    """As the runner plans; returns what is not over."""
    journal.plain(events=planner.due_snapshots(journal.state, {}))
    journal.plain(events=planner.endings(journal.state))
    return [key for key, snapshot in journal.state.snapshots.items() if snapshot.ended is None]


def test_re_reads_of_a_table_do_not_pile_up_and_the_first_that_has_begun_goes_on() -> None:
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(TableAdded(table=table_schema(1), edge="5", snapshot=False),))
    for version in range(2, 8):
        reread(journal, version)
        (newest,) = turn(journal)
        assert newest.startswith(f"schema-1-{version}-")
    for version in range(8, 12):
        started = SnapshotTableStarted(snapshot_id=newest, table_id=1, max_key=None, estimated_rows=9)
        journal.plain(events=(started,))
        reread(journal, version)
        first, newest = turn(journal)
        assert (first.split("-")[2], newest.split("-")[2]) == ("7", str(version))
    assert unread(journal.state, journal.state.tables[1]) is None


def join(journal: Journal) -> bool:
    """Capture's look, and the marker's return."""
    due = resyncs(journal.state)
    if due:
        version = journal.state.tables[1].schema.version + 1
        schema = table_schema(1).model_copy(update={"version": version})
        added = TableAdded(table=schema, edge="5", snapshot=False, resync=due[1])
        journal.plain(events=(TableRemoved(table_id=1, reason="resync"), added))
    return bool(due)


def test_two_resyncs_of_a_table_are_served_by_one_beginning() -> None:
    """They used to undo each other at every look until one could begin."""
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(TableAdded(table=table_schema(1), edge="5", snapshot=False),))
    for name in ("r1", "r2"):
        journal.plain(events=(SnapshotPlanned(snapshot_id=name, request=name, tables=(1,), resync=True),))
    assert [join(journal) for _ in range(3)] == [True, False, False]
    known = journal.state.tables[1]
    assert all(journal.state.snapshots[name].reads(known) for name in ("r1", "r2"))
    journal.plain(events=(SnapshotPlanned(snapshot_id="r3", request="r3", tables=(1,), resync=True),))
    assert [join(journal) for _ in range(3)] == [True, False, False], "a later one begins anew, once"
    known = journal.state.tables[1]
    assert [journal.state.snapshots[name].reads(known) for name in ("r1", "r2", "r3")] == [False, False, True]


def test_a_pattern_that_matches_nothing_is_refused_beside_one_that_does() -> None:
    state = log(table(1, "orders"))
    spec = SnapshotRequestSpec(replicator="shop", tables=("public.orders", "public.oders"))
    for resync in (False, True):
        body = SnapshotBody(name="a", spec=spec.model_copy(update={"resync": resync}))
        with pytest.raises(InvalidManifest, match=r"matches public\.oders \(captured: "):
            planner.request_plan(state, "a", body, as_written)


@pytest.mark.parametrize("asked", [{"where": "x > 1"}, {"keys": (("1",),)}])
def test_a_table_without_a_key_is_read_as_a_whole_only(asked: dict[str, object]) -> None:
    known = table(7, "a")
    column = known.schema.columns[0].model_copy(update={"key": None})
    keyless = known.schema.model_copy(update={"columns": (column,), "keyless": True})
    state = log(known.model_copy(update={"schemas": (logged(keyless, 3),)}))

    def body(**more: object) -> SnapshotBody:
        spec = SnapshotRequestSpec.model_validate({"replicator": "shop", "tables": ("public.a",), **more})
        return SnapshotBody(name="r", spec=spec)

    with pytest.raises(InvalidManifest, match="read as a whole"):
        planner.request_plan(state, "id", body(**asked), as_written)
    assert planner.request_plan(state, "id", body(), as_written).tables == (7,)


# ---- tables whose rows another program has changed ----


def repairing(changed: Sequence[int], **asked: object) -> SnapshotPlanned:
    spec = SnapshotRequestSpec.model_validate({"replicator": "shop", "tables": ("*.*",), "mode": "Repair", **asked})
    state = log(table(7, "a"), table(8, "b"))
    return planner.request_plan(state, "id", SnapshotBody(name="r", spec=spec), as_written, changed)


def test_a_repair_of_all_rows_takes_over_what_another_program_left_and_nothing_else_does() -> None:
    assert repairing([8]).accepts == (8,) and repairing([]).accepts == ()
    assert [repairing([8], **asked).accepts for asked in ({"mode": "Verify"}, {"sample": "5%"})] == [(), ()]
    spec = SnapshotRequestSpec.model_validate({"replicator": "shop", "tables": ("*.*",), "mode": "Repair"})
    asked_again = SnapshotBody(name="r", spec=spec)
    assert planner.is_plan_of(snapshot(repairing([8])), "id", asked_again), "whatever has become of the table since"


def test_a_table_that_was_taken_over_and_not_compared_to_its_end_is_read_as_a_whole() -> None:
    plan = repairing([7])
    failed = SnapshotTableFinished(
        snapshot_id="id", table_id=7, chunks=1, complete=False, error=ReadFailure(message="m", fix="", where="source")
    )
    stopped, done = SnapshotEnded(snapshot_id="id", outcome="stopped"), failed.model_copy(update={"error": None})

    def planned(ended: SnapshotEnded | None, finished: SnapshotTableFinished | None, read: int = -1) -> list[int]:
        parts = {7: SnapshotTable(table_id=7, finished=finished), 8: SnapshotTable(table_id=8)}
        known = snapshot(plan, ended=ended).model_copy(update={"tables": parts, "record": RecordNumber(5)})
        state = log(table(7, "a", read_record=read), table(8, "b"), snapshots={"id": known})
        return [i for made in planner.due_snapshots(state, {}) for i in made.tables if made.whole]

    assert planned(stopped, None) == planned(None, failed) == [7]
    assert planned(stopped, failed, read=6) == [], "a reading that began later has brought everything"
    assert planned(None, None) == planned(None, done) == planned(stopped, done) == []


# ---- verifications in the background ----

PERIOD = 700.0


def all_whole(table_id: int) -> bool:
    return True


def test_each_table_is_verified_once_in_a_period_and_they_begin_at_equal_distances() -> None:
    journal = Journal(Random(0))
    journal.origin()
    journal.plain(events=tuple(TableAdded(table=keyed(n, f"t{n}", "public"), edge="1") for n in range(7)))
    begun: dict[int, list[float]] = {n: [] for n in range(7)}
    for second in range(1_000, 3_400, 5):
        plan = planner.due_verification(journal.state, float(second), PERIOD, all_whole)
        if plan is not None:
            assert plan.verify and not plan.repair and not plan.whole
            begun[plan.tables[0]].append(second)
            journal.plain(events=(plan,), written_at=second * 1_000_000)
            assert planner.due_verification(journal.state, second + PERIOD, PERIOD, all_whole) is None, "one is open"
            journal.plain(events=(SnapshotEnded(snapshot_id=plan.snapshot_id, outcome="failed"),))
    times = sorted(time for several in begun.values() for time in several)
    assert {b - a for a, b in itertools.pairwise(times)} == {PERIOD / 7}
    assert all(b - a == PERIOD for several in begun.values() for a, b in itertools.pairwise(several))
    assert all(len(several) >= 3 for several in begun.values())


def test_a_table_that_is_not_whole_is_passed_over_and_a_stopped_one_is_not_verified() -> None:
    state = log(table(7, "a"), table(8, "b"), table(9, "c", removed=True))
    plan = planner.due_verification(state, 1e9, PERIOD, lambda table_id: table_id == 8)
    assert plan is not None and plan.tables == (8,)
    assert planner.due_verification(state, 1e9, PERIOD, lambda table_id: table_id == 9) is None
    assert planner.due_verification(log(), 1e9, PERIOD, all_whole) is None
