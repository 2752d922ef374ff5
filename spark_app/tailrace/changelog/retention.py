"""Retention: the part of the log that is no longer needed. Pure; `tailrace.changelog.trim` carries it out.

A segment goes when it is older than the retention time *and* is below its table's floor. The floor is the smallest of
* A + 1, what the target still lacks (advisory, so never too high);
* the replay points of chunks that are registered and not applied, and of finished snapshots that are not applied;
* the replay points of all chunks of a snapshot that has not finished the table: its end compares with the log since;
* the replay points that chunks being read may get;
* the replay point that a snapshot taken now would get: a commit can be in the log and invisible for an hour;
* the first sequence that a follower's log lacks, of all tables, also of those that have ended.
A bundle holds segments of several tables: it goes when the last of them lets it go.
A table that was stopped or removed longer ago than the retry time pins nothing. One that is cut off (its target failed
for longer than the retry time) is kept only for snapshots: it needs one.

Transactions are known back to where a replay point may still fall: the last two lines above, of all tables. What is
below is visible to every snapshot still to be registered: what one snapshot of the primary sees, every later one sees.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge

from tailrace.changelog.paths import is_bundle
from tailrace.changelog.records.tables import SegmentsRemoved, TableForgotten, TransactionsRemoved
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LogState, SnapshotState, TableLog


@dataclass(frozen=True)
class Pins:
    """The parts of the log that capture must keep and the journal does not name."""

    now: Seq
    """The replay point of a snapshot taken just now, on the primary: no later chunk gets a smaller one."""
    reading: Mapping[int, Seq] = field(default_factory=dict)
    """The smallest `now`, by table id, that was known when a chunk that is still being read was begun."""
    cut_off: frozenset[int] = frozenset()
    """Tables whose target has failed for longer than the retry time."""
    followers: Seq | None = None
    """The first sequence that a follower has still to read; None: there is no follower."""


@dataclass(frozen=True)
class Ages:
    """Microseconds; `now` by the clock that wrote the records."""

    now: int
    retention: int
    retry: int


@dataclass(frozen=True)
class LogRemoval:
    """`events` must be durable before `paths` are deleted."""

    events: tuple[SegmentsRemoved | TransactionsRemoved | TableForgotten, ...]
    paths: tuple[str, ...]
    size: int
    """Bytes."""


def removal(state: LogState, pins: Pins, ages: Ages) -> LogRemoval:
    """The parts of the log that may be removed."""
    events: list[SegmentsRemoved | TransactionsRemoved | TableForgotten] = []
    paths: list[str] = []
    bundles: dict[str, RecordNumber] = {}
    kept_from: dict[int, int] = {}
    size = 0
    for table in state.tables.values():
        through = removable_through(table, floor(state, table, pins, ages), ages)
        if through is None:
            continue
        events.append(SegmentsRemoved(table_id=table.table_id, through_seq=through))
        count = kept_from[table.table_id] = table.segments.ended_through(through)
        going = table.segments[:count]
        paths += [logged.segment.path for logged in going if not is_bundle(logged.segment.path)]
        bundles |= table.segments.bundles(0, count)
        size += sum(logged.segment.size for logged in going)
    paths += _unnamed(bundles, state, kept_from)
    events += forgotten(state, ages)
    below = Seq(transactions_floor(state, pins) - 1)
    if state.transactions.begun_through(below):
        events.append(TransactionsRemoved(through_seq=below))
    return LogRemoval(tuple(events), tuple(paths), size)


def _unnamed(bundles: dict[str, RecordNumber], state: LogState, kept_from: Mapping[int, int]) -> list[str]:
    """The bundles, given with the records that named them, of which no table keeps a segment."""
    if not bundles:
        return []
    before, last = RecordNumber(min(bundles.values()) - 1), max(bundles.values())
    for table in state.tables.values():
        # A bundle is of one record, so no more than the records of those that may go are looked at.
        start = max(kept_from.get(table.table_id, 0), table.segments.through_record(before))
        for path, _ in table.segments.bundles(start, table.segments.through_record(last)):
            bundles.pop(path, None)
    return list(bundles)


def forgotten(state: LogState, ages: Ages) -> Iterator[TableForgotten]:
    """Removed tables of which the log holds nothing, after the time in which they might have come back as they were.
    Not while a snapshot covers one: its end still names the table."""
    covered = {table_id for s in state.snapshots.values() if s.ended is None for table_id in s.tables}
    for table in state.tables.values():
        old = table.ended_at is not None and ages.now - table.ended_at > max(ages.retry, ages.retention)
        if table.removed and old and not (table.segments or table.truncates or table.table_id in covered):
            yield TableForgotten(table_id=table.table_id)


def floor(state: LogState, table: TableLog, pins: Pins, ages: Ages) -> Seq:
    """The first sequence from which the table's changes must be kept."""
    own = _own_floor(state, table, pins, ages)
    return own if pins.followers is None else min(own, pins.followers)


def _own_floor(state: LogState, table: TableLog, pins: Pins, ages: Ages) -> Seq:
    """Without followers."""
    if table.ended_at is not None and ages.now - table.ended_at > ages.retry:
        return Seq(state.last_seq + 1)
    pinned = [pins.now, pins.reading.get(table.table_id, pins.now), *_unfinished(state.snapshots, table.table_id)]
    if table.table_id not in pins.cut_off:
        pinned.append(Seq(table.applied_seq + 1))
        pinned += [c.chunk.replay_point for c in table.chunks]
        pinned += [f.replay_point for f in table.finishes]
    return min(pinned)


def _unfinished(snapshots: Mapping[str, SnapshotState], table_id: int) -> list[Seq]:
    """Replay points of registered chunks of snapshots that continue. (Ended and finished ones hold no chunks.)"""
    found = (s.tables[table_id] for s in snapshots.values() if s.ended is None and table_id in s.tables)
    return [chunk.replay_point for table in found for chunk in table.chunks]


def removable_through(table: TableLog, below: Seq, ages: Ages) -> Seq | None:
    """The last sequence that may go: the end of the longest run of old segments and TRUNCATEs under the floor."""
    ends = merge(table.segments.ends(), ((t.seq, t.written_at) for t in table.truncates))
    going = None
    for seq, written_at in ends:
        if seq >= below:
            break
        if written_at > ages.now:
            continue  # the clock was ahead then: it is as old as what was written after it
        if ages.now - written_at <= ages.retention:
            break
        going = seq
    return going


def transactions_floor(state: LogState, pins: Pins) -> Seq:
    """The first sequence from which transactions must stay known."""
    return min(pins.now, Seq(state.last_seq + 1), *pins.reading.values())
