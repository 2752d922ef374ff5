"""How old changes were when they became visible in the target: a histogram over the last days.

Filled by the units' workers after each commit, from the journal alone: the rows of its records, and the times between
which these were committed in the source, over which the rows are taken to be spread evenly. Stored beside the change
log, so that it survives the driver: a driver that is killed loses the minutes since it was last stored.
"""

import bisect
import itertools
import logging
import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import Field, ValidationError

from tailrace.changelog.paths import FRESHNESS
from tailrace.changelog.records.terms import Closed, RecordNumber
from tailrace.changelog.state import LogState, TableLog
from tailrace.errors import TailraceError
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)

SMALLEST, STEP = 0.01, 1.02
"""The upper bound of the first bucket, in seconds, and the ratio of two bounds: a time is known to 2 %."""
WINDOW_STEP = 3600
"""Seconds by which the window moves."""
LONGEST_WINDOW = 7 * 86_400
POINTS, MANY_POINTS = 8, 100
"""Times among which a record's rows are divided, ..."""
USUAL_SECONDS = 1.0
"""... and those of one that is longer than this: capture was away."""
STORED_EVERY = 300.0
"""Seconds between two times at which it is stored."""
KEPT_PAUSES = 50


def bound(bucket: int) -> float:
    """The largest time of a bucket, in seconds."""
    return SMALLEST * STEP**bucket


def bucket_of(seconds: float) -> int:
    return max(0, math.ceil(math.log(max(seconds, SMALLEST) / SMALLEST) / math.log(STEP) - 1e-9))


class AgedHour(Closed):
    """Changes that became visible within an hour, by their age."""

    counts: dict[int, int] = Field(default_factory=dict)
    paused: int = 0
    """Changes that were committed while nothing was to be applied: they are told apart."""


class StoredAges(Closed):
    """The file. Times are Unix times in seconds."""

    hours: dict[int, AgedHour] = Field(default_factory=dict)
    pauses: tuple[tuple[float, float], ...] = ()
    stopped_at: float | None = None
    """The time at which the driver was shut down."""


class ChangeAges:
    """The changes of a window."""

    def __init__(self, counts: Counter[int], paused: int) -> None:
        self.changes, self.paused = counts.total(), paused
        self._buckets = sorted(counts)
        self._sums = list(itertools.accumulate(counts[bucket] for bucket in self._buckets))

    def percentile(self, percent: float) -> float | None:
        """The age, in seconds, that so many percent of the changes did not exceed; None: there was none."""
        if not self.changes:
            return None
        return bound(self._buckets[bisect.bisect_left(self._sums, percent / 100 * self.changes)])

    def within(self, seconds: float) -> int:
        """The number of changes that were certainly not older."""
        count = sum(bound(bucket) <= seconds * (1 + 1e-9) for bucket in self._buckets)
        return self._sums[count - 1] if count else 0


class Freshness:
    def __init__(self, storage: Storage, now: float) -> None:
        """Continues with what is stored. The time since a shutdown counts as a pause."""
        self._storage, self._lock = storage, threading.Lock()
        kept = _read(storage)
        self._hours = {hour: Counter(aged.counts) for hour, aged in kept.hours.items()}
        self._paused = Counter({hour: aged.paused for hour, aged in kept.hours.items()})
        self._pauses = list(kept.pauses)
        if kept.stopped_at is not None and kept.stopped_at < now:
            self._pauses.append((kept.stopped_at, now))
        self._paused_since: float | None = None
        self._stored_at = -math.inf
        self._news = kept.stopped_at is not None
        """There is something that the file does not say."""
        self._since_start = Counter[int]()

    def applied(self, state: LogState, table: TableLog, records: tuple[RecordNumber, RecordNumber], now: float) -> None:
        """The table's changes of the records behind the first of these, up to the second, became visible at `now`."""
        found, paused = Counter[int](), 0
        commits = list(_commits(state, table, *records))
        oldest = min((at for at, _ in commits), default=now)
        with self._lock:
            pauses = [pause for pause in self._pauses if pause[1] >= oldest]
            pauses += [] if self._paused_since is None else [(self._paused_since, now)]
            for at, rows in commits:
                age = _age(at, now, pauses)
                if age is None:
                    paused += rows
                else:
                    found[bucket_of(age)] += rows
            hour, self._news = int(now // WINDOW_STEP), True
            self._hours.setdefault(hour, Counter()).update(found)
            self._paused[hour] += paused
            self._since_start.update(found)

    def pause(self, paused: bool, now: float) -> None:
        """Note whether nothing is to be applied, as the user wants it."""
        with self._lock:
            self._news |= paused != (self._paused_since is not None)
            if paused and self._paused_since is None:
                self._paused_since = now
            elif not paused and self._paused_since is not None:
                self._pauses.append((self._paused_since, now))
                self._paused_since = None

    def ages(self, window: float, now: float) -> ChangeAges:
        """The changes of the last `window` seconds, in whole hours."""
        with self._lock:
            first = int((now - window) // WINDOW_STEP)
            counts = Counter[int]()
            for hour, found in self._hours.items():
                if hour >= first:
                    counts.update(found)
            return ChangeAges(counts, sum(n for hour, n in self._paused.items() if hour >= first))

    def since_start(self) -> ChangeAges:
        """All changes since the driver's start."""
        with self._lock:
            return ChangeAges(self._since_start.copy(), 0)

    def store(self, now: float, *, stopped: bool = False) -> None:
        """At times, if there is something new; at once when the driver stops."""
        with self._lock:
            if not stopped and (now - self._stored_at < STORED_EVERY or not self._news):
                return
            self._news = False
            self._stored_at, first = now, int((now - LONGEST_WINDOW) // WINDOW_STEP)
            self._hours = {hour: found for hour, found in self._hours.items() if hour >= first}
            self._paused = Counter({hour: n for hour, n in self._paused.items() if hour >= first})
            self._pauses = [p for p in self._pauses if p[1] >= now - LONGEST_WINDOW][-KEPT_PAUSES:]
            since = self._paused_since
            kept = StoredAges(
                hours={
                    h: AgedHour(counts=dict(sorted(c.items())), paused=self._paused[h]) for h, c in self._hours.items()
                },
                pauses=(*self._pauses, *(() if since is None else ((since, now),))),
                stopped_at=now if stopped else None,
            )
        try:
            self._storage.put(FRESHNESS, kept.model_dump_json(exclude_defaults=True).encode())
        except TailraceError as error:  # no reason to stop: those who need the storage will say so
            log.warning("measured freshness could not be stored: %s", error.message)


def _age(at: float, now: float, pauses: Sequence[tuple[float, float]]) -> float | None:
    """The age of a change that was committed at `at` and became visible at `now`, without the pauses for which it had
    to wait; None: it was committed in one of them."""
    if any(begin <= at <= end for begin, end in pauses):
        return None
    return now - at - sum(end - begin for begin, end in pauses if begin > at)


def _commits(
    state: LogState, table: TableLog, after: RecordNumber, through: RecordNumber
) -> Iterator[tuple[float, int]]:
    """(commit time in the source, rows) of the table's changes."""
    times, newest = state.commit_times, state.newest_commits
    for record, rows, _ in table.segments.sizes_after(after):
        if record > through:
            return
        index, other = times.find(0, record), newest.find(0, record)
        if index == len(times) or (line := times.line(index))[0] != record:
            continue  # not kept for any table: it was applied before
        first = int(line[1]) / 1e6
        known = other < len(newest) and newest.line(other)[0] == record
        last = int(newest.line(other)[1]) / 1e6 if known else first
        most = POINTS if last - first <= USUAL_SECONDS else MANY_POINTS
        points = min(rows, most) if last > first else 1
        for n in range(points):
            yield first + (last - first) * (n + 0.5) / points, rows * (n + 1) // points - rows * n // points


def _read(storage: Storage) -> StoredAges:
    try:
        return StoredAges.model_validate_json(storage.get(FRESHNESS))
    except NotFound:
        return StoredAges()
    except ValidationError:
        log.warning("%s is not readable: freshness is measured from the beginning", storage.uri(FRESHNESS))
        return StoredAges()
