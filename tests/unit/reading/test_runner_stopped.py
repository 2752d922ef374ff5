"""Snapshots of tables that stop, go, come back or begin anew at any moment: the runner answers all of it in order.

The steps run for real against a journal; what the source and the executors do is replaced, and at random moments of a
step the journal hears of the table's end, or of its return.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.snapshot_runs import World, record_finish, runner_over
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.tables import TableAdded, TableRemoved, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.state import KEPT_SNAPSHOTS, TableLog
from tailrace.contract.settings import VerifySpec
from tailrace.contract.status import Fault
from tailrace.errors import Retry, TableGone, backoff
from tailrace.reading import run_entry, steps
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.snapshot import edge
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import Range
from tailrace.sources.resyncs import resyncs

TABLES = (1, 2, 3)
CHANGES = 12


class Unsteady(World):
    """A source whose tables change while they are read."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, [10 for _ in TABLES])
        self.random = random.Random(seed)
        self.left, self.edge = CHANGES, 10

    # ---- what happens to tables ----

    def disturb(self, table_id: int) -> None:
        """Perhaps something happens now; perhaps the step fails because of it."""
        time.sleep(self.random.random() / 500)
        with self.lock:
            if self.random.random() < 0.35:
                self.change(self.random.choice([table_id, *TABLES]))
        if self.left > 0 and self.random.random() < 0.15:
            raise self.random.choice([Retry("the source went away"), TableGone("t", "it is gone")])

    def change(self, table_id: int) -> None:
        with self.lock:
            if self.left > 0:
                self.left -= 1
                self._change(table_id)

    def look(self) -> None:
        """Capture's look at the catalog: tables that a resync waits for are taken in again."""
        with self.lock:
            for table_id, snapshot_id in resyncs(self._writer.state).items():
                table = self._writer.state.tables[table_id]
                version = table.schema.model_copy(update={"version": table.schema.version + 1})
                gone = TableRemoved(table_id=table_id, reason="resync")
                added = TableAdded(table=version, edge="10", resync=snapshot_id)
                self._writer.append(Position(5), events=(gone, added))

    def _change(self, table_id: int) -> None:
        state = self._writer.state
        table = state.tables[table_id]
        gone = TableRemoved(table_id=table_id, reason="it was dropped")
        stopped = TableStopped(
            table_id=table_id, seq=Seq(0), error="NoKey", message="no key", fix="give it one", where="source"
        )
        version = table.schema.model_copy(update={"version": table.schema.version + 1})
        self.edge += 1  # nobody has looked at this one yet
        asking = [key for key, s in state.snapshots.items() if s.plan.resync and s.ended is None and s.awaits(table)]
        again = TableAdded(table=version, edge=str(self.edge), resync=next(iter(asking), None))
        running = [key for key, snapshot in state.snapshots.items() if snapshot.ended is None]
        if table.removed or table.stopped is not None:
            choices: list[tuple[Event, ...]] = [(again,), (again,) if table.removed else (gone, again)]
        else:
            choices = [(gone,), (stopped,), (gone, again)]
        choices += [(SnapshotEnded(snapshot_id=key, outcome="stopped"),) for key in running[:1]]
        resync = self.random.random() < 0.5
        asked = SnapshotPlanned(snapshot_id=f"asked-{self.left}", request="r", tables=TABLES, resync=resync)
        self._writer.append(Position(5), events=self.random.choice([*choices, (asked,)]))

    # ---- what stands for `steps` ----

    def check_edge(self, tools: Tools, table: TableLog) -> str | None:
        self.disturb(table.table_id)
        return None if self.random.random() < 0.7 else "transaction 4"

    def find_start(self, tools: Tools, client: object, run: TableRun, table: TableLog, chunk_rows: int) -> Start:
        self.disturb(run.table_id)
        known = steps._logged(tools, run)
        if not known.started:
            self.record_start(run)
        self.disturb(run.table_id)
        return self.started

    def find_cut(self, tools: Tools, table: int, work: CutNext, rows: int) -> tuple[str] | None:
        self.disturb(table)
        at = 0 if work.lower is None else int(work.lower[0])
        return (str(at + 3),) if at < 6 and not work.last else None

    def read(self, tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        self.disturb(run.table_id)
        table_log = self.refresh().tables[run.table_id]
        snapshot = self.state.snapshots[run.snapshot_id]
        if table_log.ended_at is not None or not snapshot.reads(table_log):
            raise Retry("ChunkTooOld: the table is not captured")  # as capture answers
        known = {c.chunk for c in steps._logged(tools, run).chunks}
        if part.ordinal not in known:
            self.register(run, part, table_log.schema.version)
        self.disturb(run.table_id)
        return self.read_nothing

    def record_finish(self, tools: Tools, client: Any, run: TableRun) -> None:
        self.disturb(run.table_id)
        record_finish(tools, client, run)
        self.disturb(run.table_id)


def settled(world: Unsteady) -> bool:
    """Nothing more will happen, every snapshot is over, and every table that is captured has been read since."""
    state = world.refresh()
    read = {
        i: s.record
        for s in state.snapshots.values()
        for i, part in s.tables.items()
        if part.finished is not None and part.finished.error is None
    }
    captured = [t for t in state.tables.values() if t.ended_at is None]
    over = all(s.ended is not None for s in state.snapshots.values())
    tried = {i for s in state.snapshots.values() if s.ended is not None for i in s.tables}
    return world.left == 0 and over and all(t.table_id in read or t.table_id in tried for t in captured)


def hurried(world: Unsteady, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotRunner:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(run_entry, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(edge, "SECONDS", 0.001)
    return runner_over(world, folder, monkeypatch)


def turn_until(
    runner: SnapshotRunner, reached: Callable[[], bool], world: Unsteady, between: Callable[[], None] = lambda: None
) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end, world.state.snapshots
        try:
            runner.step(0.005)
        except Retry:
            continue  # as the driver's thread does
        between()


@pytest.mark.parametrize("seed", range(12))
def test_the_runner_goes_on_whatever_happens_to_tables_between_its_steps(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left in the end is stopped, or was given up: a resync brings all of it back."""
    world = Unsteady(tmp_path, seed)
    runner = hurried(world, tmp_path, monkeypatch)

    def between() -> None:
        if world.random.random() < 0.05:
            world.change(world.random.choice(TABLES))
        if world.random.random() < 0.3:
            world.look()

    turn_until(runner, lambda: settled(world), world, between)
    left = tuple(t.table_id for t in world.state.tables.values() if not t.removed)
    world.append([SnapshotPlanned(snapshot_id="last", request="r", tables=left, resync=True)])
    turn_until(runner, lambda: world.refresh().snapshots["last"].ended is not None, world, between)
    runner.stop()
    ended = world.state.snapshots["last"].ended
    assert ended is not None and (not left or ended.outcome == "completed"), ended
    assert all(world.state.tables[i].ended_at is None for i in left)


@pytest.mark.parametrize(
    "end",
    [
        TableRemoved(table_id=1, reason="it was dropped"),
        TableStopped(table_id=1, seq=Seq(0), error="NoKey", message="no key", fix="give it one", where="source"),
    ],
)
def test_a_table_that_goes_when_all_its_chunks_are_read_ends_its_snapshot(
    end: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the DDL fuzzer: the end without a fault was refused for ever."""
    world = Unsteady(tmp_path, 0)
    world.left = 0
    runner = hurried(world, tmp_path, monkeypatch)

    def finish(tools: Tools, client: Any, run: TableRun) -> None:
        if run.table_id == 1 and world.refresh().tables[1].ended_at is None:
            world.append([end])
        record_finish(tools, client, run)

    monkeypatch.setattr(steps, "record_finish", finish)
    turn_until(runner, lambda: settled(world), world)
    runner.stop()


def test_a_table_that_comes_back_for_the_resync_while_it_is_given_up_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the DDL fuzzer: it was emptied for a resync that had already ended for it, and nobody read it."""
    world = Unsteady(tmp_path, 0)
    world.left = 0
    runner = hurried(world, tmp_path, monkeypatch)
    turn_until(runner, lambda: settled(world), world)
    world.append([SnapshotPlanned(snapshot_id="again", request="r", tables=(1,), resync=True)])
    world.look()
    world.append([TableStopped(table_id=1, seq=Seq(0), error="E", message="m", fix="f", where="source")])

    def finish(tools: Tools, client: Any, run: TableRun) -> None:
        table = world.refresh().tables[1]
        if run.snapshot_id == "again" and table.ended_at is not None:
            schema = table.schema.model_copy(update={"version": table.schema.version + 1, "table_name": "renamed"})
            world.append([TableRemoved(table_id=1, reason="renamed"), TableAdded(table=schema, edge="10")])
            world.look()
            assert world.refresh().tables[1].resync == "again"
        record_finish(tools, client, run)

    monkeypatch.setattr(steps, "record_finish", finish)
    turn_until(runner, lambda: world.refresh().snapshots["again"].ended is not None, world)
    runner.stop()
    ended = world.state.snapshots["again"].ended
    assert ended is not None and ended.outcome == "completed", ended
    assert world.state.tables[1].unread is None


def test_a_snapshot_is_read_whose_id_another_one_had_of_which_a_chunk_is_still_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has forgotten that one."""
    world, reading, go_on = Unsteady(tmp_path, 0), threading.Event(), threading.Event()
    world.left = 0
    runner = hurried(world, tmp_path, monkeypatch)
    turn_until(runner, lambda: settled(world), world)

    def read(tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        if go_on.is_set():
            return world.read(tools, run, part, table, small)
        reading.set()
        assert go_on.wait(20)
        raise Retry("the snapshot is over")

    monkeypatch.setattr(steps, "read", read)

    def planned(snapshot_id: str) -> SnapshotPlanned:
        return SnapshotPlanned(snapshot_id=snapshot_id, request="r", tables=(1,))

    world.append([planned("twice")])
    turn_until(runner, reading.is_set, world)
    ends = [SnapshotEnded(snapshot_id=key, outcome="stopped") for key in ("twice", *map(str, range(KEPT_SNAPSHOTS)))]
    world.append([ends[0], *(event for end in ends[1:] for event in (planned(end.snapshot_id), end))])
    runner.step(0.005)
    assert "twice" not in world.refresh().snapshots
    world.append([planned("twice")])
    runner.step(0.005)
    go_on.set()
    turn_until(runner, lambda: world.refresh().snapshots["twice"].ended is not None, world)
    runner.stop()
    ended = world.state.snapshots["twice"].ended
    assert ended is not None and ended.outcome == "completed", ended


@pytest.mark.parametrize("accepts", [(), (1,)])
def test_a_verification_of_a_table_that_is_stopped_in_the_target_ends_unless_it_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepts: tuple[int, ...]
) -> None:
    world = Unsteady(tmp_path, 0)
    world.left, stopped = 0, Fault(name="ForeignChange", message="somebody else changed its rows", where="target")
    runner = hurried(world, tmp_path, monkeypatch)
    runner._tools = replace(runner._tools, is_whole=lambda table_id: False)
    plan = SnapshotPlanned(snapshot_id="v", request="r", tables=(1,), verify=True, repair=True, accepts=accepts)
    record = RecordNumber(world.append([plan]))
    runner._progress.fail(1, stopped, True, RecordNumber(record - 1))
    for _ in range(20):
        runner.step(0.005)
    ended = world.refresh().snapshots["v"].ended
    assert (ended is None) == bool(accepts), "the target may still come to take its rows over"
    runner._progress.fail(1, stopped, True, record)  # it has tried to, in vain
    turn_until(runner, lambda: world.refresh().snapshots["v"].ended is not None, world)
    ended = world.state.snapshots["v"].ended
    assert ended is not None and "is stopped (ForeignChange: somebody else" in ended.message, ended
    runner.stop()


def test_a_verification_in_the_background_ends_when_the_manifest_no_longer_calls_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be read to its end, without the limit that was set for it."""
    world, wanted = Unsteady(tmp_path, 0), VerifySpec(every="1d")
    world.left = 0
    runner = hurried(world, tmp_path, monkeypatch)
    runner._background = runner._planning._background = lambda: wanted if asked else None
    runner._tools, asked = replace(runner._tools, opened=lambda table_id: False), True  # nothing is read
    world.append([SnapshotPlanned(snapshot_id="v", reason="verification", tables=(1,), verify=True)])
    for _ in range(5):
        runner.step(0.005)
    assert world.refresh().snapshots["v"].ended is None
    asked = False
    turn_until(runner, lambda: world.refresh().snapshots["v"].ended is not None, world)
    ended = world.state.snapshots["v"].ended
    assert ended is not None and (ended.outcome, ended.message) == ("stopped", "spec.verify was removed")
    runner.stop()
