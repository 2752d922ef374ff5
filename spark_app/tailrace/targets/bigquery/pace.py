"""The pace of load jobs, of which a project has 100,000 a day: batches stretch by themselves before none is left."""

import threading
import time
from collections.abc import Callable

from tailrace.targets.pauses import PAUSES, TargetPauses

PER_SECOND = 0.75
"""65,000 a day: the rest is for the chunks of snapshots, which other processes load, and for other programs."""
AT_ONCE = 5_000
"""Jobs that a process may begin with, or after it has loaded nothing for two hours."""
WHY = "BigQuery's load jobs of a day would be used up, so batches wait for each other (docs/bigquery.md)"


class LoadPace:
    """Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        pauses: TargetPauses = PAUSES,
    ) -> None:
        self._clock, self._sleep, self._pauses = clock, sleep, pauses
        self._lock = threading.Lock()
        self._left, self._since = float(AT_ONCE), clock()

    def take(self) -> None:
        """Wait until one more job may be begun."""
        with self._lock:
            now = self._clock()
            self._left = min(AT_ONCE, self._left + (now - self._since) * PER_SECOND) - 1
            self._since = now
            wait = -self._left / PER_SECOND
        if wait > 0:
            with self._pauses.told(WHY):
                self._sleep(wait)


PACE = LoadPace()
"""The pace of this process."""
