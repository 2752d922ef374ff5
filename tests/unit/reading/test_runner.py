"""The snapshot runner over a real journal: what it begins, in which order and how much of it at once.

The source, capture and the executors are replaced by functions that record what they are asked for; time passes only
while nothing is under way.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.journals import table_schema
from support.snapshot_runs import World, record_finish, runner_over
from tailrace.changelog import triggers
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import ChunkCompared, ComparisonResult, SnapshotPlanned, SnapshotTableFinished
from tailrace.changelog.records.tables import SchemaChanged
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import SnapshotSpec
from tailrace.contract.settings import VerifySpec
from tailrace.errors import AuthenticationFailed, Locked, Retry, met_at
from tailrace.reading import steps, turns, verification
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import MOST
from tailrace.snapshot import planner
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import Range

PARALLELISM = 2


class Surroundings(World):
    """Counts what is asked for at the same time."""

    def __init__(self, folder: Path, edges: Sequence[int]) -> None:
        super().__init__(folder, edges)
        self.now = 1000.0
        self.appended: list[Sequence[Event]] = []
        self.looks: list[str] = []
        self.running_xid = 0
        """The oldest transaction that still runs."""
        self.open: Counter[int] = Counter()
        self.most_open = self.most_reads = self.reads = 0

    @override
    def append(self, events: Sequence[Event], added: Mapping[int, RecordNumber] | None = None) -> int:
        with self.lock:
            self.appended.append(events)
            return super().append(events, added)

    # What stands for `steps`.

    def check_edge(self, tools: Tools, table: TableLog) -> str | None:
        self.looks.append(table.edge)
        return None if self.running_xid > int(table.edge) else f"transaction {self.running_xid}"

    def find_start(self, tools: Tools, client: object, run: TableRun, table: TableLog, chunk_rows: int) -> Start:
        with self.lock:
            self.open[run.table_id] += 1
            self.most_open = max(self.most_open, len(self.open))
        return self.record_start(run)

    def read(self, tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        with self.lock:
            self.reads += 1
            self.most_reads = max(self.most_reads, self.reads)
        time.sleep(0.002)
        self.register(run, part)
        with self.lock:
            self.reads -= 1
        return self.read_nothing

    def record_finish(self, tools: Tools, client: Any, run: TableRun) -> None:
        with self.lock:
            del self.open[run.table_id]
        record_finish(tools, client, run)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[SnapshotRunner, Surroundings]]:
    def make(*edges: int) -> tuple[SnapshotRunner, Surroundings]:
        around = Surroundings(tmp_path, edges)
        runner = runner_over(around, tmp_path, monkeypatch, lambda: SnapshotSpec(parallelism=PARALLELISM))
        for part in (runner, runner._planning):
            monkeypatch.setattr(part, "_monotonic", lambda: around.now)
        return runner, around

    return make


Begin = Callable[..., tuple[SnapshotRunner, Surroundings]]


def turn_until(runner: SnapshotRunner, around: Surroundings, reached: Callable[[], bool], pace: float = 0.5) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        runner.step(0.01 if runner._under_way else 0)
        if not runner._under_way:
            around.now += pace


def test_of_many_tables_a_few_are_begun_at_once_and_all_end(begin: Begin) -> None:
    runner, around = begin(*[10] * 60)
    around.running_xid = 11

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    plans = [events for events in around.appended if events[0].kind == "snapshot-planned"]
    assert [len(events) for events in plans] == [60], "one record plans them all"
    assert around.most_reads == PARALLELISM
    assert around.most_open <= 3 * MOST, "tables begun and not ended"
    assert around.looks == ["10"], "one look at the edge counts for all tables"


def test_of_many_tables_a_round_looks_at_those_that_can_continue(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FEW", 8)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 1e9)  # nothing depends on the looks at all of them
    count = 120
    runner, around = begin(*[10] * count)
    around.running_xid = 11
    looked = Counter[str]()
    counted = [(runner, name) for name in ("_begin_work", "_start_next", "_urgency")]
    for place, name in (*counted, (triggers, "pending")):
        monkeypatch.setattr(place, name, _counted(looked, name, getattr(place, name)))

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    rounds, most = looked["_begin_work"], runner._most_ready + 2 * MOST
    assert around.most_reads == PARALLELISM and around.now < 1000 + count / 2, "nobody has waited"
    assert looked["_start_next"] < rounds * most and looked["_urgency"] < rounds * most
    assert looked["pending"] < 8 * count, "a record is looked at for the tables that it changes"
    before = looked.copy()
    for _ in range(20):
        runner.step(0)
    before["_begin_work"] += 20
    assert looked == before, "an idle round looks at no table"


def test_a_table_whose_target_is_opened_later_is_read_at_once(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FEW", 8)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 1e9)  # nothing depends on the looks at all of them
    runner, around = begin(*[10] * 40)
    around.running_xid = 11
    rounds = Counter[str]()
    monkeypatch.setattr(runner, "_begin_work", _counted(rounds, "all", runner._begin_work))
    runner._tools = replace(runner._tools, opened=lambda _: rounds["all"] > 200)

    def over() -> bool:
        known = around.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    turn_until(runner, around, over)
    runner.stop()
    assert 200 < rounds["all"] < 400


def _counted(looked: Counter[str], name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*given: Any, **more: Any) -> Any:
        looked[name] += 1
        return act(*given, **more)

    return counted


def test_a_small_table_does_not_wait_for_the_end_of_a_large_one(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 11

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        """The large one has no end."""
        return (str(int(work.lower[0]) + 1 if work.lower is not None else 100),) if table == 1 else None

    monkeypatch.setattr(steps, "find_cut", cut)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    ended = [s.plan.tables for s in around.state.snapshots.values() if s.ended is not None]
    assert ended == [(2,)]


def test_a_transaction_that_is_in_the_way_is_looked_at_once_a_second_and_not_by_each_table(begin: Begin) -> None:
    runner, around = begin(*[10] * 30, 5)
    around.running_xid = 7
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    ended = [s.plan.tables for s in around.state.snapshots.values() if s.ended is not None]
    assert ended == [(31,)], "the older edge has passed"
    assert [runner.waiting_for] == ["transaction 7"]
    before = len(around.looks)
    later = around.now + 10
    turn_until(runner, around, lambda: around.now >= later, 0.1)
    assert 9 <= len(around.looks) - before <= 11
    around.running_xid = 11
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    assert [runner.waiting_for] == [None]
    runner.stop()


def test_a_table_whose_edge_moves_reads_nothing_until_older_transactions_are_over(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each chunk would be refused at its registration, and the snapshot would be given up after `retry.time`."""
    runner, around = begin(10)
    around.running_xid = 11
    read: list[int] = []

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        return None if work.lower is not None and work.lower[0] >= "6" else (str(int((work.lower or "0")[0]) + 1),)

    def reading(tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        read.append(part.ordinal)
        if len(read) == 2:  # the catalog has shown a rewrite
            version = table_schema(1).model_copy(update={"version": 2})
            around.append([SchemaChanged(table=version, seq=Seq(0), reread=False, edge="20")])
        return around.read(tools, run, part, table)

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", reading)
    turn_until(runner, around, lambda: runner.waiting_for is not None)
    before = len(read)
    with caplog.at_level("INFO", "tailrace"):
        later = around.now + 10
        turn_until(runner, around, lambda: around.now >= later)
    assert (len(read), runner.waiting_for) == (before, "transaction 11")
    assert all(s.ended is None for s in around.state.snapshots.values())
    around.running_xid = 21
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert runner.waiting_for is None and len(read) == len(set(read))
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}


def test_what_the_chunks_wait_for_is_told_once_in_the_log(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 7
    with caplog.at_level("INFO", "tailrace"):
        turn_until(runner, around, lambda: len(around.looks) >= 3)
    runner.stop()
    assert [r.getMessage() for r in caplog.records if "wait" in r.getMessage()] == ["chunks wait for transaction 7"]


@pytest.mark.parametrize("asked", ["find_start", "find_cut", "read"])
def test_a_table_that_a_migration_locks_for_longer_than_the_retry_time_is_waited_for_and_said(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    real, tries, held = getattr(steps, asked), list[float](), [True]

    def locked(*of: Any) -> object:
        tries.append(around.now)
        if held[0]:
            raise Locked("a lock on s.t: backend 7 ('psql') holds AccessExclusiveLock on s.t")
        return real(*of)

    monkeypatch.setattr(steps, asked, locked)
    with caplog.at_level("INFO", "tailrace"):
        # The last try may be under way just now, and its result not heard.
        turn_until(runner, around, lambda: len(tries) >= 10 and runner.waiting_for is not None, 20)
    assert runner.waiting_for == "a lock on s.t: backend 7 ('psql') holds AccessExclusiveLock on s.t"
    told = [r.getMessage() for r in caplog.records if "backend 7" in r.getMessage()]
    assert set(told) == {f"a snapshot waits for {runner.waiting_for}"} and len(told) <= 2, "not with every try"
    assert tries[-1] - tries[0] > 60 and all(s.ended is None for s in around.refresh().snapshots.values())
    held[0] = False
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()), 20)
    runner.stop()
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    assert runner.waiting_for is None


@pytest.mark.parametrize("kept", [0, 20, 1000])
def test_chunks_grow_by_the_rows_of_the_table_and_not_by_those_that_a_filter_keeps(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """`kept`: of a thousand. Below a quarter chunks shrank to eight rows, and the snapshot of a large table never
    ended."""
    runner, around = begin(10)
    around.running_xid, total, cuts, read = 11, 3_000_000, list[int](), steps.read

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        cuts.append(rows)
        assert len(cuts) < 50
        end = (0 if work.lower is None else int(work.lower[0])) + rows
        return (str(end),) if end < total else None

    def read_filtered(tools: Tools, run: TableRun, part: Range, *of: Any) -> ChunkFile:
        read(tools, run, part, *of)
        lower = 0 if part.lower is None else int(part.lower[0])
        upper = lower if part.upper is None else total if part.upper == ("9",) else int(part.upper[0])
        found = (upper - lower) * kept // 1000
        return ChunkFile("f" if found else None, found, 25 * found, "", Position(1), ())

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_filtered)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts[0] == planner.FIRST_CHUNK_ROWS and max(cuts) >= 320_000 and len(cuts) < 20, cuts


def test_chunks_that_wait_for_spark_grow_as_if_they_had_not(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10)
    around.running_xid, total, cuts, read = 11, 3_000_000, list[int](), steps.read
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        cuts.append(rows)
        assert len(cuts) < 50
        end = (0 if work.lower is None else int(work.lower[0])) + rows
        return (str(end),) if end < total else None

    def read_late(tools: Tools, run: TableRun, part: Range, *of: Any) -> ChunkFile:
        around.now += 60
        read(tools, run, part, *of)
        return ChunkFile("f", 20_000, 500_000, "", Position(1), (), waited=60.0)

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_late)
    around.append([SnapshotPlanned(snapshot_id="r", reason="request", request="r", tables=(1,), parallelism=1)])
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts[0] == planner.FIRST_CHUNK_ROWS and max(cuts) >= 320_000, cuts


def test_a_filter_of_a_request_is_not_taken_for_the_end_of_the_table(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is of the rows that match, and would say after the first chunk that hardly any are left."""
    runner, around = begin(10)
    around.running_xid, cuts = 11, list[int]()
    monkeypatch.setattr(planner, "shared_chunk_rows", lambda rows, left, readers: 7)

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> None:
        cuts.append(rows)

    monkeypatch.setattr(steps, "find_cut", cut)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    assert cuts == [7]
    around.append([SnapshotPlanned(snapshot_id="r", reason="request", request="r", tables=(1,), where="a > 0")])
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert cuts == [7, planner.FIRST_CHUNK_ROWS]


def test_what_is_verified_in_the_background_is_read_one_chunk_at_a_time_and_no_faster_than_asked(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, around = begin(10, 10)
    around.running_xid = 11
    read, reads, asked = steps.read, list[tuple[int, float]](), VerifySpec(every="1m", max_rows_per_second=100)

    def cut(tools: Tools, table: object, work: CutNext, rows: int) -> tuple[str] | None:
        at = int(work.lower[0]) if work.lower is not None else 100
        return (str(at + 1),) if at < 105 else None

    def read_some(tools: Tools, run: TableRun, *of: Any) -> ChunkFile:
        read(tools, run, *of)
        if run.verify:
            reads.append((run.table_id, around.now))
        return ChunkFile(None, 300, 0, "", Position(1), ())

    def compare(tools: Tools, client: Any, run: TableRun, ordinal: int) -> None:
        some: dict[str, Any] = {"snapshot_id": run.snapshot_id, "table_id": run.table_id}
        around.append([ChunkCompared(**some, chunk=ordinal, at_record=RecordNumber(1), found=ComparisonResult())])

    def finish(tools: Tools, client: Any, run: TableRun) -> None:
        some: dict[str, Any] = {"snapshot_id": run.snapshot_id, "table_id": run.table_id}
        chunks = len(around.refresh().snapshots[run.snapshot_id].tables[run.table_id].chunks)
        around.append([SnapshotTableFinished(**some, chunks=chunks, complete=False, at_record=RecordNumber(1))])

    monkeypatch.setattr(steps, "find_cut", cut)
    monkeypatch.setattr(steps, "read", read_some)
    monkeypatch.setattr(verification, "compare_chunk", compare)
    monkeypatch.setattr(verification, "finish", finish)
    monkeypatch.setattr(runner._planning, "_clock", lambda: time.time() + around.now)
    for part in (runner, runner._planning):
        monkeypatch.setattr(part, "_background", lambda: asked)

    def over() -> bool:
        known = [s for s in around.refresh().snapshots.values() if s.plan.in_background]
        return len(known) > 1 and known[1].ended is not None

    turn_until(runner, around, over)
    runner.stop()
    assert [table for table, _ in reads] == [1] * 7 + [2] * 7
    for table in (1, 2):
        times = [at for name, at in reads if name == table]
        assert all(b - a >= 300 / 100 for a, b in itertools.pairwise(times)), times


def test_nothing_is_verified_in_the_background_while_the_target_is_suspended(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read a chunk, or looked the table up in the source, and waited then."""
    runner, around = begin(10)
    around.running_xid = 11
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    suspended = replace(runner._tools, opened=lambda table_id: False)
    open_again, runner._tools = runner._tools, suspended
    monkeypatch.setattr(runner._planning, "_clock", lambda: time.time() + 1e6)
    for part in (runner, runner._planning):
        monkeypatch.setattr(part, "_background", lambda: VerifySpec(every="1m"))

    def planned() -> bool:
        return any(s.plan.in_background for s in around.refresh().snapshots.values())

    since = around.now
    turn_until(runner, around, lambda: around.now > since + 60)
    assert not planned()
    runner._tools = open_again
    turn_until(runner, around, planned)
    runner.stop()


@pytest.mark.parametrize(("asked", "cut"), [(None, 1_000), (7, 7)])
def test_a_sample_is_cut_into_many_ranges_unless_their_size_was_asked_for(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, asked: int | None, cut: int
) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    sizes = set[int]()

    def find_cut(tools: Tools, table: object, work: CutNext, rows: int) -> None:
        sizes.add(rows)

    plan = SnapshotPlanned(snapshot_id="s", request="s", tables=(1,), verify=True, sample=0.5, chunk_rows=asked)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    monkeypatch.setattr(steps, "find_cut", find_cut)
    around.append([plan])
    turn_until(runner, around, lambda: bool(sizes))
    runner.stop()
    assert sizes == {cut}


def test_a_clock_that_is_set_back_by_a_day_holds_no_retry_up(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    wall, real, tries = [time.time()], steps.find_start, list[float]()

    def fails_once(*of: Any) -> Start:
        tries.append(wall[0])
        if len(tries) == 1:
            raise Retry("away")
        return real(*of)

    monkeypatch.setattr(runner, "_clock", lambda: wall[0])
    monkeypatch.setattr(steps, "find_start", fails_once)
    turn_until(runner, around, lambda: len(tries) == 1)
    wall[0] -= 86_400
    turn_until(runner, around, lambda: len(tries) == 2)
    runner.stop()


@pytest.mark.parametrize("asked", ["check_edge", "find_start", "find_cut", "read"])
@pytest.mark.parametrize("seconds", [40, 80])
def test_a_password_that_is_being_rotated_has_a_minute_to_reach_its_file(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, asked: str, seconds: int
) -> None:
    """The first connection between the two changes ended the run. A server may lock who tries too often, however many
    tables there are."""
    runner, around = begin(*[10] * 30)
    around.running_xid = 11
    began, refused = list[float](), list[float]()

    def guarded(name: str) -> Callable[..., object]:
        real = getattr(steps, name)

        def step(*of: Any) -> object:
            if name == asked and not began:
                began.append(around.now)
            if began and around.now - began[0] < seconds:
                refused.append(around.now)
                raise AuthenticationFailed("db as 'u': password authentication failed")
            return real(*of)

        return step

    def over() -> bool:
        known = around.refresh().snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    for name in ("check_edge", "find_start", "find_cut", "read"):
        monkeypatch.setattr(steps, name, guarded(name))
    if seconds > 60:
        with pytest.raises(AuthenticationFailed):
            turn_until(runner, around, over)
        assert 60 < around.now - began[0] < 90
    else:
        turn_until(runner, around, over)
        assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    assert len([at for at in refused if at > began[0] + 5]) <= 7, refused
    runner.stop()


@pytest.mark.parametrize("asked", ["check_edge", "find_start", "find_cut", "read"])
def test_a_source_that_is_away_is_tried_once_a_pause_and_told_once_a_try_however_many_tables_wait(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    """With 70 tables the log took 200 warnings a minute, and the server 3.4 connections a second."""
    runner, around = begin(*[10] * 30)
    around.running_xid = 11
    began, tries = list[float](), list[float]()

    def cut_off(name: str) -> Callable[..., object]:
        real = getattr(steps, name)

        def step(*of: Any) -> object:
            if name == asked and not began:
                began.append(around.now)
            if began and around.now - began[0] < 300:
                tries.append(around.now)
                with met_at("source"):
                    raise Retry.of_place("cannot connect to db:5432")
            return real(*of)

        return step

    def over() -> bool:
        known = around.refresh().snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    monkeypatch.setattr(runner, "_retry_seconds", lambda: 600.0)
    for name in ("check_edge", "find_start", "find_cut", "read"):
        monkeypatch.setattr(steps, name, cut_off(name))
    with caplog.at_level("WARNING", "tailrace"):
        turn_until(runner, around, over)
    runner.stop()
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    told = [record for record in caplog.records if "cannot connect" in record.getMessage()]
    assert len(told) <= 16 and tries[-1] - began[0] > 250, "pauses of 30 s at most"
    assert len(set(tries)) <= 32 and len(tries) <= 16 * 2 * (PARALLELISM + 2)


def test_an_outage_that_lasts_longer_than_the_retry_time_ends_every_tables_wait(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of tables that have not tried yet: a short run ends."""
    runner, around = begin(*[10] * 40)
    around.running_xid = 11

    def away(*of: Any) -> Start:
        with met_at("source"):
            raise Retry.of_place("cannot connect to db:5432")

    def over() -> bool:
        return len(around.refresh().snapshots) > 0 and all(s.ended for s in around.state.snapshots.values())

    monkeypatch.setattr(runner, "_retry_seconds", lambda: 60.0)
    monkeypatch.setattr(steps, "find_start", away)
    turn_until(runner, around, over, 5)
    runner.stop()
    assert around.now < 1000 + 60 + 10 * 45


def test_a_target_that_is_still_being_opened_is_waited_for_without_a_warning(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As at each start."""
    runner, around = begin(10)
    around.running_xid = 11
    tries = [Retry("away"), steps.TargetNotOpen("the target of s.t is not open yet")]

    def late(tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        if tries:
            raise tries.pop()
        return around.read(tools, run, part, table)

    monkeypatch.setattr(steps, "read", late)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert tries == []
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert told == ["snapshot step failed: Retry: away"]
