"""Starts what a driver has beside its parts, out of its settings: lineage, status server and capture's process.

Called by `driver.driver`, which shuts them down. The parts that need the change log are made in `driver.assembly`.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.resources import Replicator, SnapshotRequest
from tailrace.driver.asking import live_spec
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.run_dir import RunFolder, token_of
from tailrace.driver.process.supervise import CaptureProcess
from tailrace.driver.telling import display
from tailrace.driver.telling.lineage.reporter import LineageReporter, open_lineage
from tailrace.errors import InvalidManifest, Retry

log = logging.getLogger(__name__)

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
