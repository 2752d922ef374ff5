"""One table of the lake as a unit of commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.batch.applied import AppliedState
from tailrace.batch.written import WrittenFiles
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.targets.api import NeededChunks, Opened, Opening, UnitBatch, VersionAt
from tailrace.targets.lake.chunk_writer import LakeChunkWriter
from tailrace.targets.lake.engine.compare import compare
from tailrace.targets.lake.look import Compare, LakeLook
from tailrace.targets.lake.table import LakeTable


@dataclass(frozen=True)
class LakeUnits:
    """See `targets.api.Units`."""

    make: Callable[[TableSchema], LakeTable]
    compare: Compare = compare

    def alone(self) -> "LakeUnit":
        return LakeUnit(self.make, self.compare)

    def group(self) -> None:
        return None


class LakeUnit:
    """See `targets.api.Unit`: formats of the lake commit one table at a time."""

    def __init__(self, make: Callable[[TableSchema], LakeTable], compare: Compare) -> None:
        """`make`: the table whose first version this is."""
        self._make, self._compare = make, compare
        self._made: LakeTable | None = None

    @property
    def _table(self) -> LakeTable:
        assert self._made is not None, "it has not been opened"
        return self._made

    def open(self, tables: Mapping[int, Opening], log_id: str) -> Mapping[int, Opened]:
        ((table_id, opening),) = tables.items()
        if self._made is None:
            self._made = self._make(opening.schema)
        applied = self._table.open(opening.schema, log_id, opening.generation, opening.accepts)
        return {table_id: Opened(applied, self._table.replacing, version=self._table.version)}

    def forget(self, table_id: int) -> None:
        """Nothing is kept: the unit goes with its table."""

    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        applied = {table_id: self._table.apply(part) for table_id, part in batch.slices.items()}
        if batch.publish:
            self._table.publish()
        return applied

    def missing(self) -> tuple[()]:
        return ()

    def chunk_writer(self, schema: TableSchema) -> LakeChunkWriter:
        return self._table.chunk_writer(schema)

    def look(self, schema: TableSchema, applied: AppliedState) -> LakeLook:
        return self._table.look(schema, applied, self._compare)

    def version_at(self, table_id: int, record: RecordNumber) -> VersionAt | None:
        return self._table.version_at(record)

    def newest_version(self, table_id: int) -> int | None:
        return self._table.newest_version

    def take_written(self, table_id: int) -> WrittenFiles:
        return self._table.take_written()

    def keep(self, table_id: int, versions: Mapping[str, int]) -> None:
        self._table.keep(versions)

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        self._table.tidy(schema, applied, needed, now)
