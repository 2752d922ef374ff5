"""A commit as Iceberg's own transaction, which reads whatever it needs: of evolved columns, and of many files.

For `IcebergTable`, whose small commits do without it (`small`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.targets.lake.columns import COLUMNS, Columns, claimed
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.iceberg import schema as iceberg_schema
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.commit import Builder, Plan, check_partitions, evolve, fill, row_delta
from tailrace.targets.lake.iceberg.files import LiveFile, Vector, data_file
from tailrace.targets.lake.iceberg.java import CommitConflict, Java, guarded, replaced
from tailrace.targets.lake.iceberg.read import Reader, Version
from tailrace.targets.lake.iceberg.state import IcebergSnapshot, Mirror, StoredSummary
from tailrace.targets.lake.model import TableCommit


@dataclass(frozen=True)
class Prepared:
    """The table as the commit will leave it."""

    columns: Columns
    last_id: int
    fields: frozenset[int]
    schema_id: int
    described: Sequence[Mapping[str, Any]]
    """The added files as Iceberg's JSON."""


class IcebergTransaction:
    """One commit on top of `base`."""

    def __init__(self, java: Java, access: FileAccess, reader: Reader, table_uuid: str, base: Version) -> None:
        self._java, self._access, self._reader = java, access, reader
        self._uuid, self._base, self._name = table_uuid, base, reader.name
        self._transaction: Any = None

    def prepare(
        self,
        change: TableCommit,
        work: Plan,
        *,
        vectors: Mapping[str, Vector],
        stored: StoredSummary,
        entries: Mapping[str, str],
    ) -> Prepared:
        """Writes what the commit needs. `entries`: those of the snapshot's summary that are Tailrace's."""
        with clock_named(self._java, self._reader.table, self._name), guarded(self._name, "preparing a commit to"):
            transaction = self._transaction = self._reader.table.newTransaction()
            staged = transaction.table()
            self._same_version(staged)
            columns, last_id, fields = self._evolve(change.evolve)
            check_partitions(self._name, staged, iceberg_schema.partition_of(columns))
            operation = self._operation(work)
            builder = Builder.of(self._java, self._access, staged)
            added = fill(operation, builder, work, vectors)
            for name, value in entries.items():
                operation.set(name, value)
            operation.commit()
            current = self._reader.parse(staged.currentSnapshot())
            self._set_properties(Mirror(stored, current.id, current.sequence), columns)
            described = [builder.describe(file) for file in added]
            return Prepared(columns, last_id, fields, int(staged.schema().schemaId()), described)

    def commit(self) -> IcebergSnapshot:
        with guarded(self._name, "committing to", committing=True):
            self._transaction.commitTransaction()
        with guarded(self._name, "reading"):
            return self._reader.parse(self._transaction.table().currentSnapshot())

    def _set_properties(self, mirror: Mirror, columns: Columns) -> None:
        update = self._transaction.updateProperties().set(iceberg_state.STATE, iceberg_state.encode_mirror(mirror))
        if columns != self._base.columns:
            update = update.set(COLUMNS, columns.to_json())
        update.commit()

    def _operation(self, work: Plan) -> Any:
        snapshot, files = self._base.snapshot, self._base.files
        if not work.rewrite:
            return row_delta(self._transaction, self._java, snapshot, [tracked.raw for tracked in files.values()], work)
        operation = self._transaction.newRewrite()
        return operation if snapshot is None else operation.validateFromSnapshot(snapshot)

    def _same_version(self, staged: Any) -> None:
        if str(staged.uuid().toString()) != self._uuid:
            raise replaced(self._name, "another uuid")
        current = staged.currentSnapshot()
        present = None if current is None else int(current.snapshotId())
        if present != self._base.snapshot:
            raise CommitConflict(
                f"{self._name} is at snapshot {present}, the batch was located at {self._base.snapshot}",
                "The table is read again and the batch located again.",
            )

    def _evolve(self, wanted: TableSchema | None) -> tuple[Columns, int, frozenset[int]]:
        """Changes the schema. Returns the new columns, the highest field id ever used, and the fields."""
        base, staged, java = self._base, self._transaction.table(), self._java.iceberg
        text = java.SchemaParser.toJson(staged.schema())
        present = iceberg_schema.present_fields(text)
        if base.fields - iceberg_schema.field_ids(present):
            raise CommitConflict(f"columns of {self._name} were dropped by another program", "The table is read again.")
        if wanted is None:
            return base.columns, base.last_id, iceberg_schema.field_ids(present)
        columns = base.columns.extended(iceberg_schema.shown(wanted), base.last_id)
        steps = iceberg_schema.evolution(self._name, present, base.columns, wanted)
        names = {step.name for step in steps if step.action == "deleteColumn"}
        spec, order = java.PartitionSpecParser.toJson(staged.spec()), java.SortOrderParser.toJson(staged.sortOrder())
        if by := iceberg_schema.claims([f for f in present if f.name in names], text, spec, order):
            raise claimed(self._name, *by)
        after = iceberg_schema.present_fields(evolve(self._transaction, self._java, steps))
        if what := iceberg_schema.unforeseen(columns, wanted, after):
            # Somebody else changed the schema; our files already carry the ids foreseen.
            raise CommitConflict(f"{self._name}: {what}", "The table is read again and the batch written again.")
        last_id = max([base.last_id, columns.highest, *(field.id for field in after)])
        return columns, last_id, iceberg_schema.field_ids(after)


def files_after(
    before: Mapping[str, LiveFile],
    work: Plan,
    described: Sequence[Mapping[str, Any]],
    vectors: Mapping[str, Vector],
    *,
    keys: tuple[Column, ...],
    columns: Columns,
) -> dict[str, LiveFile]:
    """`described`: the added files as Iceberg's JSON."""
    files = dict(before)
    for tracked in work.remove:
        del files[tracked.file.path]
    for doc in described:
        known = data_file(doc, keys, columns)
        files[known.path] = LiveFile(known, doc["file-path"])
    for path, vector in vectors.items():
        files[path] = files[path].marked(work.vectors[path], vector)
    return files
