"""The snapshots that a table calls for by itself: one when its capture begins, one whenever the catalog says that its
rows must be read again. Pure.

The planner orders them, in the next step; until then a batch counts on those that have not been requested yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tailrace.changelog.logged import LogState, TableLog


@dataclass(frozen=True)
class PendingSnapshot:
    snapshot_id: str
    """Derived from what calls for it, so that it cannot be ordered twice: the journal knows the id."""
    reason: Literal["initial", "schema"]
    table_id: int


def pending(state: LogState, table: TableLog) -> Iterator[PendingSnapshot]:
    """The snapshots that the table calls for and the journal does not hold yet. A table that is no longer captured
    calls for nothing."""
    if not table.removed and table.stopped is None:
        # What called for a snapshot before a plan that the state has forgotten has had its own. Calls from that record
        # on are looked up by id.
        yield from (c for c in _calls(table, state.forgotten_plan) if c.snapshot_id not in state.snapshots)


def _calls(table: TableLog, since: int) -> Iterator[PendingSnapshot]:
    if table.initial_snapshot and table.added_record >= since:
        yield PendingSnapshot(f"initial-{table.table_id}-{table.added_record}", "initial", table.table_id)
    newest = next((s for s in reversed(table.schemas) if s.reread and s.record >= since), None)
    if newest is not None:
        # Versions start over with a table that was forgotten: only the record tells two changes apart.
        version = newest.table.version
        yield PendingSnapshot(f"schema-{table.table_id}-{version}-{newest.record}", "schema", table.table_id)
