"""Target tables without a format: Parquet files of a folder, everything else in memory.

They keep the contract of `targets.lake.model.FormatTable` as the formats do: columns by their ids, no physical name
used twice, one column never with two types. What a commit says is done at once or not at all; the harness may therefore
drop everything above a table at any time, as a killed driver would. Used by `support.pipeline` and
`support.ddl.in_process`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from typing_extensions import override

from support.folder_lake import FolderAccess
from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import SchemaChangeUnsupported, TargetRefused
from tailrace.storage.store import Storage
from tailrace.targets.api import NeededChunks, VersionAt
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.files.locate import take_rows
from tailrace.targets.lake.files.vectors import encode
from tailrace.targets.lake.kept import KeptChunks
from tailrace.targets.lake.model import DataFile, Naming, NewFile, Replacement, TableCommit, belongs
from tailrace.targets.lake.table import LakeTable
from tailrace.targets.lake.unit import LakeUnits


@dataclass
class QuickTable:
    """A `FormatTable`."""

    location: str
    access: FolderAccess
    columns: dict[int, str] = field(default_factory=dict)
    """Logical type by the column's id, dropped ones included."""
    ids: dict[int, int] = field(default_factory=dict)
    """Field id by the column's id, dropped ones included; the physical name is `c<field id>`."""
    used: int = 0
    """The highest field id of former generations."""
    schema: TableSchema | None = None
    """Of the last evolution."""
    applied: AppliedState | None = None
    live: dict[str, DataFile] = field(default_factory=dict)
    replacements: int = 0
    """How often a new copy has taken the place of what was there."""
    naming = Naming(lambda schema: schema, lambda column, id_: f"c{id_}")
    version: int | None = None

    def ensure(
        self, schema: TableSchema, log_id: str, generation: Generation = FIRST, accepts: bool = False
    ) -> AppliedState:
        if self.applied is not None and self.applied.log_id != log_id:
            raise TargetRefused(f"{self.location} belongs to another change log", "")
        if self.applied is None or not belongs(generation, self.applied, schema, schema.name):
            if self.applied is not None and generation.keeps:
                return self.applied
            last = self.last_id()
            columns = Columns(0, {}, {}).extended(schema, last, self.naming.physical)
            self.replace(Replacement(generation.begin(schema, log_id), schema, columns, ()))
        assert self.applied is not None
        return self.applied

    def last_id(self) -> int:
        return max(self.ids.values(), default=self.used)

    def replace(self, by: Replacement) -> None:
        assert not by.columns.ids or min(by.columns.ids.values()) > self.last_id()
        self.used, self.ids = self.last_id(), dict(by.columns.ids)
        self.columns = {column.id: column.type for column in by.schema.columns}
        self.schema, self.applied = by.schema, by.applied
        self.live = {new.path: _live(new) for new in by.files}
        self.replacements += 1

    def refresh(self) -> AppliedState:
        assert self.applied is not None
        return self.applied

    def files(self) -> Sequence[DataFile]:
        return tuple(self.live.values())

    def commit(self, change: TableCommit) -> None:
        """In one step, for who reads at the same time: upkeep commits by itself."""
        if change.evolve is not None:
            self._evolve(change.evolve)
        assert not (change.clear and change.marks)
        live = {} if change.clear else dict(self.live)
        for path, dead in change.marks.items():
            assert live[path].dead < dead, "a mark without a new row"
            live[path] = replace(live[path], dead=dead, vector_bytes=len(encode(dead)))
        for path in change.remove:
            del live[path]
        for new in change.add:
            assert new.path not in live and len(new.dead) < new.rows
            live[new.path] = _live(new)
        self.live, self.applied = live, change.applied

    def version_at(self, record: RecordNumber) -> VersionAt:
        return VersionAt(None, self.refresh())

    @property
    def newest_version(self) -> None:
        """Versions have no numbers."""

    def keep(self, versions: Mapping[str, int]) -> None:
        """Old versions are not kept."""

    def expire(self, older_than: float, chunks: KeptChunks) -> bool:
        return False

    def sweep(self, older_than: float, chunks: KeptChunks) -> int:
        return 0

    def arrow_schema(self, schema: TableSchema, before: TableSchema | None = None) -> pa.Schema:
        # Columns that are not there yet get the places that the commit will give them.
        known = Columns(0, self.ids, {}).extended(schema, self.last_id(), self.naming.physical).ids
        return pa.schema([physical_field(f"c{known[c.id]}", c.type, known[c.id]) for c in schema.columns])

    def rows(self) -> pa.Table:
        """What a reader sees: columns under the source's names."""
        if self.schema is None:
            return pa.table({})
        layout = Layout(self.schema, self.arrow_schema(self.schema))
        found = [layout.fields[c.name].with_name(c.name).remove_metadata() for c in self.schema.columns]
        empty = pa.schema(found).empty_table()
        parts = [empty]
        for file in self.live.values():
            alive = np.array(sorted(BitMap64(range(file.rows)) - file.dead), np.int64)
            taken = take_rows(self.access, file.path, alive, layout)
            parts.append(taken.select(empty.column_names).cast(empty.schema))
        return pa.concat_tables(parts)

    def _evolve(self, schema: TableSchema) -> None:
        for column in schema.columns:
            before = self.columns.setdefault(column.id, column.type)
            if before != column.type:
                what = f"column {column.name!r} is {before} in the target and {column.type} in the source"
                raise SchemaChangeUnsupported(schema.name, what, "")
        self.ids = dict(Columns(0, self.ids, {}).extended(schema, self.last_id(), self.naming.physical).ids)
        self.schema = schema


def _live(new: NewFile) -> DataFile:
    size = len(encode(new.dead)) if new.dead else 0
    return DataFile(new.path, new.rows, new.size, new.dead, day=new.day, vector_bytes=size)


class InMemoryLake:
    """All tables of one target; outlives the harness's drivers."""

    def __init__(self, folder: Path) -> None:
        self.root = f"file://{folder}"
        self.access = FolderAccess(str(folder))
        self.tables: dict[tuple[str, str], QuickTable] = {}

    def table(self, schema: str, name: str) -> QuickTable:
        if (schema, name) not in self.tables:
            self.tables[schema, name] = QuickTable(f"{self.root}/{schema}/{name}", self.access)
        return self.tables[schema, name]

    def targets(self, log: Storage) -> LakeUnits:
        """As apply meets them."""

        def target(first: TableSchema) -> QuickTarget:
            return QuickTarget(self.table(first.schema_name, first.table_name), log)

        return LakeUnits(target)


class QuickTarget(LakeTable):
    """A table as apply meets it, without Spark."""

    def __init__(self, table: QuickTable, log: Storage) -> None:
        super().__init__(table, log, table.access, None)

    @override
    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        """Not here."""
