"""The rules that a source's look obeys, whatever the product: tables that a resync asks for, and a stream that was
restarted.

A table that is asked for ends (`TableRemoved`) and begins as it is now (`TableAdded` with `resync`), in one record. The
first look after a restart of the stream adds every table in one record with the plan that reads them. Pure.
"""

from collections.abc import Iterable

from tailrace.changelog.records import SourceRenewed
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.tables import TableRemoved
from tailrace.changelog.state import LogState


def resyncs(state: LogState) -> dict[int, str]:
    """The resync that each table still has to join, oldest first: its plan is in the journal before anything is done,
    so dying anywhere leaves it open here, and once the table is added for it, it no longer is."""
    asked: dict[int, str] = {}
    for snapshot_id, snapshot in state.snapshots.items():
        if not snapshot.plan.resync or snapshot.ended is not None:
            continue
        for table_id in snapshot.tables:
            if table_id in state.tables and snapshot.awaits(state.tables[table_id]):
                asked.setdefault(table_id, snapshot_id)
    return asked


def ending(table_id: int, snapshot_id: str) -> TableRemoved:
    """The end of a table that begins again, in the same record, for this resync."""
    return TableRemoved(table_id=table_id, reason=f"a resync was asked for ({snapshot_id})")


def renewal_plan(renewal: SourceRenewed, tables: Iterable[int]) -> SnapshotPlanned:
    """The plan by which everything that a restarted stream covers is read; under the request's id, by which others
    follow it. In the record that adds these tables, each with that id as its `resync`."""
    return SnapshotPlanned(
        snapshot_id=renewal.id,
        request=renewal.request,
        tables=tuple(tables),
        chunk_rows=renewal.chunk_rows,
        parallelism=renewal.parallelism,
        resync=True,
    )


def former_places(state: LogState) -> set[tuple[str, str]]:
    """Schema and name of every table that the log has had. One that begins under such a name begins behind a gap, or
    with a target that is replaced, so its rows must come again."""
    known = (table.schema for table in state.tables.values())
    return {*state.forgotten_tables, *((schema.schema_name, schema.table_name) for schema in known)}
