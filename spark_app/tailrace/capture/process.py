"""The capture process: `python -m tailrace.capture.process --manifest FILE --run-dir DIR`. No JVM, no Spark.

Started and watched by the driver. It ends with the exit code of the error that ended it (see `tailrace.errors`), and
leaves that error in the run directory (`last_fault`). SIGTERM: what is finished is recorded and acknowledged first. It
outlives a driver that starts again, but not forever: of a driver that was killed for good it would fill the storage,
which is never trimmed, so after an hour without one it ends in the same way, and the source has its log to itself
again.
"""

import argparse
import gc
import logging
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace import logs, sources
from tailrace.capture import last_fault, startup
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.loop import Capture, Timing
from tailrace.capture.renewal import Renewal
from tailrace.capture.server import CaptureServer
from tailrace.contract import manifest
from tailrace.contract.faults import fault_of
from tailrace.contract.pace import Pace
from tailrace.contract.resources import Replicator
from tailrace.errors import MAKE_ROOM, Retry, StorageFull, TailraceError, foreign, met_at, privacy
from tailrace.selection import masks
from tailrace.sources.api import Interrupted, Patience, Source
from tailrace.storage.store import Storage

log = logging.getLogger("tailrace.capture")
SCRATCH = "spill"
"""Folder in the run directory, for what does not fit into memory."""
STUCK = 300.0
"""Seconds for which the loop may stand still; no look takes nearly so long, and no write counts."""
COLLECT = (10_000, 20, 20)
"""Thresholds of Python's garbage collector. Capture holds objects for many small changes, hardly ever in cycles: with
the usual 700 a fifth of its time went into looks at them."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    gc.set_threshold(*COLLECT)
    logs.configure(options.log_format, options.log_level, options.log_file)
    stopping = threading.Event()
    inbox, board = Inbox(), Board()
    run_dir: Path = options.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    fault = last_fault.of(run_dir)
    last_fault.reserve(fault)

    def stop(*_: object) -> None:
        stopping.set()
        inbox.wake()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        replicator = manifest.load(options.manifest).replicator(options.name)
        privacy.configure(replicator.spec.show_values)
        masks.configure(replicator.spec, options.secrets)
        capture(replicator, options, (inbox, board), stopping)
    except Interrupted as end:
        log.info("%s", end.message)
        return 0
    except (TailraceError, OSError) as met:
        error = _named(met, run_dir)
        log.error("%s", error)
        last_fault.leave(fault, fault_of(error, time.time(), "capture"))
        return error.exit_code
    log.info("capture shut down cleanly")
    return 0


def _named(error: TailraceError | OSError, run_dir: Path) -> TailraceError:
    """The storage's errors come by name; a scratch file's do not."""
    if isinstance(error, TailraceError):
        return error
    if not foreign.full(error):
        raise error
    full = StorageFull(f"{error.filename or run_dir}: {error.strerror}", MAKE_ROOM)
    full.where = "capture"
    return full


def capture(
    replicator: Replicator, options: argparse.Namespace, ends: tuple[Inbox, Board], stopping: threading.Event
) -> None:
    """Runs capture from the manifest to the end of the process."""
    inbox, board = ends
    socket = options.socket or options.run_dir / "capture.sock"
    server = CaptureServer(socket, inbox, board)
    server.start()
    watch = (server, options.without_driver, stopping, inbox)
    threading.Thread(target=end_without_driver, args=watch, name="driver-watch", daemon=True).start()
    stuck = (board, stopping, lambda: _end_stuck(options.run_dir))
    threading.Thread(target=end_when_stuck, args=stuck, name="loop-watch", daemon=True).start()
    try:
        who = f"tailrace catalog {replicator.metadata.name}"
        source = sources.of_replicator(replicator.spec, who, options.secrets)
        handed_over = Renewal.handed_over(options.resync)
        pace = Pace.of(replicator.spec.freshness)
        timing = Timing(heartbeat=options.heartbeat, record=pace.record)
        follow(Following(replicator, source, options.run_dir / SCRATCH, timing, handed_over), ends, stopping)
    finally:
        server.stop()
        # Rows as the source sent them, before any mask: worth nothing to the next process.
        shutil.rmtree(options.run_dir / SCRATCH, ignore_errors=True)


@dataclass(frozen=True)
class Following:
    """The captured tables, and how they are captured."""

    replicator: Replicator
    source: Source
    scratch: Path
    """Folder for what does not fit into memory."""
    timing: Timing
    handed_over: Renewal | None = None


def follow(what: Following, ends: tuple[Inbox, Board], stopping: threading.Event) -> None:
    """Start, and capture until `stopping` is set. Every error says where it was met."""
    replicator, board = what.replicator, ends[1]
    # What neither the storage nor this process's own parts say of themselves, the source's log brought.
    with met_at("source"), what.source.subscription(replicator, replicator.spec.storage.location) as subscription:
        storage = Storage.open(replicator.spec.storage)
        place = startup.StartContext(replicator, what.source, subscription, storage)
        ids = startup.Ids(log_id=str(uuid.uuid4()), nonce=uuid.uuid4().hex)
        journal = startup.start(place, ids, Patience(board.waiting_for, stopping), what.handed_over)
        board.waiting_for(None)
        board.beat()  # from here on the loop is watched: its first look at the catalog may meet a source that hangs
        try:
            Capture(place, journal, what.scratch, ends, what.timing).run(stopping)
        except Retry:
            # Who takes our place in the source has begun an epoch before: starting again, we would take it back,
            # and so for ever.
            journal.check_owned()
            raise


def end_without_driver(server: CaptureServer, patience: float, stopping: threading.Event, inbox: Inbox) -> None:
    """End capture when no driver has asked for anything for `patience` seconds."""
    while not stopping.wait(min(patience / 4, 5.0)):
        silent = time.monotonic() - server.heard
        if silent > patience:
            log.warning("no driver has asked for anything for %d s: capture shuts down", silent)
            stopping.set()
            inbox.wake()


def end_when_stuck(
    board: Board, stopping: threading.Event, end: Callable[[], None], patience: float = STUCK, tick: float = 5.0
) -> None:
    """Call `end` once the loop has stood still for `patience` seconds. A server that hangs, while its machine still
    acknowledges what it is sent, ends no statement, and none that may wait for long can have a time limit."""
    before = time.monotonic()
    while not stopping.wait(tick):
        now = time.monotonic()
        # This very process may have been suspended: nobody had the time to come round.
        if board.still() > patience and now - before < 2 * tick + 1:
            return end()
        before = now


def _end_stuck(run_dir: Path) -> None:
    """The loop's thread cannot be interrupted. The process may die anywhere, so here as well."""
    error = Retry(f"the source has not answered for {STUCK:.0f} s", "Check whether the source's server responds.")
    log.error("%s", error)
    last_fault.leave(last_fault.of(run_dir), fault_of(error, time.time(), "capture"))
    os._exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tailrace-capture", description=__doc__)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--name", help="the Replicator, if the manifest holds several")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--socket", type=Path, help="default: the run directory's")
    parser.add_argument("--secrets", type=Path, help="folder of mounted Secrets (Kubernetes)")
    parser.add_argument("--resync", type=Path, help="SnapshotRequest that starts the stream over; may be missing")
    parser.add_argument("--heartbeat", type=float, default=10.0, help="seconds between records of an idle source")
    parser.add_argument("--without-driver", type=float, default=3600.0, help="seconds to continue without a driver")
    parser.add_argument("--log-file", type=Path, help="where to log instead of to standard error; two files of 32 MiB")
    parser.add_argument("--log-format", choices=logs.FORMS, default="text")
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
