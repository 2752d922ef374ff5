"""The record of the change log that a time stands for: the last one before the first commit after the time.

Asked by the command line for `--stop-at`. The state forgets the times of what is applied, so records are read, from the
newest back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tailrace.changelog.journal import read_record
from tailrace.changelog.records.terms import RecordNumber
from tailrace.storage.store import NotFound, Storage

SKEW = 60_000_000
"""Microseconds by which a commit may have an earlier time than one before it in the log."""
FEW = 16
"""Records that are not worth a bisection."""


@dataclass(frozen=True)
class RecordAt:
    """Times are microseconds since the Unix epoch."""

    record: RecordNumber | None
    """None: the log does not tell: no commit is later yet, or the records from then are gone."""
    oldest: int | None = None
    newest: int | None = None
    """The newest commit of those that were looked at, as `oldest` is the oldest; None: there are none."""


def record_at(storage: Storage, end: RecordNumber, moment: datetime) -> RecordAt:
    """`end`: the newest record."""
    until = int(moment.timestamp() * 1e6)
    looked_at = _Looked(storage)
    later: RecordNumber | None = None
    for number in range(_start(looked_at, end, until), -1, -1):
        times = looked_at.times(number)
        if times is GONE:
            return RecordAt(None, looked_at.oldest, looked_at.newest)
        if times is None:
            continue
        if times[1] > until:
            later = RecordNumber(number)
        elif times[1] < until - SKEW:
            break
    return RecordAt(None if later is None else RecordNumber(later - 1), looked_at.oldest, looked_at.newest)


GONE = (-1, -1)
"""Stands for the times of a record that is no longer there."""


class _Looked:
    """Reads the times of records, and keeps the oldest and the newest of them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.oldest: int | None = None
        self.newest: int | None = None

    def times(self, number: int) -> tuple[int, int] | None:
        """The times of its oldest and newest commit; None: it has none."""
        try:
            times = read_record(self._storage, RecordNumber(number)).commit_time
        except NotFound:
            return GONE
        if times is not None:
            self.oldest = times[0] if self.oldest is None else min(self.oldest, times[0])
            self.newest = times[1] if self.newest is None else max(self.newest, times[1])
        return times


def _start(looked_at: _Looked, end: int, until: int) -> int:
    """A record from which it is enough to look back: the newest, or one all of whose followers are later than `until`,
    as near to it as a bisection comes."""
    low, high = -1, end
    while high - low > FEW:
        near = ((n, times) for n in _around(low, high) if (times := looked_at.times(n)) is not None)
        number, times = next(near, ((low + high) // 2, GONE))
        if times[0] > until + SKEW:
            high = number
        else:
            low = number
    return high


def _around(low: int, high: int) -> Iterator[int]:
    """The middle and, should it be of a time without commits, others ever farther from it."""
    middle, away = (low + high) // 2, 1
    yield middle
    while away < high - middle:
        yield from (number for number in (middle + away, middle - away) if low < number < high)
        away *= 2


def text(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat().replace("+00:00", "Z")
