"""The live files of an Iceberg table version, kept between commits so that only a foreign commit costs a plan.

`IcebergTable` asks for a plan when the table is opened or changed by others; after its own commits it updates the
listing.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pyroaring import BitMap64

from tailrace.changelog.records.terms import Column
from tailrace.errors import RESYNC, ForeignChange
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.files.access import FileAccess, read_range
from tailrace.targets.lake.files.vectors import PuffinBlob, unframe
from tailrace.targets.lake.iceberg.java import Java
from tailrace.targets.lake.iceberg.schema import bound
from tailrace.targets.lake.model import DataFile

_READERS = 8
"""Vectors read at the same time: each is one small ranged read, so latency is all there is."""


@dataclass(frozen=True)
class Vector:
    """A data file's present deletion vector: its location."""

    path: str
    size: int
    """Bytes of the whole Puffin file."""
    blob: PuffinBlob


@dataclass(frozen=True)
class LiveFile:
    """A live data file and its present vector."""

    file: DataFile
    raw: str
    """The path as in Iceberg's metadata: Hadoop writes `file:/x` for `file:///x`, and vectors refer to it literally."""
    vector: Vector | None = None

    def marked(self, dead: BitMap64, vector: Vector) -> "LiveFile":
        """Gives the file under this vector, which says these rows."""
        return replace(self, file=replace(self.file, dead=dead, vector_bytes=vector.blob.length), vector=vector)


def absolute(location: str) -> str:
    """`file:/x` as `file:///x`, without a trailing slash."""
    location = location.rstrip("/")
    local = location.startswith("file:/") and not location.startswith("file://")
    return "file://" + location[5:] if local else location


def data_file(doc: Mapping[str, Any], keys: tuple[Column, ...], columns: Columns) -> DataFile:
    """Reads Iceberg's JSON of a data file. Bounds of key columns only: no search uses others."""
    lower = {c.name: v for c in keys if (v := _bound(doc, "lower-bounds", c, columns)) is not None}
    upper = {c.name: v for c in keys if (v := _bound(doc, "upper-bounds", c, columns)) is not None}
    size, day = doc["file-size-in-bytes"], day_of(doc.get("partition"))
    return DataFile(absolute(doc["file-path"]), doc["record-count"], size, BitMap64(), lower, upper, day)


def day_of(partition: Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    """The one value of Iceberg's JSON of a partition."""
    values = list(partition.values() if isinstance(partition, Mapping) else partition or ())
    return str(values[0]) if values and values[0] is not None else None


def _bound(doc: Mapping[str, Any], side: str, column: Column, columns: Columns) -> object | None:
    bounds = doc.get(side)
    if not bounds or columns.ids[column.id] not in bounds["keys"]:
        return None
    return bound(column.type, bytes.fromhex(bounds["values"][bounds["keys"].index(columns.ids[column.id])]))


def vector_of(table: str, doc: Mapping[str, Any]) -> Vector:
    if doc["file-format"].lower() != "puffin":
        raise ForeignChange(
            table,
            f"{doc['file-path']} is a delete file that Tailrace did not write",
            f"Rewrite the table's position deletes as deletion vectors, or {RESYNC}.",
        )
    blob = PuffinBlob(doc["content-offset"], doc["content-size-in-bytes"], doc["record-count"])
    return Vector(doc["file-path"], doc["file-size-in-bytes"], blob)


def live_files(
    java: Java, table: Any, name: str, *, keys: tuple[Column, ...], columns: Columns, access: FileAccess
) -> tuple[dict[str, LiveFile], set[int]]:
    """Every live file of the current version, vectors read; and the data sequence numbers of files and vectors."""
    found, sequences = listed(java, table, name, keys=keys, columns=columns)
    return _with_dead_rows(found, access), sequences


def listed(
    java: Java, table: Any, name: str, *, keys: tuple[Column, ...], columns: Columns, snapshot: int | None = None
) -> tuple[dict[str, LiveFile], set[int]]:
    """Lists the files by the table's metadata alone: no file is read, and no row is known to be dead. `snapshot`: None
    for the current version."""
    specs, parser = table.specs(), java.iceberg.ContentFileParser
    found: dict[str, LiveFile] = {}
    sequences: set[int] = set()
    tasks = _planned(java, table, {columns.ids[column.id] for column in keys if column.id in columns.ids}, snapshot)
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            task = iterator.next()
            file, deletes, vector = task.file(), task.deletes(), None
            sequences.add(file.dataSequenceNumber())
            doc = json.loads(parser.toJson(file, specs.get(file.specId())))
            for delete in deletes:
                sequences.add(delete.dataSequenceNumber())
                vector = vector_of(name, json.loads(parser.toJson(delete, specs.get(delete.specId()))))
            known = data_file(doc, keys, columns)
            found[known.path] = LiveFile(known, doc["file-path"], vector)
    finally:
        tasks.close()
    return found, sequences


def paths_of(java: Java, table: Any, name: str, columns: Columns, snapshot: int) -> set[str]:
    """Data files and vectors of a former version."""
    found, _ = listed(java, table, name, keys=(), columns=columns, snapshot=snapshot)
    return set(found) | {absolute(file.vector.path) for file in found.values() if file.vector is not None}


def _planned(java: Java, table: Any, keys: Collection[int], snapshot: int | None) -> Any:
    """`keys`: field ids."""
    scan = table.newScan() if snapshot is None else table.newScan().useSnapshot(snapshot)
    names = [field.name() for field in table.schema().columns() if field.fieldId() in keys]
    return scan.includeColumnStats(java.strings(names)).planFiles() if names else scan.planFiles()


def _with_dead_rows(files: dict[str, LiveFile], access: FileAccess) -> dict[str, LiveFile]:
    marked = [(path, tracked.vector) for path, tracked in files.items() if tracked.vector is not None]

    def dead(item: tuple[str, Vector]) -> BitMap64:
        vector = item[1]
        data = read_range(access, absolute(vector.path), vector.blob.offset, vector.blob.length)
        return unframe(data, vector.path)

    with ThreadPoolExecutor(_READERS) as pool:
        for (path, vector), rows in zip(marked, pool.map(dead, marked), strict=True):
            files[path] = files[path].marked(rows, vector)
    return files
