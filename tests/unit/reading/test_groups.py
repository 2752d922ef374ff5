"""The groups of small tables that the snapshot runner gathers: which tables join, how many, in which order, and what
becomes of one that fails."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support.snapshot_runs import World, find_starts, read_all, record_finish, record_finishes, runner_over
from tailrace.changelog.records.snapshots import SnapshotTableStarted
from tailrace.changelog.records.terms import Position
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import SnapshotSpec
from tailrace.errors import Retry
from tailrace.reading import together
from tailrace.reading.groups import Groups
from tailrace.reading.messages import ChunkDone, ChunkFailed, EndFailed, Message, StepDone, StepFailed, Together
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import MOST, ChunkAsked, StartAsked
from tailrace.snapshot import chunks
from tailrace.snapshot.chunks import TableRun
from tailrace.snapshot.ranges import Range

ALL = Range(0, None, None)


def run_of(table: int) -> TableRun:
    return TableRun(f"s{table}", table, chunks.Phase.START)


class Pool:
    """Groups whose steps are handed over and done when the test says so; `failing`: tables whose steps fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
        self.handed: list[tuple[Callable[[], Message], Callable[[Exception], Message]]] = []
        self.asked: list[tuple[str, list[int]]] = []
        self.failing = failing
        self.groups = Groups(lambda: cast(Any, None), cast(Any, None), lambda *step: self.handed.append(step))
        start = Start(cast(Any, "found"), ("9",), 3, small=True)
        file = ChunkFile("f", 5, 8, "", Position(1), ())
        monkeypatch.setattr(together, "find_starts", lambda _, client, asked: self._answers("start", asked, start))
        monkeypatch.setattr(together, "read", lambda _, asked: self._answers("read", asked, file))
        monkeypatch.setattr(together, "record_finishes", lambda _, client, runs: self._answers("end", runs, None))

    def _answers(self, what: str, asked: Sequence[Any], found: Any) -> list[Any]:
        tables = [getattr(one, "run", one).table_id for one in asked]
        self.asked.append((what, tables))
        return [Retry(f"{what} of {table}") if table in self.failing else found for table in tables]

    def gather(self, *tables: int) -> None:
        for table in tables:
            key, run = (f"s{table}", table), run_of(table)
            self.groups.starts.append((key, StartAsked(run, cast(Any, None), 100)))
            self.groups.reads.append((key, ChunkAsked(run, ALL, cast(Any, f"table {table}"))))
            self.groups.finishes.append((key, run))

    def results(self) -> list[list[Message]]:
        """Of each step that was handed over."""
        found = [act() for act, _ in self.handed]
        assert all(isinstance(one, Together) for one in found)
        return [list(one.messages) for one in found if isinstance(one, Together)]


def test_a_group_is_begun_once_it_has_so_many_tables_and_holds_them_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(monkeypatch)
    pool.gather(3, 1)
    pool.groups.begin(3)
    assert not pool.handed and pool.groups.readers == 1
    pool.gather(2)
    pool.groups.begin(3)
    assert pool.groups.readers == 1, "the group that is read, and none that is gathered"
    pool.gather(4)
    pool.groups.begin(3)
    assert len(pool.handed) == 3 and pool.groups.readers == 2
    pool.groups.begin(1)
    pool.groups.begin(1)
    pool.results()
    assert pool.asked == [(what, tables) for tables in ([3, 1, 2], [4]) for what in ("start", "read", "end")]


def test_each_table_of_a_group_has_its_result_and_one_that_fails_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(monkeypatch, 2)
    pool.gather(1, 2, 3)
    pool.groups.begin(1)
    starts, reads, ends = pool.results()
    assert [type(one) for one in starts] == [StepDone, StepFailed, StepDone]
    assert starts[2] == StepDone(("s3", 3), chunks.Started(("9",), 3), cast(Any, "found"), True)
    assert [type(one) for one in reads] == [ChunkDone, ChunkFailed, ChunkDone]
    assert reads[0] == ChunkDone(("s1", 1), 0, 5, 8, cast(Any, "table 1"))
    assert [type(one) for one in ends] == [StepDone, EndFailed, StepDone]
    for of in (starts, reads, ends):
        assert [cast(StepDone, one).key for one in of] == [("s1", 1), ("s2", 2), ("s3", 3)]


def test_a_group_that_fails_as_a_whole_fails_for_each_of_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, error = Pool(monkeypatch), Retry("the source is away")
    pool.gather(1, 2)
    pool.groups.begin(1)
    found = [failed(error) for _, failed in pool.handed]
    assert found == [
        Together((StepFailed(("s1", 1), error), StepFailed(("s2", 2), error))),
        Together((ChunkFailed(("s1", 1), 0, error), ChunkFailed(("s2", 2), 0, error)), read=True),
        Together((EndFailed(("s1", 1), error), EndFailed(("s2", 2), error))),
    ]


class Tables(World):
    """Small tables, except one. The first look for another's start fails, and the first read of a third."""

    LARGE, NOT_STARTED, NOT_READ = 3, 7, 5

    def __init__(self, folder: Path, tables: int) -> None:
        super().__init__(folder, [10] * tables)
        self.starts: list[int] = []
        """Tables in the order of the looks for their starts."""
        self.reads: list[int] = []
        """Tables in the order of their chunks, each time that one is read."""
        self.groups: dict[str, list[list[int]]] = {"start": [], "read": [], "end": []}

    def check_edge(self, tools: Tools, table: TableLog) -> str | None:
        return None

    def find_start(self, tools: Tools, client: object, run: TableRun, table: TableLog, chunk_rows: int) -> Start:
        self.starts.append(run.table_id)
        if run.table_id == self.NOT_STARTED and self.starts.count(run.table_id) == 1:
            raise Retry("a fault of this table")
        event = SnapshotTableStarted(snapshot_id=run.snapshot_id, table_id=run.table_id, max_key=None, estimated_rows=3)
        self.append([event])
        return Start(cast(Any, run.table_id), None, 3, small=run.table_id != self.LARGE)

    def read(self, tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        self.reads.append(run.table_id)
        if run.table_id == self.NOT_READ and self.reads.count(run.table_id) == 1:
            raise Retry("a fault of this table")
        self.register(run, part)
        return self.read_nothing

    def record_finish(self, tools: Tools, client: Any, run: TableRun) -> None:
        record_finish(tools, client, run)

    def noted(self, what: str, group: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def act(tools: Tools, *more: Any) -> list[Any]:
            self.groups[what].append([getattr(one, "run", one).table_id for one in more[-1]])
            return group(tools, *more)

        return act


class AtOnce:
    """A pool whose steps are over when they have been submitted."""

    def submit(self, act: Callable[[], None]) -> None:
        act()

    def shutdown(self, **_: bool) -> None: ...


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """What became of the first copies of a few more tables than one group holds."""
    world = Tables(tmp_path, MOST + 4)
    runner: SnapshotRunner = runner_over(world, tmp_path, monkeypatch, lambda: SnapshotSpec(parallelism=1))
    runner._pool.shutdown()
    monkeypatch.setattr(runner, "_pool", AtOnce())
    monkeypatch.setattr(together, "find_starts", world.noted("start", find_starts))
    monkeypatch.setattr(together, "read", world.noted("read", read_all))
    monkeypatch.setattr(together, "record_finishes", world.noted("end", record_finishes))
    now = 0.0
    monkeypatch.setattr(runner, "_monotonic", lambda: now)
    for _ in range(200):
        runner.step(0)
        now += 0.5
        if world.state.snapshots and all(shot.ended is not None for shot in world.state.snapshots.values()):
            break
    runner.stop()
    return world


def test_small_tables_join_up_to_the_most_in_order_and_a_large_one_is_read_by_itself(snapshot: Tables) -> None:
    assert snapshot.groups["start"] == [list(range(1, MOST + 1)), list(range(MOST + 1, MOST + 5))]
    late = Tables.NOT_STARTED
    small = [table for table in range(1, MOST + 5) if table not in (Tables.LARGE, late)]
    assert snapshot.groups["read"] == [small[:MOST], [late, *small[MOST:]]]
    assert snapshot.reads.count(Tables.LARGE) == 1
    assert {shot.ended and shot.ended.outcome for shot in snapshot.state.snapshots.values()} == {"completed"}


def test_a_table_that_failed_in_a_group_is_tried_by_itself(snapshot: Tables) -> None:
    late, again = Tables.NOT_STARTED, Tables.NOT_READ
    assert snapshot.starts.count(late) == 2 and sum(late in group for group in snapshot.groups["start"]) == 1
    assert snapshot.reads.count(again) == 2 and sum(again in group for group in snapshot.groups["read"]) == 1
