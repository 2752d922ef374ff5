"""Slices of tables whose copy has a history (`options[].history`): their form, and what they must not lack. Pure.

Called by the worker of the unit, right after it has cut a slice.
"""

from dataclasses import replace

from tailrace.batch.slice import TableSlice
from tailrace.changelog.history import stored
from tailrace.changelog.state import TableLog
from tailrace.errors import RESYNC, LogTrimmed, ReadRefused


def stored_slice(part: TableSlice) -> TableSlice:
    if part.schema.history is None:
        return part
    versions = {number: stored(schema) for number, schema in part.versions.items()}
    return replace(part, schema=stored(part.schema), versions=versions)


def require_history(table: TableLog, part: TableSlice) -> None:
    """Raises unless the batch has every change since the last: a history is never continued over a hole."""
    if part.schema.history != "Changes":
        return
    name, fix = part.schema.name, f"To begin a new history with the rows as they are, {RESYNC}."
    if part.gap is not None:
        raise LogTrimmed(name, f"the change log lacks changes of {name} after record {part.gap}", fix)
    if table.cascades:
        what = f"foreign keys have changed rows of {name}, which the source does not log"
        raise ReadRefused(name, what, "Set options[].history: Current.")
