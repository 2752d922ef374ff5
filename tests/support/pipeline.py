"""All of Tailrace in one process over any source: capture on a thread, planner, chunks and apply on the caller's.

The parts are those that `tailrace run` puts together; chunk tasks are worked here instead of on executors. Tables are
in memory (`support.ddl.lake`) unless a test gives others.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from support.ddl.lake import InMemoryLake
from tailrace.apply.applier import Applier
from tailrace.apply.freshness import Freshness
from tailrace.apply.progress import Progress
from tailrace.apply.unit_worker import UnitWorker
from tailrace.capture import process
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.loop import Timing
from tailrace.capture.renewal import Renewal
from tailrace.capture.server import CaptureServer
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.contract import manifest
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import Replicator, SnapshotRequestSpec
from tailrace.driver.asking.control import DriverControl
from tailrace.errors import Retry, TailraceError
from tailrace.places import Places
from tailrace.reading.executors import ChunkExecutors
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Tools
from tailrace.sources.api import Interrupted, Source
from tailrace.storage.store import Storage
from tailrace.targets.api import Runtime, Units
from tailrace.targets.lake.target import LIMITS

RETRY_SECONDS = 8.0
QUICK = Timing(record=0.02, poll=0.2, heartbeat=0.1, step=0.02)


def lake(replicator: Replicator, spark: SparkSession) -> Units:
    """The real tables."""
    storage = Storage.open(replicator.spec.storage)
    return Places(replicator.spec).target.units(
        Runtime(storage, lambda: None, lambda: spark, replicator.spec.source.type)
    )


class HereSpark:
    """The little that a chunk job needs of a session, worked on the calling thread."""

    sparkContext = property(lambda self: self)

    def __init__(self, items: Sequence[Any] = ()) -> None:
        self.items = items

    def setLocalProperty(self, *_: object) -> None: ...

    def setJobDescription(self, *_: object) -> None: ...

    def parallelize(self, items: Sequence[Any], parts: int) -> "HereSpark":
        return HereSpark(items)

    def map(self, function: Callable[[Any], Any]) -> "HereSpark":
        return HereSpark([function(item) for item in self.items])

    def collect(self) -> list[Any]:
        return list(self.items)


@dataclass
class Driver:
    """One life of a driver without its processes: the caller turns it."""

    journal: SharedJournal
    progress: Progress
    applier: Applier
    runner: SnapshotRunner
    client: CaptureClient
    control: DriverControl
    tools: Tools

    @classmethod
    def start(
        cls,
        replicator: Replicator,
        source: Source,
        socket: Path,
        tables: Units,
        patience: float = 60.0,
        *,
        measured: Freshness | None = None,
        stop_at: RecordNumber | None = None,
        retry: float = RETRY_SECONDS,
    ) -> "Driver":
        """`patience`: seconds that capture has for an answer. `NotFound`, `Retry`: there is no change log yet."""
        spec = replicator.spec
        journal, progress = SharedJournal(JournalReader.open(Storage.open(spec.storage))), Progress()
        if journal.state.origin is None:
            raise Retry("the change log has no record yet", "")

        group = tables.group()
        applier = Applier(
            journal,
            progress,
            lambda _: UnitWorker(tables.alone(), progress, LIMITS, measured),
            group=None if group is None else UnitWorker(group, progress, LIMITS, measured),
            retry_seconds=lambda: retry,
            until=stop_at,
            threads=2,
        )

        tools = Tools(
            anywhere=source,
            options=lambda: spec.read_options,
            socket=socket,
            executors=ChunkExecutors(lambda: cast(Any, HereSpark())),
            journal=journal,
            writers=applier.chunk_writer,
            opened=applier.is_open,
            is_whole=applier.is_whole,
            look=applier.look,
            lost=applier.lost_chunks,
        )
        runner = SnapshotRunner(tools, progress, lambda: spec.snapshot, retry_seconds=lambda: retry)
        control = DriverControl(replicator.metadata.name)
        client = CaptureClient(socket, timeout=patience)
        control.journal, control.client, control.runner, control.progress = journal, client, runner, progress
        control.measured = measured
        return cls(journal, progress, applier, runner, client, control, tools)

    def turn(self) -> LogState:
        state = self.journal.refresh()
        self.runner.step(0.02)
        self.applier.offer(state.number, 0.5)
        return state

    def ask(self, request: str, tables: Sequence[str], **spec: Any) -> bool:
        """A SnapshotRequest; False: it cannot be taken yet."""
        asked = {"replicator": self.control.name, "tables": list(tables), **spec}
        body = SnapshotBody(name="again", spec=SnapshotRequestSpec.model_validate(asked))
        try:
            self.control.request(request, body)
        except Retry:
            return False
        return True

    def level(self, state: LogState) -> bool:
        """Nothing is under way, and every target holds what the journal holds."""
        ended = all(s.ended is not None for s in state.snapshots.values()) and not self.runner.runs
        captured = (t for t in state.tables.values() if not t.removed and t.stopped is None)
        ended = ended and not any(c.is_looked_for for t in captured for c in t.cascades)
        return ended and not list(self.behind(state))

    def behind(self, state: LogState) -> Iterator[str]:
        """Tables whose target does not."""
        known = self.progress.all()
        for table in state.tables.values():
            mine = known.get(table.table_id)
            if table.removed or (mine is not None and mine.stopped):
                continue
            # Rows that a stopped table withholds come with its repair: nothing of it is read until then.
            holes = mine is not None and mine.holes and table.stopped is None
            unseen = mine is not None and mine.replacing and table.stopped is None and table.unread is None
            if mine is None or holes or unseen or mine.fault is not None or mine.applied_record < state.number:
                at = "nothing" if mine is None else f"record {mine.applied_record}, {len(mine.holes)} holes"
                yield f"{table.schema.name} ({'stopped' if table.stopped else 'captured'}) is at {at}"

    def faults(self) -> dict[str, str]:
        """Tables that fail or are stopped, by name, as the status shows them."""
        return {t.name: t.fault.name for t in self.control.status().tables if t.fault is not None}

    def close(self) -> None:
        self.runner.stop()
        self.applier.stop()
        self.client.close()


class CaptureThread:
    """One life of capture."""

    def __init__(self, what: process.Following, folder: Path) -> None:
        self.socket = folder / "c.sock"
        self.error: BaseException | None = None
        """What it ended with."""
        self._what = what
        self._stopping, self._inbox = threading.Event(), Inbox()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        board = Board()
        server = CaptureServer(self.socket, self._inbox, board)
        server.start()
        try:
            process.follow(self._what, (self._inbox, board), self._stopping)
        except Interrupted:
            return
        except BaseException as error:
            self.error = error
        finally:
            server.stop()
            self._inbox.end(Retry("capture has ended"))  # a process would end with its connections

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait until it ends by itself."""
        self._thread.join(120)
        assert not self._thread.is_alive(), "capture does not end"

    def stop(self) -> None:
        self._stopping.set()
        self._inbox.wake()
        self._thread.join()


class Pipeline:
    """One Replicator over a source: its folder, its targets, and what runs of it."""

    def __init__(self, document: dict[str, Any], source: Source, folder: Path, tables: Units | None = None) -> None:
        self.document, self.source, self.folder = document, source, folder
        self.lake = InMemoryLake(folder / "lake")
        """The targets, unless `tables` are others."""
        self.capture: CaptureThread | None = None
        self._driver: Driver | None = None
        self._tables, self._requests = tables, 0
        self.timing = QUICK
        self.retry = RETRY_SECONDS
        """Seconds after which what fails is given up."""
        self.stop_at: RecordNumber | None = None
        """The record at which the targets stay."""
        self.measured: Freshness | None = None
        """Measures the ages of changes."""
        self.resync: Path | None = None
        """Where the operator hands over the SnapshotRequest that starts the stream over."""

    @property
    def manifest(self) -> Path:
        """As a person would have it."""
        path = self.folder / "replicator.json"
        path.write_text(json.dumps(self.document))
        return path

    @property
    def replicator(self) -> Replicator:
        return manifest.load(self.manifest).replicator(None)

    @property
    def storage(self) -> Storage:
        return Storage.open(self.replicator.spec.storage)

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "it is not running"
        return self._driver

    @property
    def state(self) -> LogState:
        return self.driver.journal.refresh()

    def start(self) -> None:
        """Both, and capture is at work: the journal's newest epoch is its own."""
        self.capture = self.begin_capture()
        end = time.monotonic() + 120
        while not self._answers():
            self.capture.check()
            assert time.monotonic() < end, "capture has made no change log"
            time.sleep(0.02)
        tables = self._tables or self.lake.targets(self.storage)
        given = self.replicator, self.source, self.capture.socket, tables
        measured, until, retry = self.measured, self.stop_at, self.retry
        self._driver = Driver.start(*given, measured=measured, stop_at=until, retry=retry)

    def _answers(self) -> bool:
        assert self.capture is not None
        try:
            with CaptureClient(self.capture.socket, 60) as client:
                return client.state().record >= 0
        except CaptureGone:
            return False

    def begin_capture(self, folder: Path | None = None) -> CaptureThread:
        """One life of capture; its socket and scratch files are in `folder`, or in the pipeline's own."""
        folder = folder or self.folder
        handed_over = Renewal.handed_over(self.resync)
        return CaptureThread(
            process.Following(self.replicator, self.source, folder / "spill", self.timing, handed_over), folder
        )

    def refused(self, error: type[TailraceError], match: str | None = None) -> TailraceError:
        """A start ends with this error."""
        self.capture = self.begin_capture()
        return self.broken(error, match)

    def broken(self, error: type[TailraceError], match: str | None = None) -> TailraceError:
        """Capture ends with this error; then so does the rest."""
        assert self.capture is not None
        ended, self.capture = self.capture, None
        ended.join()
        self.stop()
        with pytest.raises(error, match=match) as raised:
            ended.check()
        return raised.value

    def turn(self) -> LogState:
        """One round of the driver."""
        self._alive()
        return self.driver.turn()

    def _alive(self) -> None:
        if self.capture is not None:
            self.capture.check()

    def until(self, condition: Callable[[LogState], object], *, work: bool = False, timeout: float = 120.0) -> None:
        """Capture alone works, unless the driver is to `work` too."""
        end = time.monotonic() + timeout
        while not condition(self.turn() if work else self.state):
            self._alive()
            assert time.monotonic() < end
            time.sleep(0.01)

    def settle(self, position: int, timeout: float = 300.0) -> LogState:
        """Until all targets hold everything up to the position, first snapshots included."""
        end = time.monotonic() + timeout
        while not self._level(state := self.turn(), position):
            assert time.monotonic() < end, f"not level with {position}: {list(self.driver.behind(state))}"
        return state

    def _level(self, state: LogState, position: int) -> bool:
        planned = {table_id for s in state.snapshots.values() for table_id in s.plan.tables}
        tables = {t.table_id for t in state.tables.values() if not t.removed and t.stopped is None}
        return state.position >= position and bool(tables) and tables <= planned and self.driver.level(state)

    def ask(self, *tables: str, **spec: Any) -> str:
        """A SnapshotRequest; returns its id."""
        self._requests += 1
        name = f"request-{self._requests}"
        self.until(lambda _: self.driver.ask(name, tables, **spec), work=True)
        return name

    def stop(self) -> None:
        """In order; what capture ended with before is raised."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        if self.capture is not None:
            self.capture.stop()
            self.capture.check()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Started, and whatever happens ended."""
        try:
            self.start()
            yield
        finally:
            self.stop()
