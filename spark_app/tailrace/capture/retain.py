"""Runs retention of the change log once a minute, with the floors that only capture knows. Called by the loop.

At a start, and daily, it also sweeps what earlier processes left behind: segments that no record names, old records.
"""

import logging
import time
from collections.abc import Callable

from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import Requests
from tailrace.capture.startup import Place
from tailrace.changelog.retention import Ages, Pins
from tailrace.changelog.trim import sweep, trim, trim_journal
from tailrace.errors import Retry
from tailrace.run.manifest import seconds

log = logging.getLogger(__name__)
DAY = 86_400.0
MICROSECONDS = 1_000_000


class Retention:
    def __init__(self, place: Place, recorder: Recorder, requests: Requests, settle: Callable[[], int]) -> None:
        spec = place.replicator.spec
        self._recorder = recorder
        self._requests = requests
        self._settle = settle
        self._retention = int(seconds(spec.retention.time) * MICROSECONDS)
        self._retry = int(seconds(spec.retry.time) * MICROSECONDS)
        self._swept: float | None = None

    def run(self) -> None:
        """A storage that fails now is tried again with the next run; the log only stays longer."""
        # The pins are of the journal as it is written: nothing may be taken and not recorded.
        self._settle()
        journal = self._recorder.journal
        now = time.time_ns() // 1000
        pins = Pins(now=self._requests.point_now(), reading=self._requests.floors(), cut_off=self._requests.cut_off)
        self._requests.retention_ran = True
        try:
            gone = trim(journal, pins, Ages(now=now, retention=self._retention, retry=self._retry))
            if gone.paths:
                log.info("retention removed %d segments, %d bytes", len(gone.paths), gone.size)
            if self._swept is None or time.monotonic() - self._swept > DAY:
                left = sweep(journal.storage, journal.state)
                records = trim_journal(journal.storage, now, self._retention)
                log.info("swept %d segments that no record names and %d old records", len(left), records)
                self._swept = time.monotonic()
        except Retry as error:
            log.warning("retention: %s", error)
