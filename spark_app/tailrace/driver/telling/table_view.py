"""Assembles the view of one table: its status, its columns, and a map of the chunks of its snapshots. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tailrace.apply.progress import TableProgress
from tailrace.changelog.state import LoggedFinish, SnapshotState, SnapshotTable, TableLog
from tailrace.contract.history import ChunkMap, ChunkRun, ChunkState, ColumnView, TableView
from tailrace.contract.status import TableStatus
from tailrace.driver.telling.status import snapshot_failed, snapshot_state
from tailrace.snapshot.chunks import TableRun

MOST_MAPS = 5
"""The newest snapshots of a table that are shown."""


def table_view(
    status: TableStatus,
    log: TableLog,
    progress: TableProgress,
    snapshots: Iterable[SnapshotState],
    runs: Mapping[tuple[str, int], TableRun],
) -> TableView:
    columns = tuple(
        ColumnView(
            name=column.name,
            source_type=column.source_type,
            type=column.type,
            nullable=column.nullable,
            key=column.key,
            mask=column.mask,
        )
        for column in log.schema.columns
    )
    own = [snapshot for snapshot in snapshots if log.table_id in snapshot.tables and snapshot.reads(log)]
    maps = [_map(s, log, progress, runs.get((s.plan.snapshot_id, log.table_id))) for s in own[-MOST_MAPS:]]
    return TableView(
        status=status,
        schema_version=log.schema.version,
        columns=columns,
        where=log.schema.where,
        keyless=log.schema.keyless,
        snapshots=tuple(maps),
    )


def _map(snapshot: SnapshotState, log: TableLog, progress: TableProgress, run: TableRun | None) -> ChunkMap:
    part = snapshot.tables[log.table_id]
    states: Sequence[ChunkState]
    if part.finished is None:
        states = _under_way(snapshot, part, progress, run)
    else:
        states = _finished(snapshot, log, part, progress)
    fault = run.fault if run is not None else None
    if part.finished is not None and part.finished.error is not None:
        fault = snapshot_failed(part.finished.error)
    return ChunkMap(
        snapshot=snapshot.plan.snapshot_id,
        state=snapshot_state(snapshot),
        verify=snapshot.plan.verify,
        chunks=tuple(ChunkRun(state=state, chunks=len(list(same))) for state, same in groupby(states)),
        more=_more(part, run, log.schema.where is not None),
        reading=tuple(map(str, run.reading.values())) if run is not None else (),
        rows_done=part.rows_done,
        rows_estimated=max(part.estimated_rows, part.rows_done),
        fault=fault,
    )


def _under_way(
    snapshot: SnapshotState, part: SnapshotTable, progress: TableProgress, run: TableRun | None
) -> Sequence[ChunkState]:
    """The states of all chunks whose range is known, by key."""
    states: dict[int, ChunkState] = {}
    if run is not None:
        states |= {chunk.ordinal: "waiting" for chunk in run.ready}
        if run.failures and run.ready:
            states[run.ready[0].ordinal] = "failed"  # a chunk that failed is the next to be read
        states |= dict.fromkeys(run.reading, "reading")
    for chunk, record in zip(part.chunks, part.chunk_records, strict=True):
        uncompared = chunk.chunk in part.uncompared
        there = not uncompared if snapshot.plan.verify else record <= progress.applied_record
        states[chunk.chunk] = "applied" if there else "read"
    # Ordinal 0 has the keys above all others, unless the chunks are lists of keys.
    tail_last = snapshot.plan.keys is None
    return [states[n] for n in sorted(states, key=lambda n: (tail_last and n == 0, n))]


def _finished(
    snapshot: SnapshotState, log: TableLog, part: SnapshotTable, progress: TableProgress
) -> Sequence[ChunkState]:
    """The log keeps a finish until the target has it."""
    own: list[LoggedFinish] = [f for f in log.finishes if f.snapshot_id == snapshot.plan.snapshot_id]
    open_chunks = sum(c.record > progress.applied_record for finish in own for c in finish.chunks)
    if snapshot.plan.verify:
        open_chunks = 0
    applied: list[ChunkState] = ["applied"] * max(part.chunks_done - open_chunks, 0)
    read: list[ChunkState] = ["read"] * open_chunks
    return applied + read


def _more(part: SnapshotTable, run: TableRun | None, filtered: bool) -> int | None:
    """The estimate goes by the rows of the chunks that were read. Those that a table's filter lets through say nothing
    about the table's, which were estimated."""
    if part.finished is not None or (run is not None and part.started and not run.gaps):
        return 0
    known = part.chunks_done + (len(run.ready) + len(run.reading) if run is not None else 0)
    if not part.started or not part.rows_done or filtered:
        return None
    rows_of_one = part.rows_done / max(part.chunks_done, 1)
    return max(math.ceil(part.estimated_rows / rows_of_one) - known, 0)
