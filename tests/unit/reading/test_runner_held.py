"""The runner is held again and again, as for a new spec: nothing is under way then, and afterwards all goes on."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from support.snapshot_runs import World, record_finish, runner_over
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import SnapshotSpec
from tailrace.reading import steps
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.snapshot.chunks import CutNext, TableRun
from tailrace.snapshot.ranges import Range

CHUNKS = 40


class Reading(World):
    """Three tables of many chunks. Every step looks whether the runner is held for good."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (10, 10, 10))
        self.under_way, self.most_reads, self.reads = 0, 0, 0
        self.still, self.wrong = False, list[str]()
        self.cuts: dict[int, int] = {}

    def step(self, what: str) -> None:
        with self.lock:
            self.under_way += 1
            if self.still:
                self.wrong.append(what)
        time.sleep(0.001)
        with self.lock:
            self.under_way -= 1

    def check_edge(self, tools: Tools, table: TableLog) -> str | None:
        self.step("check")
        return None

    def find_start(self, tools: Tools, client: object, run: TableRun, table: TableLog, chunk_rows: int) -> Start:
        self.step("start")
        return self.record_start(run)

    def find_cut(self, tools: Tools, table: int, work: CutNext, rows: int) -> tuple[str, ...] | None:
        self.step("cut")
        self.cuts[table] = cut = self.cuts.get(table, 0) + 1
        return None if cut >= CHUNKS else (f"{cut:03d}",)

    def read(self, tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        with self.lock:
            self.reads += 1
            self.most_reads = max(self.most_reads, self.reads)
        self.step("read")
        self.register(run, part)
        with self.lock:
            self.reads -= 1
        return self.read_nothing

    @override
    def close(self) -> None:
        return

    def record_finish(self, tools: Tools, client: object, run: TableRun) -> None:
        self.step("finish")
        record_finish(tools, client, run)  # type: ignore[arg-type]  # the world is its own client

    @property
    def over(self) -> bool:
        known = self.state.snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())


@contextmanager
def turned(runner: SnapshotRunner) -> Iterator[None]:
    """By a thread of its own."""
    ending = threading.Event()

    def turn() -> None:
        while not ending.is_set():
            runner.step(0.005)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(20)
        runner.stop()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_under_way_while_it_is_held_and_parallelism_follows_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, world = random.Random(seed), Reading(tmp_path)
    spec, looked = [SnapshotSpec(parallelism=1)], list[int]()
    runner = runner_over(world, tmp_path, monkeypatch, lambda: spec[0])

    def look_again(tools: Tools, table: TableLog) -> int:
        looked.append(table.table_id)
        return table.table_id

    monkeypatch.setattr(steps, "find_table", look_again)
    holds, end = 0, time.monotonic() + 60
    with turned(runner):
        while not world.over:
            assert time.monotonic() < end
            time.sleep(chance.random() / 50)
            while not runner.hold():
                assert time.monotonic() < end
                time.sleep(0.001)
            world.still = True
            time.sleep(0.003)
            assert (world.under_way, world.wrong) == (0, [])
            assert world.most_reads <= spec[0].parallelism
            world.most_reads, world.still, holds = 0, False, holds + 1
            spec[0] = SnapshotSpec(parallelism=chance.choice([1, 2, 5]))
            runner.release()
    assert looked, "each is looked up again, by the options of by then"
    assert holds > 3
