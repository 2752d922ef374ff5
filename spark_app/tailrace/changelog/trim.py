"""Carries retention out: the event first, then the files; and sweeps what dying in between left behind.

Called by capture, the journal's only writer: `trim` now and then, `sweep` and `trim_journal` at a start and then hourly
or daily. The last two need no writer: capture has them done in a thread of their own, since they may take minutes.
"""

import time
from itertools import groupby

from tailrace.changelog.followers import needed
from tailrace.changelog.journal import read_record
from tailrace.changelog.paths import (
    JOURNAL,
    PARTS,
    ROLLUPS,
    SEGMENTS,
    is_bundle,
    number_of,
    record_path,
    segment_range,
    segment_table,
)
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.retention import Ages, LogRemoval, Pins, removal
from tailrace.changelog.rollup import numbers, trim_rollups
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.seams import seam
from tailrace.storage.store import NotFound, Storage

SHORTEST_JOURNAL = 3_600_000_000
"""Microseconds that records stay, however short the retention: a reader that slept less finds its next record."""
KEPT_ROLLUPS = 2


def trim(writer: JournalWriter, pins: Pins, ages: Ages) -> LogRemoval:
    """Forget what is not needed; the caller deletes the `paths`. Readers see the event before a file is missing."""
    going = removal(writer.state, pins, ages)
    if going.events:
        writer.append(writer.state.position, events=going.events)
        # Dying here is safe: the state no longer names the files, and `sweep` removes what it does not name.
        seam("retention.after-event")
    return going


def sweep(storage: Storage, state: LogState) -> list[str]:
    """Remove segments that no record names or ever will: those that end at or below the last recorded sequence. And
    what killed writers left unfinished on a local disk.

    The range stands in the path. What a writer is writing right now begins above the last recorded sequence, also
    as seen by a writer that has been fenced and does not know it yet. What a follower has still to read stays, too: a
    table that has started over no longer names what lies before. `Retry`: that is not known.
    """
    left: list[str] = []
    kept = needed(storage, int(time.time() * 1_000_000)).seq
    through = state.last_seq if kept is None else min(state.last_seq, Seq(kept - 1))
    # A folder is one table's or the bundles', so no more than that many paths are in memory.
    for _, paths in groupby((path for path, _ in storage.list(SEGMENTS)), key=lambda path: path.rpartition("/")[0]):
        left += _unnamed(list(paths), state, through)
    left += [*storage.unfinished(SEGMENTS), *storage.unfinished(JOURNAL)]
    storage.delete_many(left)
    return left


def _unnamed(folder: list[str], state: LogState, through: Seq) -> list[str]:
    ranges = ((path, segment_range(path)) for path in folder)
    paths = [path for path, covered in ranges if covered is not None and covered[1] <= through]
    if not paths:
        return []
    if is_bundle(paths[0]):
        named = {path for table in state.tables.values() for path, _ in table.segments.bundles()}
    else:
        table = state.tables.get(segment_table(paths[0]) or 0)
        named = set() if table is None else {s.segment.path for s in table.segments}
    return [path for path in paths if path not in named]


def trim_journal(storage: Storage, now: int, retention: int) -> int:
    """Remove records that a roll-up replaces, that are older than the retention (microseconds) and that no follower has
    still to read; returns how many.

    In order of numbers: while record *n* stands, none above it is gone, which is how a sleeping writer or reader finds
    out that it was passed by. Roll-ups go last: the newest always has its own record and every one after it.
    """
    rollups = numbers(storage, ROLLUPS)
    if not rollups:
        return 0
    paths = (path for path, _ in storage.list(JOURNAL) if not path.startswith((ROLLUPS, PARTS)))
    below = sorted(n for path in paths if (n := number_of(path)) is not None and n < rollups[-1])
    kept = needed(storage, now).record
    below = below if kept is None else [number for number in below if number < kept]
    going = below[: _older(storage, below, now - max(retention, SHORTEST_JOURNAL))]
    for number in going:
        storage.delete(record_path(number))
        seam("retention.between-records")
    trim_rollups(storage, KEPT_ROLLUPS)
    return len(going)


def _older(storage: Storage, numbers: list[RecordNumber], limit: int) -> int:
    """The number of the records, in order, that were written before `limit`, found by halving."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        try:
            old = read_record(storage, numbers[middle]).written_at < limit
        except NotFound:
            old = True
        low, high = (middle + 1, high) if old else (low, middle)
    return low
