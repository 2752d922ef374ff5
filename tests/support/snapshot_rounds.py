"""The snapshot runner's rounds, one after the other: what is asked for in them is counted.

The source, capture and the executors are replaced by functions that record what they are asked for; time passes only
while nothing is under way.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from support.snapshot_runs import World, record_finish
from tailrace.changelog.records import Event
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import TableLog
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.snapshot.chunks import TableRun
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


Begin = Callable[..., tuple[SnapshotRunner, Surroundings]]


def turn_until(runner: SnapshotRunner, around: Surroundings, reached: Callable[[], bool], pace: float = 0.5) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        runner.step(0.01 if runner._under_way else 0)
        if not runner._under_way:
            around.now += pace
