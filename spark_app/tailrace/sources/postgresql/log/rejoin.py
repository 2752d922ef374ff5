"""Which tables leave and are taken in again in one record: those with another name, those that a resync asks for, and
those whose form has changed (`onSchemaChange`).

Pure; asked by `polling`. A rename keeps the source table (its oid) and changes the target (its name), so the table ends
under the old name and begins under the new one, as a new generation. It happens behind the marker of a look, like every
other difference: what the stream brings before it still belongs to the former name. Ends come before beginnings, and a
name is given only when its former table has ended, so that two tables never share a target: not in a swap, not in a
chain of renames, and not when a table was dropped and made again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import ReplicatorSpec
from tailrace.sources.postgresql.log.tables import Captured
from tailrace.sources.postgresql.model import PgTable, number
from tailrace.sources.resyncs import resyncs
from tailrace.sources.stops import EVOLVED, starts_over


@dataclass(frozen=True)
class Rejoin:
    """Why a known table is taken in again."""

    reason: str
    resync: str | None = None
    """The snapshot that asks for it."""


def rejoins(
    state: LogState, known: Mapping[int, Captured], found: Mapping[int, PgTable], spec: ReplicatorSpec
) -> dict[int, Rejoin]:
    """The tables that start over, by table id. Tables that the source no longer has, or that are no longer selected,
    just end."""
    asked = resyncs(state)
    due = {}
    for table_id, table in known.items():
        now = found.get(table_id)
        if now is None:
            continue
        name = table.schema.name
        if table_id in asked:
            due[table_id] = Rejoin(f"a resync of {name} was asked for ({asked[table_id]})", asked[table_id])
        elif now.name != name:
            due[table_id] = Rejoin(f"it was renamed to {now.name}")
        elif now.stop is None and table_id in state.tables and _starts_over(state.tables[table_id], now, spec):
            due[table_id] = Rejoin(EVOLVED)
    return due


def _starts_over(table: TableLog, now: PgTable, spec: ReplicatorSpec) -> bool:
    return starts_over(table, spec, now.schema) and not bares(table.schema, now)


def bares(before: TableSchema, now: PgTable) -> bool:
    """True if a column that was masked would be copied in clear under another name, because the options know only
    names: only a resync by the user decides that."""
    clear = {number(column): column.name for column in now.schema.columns if column.mask is None}
    masked = (column for column in before.columns if column.mask is not None)
    return any(clear.get(number(column), column.name) != column.name for column in masked)


def name_is_free(known: Mapping[int, Captured], table: PgTable) -> bool:
    """True if no other table that has not ended has the name, and with it the target."""
    names = (table.schema_name, table.table_name)
    held = (c.schema for i, c in known.items() if i != table.oid)
    return all((schema.schema_name, schema.table_name) != names for schema in held)
