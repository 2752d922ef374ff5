"""The record of the change log that a time stands for: the last one before the first commit after the time.

Asked by the command line for `--stop-at`. The state forgets the times of what is applied, so records are read, from the
newest back.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from tailrace.changelog.journal import read_record
from tailrace.changelog.records.terms import RecordNumber
from tailrace.storage.store import NotFound, Storage

SKEW = 60_000_000
"""Microseconds by which a commit may have an earlier time than one before it in the log."""


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
    later: RecordNumber | None = None
    oldest: int | None = None
    newest: int | None = None
    for number in range(end, -1, -1):
        try:
            times = read_record(storage, RecordNumber(number)).commit_time
        except NotFound:
            return RecordAt(None, oldest, newest)
        if times is None:
            continue
        oldest = times[0] if oldest is None else min(oldest, times[0])
        newest = times[1] if newest is None else max(newest, times[1])
        if times[1] > until:
            later = RecordNumber(number)
        elif times[1] < until - SKEW:
            break
    return RecordAt(None if later is None else RecordNumber(later - 1), oldest, newest)


def text(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat().replace("+00:00", "Z")
