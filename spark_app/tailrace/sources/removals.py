"""May a changed manifest drop so many tables from capture? A table that leaves and comes back is read again as a whole,
so a slip in a pattern is expensive: it needs a confirmation that holds for just these tables.

Asked by the driver before it takes a spec over, by capture before it continues a change log, by `tailrace doctor` and
by `tailrace diff`. Pure.
"""

import hashlib
from collections.abc import Mapping

from tailrace.changelog.state import LogState
from tailrace.contract.resources import TablesSpec
from tailrace.errors import RemovalUnconfirmed
from tailrace.sources.patterns import selected

CODE_DIGITS = 8
_NAMED = 20
"""Tables that a message names."""


def of_log(state: LogState) -> dict[tuple[str, str], bool]:
    """The tables (schema, table) of a change log, and whether they are captured: others are stopped."""
    tables = (table for table in state.tables.values() if not table.removed)
    return {(t.schema.schema_name, t.schema.table_name): t.stopped is None for t in tables}


def require_confirmed(tables: TablesSpec, before: Mapping[tuple[str, str], bool]) -> None:
    """`before`: as `of_log` gives them. `RemovalUnconfirmed`: the patterns leave out more than half of those that are
    captured, and `confirmRemoval` does not have the code of these tables."""
    removed = sorted(table for table in before if not selected(tables, *table))
    lost, captured = sum(before[table] for table in removed), sum(before.values())
    code = code_of(removed)
    if 2 * lost <= captured or tables.confirm_removal == code:
        return
    names = ", ".join(".".join(table) for table in removed[:_NAMED])
    more = f" and {len(removed) - _NAMED} more" if len(removed) > _NAMED else ""
    other = f"; confirmRemoval {tables.confirm_removal} is for other tables" if tables.confirm_removal else ""
    raise RemovalUnconfirmed(
        f"the patterns in tables no longer select {len(removed)} of {len(before)} tables: {names}{more}{other}",
        f"Correct the patterns. To drop these tables from capture, set tables.confirmRemoval: '{code}'.",
    )


def code_of(removed: list[tuple[str, str]]) -> str:
    """The text that confirms the removal of these tables, sorted by name, and of no others."""
    return hashlib.sha256(repr(removed).encode()).hexdigest()[:CODE_DIGITS]
