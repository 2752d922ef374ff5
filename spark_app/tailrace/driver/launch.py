"""Makes the driver's parts out of its settings: status server, capture's process, applier, planner and stream.

Called by `driver.driver`, which runs them and shuts them down. Nothing here runs by itself, except the status server.
"""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.apply.applier import Applier
from tailrace.apply.freshness import Freshness
from tailrace.apply.progress import Progress
from tailrace.apply.stream import ApplyStream
from tailrace.apply.unit_worker import UnitWorker
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import DroppedTable, LogState
from tailrace.contract.pace import AT_ONCE, Pace
from tailrace.contract.resources import Replicator, SnapshotRequest
from tailrace.contract.units import seconds, size
from tailrace.driver.asking import live_spec
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.driver.asking.rewind_notes import RewindNotes
from tailrace.driver.asking.rewind_requests import RewindRequests
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.ownership import Ownership
from tailrace.driver.process.run_dir import RunFolder, token_of
from tailrace.driver.process.supervise import CaptureProcess
from tailrace.driver.telling import display
from tailrace.driver.telling.lineage.reporter import LineageReporter, open_lineage
from tailrace.errors import InvalidManifest, Retry
from tailrace.places import Places
from tailrace.reading.executors import ChunkExecutors, room_meanwhile
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Tools
from tailrace.removal.dropped import DroppedCopies
from tailrace.sources.api import Source
from tailrace.spark.on_demand import OnDemand
from tailrace.targets.api import Runtime

log = logging.getLogger(__name__)

RECORD_SECONDS = 60.0
"""Seconds within which capture must record a request."""
SCRATCH_SHARE = 4
"""A target may use a quarter of the driver's scratch space, which Spark needs, too."""
ANSWER_SECONDS = 5.0
"""Seconds for an answer of capture to the main loop: it comes at once, or the question is repeated in the next step."""


@dataclass(frozen=True)
class DriverSettings:
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
    resync: Path | None = None
    """SnapshotRequest by which the stream is restarted; the file may be missing."""
    stop_at: RecordNumber | None = None
    """The record of the journal at which the target stays; None: it follows."""
    signals: Path | None = None
    """File with signals in Debezium's form; may be missing."""
    reread: Callable[[], Replicator] | None = None
    """The manifest as it is by now."""
    log_format: str = "text"
    log_level: str = "info"


@dataclass(frozen=True)
class DriverParts:
    """The parts that run while the driver runs."""

    applier: Applier
    runner: SnapshotRunner
    stream: ApplyStream
    journal: SharedJournal
    dropped: DroppedCopies
    cuts: CutKeeper
    rewinds: RewindRequests
    freshness: Freshness | None = None
    """None: a short run measures nothing."""


def lineage(settings: DriverSettings) -> LineageReporter | None:
    """None: the manifest asks for no events. Nothing is sent yet."""
    return open_lineage(settings.replicator, settings.secrets, settings.folder.path, once=settings.once)


def server(settings: DriverSettings, control: DriverControl) -> StatusServer:
    """Listens, and is announced in the run directory."""
    given = settings.token_file
    token = settings.folder.make_token() if given is None else token_of(given)
    try:
        made = StatusServer(control, settings.host, settings.port, token)
    except OSError as error:
        raise InvalidManifest(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            "Choose an address of this machine and a free port with --listen.",
        ) from error
    made.start()
    settings.folder.announce(made.url, given, settings.replicator.spec.storage.location)
    log.info("status at %s/status", made.url)
    return made


def capture_process(settings: DriverSettings) -> CaptureProcess:
    """Capture as a child, with a copy of the manifest in the run directory."""
    folder = settings.folder
    changed = live_spec.keep(folder.path, settings.replicator)
    command = [sys.executable, "-m", "tailrace.capture.process", "--manifest", str(live_spec.path(folder.path))]
    command += ["--run-dir", str(folder.path), "--socket", str(folder.socket)]
    command += ["--log-format", settings.log_format, "--log-level", settings.log_level]
    if settings.secrets is not None:
        command += ["--secrets", str(settings.secrets)]
    if settings.resync is not None:
        command += ["--resync", str(settings.resync)]
    # On a terminal the live display has the screen.
    output = folder.path / "capture.log" if display.on_terminal(settings.json) else None
    if output is not None:
        command += ["--log-file", str(output)]  # what Python itself prints goes there too, see `supervise`
    return CaptureProcess(command, folder.path, lambda: not changed and _answers(folder.socket), output=output)


def _answers(socket: Path) -> bool:
    with CaptureClient(socket, ANSWER_SECONDS) as client:
        try:
            client.state()
        except Retry:
            return False
    return True


def claimed(socket: Path) -> int:
    """The epoch of the capture that runs now; -1: it has none yet, or does not answer."""
    with CaptureClient(socket, ANSWER_SECONDS) as client:
        try:
            return client.state().epoch
        except Retry:
            return -1


def parts(
    live: LiveSpec,
    folder: RunFolder,
    progress: Progress,
    places: Places,
    *,
    spark: OnDemand,
    journal: SharedJournal,
    pace: Callable[[], Pace],
    stop_at: RecordNumber | None = None,
) -> DriverParts:
    """All that needs the journal, and the session at times. What of the spec may change while they work, they ask
    `live` for."""

    def changes() -> SparkSession:
        """The session, for jobs of the calling thread that are the changes'."""
        session = spark.session()
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        return session

    ownership = Ownership(journal, lambda: claimed(folder.socket))
    target = places.target
    run = Runtime(
        places.storage,
        ownership.check,
        changes,
        live.spec.source.type,
        places.require_other_database,
        folder.path / "target",
        size(live.spec.driver.scratch) // SCRATCH_SHARE,
        spark.jvm,
    )
    units = target.units(run)
    group = units.group()
    freshness = None if pace() is AT_ONCE else Freshness(places.storage, time.time())
    applier = Applier(
        journal,
        progress,
        lambda _: UnitWorker(units.alone(), progress, target.limits, freshness),
        group=None if group is None else UnitWorker(group, progress, target.limits, freshness),
        retry_seconds=lambda: seconds(live.spec.retry.time),
        hold=lambda: pace().hold,
        until=stop_at,
    )
    tools = Tools(
        anywhere=places.source,
        options=lambda: live.spec.read_options,
        socket=folder.socket,
        executors=ChunkExecutors(
            spark.session,
            lambda: spark.started() is not None,
            spark.begin,
            room_meanwhile(live.spec.driver.beside_jvm),
        ),
        journal=journal,
        writers=applier.chunk_writer,
        lost=applier.lost_chunks,
        is_whole=applier.is_whole,
        look=applier.look,
        opened=lambda table_id: not live.spec.apply.suspend and applier.is_open(table_id),
    )
    stream = ApplyStream(
        spark.session,
        folder.checkpoint,
        apply=lambda: applier.offer(journal.state.number),
    )
    runner = SnapshotRunner(
        tools,
        progress,
        lambda: live.spec.snapshot,
        retry_seconds=lambda: seconds(live.spec.retry.time),
        background=lambda: None if pace() is AT_ONCE else live.spec.verify,  # `--once` waits for none
    )
    dropped = DroppedCopies(
        journal,
        CaptureClient(folder.socket, timeout=RECORD_SECONDS),
        lambda: target.removal(spark.session),
        ownership.check,
        spec=lambda: live.spec,
        is_done_with=lambda table: applier.is_done_with(table.place) and not _reads(runner, table),
    )
    capture = CaptureClient(folder.socket, timeout=RECORD_SECONDS)
    cuts = CutKeeper(
        journal,
        capture,
        progress,
        target,
        text=lambda at: bound(places.source, journal.state).text(at),
        spec=lambda: live.spec.cuts,
    )
    rewinds = RewindRequests(
        journal,
        CaptureClient(folder.socket, timeout=RECORD_SECONDS),
        applier,
        progress,
        places=places,
        rewinding=lambda: target.rewinding(run),
        spec=lambda: live.spec,
        notes=RewindNotes(folder.path),
    )
    return DriverParts(applier, runner, stream, journal, dropped, cuts, rewinds, freshness)


def bound(source: Source, state: LogState) -> Source:
    """The source as the change log knows it now."""
    assert state.origin is not None, "there is a journal from record 0 on, which holds it"
    return source.bound_to(state.origin)


def _reads(runner: SnapshotRunner, table: DroppedTable) -> bool:
    """True if chunks of the table are still being read, and written beside its copy."""
    return any(run.reading for (_, table_id), run in runner.runs.items() if table_id in table.table_ids)
