"""A Delta table made into one of another generation, in one commit: `DeltaTable` asks for what that commit holds.

Every column goes and every wanted one comes with an id and a physical name never used: a chunk file or a commit that
was prepared for the former generation can never be taken for one of the new.
"""

import uuid
from collections.abc import Mapping

import pyarrow as pa
from pyroaring import BitMap64

from tailrace.changelog.history import DAY
from tailrace.changelog.records.terms import TableSchema
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta.commit import Action, LiveFile, Plan, new_add, plan, uri_of
from tailrace.targets.lake.delta.replay import State
from tailrace.targets.lake.delta.stats import INDEXED_COLUMNS
from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.model import Replacement, TableCommit


def replacing(
    access: FileAccess, location: str, state: State, by: Replacement, *, file_id: uuid.UUID, now_ms: int
) -> tuple[Plan, Action]:
    """All that is there goes, the files of the replacement come; and the metadata."""
    metadata = delta_schema.replaced(state.metadata, by.schema, by.columns)
    live = {uri_of(add["path"], location): LiveFile(add, BitMap64()) for add in state.files}
    columns = stats_columns(delta_schema.all_fields(metadata), by.schema)
    day = delta_schema.partition(metadata)
    new = [new_add(file, footer_of(access, file.path), columns, location, now_ms, partition=day) for file in by.files]
    change = TableCommit(by.applied, by.files, clear=True)
    return plan(change, live, new, file_id=file_id, now_ms=now_ms), metadata


def stats_columns(fields: Mapping[str, pa.Field], schema: TableSchema | None) -> list[pa.Field]:
    """The key's first, then as many as Delta keeps statistics of; not the day, which a partition has."""
    columns = delta_schema.shown(schema).columns if schema else ()
    key, days = {c.name for c in columns if c.key is not None}, {c.name for c in columns if c.id == DAY.id}
    rest = [field for name, field in fields.items() if name not in key | days]
    return [field for name, field in fields.items() if name in key] + rest[:INDEXED_COLUMNS]
