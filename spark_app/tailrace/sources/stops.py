"""Tables that cannot be captured, or no longer: what is the same for every product."""

import logging
from collections.abc import Iterable

from tailrace.changelog.history import TAKEN_FIX, is_kept, taken_name
from tailrace.changelog.records.tables import TableStopped
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.changelog.segments import LOG_COLUMNS
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.tables import OnSchemaChange
from tailrace.errors import STOP_FIX, NoKey, ReadRefused, SchemaChangeUnsupported, TableGone, TableStop, where_of
from tailrace.sources.patterns import options_of

log = logging.getLogger(__name__)

EVOLVED = "its columns or its key changed, and onSchemaChange is Evolve"
"""Why a table of `starts_over` is captured again."""
_MENDABLE = (NoKey.__name__, ReadRefused.__name__, TableGone.__name__)
"""Stops whose reason the catalog shows, and shows to be over."""


def stopped(table_id: int, seq: Seq, error: TableStop) -> TableStopped:
    """`seq`: the last sequence whose changes are in the log."""
    where = where_of(error) or "source"
    return TableStopped(table_id=table_id, seq=seq, error=error.name, message=error.message, fix=error.fix, where=where)


def stopping(table_id: int, seq: Seq, error: TableStop) -> TableStopped:
    """The event that stops a table that was captured until there; the log says it."""
    log.warning("%s is stopped: %s", error.table, error)
    return stopped(table_id, seq, error)


def reserved(schema: TableSchema) -> TableStop | None:
    """A column of the table has the name of one that the change log adds to each row."""
    taken = [c.name for c in schema.columns if c.name in LOG_COLUMNS]
    if not taken:
        return _reserved_by_history(schema)
    return ReadRefused(
        schema.name,
        f"column {taken[0]!r} of {schema.name} has a name that the change log reserves",
        "Rename the column, or leave it out with options[].columns.",
    )


def _reserved_by_history(schema: TableSchema) -> TableStop | None:
    taken = None if schema.history is None else taken_name(schema)
    if taken is None:
        return None
    return ReadRefused(
        schema.name,
        f"column {taken!r} of {schema.name} has the name of one that options[].history: {schema.history} adds",
        TAKEN_FIX,
    )


def is_mended(table: TableLog, now: TableStop | None) -> bool:
    """True if the reason of the table's stop is gone: it is copied from then on. `now`: the stop that a look shows."""
    return table.stopped is not None and now is None and table.stopped.error in _MENDABLE


def starts_over(table: TableLog, spec: ReplicatorSpec, now: TableSchema) -> bool:
    """True if the table is stopped by a change of its form after which it is to be captured in the new form, which is
    `now`. Where that would cost a history, only a resync decides it."""
    if table.stopped is None or table.stopped.error != SchemaChangeUnsupported.__name__:
        return False
    return evolves(table.schema, spec) and not is_kept(table.schema, now)


def evolves(schema: TableSchema, spec: ReplicatorSpec) -> bool:
    """True if the table continues by itself after any change of its form."""
    return _policy(schema, spec) == "Evolve"


def stands_still(schema: TableSchema, spec: ReplicatorSpec) -> bool:
    """True if even a column that is added stops the table."""
    return _policy(schema, spec) == "Stop"


def not_awaited(schema: TableSchema, added: Iterable[str]) -> SchemaChangeUnsupported:
    """The error of a table that `stands_still`, when it has these new columns."""
    names = ", ".join(repr(name) for name in added)
    what = f"{schema.name} has the new column {names}, and onSchemaChange is Stop"
    fix = STOP_FIX if schema.history else f"{STOP_FIX} Or set onSchemaChange: Evolve, which does so by itself."
    return SchemaChangeUnsupported(schema.name, what, fix)


def _policy(schema: TableSchema, spec: ReplicatorSpec) -> OnSchemaChange:
    options = options_of(spec.options, schema.schema_name, schema.table_name)
    own = None if options is None else options.on_schema_change
    return own or spec.on_schema_change
