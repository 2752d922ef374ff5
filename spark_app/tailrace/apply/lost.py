"""Chunks that a target still needs, and those that it has lost. Pure."""

from collections.abc import Iterator, Set
from dataclasses import replace

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LogState, TableLog
from tailrace.snapshot.planner import replaced_chunks
from tailrace.targets.api import NeededChunks


def snapshot_open(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True if a snapshot of the table has not ended, or the target does not hold its end yet."""
    running = any(s.is_open for s in state.snapshots.of(table.table_id))
    return running or any(finish.record > applied.applied_record for finish in table.finishes)


def needed_chunks(table: TableLog, state: LogState, applied: AppliedState) -> NeededChunks:
    """Chunks that the target's upkeep must leave alone: those that a batch will still take, and all of them until the
    target holds the end of their snapshot, which reads their keys once more."""
    named = [*table.chunks, *(chunk for finish in table.finishes for chunk in finish.chunks)]
    paths = (logged.chunk.path for logged in named)
    return NeededChunks(frozenset(path for path in paths if path is not None), snapshot_open(table, state, applied))


def without_lost_chunks(state: LogState, part: TableSlice | None) -> TableSlice | None:
    """Leave out chunks that the journal orders to be read again, and the replacement of the snapshots they belong to,
    as if they had never been registered. The snapshot that reads them again brings their rows; until its end the target
    has a gap."""
    if part is None:
        return None
    lost = replaced_chunks(state, part.table_id)
    incomplete = {snapshot_id for snapshot_id, _ in lost}
    chunks = tuple(c for c in part.chunks if (c.snapshot_id, c.chunk) not in lost)
    if part.schema.keyless:  # its files are one reading
        chunks = tuple(c for c in chunks if c.snapshot_id not in incomplete)
    finished = tuple(f for f in part.finished if f.snapshot_id not in incomplete)
    if len(chunks) == len(part.chunks) and len(finished) == len(part.finished):
        return part
    ended = {f.snapshot_id for f in part.finished} & incomplete
    gaps = [*_awaited(state, part, ended), *([part.applied.applied_record] if len(chunks) < len(part.chunks) else ())]
    gap = min(gaps, default=None) if part.gap is None else part.gap
    return replace(part, chunks=chunks, finished=finished, gap=gap)


def _awaited(state: LogState, part: TableSlice, incomplete: Set[str]) -> Iterator[RecordNumber]:
    """Yields, for each snapshot that replaces these and whose end the target does not hold yet, a gap that it fills: it
    may have been planned before what the target holds, and may have ended before the one that lost the files."""
    applied = part.applied.applied_record
    to_come = {f.snapshot_id for f in state.tables[part.table_id].finishes if f.record > applied}
    for snapshot in state.snapshots.of(part.table_id):
        mine = snapshot.tables[part.table_id]
        if not any(snapshot_id in incomplete for snapshot_id, _ in snapshot.plan.replaces):
            continue
        if mine.finished is None or mine.finished.error is not None or snapshot.plan.snapshot_id in to_come:
            yield min(applied, RecordNumber(snapshot.record - 1))
