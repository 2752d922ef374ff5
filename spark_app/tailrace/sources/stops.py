"""Tables that cannot be captured, or no longer: what is the same for every product."""

from tailrace.changelog.records import Seq, TableSchema, TableStopped
from tailrace.changelog.segments import LOG_COLUMNS
from tailrace.errors import RESYNC, ReadRefused, TableStop, where_of

STOP_FIX = f"To copy the table as it is now, {RESYNC}."


def stopped(table_id: int, seq: Seq, error: TableStop) -> TableStopped:
    """`seq`: the last sequence whose changes are in the log."""
    where = where_of(error) or "source"
    return TableStopped(table_id=table_id, seq=seq, error=error.name, message=error.message, fix=error.fix, where=where)


def reserved(schema: TableSchema) -> TableStop | None:
    """A column of the table has the name of one that the change log adds to each row."""
    taken = [c.name for c in schema.columns if c.name in LOG_COLUMNS]
    if not taken:
        return None
    return ReadRefused(
        schema.name,
        f"column {taken[0]!r} of {schema.name} has a name that the change log reserves",
        "Rename the column, or leave it out with options[].columns.",
    )
