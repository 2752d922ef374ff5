"""The counters of each table over the last hour, in memory: what changed in each minute.

A table without changes costs nothing; one that changes every minute some 3 KiB.
"""

import threading
from array import array
from collections import deque
from collections.abc import Mapping

from tailrace.contract.history import CounterHistory
from tailrace.contract.status import TableCounters

STEP_SECONDS = 60.0
KEPT = 60
"""An hour of them."""
FIELDS = tuple(TableCounters.model_fields)
WIDE = len(FIELDS) + 1
"""Numbers of one entry: the number of its step, and what each counter grew by in it."""


class TableHistory:
    """Takes the counters of all tables every `STEP_SECONDS` or so. The other threads are the server's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._times: deque[float] = deque(maxlen=KEPT)
        """The ends of the newest steps."""
        self._last: dict[str, TableCounters] = {}
        self._grown: dict[str, array[int]] = {}
        self._at: float | None = None

    def add(self, at: float, tables: Mapping[str, TableCounters]) -> None:
        """The first call is the beginning, not a step."""
        with self._lock:
            if self._at is not None and 0 <= at - self._at < STEP_SECONDS:
                return
            begins, self._at = self._at is None, at
            if not begins:
                self._times.append(round(at, 1))
                self._steps += 1
                for name, counters in tables.items():
                    self._note(name, counters)
            self._last = dict(tables)
            oldest = self._steps - KEPT
            for name, entries in list(self._grown.items()):
                while entries and entries[0] <= oldest:
                    del entries[:WIDE]
                if not entries or name not in tables:
                    del self._grown[name]

    def _note(self, name: str, counters: TableCounters) -> None:
        before = self._last.get(name, TableCounters())
        if before is counters:
            return
        # Counters of a table that starts over are smaller than before.
        grown = [max(getattr(counters, field) - getattr(before, field), 0) for field in FIELDS]
        if any(grown):
            self._grown.setdefault(name, array("q")).extend([self._steps, *grown])

    def document(self, name: str) -> CounterHistory:
        with self._lock:
            entries, times, steps = list(self._grown.get(name, ())), tuple(self._times), self._steps
        rows = {entries[i]: entries[i + 1 : i + WIDE] for i in range(0, len(entries), WIDE)}
        none = [0] * len(FIELDS)
        lines = [rows.get(step, none) for step in range(steps - len(times) + 1, steps + 1)]
        columns = {field: tuple(line[n] for line in lines) for n, field in enumerate(FIELDS)}
        return CounterHistory(step_seconds=STEP_SECONDS, at=times, **columns)
