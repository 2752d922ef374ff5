"""States of a change log and their parts, for tests that say what a log holds; `support.journals` makes its records."""

from collections.abc import Mapping
from typing import Any

from tailrace.changelog.records import Segment
from tailrace.changelog.records.snapshots import ChunkRegistered, SnapshotPlanned
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.snapshot_map import SnapshotMap
from tailrace.changelog.state import LoggedSchema, LogState, SnapshotState, SnapshotTable, TableLog


def keyed(table_id: int, name: str | None = None, schema_name: str = "s") -> TableSchema:
    """A table of a key and nothing else."""
    column = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
    return TableSchema(
        table_id=table_id, schema_name=schema_name, table_name=name or f"t{table_id}", version=1, columns=(column,)
    )


def logged(schema: TableSchema, record: int = 1, after: int = 0, **more: Any) -> LoggedSchema:
    return LoggedSchema(record=RecordNumber(record), after_seq=Seq(after), table=schema, **more)


def table_log(schema: TableSchema, record: int = 1, **more: Any) -> TableLog:
    """A table that came into the log with `record`."""
    values = {"table_id": schema.table_id, "added_record": record, "edge": "1", "initial_snapshot": False}
    return TableLog.model_validate({**values, "schemas": (logged(schema, record),), **more})


def log_state(*tables: TableLog, number: int = 9, **more: Any) -> LogState:
    return LogState(number=RecordNumber(number), tables={table.table_id: table for table in tables}, **more)


def snapshot(plan: SnapshotPlanned, record: int = 4, **more: Any) -> SnapshotState:
    """A snapshot of which nothing is read yet."""
    tables = {table_id: SnapshotTable(table_id=table_id) for table_id in plan.tables}
    return SnapshotState.model_validate({"plan": plan, "record": record, "tables": tables, **more})


def with_snapshots(state: LogState, snapshots: Mapping[str, SnapshotState], **more: Any) -> LogState:
    """The state with these snapshots in place of its own."""
    return state.model_copy(update={"snapshots": SnapshotMap(snapshots), **more})


def segment(table_id: int, first: int, last: int | None = None, /, **more: Any) -> Segment:
    """A row for each sequence from `first` to `last`."""
    last = last or first
    values = {"table_id": table_id, "schema_version": 1, "path": "p", "rows": last - first + 1, "size": 1}
    return Segment(**{**values, "first_seq": first, "last_seq": last, **more})


def chunk(table_id: int = 7, number: int = 0, /, **more: Any) -> ChunkRegistered:
    """A chunk without bounds, of no rows."""
    values: dict[str, Any] = {
        "snapshot_id": "s", "table_id": table_id, "chunk": number, "lower": None, "upper": None, "path": None,
        "rows": 0, "size": 0, "schema_version": 1, "replay_point": 1, "layout": "form", "high": 1,
    }  # fmt: skip
    return ChunkRegistered(**{**values, **more})
