"""When each table is to be tidied: soon after it was written to, seldom while nothing is written to it.

Held by the applier, under its lock. A look costs the tables whose time has come, however many others there are.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Mapping

from tailrace.apply.progress import Progress
from tailrace.apply.units import TableEntry

TIDY_SECONDS = 30.0
"""Between two looks at whether a table should be compacted, while it is written to."""
IDLE_TIDY_SECONDS = 3600.0
"""A table that is no longer written to is looked at once more after this time, when its old versions may go, ..."""
REST_TIDY_SECONDS = 86_400.0
"""... and then so often. Each look may ask an object store for lists, and there may be thousands of tables."""
BUSY_SECONDS = 1.0
"""After this time a table is tried again whose changes come first."""


class Upkeep:
    def __init__(self, entries: Mapping[int, TableEntry], progress: Progress, monotonic: Callable[[], float]) -> None:
        """`entries`: those of the schedule, as they are."""
        self._entries, self._progress, self._monotonic = entries, progress, monotonic
        self._moved_tables = progress.news()
        self._times: list[tuple[float, int, TableEntry]] = []
        """A heap of times at which a table may be due, numbered. Of several of one table, `TableEntry.tidy_at`
        counts."""
        self._numbers = itertools.count()

    def is_due(self) -> bool:
        """True if there may be a table to be tidied now."""
        self._take_news()
        return bool(self._times) and self._times[0][0] <= self._monotonic()

    def next(self) -> TableEntry | None:
        """The table that should have been tidied first; None: none is due. It comes again after `done` or `later`."""
        self._take_news()
        now = self._monotonic()
        while self._times and self._times[0][0] <= now:
            at, _, entry = heapq.heappop(self._times)
            if at != entry.tidy_at or self._entries.get(entry.table.table_id) is not entry:
                continue
            entry.tidy_at = math.inf
            if self._due_at(entry) <= now:
                return entry
            self.done(entry)
        return None

    def done(self, entry: TableEntry) -> None:
        self._wait(entry, self._due_at(entry))

    def later(self, entry: TableEntry) -> None:
        """Its changes come first."""
        self._wait(entry, self._monotonic() + BUSY_SECONDS)

    def _take_news(self) -> None:
        for entry in filter(None, map(self._entries.get, self._moved_tables())):
            if entry.copy.found_record is not None:
                self.done(entry)

    def _wait(self, entry: TableEntry, until: float) -> None:
        if until < entry.tidy_at:
            entry.tidy_at = until
            heapq.heappush(self._times, (until, next(self._numbers), entry))

    def _due_at(self, entry: TableEntry) -> float:
        table_id, found = entry.table.table_id, entry.copy.found_record
        if entry.tidied_record is None and found is not None:
            # What this process finds is as tidy as the one before it has left it; its own first commit counts at once.
            entry.tidied, entry.tidied_record = self._monotonic() - TIDY_SECONDS, found
        every = TIDY_SECONDS
        if self._progress.of(table_id).committed_record == entry.tidied_record:
            # Tables that were opened together take turns.
            every = REST_TIDY_SECONDS if entry.idle else IDLE_TIDY_SECONDS * (1 + table_id * 7919 % 1000 / 1000)
        return entry.tidied + every
