"""The driver's main process: brings the parts up, turns its loop until something ends it, takes them down in order.

    capture (child process) ── journal ──> ApplyStream ──> Applier ──> target tables
                                   └─────> SnapshotRunner ── chunk jobs ──> capture registers

Called by `tailrace run`. Returns the exit code, or raises the error whose exit code it is.
"""

import logging
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tailrace.apply.applier import Applier, fault_of
from tailrace.apply.journal import SharedJournal
from tailrace.apply.journal_source import HeadFile
from tailrace.apply.stream import ApplyStream
from tailrace.apply.worker import TableWorker
from tailrace.capture.client import CaptureClient
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import TableSchema
from tailrace.contract.resources import Replicator, SnapshotRequest
from tailrace.errors import Retry, Stop, TailraceError
from tailrace.run import display, session, targets
from tailrace.run.control import DriverControl, Requests
from tailrace.run.folder import RunFolder
from tailrace.run.manifest import seconds
from tailrace.run.once import OnceCheck, Verdict
from tailrace.run.report import Reporter
from tailrace.run.server import Server
from tailrace.run.snapshots import SnapshotRunner
from tailrace.run.source_work import Tools
from tailrace.run.supervise import CaptureProcess
from tailrace.sources.postgresql.connect import PgConfig, connect
from tailrace.storage import Storage
from tailrace.targets.lake.layout import Layout

log = logging.getLogger(__name__)

TURN_SECONDS = 0.5
BATCH_PATIENCE = 2.0
"""A micro-batch waits this long for its tables; slower ones go on beside the next batch."""


@dataclass(frozen=True)
class Settings:
    replicator: Replicator
    requests: tuple[SnapshotRequest, ...]
    folder: RunFolder
    once: bool = False
    json: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    token_file: Path | None = None
    secrets: Path | None = None
    """Folder with a folder per mounted Secret."""
    log_format: str = "text"


def run(settings: Settings) -> int:
    """From start to end."""
    if settings.replicator.spec.suspend:
        log.warning("spec.suspend is set: nothing is started, and the source keeps its log meanwhile")
        return 0
    settings.folder.take()
    return Driver(settings).run()


class Driver:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spec = settings.replicator.spec
        self._folder = settings.folder
        self._name = settings.replicator.metadata.name
        self._control = DriverControl(self._name)
        self._control.suspended = self._spec.apply.suspend
        self._ending = threading.Event()
        self._broken: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        server = self._serve()
        capture = self._capture()
        view = display.choose(self._settings.json)
        try:
            capture.start()
            return self._work(capture, view)
        except TailraceError as error:
            self._control.fault, self._control.stopped = fault_of(error, time.time()), isinstance(error, Stop)
            view.show(self._control.status())
            raise
        finally:
            self._ending.set()
            view.close()
            capture.stop()
            server.close()
            self._folder.retract()
            self._folder.release()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending.is_set():
            raise KeyboardInterrupt  # asked twice: do not wait for anything
        log.info("%s: ends in order", signal.Signals(number).name)
        self._ending.set()

    # ---- bringing up ----

    def _serve(self) -> Server:
        given = self._settings.token_file
        token = given.read_text().strip() if given is not None else self._folder.make_token()
        server = Server(self._control, self._settings.host, self._settings.port, token or secrets.token_urlsafe(32))
        server.start()
        self._folder.announce(server.url, given)
        log.info("status at %s/status", server.url)
        return server

    def _capture(self) -> CaptureProcess:
        copy = self._folder.path / "replicator.json"
        document = self._settings.replicator.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)
        changed = not copy.exists() or copy.read_text() != document
        copy.write_text(document)
        command = [sys.executable, "-m", "tailrace.capture.process", "--manifest", str(copy)]
        command += ["--run-dir", str(self._folder.path), "--socket", str(self._folder.socket)]
        command += ["--log-format", self._settings.log_format]
        if self._settings.secrets is not None:
            command += ["--secrets", str(self._settings.secrets)]
        self._control.client = CaptureClient(self._folder.socket, timeout=60)
        retry = seconds(self._spec.retry.time)
        self._reporter = Reporter(self._control.client, self._control.progress, retry)
        # On a terminal the live display has the screen.
        output = self._folder.path / "capture.log" if display.on_terminal(self._settings.json) else None
        return CaptureProcess(command, self._folder.path, lambda: not changed and self._answers(), output=output)

    def _answers(self) -> bool:
        client = CaptureClient(self._folder.socket, timeout=5)
        try:
            client.state()
        except Retry:
            return False
        finally:
            client.close()
        return True

    def _journal(self, capture: CaptureProcess) -> SharedJournal | None:
        """Wait for record 0; None: a signal came first."""
        storage = Storage.open(self._spec.storage)
        while not self._ending.is_set():
            capture.check()
            self._control.ask_capture()
            try:
                reader = JournalReader.open(storage)
                if reader.state.origin is not None:
                    return SharedJournal(reader, HeadFile(self._folder.journal_head))
            except Retry as error:
                log.warning("%s", error)
            self._ending.wait(TURN_SECONDS)
        return None

    def _work(self, capture: CaptureProcess, view: display.Display) -> int:
        config = PgConfig.of(self._spec.source, f"tailrace {self._name}"[:63], self._settings.secrets)
        once = OnceCheck(source_position(config)) if self._settings.once else None
        spark = session.start(self._spec, self._folder.path, self._folder.spark_log)
        try:
            journal = self._journal(capture)
            if journal is None:
                return 0
            self._control.journal = journal
            log_storage, lake = Storage.open(self._spec.storage), Storage.open(self._spec.target)
            engine = targets.LakeEngine(spark, log_storage, lake)
            open_table = targets.opener(self._spec, spark, lake)
            progress = self._control.progress
            applier = Applier(
                journal,
                progress,
                lambda table: TableWorker(table.table_id, open_table(table), engine, progress),
                lambda: spark.sparkContext.setLocalProperty("spark.scheduler.pool", "changes"),
                retry_seconds=seconds(self._spec.retry.time),
            )
            origin = journal.state.origin
            assert origin is not None
            tools = Tools(
                config=config.bound_to(origin.system_identifier),
                options=self._spec.options,
                storage=lake,
                socket=self._folder.socket,
                spark=spark,
                journal=journal,
                layouts=lambda table_id, schema: _layout(applier, table_id, schema),
                lost=lambda: list(applier.lost_chunks.values()),
                opened=lambda table_id: (worker := applier.worker(table_id)) is not None and worker.opened,
            )
            runner = SnapshotRunner(tools, progress, self._spec.snapshot, retry_seconds=seconds(self._spec.retry.time))
            stream = ApplyStream(
                spark,
                self._folder.journal_head,
                self._folder.checkpoint,
                interval=f"{int(seconds(self._spec.apply.interval) * 1000)} milliseconds",
                position=lambda: applier.through,
                apply=lambda: applier.offer(journal.state.number, BATCH_PATIENCE),
            )
            self._control.runner = runner
            parts = _Parts(capture, applier, runner, stream, journal)
            try:
                return self._loop(parts, view, once)
            finally:
                self._ending.set()
                stream.stop()
                runner.stop()
                applier.stop()
                for thread in self._threads:
                    thread.join(10)
                self._reporter.tell(journal.state, force=True)
                view.show(self._control.status())
        finally:
            spark.stop()

    # ---- running ----

    def _loop(self, parts: "_Parts", view: display.Display, once: OnceCheck | None) -> int:
        control, requests = self._control, Requests(self._settings.requests)
        control.loops = {"the snapshot planner": parts.runner}
        waits_for = ""
        self._spawn("snapshot-planner", parts.runner.turn)
        self._spawn("journal-tail", self._tail(parts.journal))
        if not self._spec.apply.suspend:
            parts.applier.offer(parts.journal.state.number)
            parts.stream.start()
            control.loops["apply"] = parts.applier
        while not self._ending.wait(TURN_SECONDS):
            parts.capture.check()
            if self._broken is not None:
                raise self._broken
            control.ask_capture()
            state = parts.journal.state
            if not self._spec.apply.suspend:
                self._keep_applying(parts, state.number)
            requests.turn(control)
            if requests.refused:
                raise requests.refused[0]
            self._reporter.tell(state)
            view.show(control.status())
            if once is not None:
                verdict = once.look(state, control.progress.all(), requests.open)
                if verdict.done:
                    return self._ended(verdict)
                if verdict.waits_for != waits_for:
                    log.debug("--once: %s", verdict.waits_for)
                waits_for = verdict.waits_for
        return 0

    def _keep_applying(self, parts: "_Parts", number: int) -> None:
        """The stream brings new records; tables whose pause is over are offered here, and all while the stream is
        being started again."""
        parts.applier.offer(parts.applier.through if parts.stream.running else number)

    def _ended(self, verdict: Verdict) -> int:
        if verdict.withheld:
            names = ", ".join(verdict.withheld)
            log.warning("withheld because of changes after the start, until the next run reads them: %s", names)
        if not verdict.failed:
            log.info("everything up to the source's position at start is applied")
            return 0
        log.error("not complete: %s", ", ".join(verdict.failed))
        return 1

    def _tail(self, journal: SharedJournal) -> Callable[[], None]:
        """Twice per apply interval: new records must not wait for the main loop's slower turn."""
        pause = seconds(self._spec.apply.interval) / 2

        def turn() -> None:
            journal.refresh()
            self._ending.wait(pause)

        return turn

    def _spawn(self, name: str, turn: Callable[[], None]) -> None:
        def run() -> None:
            while not self._ending.is_set():
                try:
                    turn()
                except Retry as error:
                    log.warning("%s: %s", name, error)
                    self._ending.wait(1.0)
                except BaseException as error:  # the main loop raises it
                    self._broken = error
                    return

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


@dataclass(frozen=True)
class _Parts:
    capture: CaptureProcess
    applier: Applier
    runner: SnapshotRunner
    stream: ApplyStream
    journal: SharedJournal


def _layout(applier: Applier, table_id: int, schema: TableSchema) -> tuple[Layout, str] | None:
    worker = applier.worker(table_id)
    layout = worker.layout(schema) if worker is not None else None
    return None if worker is None or layout is None else (layout, worker.table.location)


def source_position(config: PgConfig) -> int:
    """The end of the source's log now."""
    with connect(config) as connection:
        row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    return int(row[0])
