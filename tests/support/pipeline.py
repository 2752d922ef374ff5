"""All of Tailrace in one process over any source: capture on a thread, planner, chunks and apply on the caller's.

The parts are those that `tailrace run` puts together; chunk tasks are worked here instead of on executors.
"""

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from tailrace import targets
from tailrace.apply.applier import Applier
from tailrace.apply.progress import Progress
from tailrace.apply.table_worker import TableWorker
from tailrace.capture import startup
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.loop import Capture, Timing
from tailrace.capture.server import Server
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import TableSchema
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import Replicator
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Tools
from tailrace.sources.api import Patience, Source
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.api import ChunkWriter, TargetTable


class HereSpark:
    """The little that a chunk job needs of a session, worked on the calling thread."""

    sparkContext = property(lambda self: self)
    items: list[Any]

    def setLocalProperty(self, *_: object) -> None: ...

    def setJobDescription(self, *_: object) -> None: ...

    def parallelize(self, items: list[Any], parts: int) -> "HereSpark":
        work = HereSpark()
        work.items = items
        return work

    def map(self, function: Callable[[Any], Any]) -> "HereSpark":
        return self.parallelize([function(item) for item in self.items], 1)

    def collect(self) -> list[Any]:
        return list(self.items)


class CaptureThread:
    """One life of capture."""

    def __init__(self, replicator: Replicator, source: Source, folder: Path, timing: Timing) -> None:
        self.socket = folder / "c.sock"
        self.error: BaseException | None = None
        self._parts = (replicator, source, folder, timing)
        self._stopping, self._inbox = threading.Event(), Inbox()
        self._thread = threading.Thread(target=self._run, name="capture")
        self._thread.start()

    def _run(self) -> None:
        replicator, source, folder, timing = self._parts
        board, storage = Board(), Storage.open(replicator.spec.storage)
        server = Server(self.socket, self._inbox, board)
        server.start()
        try:
            with source.subscription(replicator, storage.root) as subscription:
                place = startup.Place(replicator, source, subscription, storage)
                ids = startup.Ids(log_id=uuid.uuid4().hex, nonce=uuid.uuid4().hex)
                journal = startup.start(place, ids, Patience(board.waiting_for, self._stopping))
                Capture(place, journal, folder / "spill", (self._inbox, board), timing).run(self._stopping)
        except BaseException as error:
            self.error = error
        finally:
            server.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.wake()
        self._thread.join()
        if self.error is not None:
            raise self.error


Targets = Callable[[TableLog], TargetTable]


def lake(replicator: Replicator, spark: SparkSession) -> Targets:
    """The real tables."""
    storage = Storage.open(replicator.spec.storage)
    return targets.open(replicator.spec.target).tables(spark, storage, lambda: None)


class Pipeline:
    """A Replicator at work."""

    def __init__(self, replicator: Replicator, source: Source, folder: Path, tables: Targets) -> None:
        self.replicator = replicator
        self._source, self._folder, self._tables = source, folder, tables
        self.capture: CaptureThread | None = None

    def start(self, timing: Timing | None = None) -> None:
        timing = timing or Timing(record=0.02, poll=0.2, heartbeat=0.1, turn=0.02)
        self.capture = CaptureThread(self.replicator, self._source, self._folder, timing)
        spec = self.replicator.spec
        storage = Storage.open(spec.storage)
        self.journal = SharedJournal(self._reader(storage))
        self.progress = Progress()

        def worker(table: TableLog) -> TableWorker:
            return TableWorker(table.table_id, self._tables(table), self.progress, table.generation)

        self.applier = applier = Applier(self.journal, self.progress, worker, lambda: None, retry_seconds=8, threads=2)

        def writers(table_id: int, schema: TableSchema) -> ChunkWriter | None:
            known = applier.worker(table_id)
            return None if known is None else known.chunk_writer(schema)

        origin = self.journal.state.origin
        assert origin is not None
        tools = Tools(
            source=self._source.bound_to(origin),
            options=spec.options,
            socket=self.capture.socket,
            spark=cast(Any, HereSpark()),
            journal=self.journal,
            writers=writers,
            opened=lambda table_id: (known := applier.worker(table_id)) is not None and known.opened,
            lost=applier.lost_chunks,
        )
        self.runner = SnapshotRunner(tools, self.progress, spec.snapshot, retry_seconds=8)

    def _reader(self, storage: Storage) -> JournalReader:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            self._alive()
            try:
                reader = JournalReader.open(storage)
                if reader.state.origin is not None:
                    return reader
            except NotFound:
                pass
            time.sleep(0.05)
        raise AssertionError("capture has made no change log")

    def _alive(self) -> None:
        if self.capture is not None and self.capture.error is not None:
            raise self.capture.error

    def turn(self) -> LogState:
        self._alive()
        state = self.journal.refresh()
        self.runner.turn(0.02)
        self.applier.offer(state.number, 0.5)
        return state

    def until(self, condition: Callable[[LogState], bool], timeout: float = 60.0) -> None:
        """Capture alone works; nothing is read or applied meanwhile."""
        end = time.monotonic() + timeout
        while not condition(self.journal.refresh()):
            self._alive()
            assert time.monotonic() < end
            time.sleep(0.02)

    def settle(self, position: int, timeout: float = 120.0) -> None:
        """Until all targets hold everything up to the position, snapshots included."""
        end = time.monotonic() + timeout
        while not self._level(self.turn(), position):
            assert time.monotonic() < end, f"not level with {position}: {self.progress.all()}"

    def _level(self, state: LogState, position: int) -> bool:
        read = state.snapshots and all(s.ended is not None for s in state.snapshots.values())
        if state.position < position or not read:
            return False
        known, tables = self.progress.all(), [t for t in state.tables.values() if not t.removed]
        return bool(tables) and all(
            (mine := known.get(t.table_id)) is not None and not mine.holes and mine.applied_record >= state.number
            for t in tables
        )

    def stop(self) -> None:
        self.runner.stop()
        self.applier.stop()
        if self.capture is not None:
            self.capture.stop()
