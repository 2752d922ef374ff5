"""Runs retention of the change log once a minute, with the floors that only capture knows. Called by the loop.

Now and then it also sweeps: segments that no record names, old records and roll-ups. A run that ends before its first
minute does all of it at its end, or a log that is read by short runs only would never be trimmed.
Files are deleted beside the loop: thousands on an object store take minutes, and the source must hear from us.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import ChunkRequests
from tailrace.changelog.followers import needed
from tailrace.changelog.records.terms import Position
from tailrace.changelog.retention import Ages, Pins
from tailrace.changelog.trim import sweep, trim, trim_journal
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.units import seconds
from tailrace.errors import Retry, TailraceError

log = logging.getLogger(__name__)
HOUR, DAY = 3_600.0, 86_400.0
MICROSECONDS = 1_000_000
UNNAMED = "segments that no record names"
LAST_PATIENCE = 5.0
"""Seconds that the end of a run waits for deletions: well below what the driver grants capture to end."""


class LogCleaner:
    """One thread that deletes, in order of what it is given: from the first work to `close`."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._refused: TailraceError | None = None
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Raises the error of earlier work, unless it is temporary."""
        if self._refused is not None:
            raise self._refused
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
            self._thread.start()

    def close(self, patience: float) -> bool:
        """Accepts no more work, and waits until all is done, for so many seconds at most. Returns True if it is."""
        if self._thread is None:
            return True
        self._work.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Retry as error:
                log.warning("retention could not delete files: %s; a later sweep deletes them", error)
            except TailraceError as error:
                self._refused = error


class RetentionJob:
    def __init__(
        self,
        spec: ReplicatorSpec,
        recorder: Recorder,
        requests: ChunkRequests,
        settle: Callable[[], Position],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._recorder = recorder
        self._requests = requests
        self._settle = settle
        self._retention = int(seconds(spec.retention.time) * MICROSECONDS)
        self._retry = int(seconds(spec.retry.time) * MICROSECONDS)
        self._clock = clock
        self._cleaner = LogCleaner()
        self._last: dict[str, float] = {}

    def run(self) -> None:
        """A record whose outcome is unknown ends capture, like any other: a new writer finds out."""
        now = self._trim()
        self._trim_journal(now)
        storage, state = self._recorder.journal.storage, self._recorder.journal.state
        self._now_and_then(UNNAMED, DAY, lambda: len(sweep(storage, state)))

    def finish(self, patience: float = LAST_PATIENCE) -> None:
        """At the end of capture: a roll-up if it is worth it, and what a run that was too short for `run` has left to
        do. What is not done within `patience` seconds is found by the next: dying anywhere here is safe."""
        journal = self._recorder.journal
        short = not self._last
        try:
            now = self._trim() if short else 0
            # After the removal: the next start need not read what has just gone.
            rolled_up = journal.finish()
        except Retry as error:
            log.warning("the change log could not be trimmed, a later run tries again: %s", error)
            return
        if short:
            self._trim_journal(now)
        if short and rolled_up:  # as seldom as that: it lists all segments
            storage, state = journal.storage, journal.state
            self._now_and_then(UNNAMED, DAY, lambda: len(sweep(storage, state)))
        if not self._cleaner.close(patience):
            log.info("some files are left to delete; a later run of retention deletes them")

    def _trim(self) -> int:
        """Forget what is not needed; the time by which that was decided."""
        # The pins are of the journal as it is written: nothing may be taken and not recorded.
        self._settle()
        journal = self._recorder.journal
        now = int(self._clock() * MICROSECONDS)
        try:
            followers = needed(journal.storage, now).seq
        except Retry as error:
            log.warning("what followers need is not known, so nothing is removed now: %s", error)
            return now
        pins = Pins(
            now=self._requests.point_now(),
            reading=self._requests.floors(),
            cut_off=self._requests.cut_off,
            followers=followers,
        )
        self._requests.retention_ran = True
        gone = trim(journal, pins, Ages(now=now, retention=self._retention, retry=self._retry))
        if gone.paths:
            log.info("retention removes %d files, %d bytes of segments", len(gone.paths), gone.size)
            self._cleaner.put(lambda: journal.storage.delete_many(gone.paths))
        return now

    def _trim_journal(self, now: int) -> None:
        storage = self._recorder.journal.storage
        self._now_and_then("old records", HOUR, lambda: trim_journal(storage, now, self._retention))

    def _now_and_then(self, what: str, every: float, work: Callable[[], int]) -> None:
        last = self._last.get(what)
        if last is not None and time.monotonic() - last < every:
            return
        self._last[what] = time.monotonic()

        def run() -> None:
            try:
                count = work()
                log.log(logging.INFO if count else logging.DEBUG, "swept %d %s", count, what)
            except Retry:
                del self._last[what]
                raise

        self._cleaner.put(run)
