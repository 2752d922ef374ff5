"""The effect of tables' events and of retention on the log's state. Called by `state.fold` only.

A handler checks its event against the working copy and raises `CorruptLog` if it does not fit.
"""

from bisect import bisect_right
from collections.abc import Mapping

from tailrace.changelog import cuts, dropped
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.folding import Folding, Handler
from tailrace.changelog.logged import (
    KEPT_RENEWALS,
    LoggedCascade,
    LoggedSchema,
    LoggedTruncate,
    TableLog,
    converging,
    place_of,
)
from tailrace.changelog.records import EpochStarted, Heartbeat, Origin, SourceMoved, SourceRenewed
from tailrace.changelog.records.tables import (
    Applied,
    Cascaded,
    CascadesLooked,
    CopyRemoval,
    SchemaChanged,
    SegmentsRemoved,
    TableAdded,
    TableFingerprint,
    TableForgotten,
    TableRemoved,
    TableStopped,
    TransactionsRemoved,
    Truncated,
)
from tailrace.changelog.records.terms import Choice, RecordNumber, Seq, TableSchema


def _origin(work: Folding, event: Origin) -> None:
    work.origin = event
    work.owner = event.owner


def _epoch_started(work: Folding, event: EpochStarted) -> None:
    """The record itself carries the epoch."""
    work.owner = event.owner if event.owner is not None else work.owner
    work.released = event.released


def _source_renewed(work: Folding, event: SourceRenewed) -> None:
    """Transaction ids of another stream may mean others: none of the known ones may decide a replay point."""
    if work.origin is None:
        work.corrupt("the stream starts over in a log without an origin")
    work.origin = work.origin.model_copy(update={"identity": event.identity})
    work.renewed, work.renewals = event.id, (*work.renewals, event.id)[-KEPT_RENEWALS:]
    work.source_since = work.record.position
    work.renewal = event
    work.transactions = work.transactions.removed(work.record.last_seq)
    for table in [t for t in work.tables.values() if not t.removed]:
        work.update(table, removed=True, ended_at=table.ended_at or work.record.written_at)
    work.applied = True


def _source_moved(work: Folding, event: SourceMoved) -> None:
    """Transaction ids mean what they meant."""
    if work.origin is None:
        work.corrupt("the source moves in a log without an origin")
    work.origin = work.origin.model_copy(update={"identity": event.identity})
    work.source_since = work.record.position


def _nothing(work: Folding, event: object) -> None:
    """Heartbeat."""


def _table_added(work: Folding, event: TableAdded) -> None:
    """A table that was stopped or removed may come back: what the log holds of it then ends before the gap."""
    before = work.tables.get(event.table.table_id)
    if before is not None and before.ended_at is None:
        work.corrupt(f"table {event.table.name} is captured already")
    version = 1 if before is None else before.schema.version + 1
    if event.table.version != version:
        work.corrupt(f"table {event.table.name} comes with schema version {event.table.version}, not {version}")
    start = Seq(work.record.first_seq - 1)
    schema = LoggedSchema(record=work.record.number, after_seq=start, table=event.table)
    kept = before if before is not None and _goes_on(before, event) else None
    if before is not None:
        _remember_place(work, before)
    place = event.table.schema_name, event.table.table_name
    dropped.place_taken(work, place)
    cuts.table_added(work, event.table.table_id, place, event.must_hide)
    work.tables[event.table.table_id] = TableLog(
        table_id=event.table.table_id,
        added_record=work.record.number,
        generation=work.record.number if kept is None else kept.generation,
        begin_seq=start if kept is None else kept.begin_seq,
        must_hide=event.must_hide,
        resync=event.resync,
        serves=() if before is None or event.resync is None else _waiting(work, before),
        edge=event.edge,
        initial_snapshot=event.snapshot,
        schemas=(schema,),
        trimmed_through=Seq(0) if before is None else start,
        applied_seq=Seq(0) if kept is None else kept.applied_seq,
        applied_record=RecordNumber(0) if kept is None else kept.applied_record,
    )


def _waiting(work: Folding, before: TableLog) -> tuple[str, ...]:
    snapshots = ((key, s) for key, s in work.snapshots.items() if before.table_id in s.tables)
    return tuple(key for key, snapshot in snapshots if snapshot.unserved(before))


def _goes_on(before: TableLog, event: TableAdded) -> bool:
    """The target keeps its rows until the snapshot has replaced them: the table was only stopped, so no other table had
    its name meanwhile, its columns, its row filter and its history are the same, and none of its values are hidden from
    now on (a mask). In every other case a new generation begins, which is always right."""
    old, new = before.schema, event.table
    same = (old.schema_name, old.table_name) == (new.schema_name, new.table_name) and _form(old) == _form(new)
    return same and not before.removed and event.resync is None and not event.must_hide


def _form(schema: TableSchema) -> tuple[set[tuple[int, str, str, int | None]], Choice]:
    return {(c.id, c.name, c.type, c.key) for c in schema.columns}, schema.choice


def _table_removed(work: Folding, event: TableRemoved) -> None:
    table = work.table(event.table_id)
    if table.removed:
        work.corrupt(f"table {table.schema.name} is removed already")
    ended_at = work.record.written_at if table.ended_at is None else table.ended_at
    work.update(table, removed=True, ended_at=ended_at)
    if event.drop:
        dropped.table_dropped(work, table)
    work.applied = True


def _table_stopped(work: Folding, event: TableStopped) -> None:
    table = work.captured(event.table_id)
    if event.seq > work.record.last_seq:
        work.corrupt(f"table {table.schema.name} stopped at sequence {event.seq}, above {work.record.last_seq}")
    work.update(table, stopped=event, ended_at=work.record.written_at)
    work.applied = True


def _schema_changed(work: Folding, event: SchemaChanged) -> None:
    table = work.captured(event.table.table_id)
    if event.table.version != table.schema.version + 1:
        work.corrupt(f"table {event.table.name}: schema version {event.table.version} after {table.schema.version}")
    if not max(work.record.first_seq - 1, table.schemas[-1].after_seq) <= event.seq <= work.record.last_seq:
        work.corrupt(f"table {event.table.name}: schema changed at sequence {event.seq}")
    schema = LoggedSchema(record=work.record.number, after_seq=event.seq, table=event.table, reread=event.reread)
    edge = table.edge if event.edge is None else event.edge
    reread = work.record.number if event.reread else table.reread_record
    work.update(table, schemas=(*table.schemas, schema), edge=edge, reread_record=reread)


def _cascaded(work: Folding, event: Cascaded) -> None:
    table, record = work.captured(event.table_id), work.record
    since = record.written_at if record.commit_time is None else record.commit_time[0]
    logged = LoggedCascade(record=record.number, since=since, rows=event.rows, through=event.through)
    cuts.table_reached(work, event.table_id)
    work.update(
        table,
        cascades=table.cascades.append(logged),
        cascaded_seq=record.last_seq if logged.is_looked_for else table.cascaded_seq,
        edge=table.edge if event.edge is None else event.edge,
    )


def _cascades_looked(work: Folding, event: CascadesLooked) -> None:
    table = work.table(event.table_id)
    known = (c if c.record not in event.records else _looked(c, event) for c in table.cascades)
    work.update(table, cascades=AppendList(c for c in known if c.snapshots != ()))


def _looked(cascade: LoggedCascade, event: CascadesLooked) -> LoggedCascade:
    return cascade.model_copy(update={"snapshots": event.snapshots})


def _table_fingerprint(work: Folding, event: TableFingerprint) -> None:
    seq = Seq(work.record.first_seq - 1)
    work.update(work.captured(event.table_id), looked_seq=seq, fingerprint=event.parts)


def _truncated(work: Folding, event: Truncated) -> None:
    table = work.captured(event.table_id)
    work.in_record(event.seq, f"TRUNCATE of {table.schema.name}")
    if table.truncates and table.truncates[-1].seq >= event.seq:
        work.corrupt(f"TRUNCATE of {table.schema.name} at sequence {event.seq}, not above the one before it")
    number, written_at = work.record.number, work.record.written_at
    truncate = LoggedTruncate(
        record=number,
        seq=event.seq,
        transaction=event.transaction,
        written_at=written_at,
        commit_time=event.commit_time,
    )
    work.update(table, truncates=table.truncates.append(truncate))


def _applied(work: Folding, event: Applied) -> None:
    """Chunks at or below the applied record are in the target for good (docs/dev/design.md#invariants)."""
    table = work.table(event.table_id)
    if event.applied_record > work.record.number or event.applied_seq > work.record.last_seq:
        work.corrupt(f"table {table.schema.name} has applied record {event.applied_record}, which is still to come")
    work.applied = True
    # What brings the target nothing (the end of a partial snapshot) is covered without a commit: it is not missed.
    passed = bisect_right(table.chunks, event.applied_record, key=lambda logged: logged.record)
    known = [c.record for c in table.chunks[max(passed - 1, 0) : passed]]
    known += [f.record for f in table.finishes if f.complete and f.record <= event.applied_record]
    work.update(
        table,
        applied_seq=event.applied_seq,
        applied_record=event.applied_record,
        trimmed_record=max([table.trimmed_record, *known]),
        chunks=table.chunks.drop(passed),
        finishes=tuple(f for f in table.finishes if f.record > event.applied_record),
        cascades=AppendList(converging(table, event.applied_record)) if table.cascades else table.cascades,
    )
    _forget_schemas(work, event.table_id)


def _segments_removed(work: Folding, event: SegmentsRemoved) -> None:
    table = work.table(event.table_id)
    if not table.trimmed_through <= event.through_seq <= work.record.last_seq:
        work.corrupt(f"segments of {table.schema.name} removed through sequence {event.through_seq}")
    truncated = bisect_right(table.truncates, event.through_seq, key=lambda logged: logged.seq)
    work.update(
        table,
        trimmed_through=event.through_seq,
        segments=table.segments.drop(table.segments.ended_through(event.through_seq)),
        truncates=table.truncates.drop(truncated),
    )
    _forget_schemas(work, event.table_id)


def _forget_schemas(work: Folding, table_id: int) -> None:
    """Keep the versions after `trimmed_through`, those the target has still to pass, and those that kept files have."""
    table = work.table(table_id)
    if len(table.schemas) == 1:
        return
    in_force = sum(1 for s in table.schemas if s.after_seq <= table.trimmed_through) - 1
    reached = sum(1 for s in table.schemas if s.record <= table.applied_record) - 1
    first = table.schemas[0].table.version
    used = [c.chunk.schema_version - first for c in table.chunks]
    used += [c.chunk.schema_version - first for f in table.finishes for c in f.chunks]
    used += [s.segment.schema_version - first for s in table.segments[:1]]
    work.update(table, schemas=table.schemas[max(0, min([in_force, reached, *used])) :])


def _transactions_removed(work: Folding, event: TransactionsRemoved) -> None:
    known = work.transactions
    if not known.trimmed_through <= event.through_seq <= work.record.last_seq:
        work.corrupt(f"transactions removed through sequence {event.through_seq}")
    work.transactions = known.removed(event.through_seq)


def _remember_place(work: Folding, table: TableLog) -> None:
    """Its target stays where it is: it is known nowhere else once the table is forgotten or has another name, or until
    its new generation is applied."""
    place = place_of(table)
    if table.applied_record > 0 and place not in work.forgotten_tables:
        work.forgotten_tables = (*work.forgotten_tables, place)


def _table_forgotten(work: Folding, event: TableForgotten) -> None:
    table = work.table(event.table_id)
    if not table.removed or table.segments:
        work.corrupt(f"table {table.schema.name} is forgotten, but it was not removed or has segments")
    del work.tables[event.table_id]
    cuts.table_forgotten(work, event.table_id)
    _remember_place(work, table)


TABLE_HANDLERS: Mapping[type, Handler] = {
    Origin: _origin,
    SourceRenewed: _source_renewed,
    SourceMoved: _source_moved,
    EpochStarted: _epoch_started,
    Heartbeat: _nothing,
    TableAdded: _table_added,
    TableRemoved: _table_removed,
    TableStopped: _table_stopped,
    Cascaded: _cascaded,
    CascadesLooked: _cascades_looked,
    TableFingerprint: _table_fingerprint,
    SchemaChanged: _schema_changed,
    Truncated: _truncated,
    Applied: _applied,
    SegmentsRemoved: _segments_removed,
    TransactionsRemoved: _transactions_removed,
    TableForgotten: _table_forgotten,
    CopyRemoval: dropped.copy_removal,
}
