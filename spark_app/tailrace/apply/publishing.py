"""When a table has been read whole, a new copy of it is complete, and a copy lacks nothing. Pure."""

from tailrace.batch.applied import AppliedState
from tailrace.changelog import triggers
from tailrace.changelog.state import LogState, SnapshotState, TableLog


def read_whole(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True if the table's rows have been read since its generation began, the target holds all that was read, and
    nothing calls for another reading."""
    read = table.read_record > max(table.added_record, table.reread_record) and table.unread is None
    return read and is_settled(table, state, applied)


def is_settled(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True if the target lacks no row that was read, and none are being read."""
    return applied.gap is None and not is_read(table, state, applied)


def is_read(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True while a complete snapshot of the table is under way or called for, until the target holds its end."""
    if any(True for _ in triggers.pending(state, table)):
        return True
    ends = any(finish.complete and finish.record > applied.applied_record for finish in table.finishes)
    return ends or any(_reads(snapshot, table) for snapshot in state.snapshots.of(table.table_id))


def _reads(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if it is reading the whole table."""
    part, plan = snapshot.tables.get(table.table_id), snapshot.plan
    under_way = part is not None and part.finished is None and snapshot.ended is None
    return under_way and plan.whole
