"""Records of the journal as CloudEvents: what `spec.notifications` sends. Pure; `telling.notifications` sends it.

An id is made of the change log's id, the record's number and the event's place in it, so the same event has the same id
whenever it is sent again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tailrace.changelog.records import Event, Record
from tailrace.changelog.records.cuts import CutMade
from tailrace.changelog.records.notices import CopiesResumed, CopiesStopped
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    PlannedRewind,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
)
from tailrace.changelog.records.tables import TableAdded, TableStopped
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import LogState, SnapshotState, SnapshotTable

PREFIX = "dev.tailrace."
MOST_NAMES = 100
"""Tables that one event names."""
LARGE = 1_000_000
"""Estimated rows of a table whose reading is told by tenths: a smaller one is read in seconds."""


@dataclass(frozen=True)
class Notice:
    """One event, as it is sent."""

    id: str
    record: RecordNumber
    body: bytes


@dataclass(frozen=True)
class _Told:
    type: str
    subject: str
    data: dict[str, Any]


def notices(name: str, record: Record, state: LogState) -> Iterator[Notice]:
    """`name`: of the Replicator; `state`: behind the record, or later."""
    log_id = state.origin.log_id if state.origin is not None else ""
    for place, event in enumerate(record.events):
        told = _told(event, state)
        if told is None:
            continue
        identity = f"{log_id}/{record.number}/{place}"
        document = {
            "specversion": "1.0",
            "id": identity,
            "source": f"/tailrace/{name}",
            "type": f"{PREFIX}{told.type}",
            "subject": told.subject,
            "time": datetime.fromtimestamp(record.written_at / 1e6, UTC).isoformat().replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": {"replicator": name, "record": record.number, **told.data},
        }
        yield Notice(identity, record.number, json.dumps(document, separators=(",", ":")).encode())


def is_forgotten(record: Record, state: LogState) -> bool:
    """True if the record has an event of a snapshot that the state no longer has: it keeps the last ones that ended."""
    ends = (event for event in record.events if isinstance(event, SnapshotEnded | SnapshotTableFinished))
    return any(event.snapshot_id not in state.snapshots for event in ends)


def _told(event: Event, state: LogState) -> _Told | None:
    match event:
        case SnapshotPlanned() if event.rewind is not None:
            return _Told("rewind.started", event.snapshot_id, _rewind(event, event.rewind, state))
        case SnapshotPlanned() if _is_told(event):
            data = {**_snapshot(event), "tables": _names(event, state)}
            return _Told("verification.started" if event.verify else "snapshot.started", event.snapshot_id, data)
        case ChunkRegistered():
            return _read(event, state)
        case SnapshotTableFinished():
            return _finished(event, state)
        case SnapshotEnded():
            plan = _plan(event.snapshot_id, state)
            if plan is None:
                return None
            if plan.rewind is not None:
                data = {**_rewind(plan, plan.rewind, state), "outcome": event.outcome}
                return _Told("rewind.completed", event.snapshot_id, data | _failure(event))
            kind = "verification.completed" if plan.verify else "snapshot.completed"
            return _Told(kind, event.snapshot_id, {**_snapshot(plan), "outcome": event.outcome})
        case TableAdded():
            return _Told("table.added", event.table.name, {"table": event.table.name})
        case TableStopped():
            name = _name(event.table_id, state)
            return _Told("table.stopped", name, {"table": name, **_fault(event)})
        case CopiesStopped() if not event.later:
            kind, subject, data = _of_tables(event, [*event.tables], event.away or len(event.tables) > 1, state)
            return _Told(f"{kind}.stopped", subject, {**data, **_fault(event)})
        case CopiesResumed() if event.tables:
            kind, subject, data = _of_tables(event, event.tables, event.shared, state)
            return _Told(f"{kind}.resumed", subject, {**data, "error": event.error, "where": event.where})
        case CutMade():
            return _Told("cut.made", event.name, {"cut": event.name, "scheduled": event.scheduled})
        case _:
            return None


def _read(event: ChunkRegistered, state: LogState) -> _Told | None:
    """The progress within a large table, with the chunk that completes another tenth of it."""
    snapshot = state.snapshots.get(event.snapshot_id)
    if snapshot is None or snapshot.plan.verify or not _is_told(snapshot.plan):
        return None
    part = snapshot.tables[event.table_id]
    estimated, before = part.estimated_rows, _rows_before(event, part)
    if estimated < LARGE or before is None:
        return None
    rows = before + event.rows
    if rows >= estimated or 10 * before // estimated == 10 * rows // estimated:
        return None
    data = {**_progress(snapshot, event.table_id, state), "rows": rows, "rowsEstimated": estimated}
    return _Told("snapshot.progress", event.snapshot_id, data)


def _rows_before(event: ChunkRegistered, part: SnapshotTable) -> int | None:
    """Rows of the chunks that were registered before. None: the state has forgotten them, since the table has been
    read."""
    if part.chunks and part.chunks[-1].chunk == event.chunk:
        return part.rows_done - event.rows
    rows = 0
    for chunk in part.chunks:
        if chunk.chunk == event.chunk:
            return rows
        rows += chunk.rows
    return None


def _progress(snapshot: SnapshotState, table_id: int, state: LogState) -> dict[str, Any]:
    done = sum(table.finished is not None for table in snapshot.tables.values())
    tables = {"tablesDone": done, "tablesTotal": len(snapshot.tables)}
    return {**_snapshot(snapshot.plan), "table": _name(table_id, state), **tables}


def _finished(event: SnapshotTableFinished, state: LogState) -> _Told | None:
    """The progress of a snapshot, or the verification of a table."""
    snapshot, name = state.snapshots.get(event.snapshot_id), _name(event.table_id, state)
    if snapshot is None or not _is_told(snapshot.plan):
        return None
    data = _progress(snapshot, event.table_id, state)
    if event.error is not None:
        data["error"] = event.error.message
    table = state.tables.get(event.table_id)
    if not snapshot.plan.verify:
        return _Told("snapshot.progress", event.snapshot_id, data)
    if table is not None and table.verified is not None and table.verified.snapshot_id == event.snapshot_id:
        found = table.verified.found
        rows = {"missing": found.missing, "extra": found.extra, "different": found.different}
        data |= {"rows": found.rows, **rows}
    return _Told("table.verified", name, data)


def _of_tables(
    event: CopiesStopped | CopiesResumed, tables: Sequence[int], shared: bool, state: LogState
) -> tuple[str, str, dict[str, Any]]:
    """Type, subject and data of an event about one table, or about all those that one fault has stopped."""
    names = [_name(table_id, state) for table_id in tables]
    if shared:
        return "tables", event.where, {"tables": names[:MOST_NAMES], "tablesTotal": len(names)}
    return "table", names[0], {"table": names[0]}


def _fault(event: TableStopped | CopiesStopped) -> dict[str, Any]:
    return {"error": event.error, "message": event.message, "fix": event.fix, "where": event.where}


def _snapshot(plan: SnapshotPlanned) -> dict[str, Any]:
    return {"snapshot": plan.snapshot_id, "request": plan.request, "reason": plan.reason}


def _rewind(plan: SnapshotPlanned, rewind: PlannedRewind, state: LogState) -> dict[str, Any]:
    tables = [_name(table_id, state) for table_id in rewind.tables[:MOST_NAMES]]
    return {**_snapshot(plan), "cut": rewind.cut, "cutRecord": rewind.record, "tables": tables}


def _failure(event: SnapshotEnded) -> dict[str, Any]:
    """The reason why a rewind did not come to its end."""
    if event.failure is not None:
        return {"error": event.failure.message, "fix": event.failure.fix}
    return {"error": event.message} if event.message else {}


def _is_told(plan: SnapshotPlanned) -> bool:
    """Not those by keys, which Tailrace makes all the time to fill rows that were withheld."""
    return plan.keys is None


def _plan(snapshot_id: str, state: LogState) -> SnapshotPlanned | None:
    snapshot = state.snapshots.get(snapshot_id)
    return None if snapshot is None or not _is_told(snapshot.plan) else snapshot.plan


def _names(plan: SnapshotPlanned, state: LogState) -> list[str]:
    return [_name(table_id, state) for table_id in plan.tables[:MOST_NAMES]]


def _name(table_id: int, state: LogState) -> str:
    table = state.tables.get(table_id)
    return str(table_id) if table is None else table.schema.name
