"""The effect of snapshots' events on the log's state. Called by `state.fold` only.

A chunk is kept twice: with its snapshot until the table is finished (progress, resumption), and with its table until
the target holds it (apply). The results of a snapshot that was planned before the table's generation began stay with
the snapshot: its rows belong to another target.
"""

from collections.abc import Mapping
from typing import Any

from tailrace.changelog.append_list import AppendList
from tailrace.changelog.folding import Folding, Handler
from tailrace.changelog.logged import (
    LoggedCascade,
    LoggedChunk,
    LoggedFinish,
    SnapshotState,
    SnapshotTable,
    TableLog,
    Verified,
)
from tailrace.changelog.records.snapshots import (
    ChunkCompared,
    ChunkRegistered,
    ComparisonResult,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotSuspended,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.terms import RecordNumber, with_nulled


def _open_snapshot(work: Folding, snapshot_id: str) -> SnapshotState:
    snapshot = work.snapshots.get(snapshot_id)
    if snapshot is None:
        work.corrupt(f"snapshot {snapshot_id} is not known")
    if snapshot.ended is not None:
        work.corrupt(f"snapshot {snapshot_id} has ended")
    return snapshot


def _open_table(work: Folding, snapshot: SnapshotState, table_id: int) -> SnapshotTable:
    table = snapshot.tables.get(table_id)
    if table is None:
        work.corrupt(f"snapshot {snapshot.plan.snapshot_id} does not cover table {table_id}")
    if table.finished is not None:
        work.corrupt(f"snapshot {snapshot.plan.snapshot_id} has finished table {table_id}")
    return table


def _of_generation(snapshot: SnapshotState, table: TableLog) -> bool:
    return snapshot.record >= table.generation or snapshot.reads(table)


def _update(work: Folding, snapshot: SnapshotState, table: SnapshotTable, **changes: Any) -> None:
    tables = {**snapshot.tables, table.table_id: table.model_copy(update=changes)}
    work.snapshots[snapshot.plan.snapshot_id] = snapshot.model_copy(update={"tables": tables})


def _planned(work: Folding, event: SnapshotPlanned) -> None:
    if event.snapshot_id in work.snapshots:
        work.corrupt(f"snapshot {event.snapshot_id} is planned already")
    for table_id in event.tables:
        table = work.table(table_id)
        if event.in_background:
            work.update(table, verification_planned_at=work.record.written_at)
    if work.renewal is not None and work.renewal.id == event.snapshot_id:
        work.renewal = None
    tables = {table_id: SnapshotTable(table_id=table_id) for table_id in event.tables}
    work.snapshots[event.snapshot_id] = SnapshotState(plan=event, record=work.record.number, tables=tables)


def _table_started(work: Folding, event: SnapshotTableStarted) -> None:
    snapshot = _open_snapshot(work, event.snapshot_id)
    table = _open_table(work, snapshot, event.table_id)
    if table.started:
        work.corrupt(f"snapshot {event.snapshot_id} has started table {event.table_id}")
    _update(work, snapshot, table, started=True, max_key=event.max_key, estimated_rows=event.estimated_rows)


def _chunk_registered(work: Folding, event: ChunkRegistered) -> None:
    snapshot = _open_snapshot(work, event.snapshot_id)
    table = _open_table(work, snapshot, event.table_id)
    log = work.captured(event.table_id)
    name = f"chunk {event.chunk} of table {log.schema.name} in snapshot {event.snapshot_id}"
    if not table.started:
        work.corrupt(f"{name} comes before the table's start")
    ordinals = table.ordinals_with(event.chunk)
    if ordinals is None:
        work.corrupt(f"{name} is registered already")
    if event.high > work.record.position:
        work.corrupt(f"{name} needs position {event.high}, the record ends at {work.record.position}")
    kept_from = max(log.trimmed_through, work.transactions.trimmed_through) + 1
    if not kept_from <= event.replay_point <= work.record.last_seq + 1:
        work.corrupt(f"{name} has replay point {event.replay_point}, outside {kept_from}..{work.record.last_seq + 1}")
    if all(s.table.version != event.schema_version for s in log.schemas):
        work.corrupt(f"{name} has the unknown schema version {event.schema_version}")
    verify = snapshot.plan.verify
    if _of_generation(snapshot, log) and not verify:
        chunks = log.chunks.append(LoggedChunk(record=work.record.number, chunk=event))
        work.update(log, chunks=chunks, nulled=with_nulled(log.nulled, event.nulled))
    _update(
        work,
        snapshot,
        table,
        chunks=table.chunks.append(event),
        chunk_records=table.chunk_records.append(work.record.number),
        next_chunk=ordinals[0],
        missing=ordinals[1],
        chunks_done=table.chunks_done + 1,
        rows_done=table.rows_done + event.rows,
        uncompared=(*table.uncompared, event.chunk) if verify and not log.schema.keyless else (),
    )


def _compared(work: Folding, event: ChunkCompared) -> None:
    snapshot = _open_snapshot(work, event.snapshot_id)
    table = _open_table(work, snapshot, event.table_id)
    if event.chunk not in table.uncompared:
        work.corrupt(f"snapshot {event.snapshot_id} has no chunk {event.chunk} of table {event.table_id} to compare")
    left = tuple(chunk for chunk in table.uncompared if chunk != event.chunk)
    _update(work, snapshot, table, uncompared=left, found=(table.found or ComparisonResult()) + event.found)


def _later(work: Folding, snapshot: SnapshotState, table: TableLog) -> list[SnapshotState]:
    """Snapshots of the whole table that were planned later."""
    later = (s for s in work.snapshots.of(table.table_id) if s.record > snapshot.record and s.plan.whole)
    return [s for s in later if _of_generation(s, table)]


def _has_read(snapshot: SnapshotState, table: TableLog) -> bool:
    finished = snapshot.tables[table.table_id].finished
    return finished is not None and finished.error is None


def _has_not_read(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if it will never read the table. One that was stopped and that the table can do without does not count."""
    finished = snapshot.tables[table.table_id].finished
    if finished is None:
        return snapshot.ended is not None and _needed(snapshot, table)
    return finished.error is not None


def _needed(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if rows are missing without it: something called for it, or the table was emptied for it."""
    return snapshot.plan.request is None or table.resync == snapshot.plan.snapshot_id


def _called(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if the table's last addition or `reread_record` is the reason for this snapshot: both are as old as its
    plan, and a reading that is not overtaken has seen all that they brought."""
    own = snapshot.plan.snapshot_id
    return snapshot.plan.reason in ("initial", "schema") or own == table.resync or own in table.serves


def _was_read(table: TableLog) -> bool:
    return table.read_record > max(table.added_record, table.reread_record)


def _overtaken(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if rows may exist that its first chunk has not seen and no change reports."""
    records = snapshot.tables[table.table_id].chunk_records
    return len(records) == 0 or records[0] <= table.reread_record or not snapshot.reads(table)


def _table_finished(work: Folding, event: SnapshotTableFinished) -> None:
    """A table that failed brings no finish: what its chunks brought stays, nothing is replaced. That it was not read
    whole is remembered with the table, for the snapshot itself is forgotten."""
    snapshot = _open_snapshot(work, event.snapshot_id)
    table = _open_table(work, snapshot, event.table_id)
    log = work.table(event.table_id)
    if snapshot.plan.verify:
        _verified(work, event, snapshot, table)
        return
    ours = _of_generation(snapshot, log)
    if ours and snapshot.plan.whole:
        # What a later snapshot has not read, this one has not either, unless all that it was called for is older than
        # what this one has read. What a later one has read, this one need not.
        later = _later(work, snapshot, log)
        if event.error is not None:
            answered = any(_has_read(s, log) for s in later) or (_called(snapshot, log) and _was_read(log))
        else:
            answered = any(_has_not_read(s, log) for s in later if _overtaken(snapshot, log) or not _called(s, log))
        work.update(log, unread=log.unread if answered else event.error)
    if event.error is None:
        if event.chunks != len(table.chunks) or not table.chunks:
            work.corrupt(
                f"snapshot {event.snapshot_id} finishes table {event.table_id} with {event.chunks} chunks, "
                f"{len(table.chunks)} are registered (at least one, even if no row was found)"
            )
        log = work.captured(event.table_id)
        if ours:
            read = table.chunk_records[0] if snapshot.plan.whole and snapshot.reads(log) else log.read_record
            finishes = (*log.finishes, _finish(work, event, snapshot, table))
            work.update(log, finishes=finishes, read_record=max(read, log.read_record))
    whole = not snapshot.plan.whole or (event.complete and not _overtaken(snapshot, work.table(event.table_id)))
    _read_cascades(work, event.snapshot_id, event.table_id, whole and event.error is None)
    _update(work, snapshot, table, finished=event, chunks=AppendList(), chunk_records=AppendList())


def _read_cascades(work: Folding, snapshot_id: str, table_id: int, read: bool) -> None:
    """A snapshot of rows that foreign keys have reached is over: if it has not read them, they are looked for again."""
    table = work.tables.get(table_id)
    if table is None or not any(snapshot_id in (c.snapshots or ()) for c in table.cascades):
        return

    def after(cascade: LoggedCascade) -> LoggedCascade:
        if snapshot_id not in (cascade.snapshots or ()):
            return cascade
        left = tuple(other for other in cascade.snapshots or () if other != snapshot_id) if read else None
        return cascade.model_copy(update={"snapshots": left, "read_record": work.record.number if left == () else None})

    work.update(table, cascades=AppendList(map(after, table.cascades)))


def _verified(work: Folding, event: SnapshotTableFinished, snapshot: SnapshotState, table: SnapshotTable) -> None:
    """The result stays with the snapshot and, of the whole table, with the table."""
    log, found = work.table(event.table_id), (table.found or ComparisonResult()) + (event.left or ComparisonResult())
    if event.error is None and (table.uncompared or event.chunks != len(table.chunks)):
        work.corrupt(f"snapshot {event.snapshot_id} finishes table {event.table_id} before it has compared all chunks")
    plan = snapshot.plan
    whole = plan.keys is None and plan.sample is None
    if event.error is None and whole and event.at_record is not None and _of_generation(snapshot, log):
        at, record = event.at_record, work.record
        verified = Verified(
            snapshot_id=plan.snapshot_id,
            at_record=at,
            position=record.position,
            ended_at=record.written_at,
            found=found,
        )
        work.update(log, verified=verified)
    none = AppendList[ChunkRegistered](), AppendList[RecordNumber]()
    _update(work, snapshot, table, finished=event, chunks=none[0], chunk_records=none[1], uncompared=(), found=found)


def _finish(work: Folding, event: SnapshotTableFinished, snapshot: SnapshotState, table: SnapshotTable) -> LoggedFinish:
    """Built from the snapshot's chunks: the table's own are gone as soon as its target holds them. What is read again
    since its first chunk is left to the snapshot that reads it, as is a table that came back since: this one's end
    would remove rows that it never saw."""
    log = work.table(event.table_id)
    pairs = zip(table.chunk_records, table.chunks, strict=True)
    chunks = tuple(LoggedChunk(record=record, chunk=chunk) for record, chunk in pairs)
    return LoggedFinish(
        record=work.record.number,
        snapshot_id=event.snapshot_id,
        complete=event.complete and not _overtaken(snapshot, log),
        replay_point=min(c.replay_point for c in table.chunks),
        chunks=chunks,
    )


def _left_unread(work: Folding, snapshot: SnapshotState, event: SnapshotEnded) -> None:
    """A snapshot that some table cannot do without ends before it has read it: its own call will not come again.
    Another one that is open may read it, or be stopped as well: what it has read takes this back."""
    for table_id, part in snapshot.tables.items():
        table = work.tables.get(table_id)
        if part.finished is not None or table is None or not _of_generation(snapshot, table):
            continue
        read = any(_has_read(later, table) for later in _later(work, snapshot, table))
        read = read or (_called(snapshot, table) and _was_read(table))
        if _needed(snapshot, table) and snapshot.plan.whole and not read:
            why = f"snapshot {event.snapshot_id} ended before it had read the whole table"
            message = f"{why}: {event.message}" if event.message else why
            work.update(table, unread=ReadFailure(message=message, where="driver"))


def _ended(work: Folding, event: SnapshotEnded) -> None:
    snapshot = _open_snapshot(work, event.snapshot_id)
    if event.outcome != "completed":
        _left_unread(work, snapshot, event)
        for table_id, part in snapshot.tables.items():
            if part.finished is None:
                _read_cascades(work, event.snapshot_id, table_id, read=False)
    tables = {
        key: table.model_copy(update={"chunks": AppendList(), "chunk_records": AppendList()})
        for key, table in snapshot.tables.items()
    }
    # Ended snapshots stand in the order in which they ended, so that the oldest are forgotten first.
    del work.snapshots[event.snapshot_id]
    # Thousands of keys, of which the plan's digest tells whether the same is asked again.
    plan = snapshot.plan if snapshot.plan.keys is None else snapshot.plan.model_copy(update={"keys": ()})
    over = {"ended": event, "tables": tables, "plan": plan}
    work.snapshots[event.snapshot_id] = snapshot.model_copy(update=over)


def _suspended(work: Folding, event: SnapshotSuspended) -> None:
    snapshot = _open_snapshot(work, event.snapshot_id)
    work.snapshots[event.snapshot_id] = snapshot.model_copy(update={"suspended": event.suspended})


SNAPSHOT_HANDLERS: Mapping[type, Handler] = {
    SnapshotPlanned: _planned,
    SnapshotTableStarted: _table_started,
    ChunkRegistered: _chunk_registered,
    ChunkCompared: _compared,
    SnapshotTableFinished: _table_finished,
    SnapshotEnded: _ended,
    SnapshotSuspended: _suspended,
}
