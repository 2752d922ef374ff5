"""The snapshot runner over a real journal: what its tests share. What source, capture and executors do is replaced."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support.journals import table_schema
from support.origins import origin
from support.states import chunk
from tailrace.apply.progress import Progress
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import SnapshotTableStarted
from tailrace.changelog.records.tables import TableAdded
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter, RecordRefused
from tailrace.contract.resources import SnapshotSpec, StorageLocation
from tailrace.errors import Retry
from tailrace.reading import runner as snapshots
from tailrace.reading import steps, together
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import ChunkAsked, StartAsked, each
from tailrace.snapshot.chunks import TableRun
from tailrace.snapshot.ranges import Range
from tailrace.storage.store import Storage

ORIGIN = origin("log")
REPLACEABLE = ("check_edge", "find_start", "find_cut", "read", "record_finish")
record_finish = steps.record_finish
"""The real one, for those who replace it."""


def find_starts(tools: Tools, client: Any, asked: Sequence[StartAsked]) -> list[Start | Exception]:
    return each(asked, lambda one: steps.find_start(tools, client, one.run, one.log_table, one.chunk_rows))


def read_all(tools: Tools, asked: Sequence[ChunkAsked]) -> list[ChunkFile | Exception]:
    return each(asked, lambda one: steps.read(tools, one.run, one.part, one.table, True))


def record_finishes(tools: Tools, client: Any, runs: Sequence[TableRun]) -> list[Exception | None]:
    return each(runs, lambda run: steps.record_finish(tools, client, run))


GROUPED = {"find_starts": find_starts, "read": read_all, "record_finishes": record_finishes}
"""The steps of a group, each table's by itself, so that what stands for those stands for these."""


class World:
    """A journal with tables 1, 2, …, one for each edge. A subclass says what the steps do: its methods of their names
    (`REPLACEABLE`) stand for them."""

    def __init__(self, folder: Path, edges: Sequence[int]) -> None:
        storage = Storage.open(StorageLocation(location=f"file://{folder}/log"))
        self._writer = JournalWriter.create(storage, ORIGIN, Position(5), "a")
        added = (TableAdded(table=table_schema(number), edge=str(edge)) for number, edge in enumerate(edges, 1))
        self._writer.append(Position(5), events=tuple(added))
        self._reader = JournalReader.open(storage)
        self.lock = threading.RLock()

    # ---- the journal and capture's client, as `Tools` has them ----

    @property
    def state(self) -> LogState:
        return self._reader.state

    def refresh(self) -> LogState:
        with self.lock:
            while self._reader.poll():
                pass
            return self._reader.state

    def append(self, events: Sequence[Event], added: Mapping[int, RecordNumber] | None = None) -> int:
        with self.lock:
            if any(self._writer.state.tables[i].added_record != number for i, number in (added or {}).items()):
                raise Retry("added again since")  # as capture answers
            try:
                return self._writer.append(Position(5), events=tuple(events)).number
            except RecordRefused as error:
                raise Retry(f"RecordRefused: {error.message}") from error  # as the client tells it

    def close(self) -> None:
        return

    # ---- what steps record ----

    def record_start(self, run: TableRun) -> Start:
        self.append([
            SnapshotTableStarted(snapshot_id=run.snapshot_id, table_id=run.table_id, max_key=("9",), estimated_rows=3)
        ])  # fmt: skip
        return self.started

    started = Start(cast(Any, None), ("9",), 3)

    def register(self, run: TableRun, part: Range, version: int = 1) -> None:
        bounds = {"lower": part.lower, "upper": part.upper}
        self.append([
            chunk(run.table_id, part.ordinal, snapshot_id=run.snapshot_id, schema_version=version, **bounds)
        ])  # fmt: skip

    read_nothing = ChunkFile(None, 0, 0, "", Position(1), ())


def runner_over(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, defaults: Callable[[], SnapshotSpec] | None = None
) -> SnapshotRunner:
    monkeypatch.setattr(steps, "find_cut", lambda tools, table, work, rows: None)
    for name in REPLACEABLE:
        if hasattr(world, name):
            monkeypatch.setattr(steps, name, getattr(world, name))
    for name, group in GROUPED.items():
        monkeypatch.setattr(together, name, group)
    monkeypatch.setattr(steps, "find_table", lambda tools, table: table.table_id)
    monkeypatch.setattr(snapshots, "CaptureClient", lambda path: world)
    tools = Tools(
        anywhere=cast(Any, None),
        options=tuple,
        socket=folder,
        executors=cast(Any, None),
        journal=cast(Any, world),
        writers=lambda *_: None,
        opened=lambda table_id: True,
        is_whole=lambda table_id: True,
        look=lambda table_id: None,
        lost=tuple,
    )
    return SnapshotRunner(
        tools, Progress(), defaults or (lambda: SnapshotSpec(parallelism=2)), retry_seconds=lambda: 60
    )
