"""Units, each of the tables that one commit moves, as the applier enters them, with what is known of both.

Changed by the applier and its schedule, under the applier's lock.
"""

import math
from concurrent.futures import Future
from dataclasses import dataclass, field

from tailrace.apply.unit_worker import TableCopy, UnitWorker
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import TableLog
from tailrace.errors import Stop
from tailrace.errors.backoff import Backoff

LONGEST_PAUSE, JITTER = 30.0, 0.25
FIRST_GUESS = 0.1
"""Seconds that a table's first batch is expected to take."""
NONE = RecordNumber(-1)
"""Before the first record."""


@dataclass(eq=False)
class ApplyUnit:
    """Tables that one commit moves, and when their worker may be entered again."""

    entries: "dict[int, TableEntry]" = field(default_factory=dict)
    worker: UnitWorker | None = None
    """None: not made yet, or that failed."""
    refused: Stop | None = None
    running: Future[None] | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(LONGEST_PAUSE, JITTER))
    waiting_since: float | None = None
    """The monotonic time since which its batches have met nothing but a chunk that is being written; None: they do
    not."""
    waiting_told: float = -math.inf
    """The time at which somebody was warned of that, or at which it began."""
    spread: float = -math.inf
    """The monotonic time before which it is not tried either, for many others fail at a place that is away."""
    reaches: RecordNumber = NONE
    """The record that it holds when the work under way has ended; `NONE`: that is not known, since it has not begun, or
    takes more than one batch."""
    begun: float = -math.inf
    """The monotonic time at which that work was begun."""
    took: float = FIRST_GUESS
    """Seconds that its latest batches took."""

    def is_waiting(self, now: float) -> bool:
        return now < self.spread or self.backoff.is_waiting(now)

    def enter(self, entry: "TableEntry") -> None:
        entry.unit, self.entries[entry.table.table_id] = self, entry
        if self.worker is not None:
            self.worker.add(entry.copy)

    def leave(self, entry: "TableEntry") -> None:
        del self.entries[entry.table.table_id]
        if self.worker is not None:
            self.worker.remove(entry.table.table_id)


@dataclass(eq=False)
class TableEntry:
    """A captured table."""

    table: TableLog
    """The table as first seen: its copy is made from it."""
    latest: TableLog
    """The table as it was last seen, ..."""
    last_record: RecordNumber
    """... and the last record that brings it something."""
    copy: TableCopy
    unit: ApplyUnit = field(default_factory=ApplyUnit)
    tidied: float = -math.inf
    """The time of the last tidying, or of the one that would have come if the table were written to."""
    tidied_record: RecordNumber | None = None
    """The committed record then: others have come since if it is another one now. None: the target is not open yet."""
    tidy_at: float = math.inf
    """The time at which `Upkeep` looks at it next."""
    idle: bool = False
    """It was looked at again after the last commit had become old."""
    behind_since: float | None = None
    """Monotonic time at which the first change that the target lacks was seen; None: it lacks none."""
    behind_again: float | None = None
    """Monotonic time of the first change that was seen during a batch, which may have left it; None: there was none."""
    deadline: float = math.inf
    """The monotonic time by which those changes were to be committed; infinity: nothing was promised, as while the
    table is being read."""

    @property
    def running(self) -> Future[None] | None:
        return self.unit.running

    @property
    def opened(self) -> bool:
        return self.copy.opened
