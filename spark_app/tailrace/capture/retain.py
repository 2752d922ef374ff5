"""Runs retention of the change log once a minute, with the floors that only capture knows. Called by the loop.

At a start, and now and then, it also sweeps: segments that no record names, old records and roll-ups.
Files are deleted beside the loop: thousands on an object store take minutes, and the source must hear from us.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import Requests
from tailrace.capture.startup import Place
from tailrace.changelog.retention import Ages, Pins
from tailrace.changelog.trim import sweep, trim, trim_journal
from tailrace.contract.units import seconds
from tailrace.errors import Retry, TailraceError

log = logging.getLogger(__name__)
HOUR, DAY = 3_600.0, 86_400.0
MICROSECONDS = 1_000_000


class Cleaner:
    """One thread that deletes, in order of what it is given."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._refused: TailraceError | None = None
        threading.Thread(target=self._run, name="retention", daemon=True).start()

    def put(self, work: Callable[[], None]) -> None:
        """Raises what stood in the way of earlier work, unless it passes by itself."""
        if self._refused is not None:
            raise self._refused
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Retry as error:
                log.warning("retention: %s; a later sweep finds what is left", error)
            except TailraceError as error:
                self._refused = error


class Retention:
    def __init__(self, place: Place, recorder: Recorder, requests: Requests, settle: Callable[[], int]) -> None:
        spec = place.replicator.spec
        self._recorder = recorder
        self._requests = requests
        self._settle = settle
        self._retention = int(seconds(spec.retention.time) * MICROSECONDS)
        self._retry = int(seconds(spec.retry.time) * MICROSECONDS)
        self._cleaner = Cleaner()
        self._last: dict[str, float] = {}

    def run(self) -> None:
        """A record whose outcome is unknown ends capture, like any other: a new writer finds out."""
        # The pins are of the journal as it is written: nothing may be taken and not recorded.
        self._settle()
        journal = self._recorder.journal
        now = time.time_ns() // 1000
        pins = Pins(now=self._requests.point_now(), reading=self._requests.floors(), cut_off=self._requests.cut_off)
        self._requests.retention_ran = True
        gone = trim(journal, pins, Ages(now=now, retention=self._retention, retry=self._retry))
        if gone.paths:
            log.info("retention removes %d segments, %d bytes", len(gone.paths), gone.size)
            self._cleaner.put(lambda: journal.storage.delete_many(gone.paths))
        storage, state = journal.storage, journal.state
        # Hourly: until then every roll-up of the hour is there, each as large as the whole state.
        self._now_and_then("old records", HOUR, lambda: trim_journal(storage, now, self._retention))
        self._now_and_then("segments that no record names", DAY, lambda: len(sweep(storage, state)))

    def _now_and_then(self, what: str, every: float, work: Callable[[], int]) -> None:
        last = self._last.get(what)
        if last is not None and time.monotonic() - last < every:
            return
        self._last[what] = time.monotonic()

        def run() -> None:
            try:
                log.info("swept %d %s", work(), what)
            except Retry:
                del self._last[what]
                raise

        self._cleaner.put(run)
