"""The numbers of the last hour, in memory: a bounded ring that a loop of the driver fills from its own status."""

import threading
from collections import deque

from tailrace.contract.history import LastHour
from tailrace.contract.status import Status

STEP_SECONDS = 10.0
KEPT = 360
"""An hour of them."""


class HistoryRing:
    """Takes a status every `STEP_SECONDS`; the answer has the newest `KEPT`. The other threads are the server's."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._taken: deque[tuple[float, float | None, float | None, float, float, int | None, int]] = deque(maxlen=kept)

    def add(self, status: Status) -> None:
        capture, apply = status.capture, status.apply
        line = (
            round(status.updated_at, 1),
            capture.lag_seconds,
            apply.lag_seconds,
            capture.rows_per_second,
            apply.rows_per_second,
            capture.retained_bytes,
            status.tables_failing,
        )
        with self._lock:
            self._taken.append(line)

    def document(self) -> LastHour:
        with self._lock:
            lines = list(self._taken)
        return LastHour(
            step_seconds=STEP_SECONDS,
            at=tuple(line[0] for line in lines),
            capture_lag_seconds=tuple(line[1] for line in lines),
            apply_lag_seconds=tuple(line[2] for line in lines),
            captured_rows_per_second=tuple(line[3] for line in lines),
            applied_rows_per_second=tuple(line[4] for line in lines),
            retained_bytes=tuple(line[5] for line in lines),
            tables_failing=tuple(line[6] for line in lines),
        )
