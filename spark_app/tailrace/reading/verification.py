"""Verifications: registered chunks are compared with the target, at a record that it holds, instead of applied.

Run on the snapshot runner's threads, as the steps are. What was compared is in the journal: after a restart only the
other chunks are compared. What differs is read again by snapshots of its own, if that was asked for: their plans are
recorded together with the result.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import FinishedSnapshot, Held, TableSlice, since_chunk, since_chunks
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.snapshots import (
    MOST_EXAMPLES,
    ChunkCompared,
    ChunkRegistered,
    ComparisonResult,
    SnapshotPlanned,
    SnapshotTableFinished,
)
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import SnapshotState, SnapshotTable, TableLog
from tailrace.contract.units import counted
from tailrace.errors import LogTrimmed, NotVerified, Retry, TailraceError
from tailrace.fold.comparison import Compared
from tailrace.reading.steps import TargetNotOpen, Tools
from tailrace.seams import seam
from tailrace.snapshot.chunks import TableRun
from tailrace.snapshot.planner import MAX_REPAIR_KEYS, repair_prefix
from tailrace.targets.api import ChunkLost

log = logging.getLogger(__name__)

WHOLE_KEYS = 5 * MAX_REPAIR_KEYS
"""Rows of a table that are read again by their keys; if more differ, the whole table is."""
PATIENCE, LOOK = 60.0, 0.1
"""Seconds for which a step waits for the target to hold a record, and between two looks."""
AGAIN = "Verify the table again."


def compare_chunk(tools: Tools, client: CaptureClient, run: TableRun, ordinal: int) -> None:
    """Compare a registered chunk, unless that has been done, and record the result."""
    snapshot, logged, table = _state(tools, run)
    if table.schema.keyless or ordinal not in logged.uncompared:
        return
    pairs = zip(logged.chunks, logged.chunk_records, strict=True)
    chunk, record = next((chunk, record) for chunk, record in pairs if chunk.chunk == ordinal)
    held, found = _compared(tools, run, record, (chunk,), lambda held: _part(tools, table, held, chunk))
    seam("verification.after-compare")
    event = ChunkCompared(
        snapshot_id=run.snapshot_id,
        table_id=run.table_id,
        chunk=ordinal,
        at_record=held,
        found=_named(found.found, logged.found),
    )
    client.append([event, *_repairs(snapshot, run, str(ordinal), found.keys)])


def finish(tools: Tools, client: CaptureClient, run: TableRun) -> None:
    """Compare what no chunk has, and record the end."""
    snapshot, logged, table = _state(tools, run)
    if logged.finished is not None:
        return
    for ordinal in logged.uncompared:
        compare_chunk(tools, client, run, ordinal)
    chunks, last = tuple(logged.chunks), max(logged.chunk_records)
    if table.schema.keyless:
        held, found = _compared(tools, run, last, chunks, lambda held: _part(tools, table, held, *chunks))
    elif run.keys is not None or run.sample is not None:
        held, found = last, Compared(ComparisonResult())
    else:
        ended = FinishedSnapshot(run.snapshot_id, min(c.replay_point for c in chunks), snapshot.record, chunks)
        held, found = _compared(
            tools, run, last, chunks, lambda held: since_chunks(tools.journal.refresh(), run.table_id, held, ended)
        )
    snapshot, logged, table = _state(tools, run)
    event = SnapshotTableFinished(
        snapshot_id=run.snapshot_id,
        table_id=run.table_id,
        chunks=len(chunks),
        complete=False,
        at_record=held,
        left=_named(found.found, logged.found),
    )
    total = (logged.found or ComparisonResult()) + found.found
    if total.differences > WHOLE_KEYS or (table.schema.keyless and total.differences):
        repairs = _whole(snapshot, run)
    else:
        repairs = _repairs(snapshot, run, "rest", found.keys)
    client.append([event, *repairs])
    _discard(tools, table, chunks)
    level = logging.WARNING if total.differences else logging.INFO
    text = f"verified at record {held}: {summary(total)}"
    log.log(level, "%s", text, extra={"table": table.schema.name, "snapshot": run.snapshot_id})


def summary(found: ComparisonResult) -> str:
    if not found.differences:
        text = f"{counted(found.rows, 'row is', 'rows are')} equal"
    else:
        text = (
            f"{counted(found.rows, 'row', 'rows')} compared, {found.missing} missing in the target, {found.extra} extra"
        )
        text += f", {found.different} different"
    return text if not found.undecided else f"{text}; {found.undecided} changed meanwhile and were not decided"


def _state(tools: Tools, run: TableRun) -> tuple[SnapshotState, SnapshotTable, TableLog]:
    state = tools.journal.refresh()
    snapshot = state.snapshots.get(run.snapshot_id)
    if snapshot is None or snapshot.ended is not None:
        raise Retry(f"snapshot {run.snapshot_id} has ended")
    return snapshot, snapshot.tables[run.table_id], state.tables[run.table_id]


def _part(tools: Tools, table: TableLog, held: Held, *chunks: ChunkRegistered) -> TableSlice:
    return since_chunk(tools.journal.refresh(), table.table_id, held, *chunks)


def _compared(
    tools: Tools,
    run: TableRun,
    record: RecordNumber,
    chunks: Sequence[ChunkRegistered],
    expected: Callable[[Held], TableSlice],
) -> tuple[RecordNumber, Compared]:
    """The result, and the record that the target held; it holds the chunks' by then."""
    name = tools.journal.state.tables[run.table_id].schema.name
    at = record

    def expect(applied: AppliedState) -> TableSlice:
        nonlocal at
        at = max(applied.applied_record, covered)
        versions = {chunk.schema_version for chunk in chunks}
        if versions - {applied.schema_version}:
            raise NotVerified(name, "its columns changed while it was verified", AGAIN)
        log_table = tools.journal.refresh().tables[run.table_id]
        if log_table.cascades:
            raise Retry(f"rows of {name} that foreign keys have reached are still to be read again")
        if log_table.cascaded_seq >= min(chunk.replay_point for chunk in chunks):
            raise NotVerified(name, "foreign keys changed rows below the source's log while it was verified", AGAIN)
        return expected(Held(applied, at))

    limit = time.monotonic() + PATIENCE
    while True:
        look = tools.look(run.table_id)
        if look is not None and look[1] >= record:
            copy, covered = look
            try:
                return at, copy.compare(expect)
            except (ChunkLost, LogTrimmed) as error:
                raise NotVerified(name, f"a chunk, or the changes since, are gone: {error.message}", AGAIN) from error
        if time.monotonic() > limit:
            raise TargetNotOpen(f"the target of {name} does not hold record {record} yet")
        time.sleep(LOOK)


def _named(found: ComparisonResult, before: ComparisonResult | None) -> ComparisonResult:
    """With as many examples as the table may still have."""
    room = MOST_EXAMPLES - (0 if before is None else len(before.examples))
    return found.model_copy(update={"examples": found.examples[: max(room, 0)]})


def _repairs(snapshot: SnapshotState, run: TableRun, part: str, keys: Sequence[Key]) -> Iterator[SnapshotPlanned]:
    if snapshot.plan.repair and len(keys) <= WHOLE_KEYS:
        for number, at in enumerate(range(0, len(keys), MAX_REPAIR_KEYS)):
            some = tuple(sorted(keys[at : at + MAX_REPAIR_KEYS]))
            yield _planned(run, f"{part}-{number}").model_copy(update={"keys": some})


def _whole(snapshot: SnapshotState, run: TableRun) -> Iterator[SnapshotPlanned]:
    if snapshot.plan.repair:
        yield _planned(run, "whole")


def _planned(run: TableRun, part: str) -> SnapshotPlanned:
    name = f"{repair_prefix(run.snapshot_id)}{run.table_id}-{part}"
    return SnapshotPlanned(snapshot_id=name, reason="repair", tables=(run.table_id,))


def _discard(tools: Tools, table: TableLog, chunks: Sequence[ChunkRegistered]) -> None:
    """Files that stay are found by the target's upkeep."""
    with suppress(TailraceError):
        writer = tools.writers(table.table_id, table.schema)
        paths = [chunk.path for chunk in chunks if chunk.path is not None]
        if writer is not None and paths:
            writer.discard(paths)
