"""A table that capture cannot continue, as the journal records it; the same for every product."""

from tailrace.changelog.records import Seq, TableStopped
from tailrace.errors import RESYNC, TableStop, where_of

STOP_FIX = f"To copy the table as it is now, {RESYNC}."


def stopped(table_id: int, seq: Seq, error: TableStop) -> TableStopped:
    """`seq`: the last sequence whose changes are in the log."""
    where = where_of(error) or "source"
    return TableStopped(table_id=table_id, seq=seq, error=error.name, message=error.message, fix=error.fix, where=where)
