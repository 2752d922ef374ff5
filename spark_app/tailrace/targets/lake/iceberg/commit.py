"""One Iceberg commit: what changes by file (pure), then the same as one Java transaction.

`IcebergTable.commit` calls `plan`, writes the vectors, and lets `Builder` fill the transaction. Every change of
rows is one `RowDelta` (a TRUNCATE removes every file in it), compaction one `RewriteFiles`; schema and properties go
into the same transaction, so the catalog sees a single swap of metadata.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from tailrace.changelog.types import element_of, fields_of
from tailrace.errors import RESYNC, TargetChanged
from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.iceberg.files import LiveFile, Vector
from tailrace.targets.lake.iceberg.java import CommitConflict, Java
from tailrace.targets.lake.iceberg.schema import SchemaStep
from tailrace.targets.lake.model import NewFile, TableCommit

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The text of a partition that is NULL."""


@dataclass(frozen=True)
class Plan:
    """A commit by file: what comes, what goes, which vectors are new."""

    add: Sequence[NewFile] = ()
    remove: Sequence[LiveFile] = ()
    vectors: Mapping[str, BitMap64] = field(default_factory=dict)
    """Whole new vectors by data file, of present and of added files."""
    raws: Mapping[str, str] = field(default_factory=dict)
    """How Iceberg's metadata writes the paths of present files in `vectors`."""
    replaced: Sequence[tuple[str, Vector]] = ()
    """Present vectors that go: theirs was extended, or their file goes."""
    rewrite: bool = False

    def raw(self, path: str) -> str:
        return self.raws.get(path, path)


def plan(change: TableCommit, files: Mapping[str, LiveFile]) -> Plan:
    """Files with no live row left are removed or not added at all; vectors that say nothing new are passed over."""
    if change.clear and change.marks:
        raise ValueError("a clearing commit marks nothing: every file goes")
    gone = dict(files) if change.clear else {path: _live(files, path) for path in change.remove}
    vectors: dict[str, BitMap64] = {}
    for path, dead in change.marks.items():
        tracked = _live(files, path)
        if not tracked.file.dead <= dead:
            raise ValueError(f"the vector for {path} lacks positions that are dead already")
        if len(dead) == tracked.file.rows:
            gone[path] = tracked
        elif len(dead) > len(tracked.file.dead):
            vectors[path] = dead
    replaced = [(files[path].raw, files[path].vector) for path in [*gone, *vectors]]
    raws = {path: files[path].raw for path in vectors}
    add = [new for new in change.add if len(new.dead) < new.rows]
    vectors |= {new.path: new.dead for new in add if new.dead}
    kept = [(raw, vector) for raw, vector in replaced if vector is not None]
    return Plan(add, list(gone.values()), vectors, raws, kept, not change.data_change)


def _live(files: Mapping[str, LiveFile], path: str) -> LiveFile:
    if path not in files:
        raise CommitConflict(f"{path} is not a live file of the version last read", "Read the table and locate again.")
    return files[path]


@dataclass(frozen=True)
class Builder:
    """Makes Iceberg's Java objects for one table."""

    java: Java
    access: FileAccess
    spec: Any
    metrics: Any

    @classmethod
    def of(cls, java: Java, access: FileAccess, table: Any) -> "Builder":
        return cls(java, access, table.spec(), java.iceberg.MetricsConfig.forTable(table))

    def added(self, new: NewFile) -> Any:
        """Column metrics come from the Parquet footer, which whoever wrote the file or read its keys has kept."""
        metrics = self.java.metrics(footer_of(self.access, new.path), self.metrics)
        return self._data(new.path, new.size, new.day).withMetrics(metrics).build()

    def removed(self, tracked: LiveFile) -> Any:
        """Iceberg finds a file to remove by its path."""
        return self._data(tracked.raw, tracked.file.size, tracked.file.day).withRecordCount(tracked.file.rows).build()

    def _data(self, path: str, size: int, day: str | None = None) -> Any:
        builder = self.java.iceberg.DataFiles.builder(self.spec).withPath(path).withFileSizeInBytes(size)
        if not self.spec.isUnpartitioned():
            builder = builder.withPartitionPath(f"{self.spec.fields()[0].name()}={NO_DAY if day is None else day}")
        return builder.withFormat("parquet")

    def vector(self, data_path: str, vector: Vector) -> Any:
        builder = self.java.iceberg.FileMetadata.deleteFileBuilder(self.spec).ofPositionDeletes().withFormat("puffin")
        builder = builder.withPath(vector.path).withFileSizeInBytes(vector.size).withReferencedDataFile(data_path)
        blob = vector.blob
        return (
            builder.withContentOffset(blob.offset)
            .withContentSizeInBytes(blob.length)
            .withRecordCount(blob.cardinality)
            .build()
        )

    def describe(self, file: Any) -> dict[str, Any]:
        doc: dict[str, Any] = json.loads(self.java.iceberg.ContentFileParser.toJson(file, self.spec))
        return doc


def check_partitions(table: str, staged: Any, by: int | None) -> None:
    """Raises `TargetChanged` if others have changed the table's partitions: Iceberg refuses our files. `by`: the id of
    the field by whose days it is partitioned; None: it is not."""
    found = [(int(field.sourceId()), str(field.transform())) for field in staged.spec().fields()]
    if by is not None and found != [(by, "day")]:
        raise TargetChanged(
            table,
            "the partitions of the target table were changed by another program, and Tailrace's files have days",
            f"Put them back in Spark (ALTER TABLE … REPLACE PARTITION FIELD …), or {RESYNC}.",
        )
    if by is None and found:
        raise TargetChanged(
            table,
            "the target table was partitioned by another program, and Tailrace's files are not",
            "Remove the partitioning in Spark (ALTER TABLE … DROP PARTITION FIELD …); Tailrace then continues by"
            " itself.",
        )


def row_delta(transaction: Any, java: Java, base: int | None, live: Sequence[str], work: Plan) -> Any:
    """The operation with every validation that Iceberg has: whatever anybody did to the rows since `base` refuses it.

    All live files are named as needed, not only the marked ones: a foreign DELETE of a whole file must not slip under
    our commit.
    """
    delta = transaction.newRowDelta().conflictDetectionFilter(java.iceberg.expressions.Expressions.alwaysTrue())
    if base is not None:
        removed = {tracked.raw for tracked in work.remove}
        kept = [path for path in live if path not in removed]
        delta = delta.validateFromSnapshot(base)
        if kept:
            delta = delta.validateDataFilesExist(java.strings(kept))
    return delta.validateDeletedFiles().validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()


def fill(
    operation: Any, builder: Builder, work: Plan, vectors: Mapping[str, Vector], former: Builder | None = None
) -> list[Any]:
    """Put the files into a RowDelta or RewriteFiles; gives the added Java data files in order. `former`: makes the
    files that go, if the table's partitions were others."""
    former = former or builder
    add_rows, add_deletes, remove_rows, remove_deletes = _methods(operation, work.rewrite)
    added = [builder.added(new) for new in work.add]
    for file in added:
        add_rows(file)
    for tracked in work.remove:
        remove_rows(former.removed(tracked))
    for path, vector in vectors.items():
        add_deletes(builder.vector(work.raw(path), vector))
    for path, vector in work.replaced:
        remove_deletes(former.vector(path, vector))
    return added


def _methods(operation: Any, rewrite: bool) -> tuple[Callable[[Any], Any], ...]:
    if rewrite:
        return operation.addFile, operation.addFile, operation.deleteFile, operation.deleteFile
    return operation.addRows, operation.addDeletes, operation.removeRows, operation.removeDeletes


def evolve(transaction: Any, java: Java, steps: Sequence[SchemaStep]) -> str:
    """Apply the steps inside the transaction; the resulting schema as JSON."""
    # A new column may get a name that another one gives up, which Iceberg allows only in the next update. No snapshot
    # has the schema in between.
    for some in ([s for s in steps if s.action != "addColumn"], [s for s in steps if s.action == "addColumn"]):
        if not some:
            continue
        update = transaction.updateSchema()
        for step in some:
            if step.action == "deleteColumn":
                update.deleteColumn(step.name)
            elif step.action == "renameColumn":
                update.renameColumn(step.name, step.value)
            elif step.action == "addColumn":
                update.addColumn(None, step.name, type_of(java, step.value))  # a dot in it is no way to a parent
            else:
                getattr(update, step.action)(step.name, type_of(java, step.value))
        update.commit()
    text: str = java.iceberg.SchemaParser.toJson(transaction.table().schema())
    return text


def type_of(java: Java, text: str) -> Any:
    """Iceberg's type of its text. The numbers of a list's elements or a struct's fields are given when the column is
    added."""
    types = java.iceberg.types.Types
    element, fields = element_of(text), fields_of(text)
    if element is not None:
        return types.ListType.ofOptional(1, types.fromPrimitiveString(element))
    if fields is None:
        return types.fromPrimitiveString(text)
    inside = java.jvm.java.util.ArrayList()
    for number, (name, kind) in enumerate(fields, 1):
        inside.add(types.NestedField.optional(number, name, types.fromPrimitiveString(kind)))
    return types.StructType.of(inside)
