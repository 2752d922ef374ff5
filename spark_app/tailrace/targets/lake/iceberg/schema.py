"""Source schema versions as Iceberg schemas: field ids, evolution steps, bounds of data files. Pure.

A source column's identity is its `Column.id`; the table property `tailrace.columns` keeps the field id of every number
ever seen (`lake.columns`).
"""

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain, count, islice
from typing import Any

import pyarrow as pa

from tailrace.changelog.history import ADDED, COMMIT_TIME, DAY
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import decimal_parts, element_of, fields_of, inner_types, struct_of
from tailrace.errors import RESYNC, Retry, SchemaChangeUnsupported, TargetChanged
from tailrace.targets.lake import column_names
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.files.layout import physical_field

_TYPES = {
    "bool": "boolean",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}
_WIDER = {("int32", "int64"), ("float32", "float64")}
_EPOCH = datetime(1970, 1, 1)
_TIME = next(column.id for column in ADDED if column.name == COMMIT_TIME)
_NO_IDENTIFIER = {"float32", "float64"}
"""Iceberg allows no floating-point identifier field."""


RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Names of Iceberg's metadata columns, in lower case: Spark reads nothing of a table that has a column of such a
name."""


def shown(schema: TableSchema) -> TableSchema:
    """Under the names that its columns have in the target."""
    return column_names.shown(schema, "Iceberg", RESERVED, elements=True)


def iceberg_type(logical: str) -> str:
    element = element_of(logical)
    if element is not None:
        return f"list<{iceberg_type(element)}>"
    fields = fields_of(logical)
    if fields is not None:
        return struct_of((name, iceberg_type(kind)) for name, kind in fields)
    decimal = decimal_parts(logical)
    return _TYPES[logical] if decimal is None else f"decimal({decimal[0]}, {decimal[1]})"


def unlike(columns: Columns, present: Sequence["PresentField"]) -> dict[int, str]:
    """Physical name by field id, of the table's fields that are called otherwise there."""
    physical = {columns.ids[column_id]: name for column_id, name in columns.names.items()}
    return {f.id: physical[f.id] for f in present if f.id in physical and physical[f.id] != f.name}


def first_columns(schema: TableSchema) -> Columns:
    """The columns with the numbers that Iceberg gives to the fields of a new table: from 1, what is in a field after
    all fields."""
    schema = shown(schema)
    ids = {column.id: number for number, column in enumerate(schema.columns, 1)}
    later, inner = count(len(ids) + 1), {}
    for column in schema.columns:
        if inside := inner_types(column.type):
            inner[column.id] = tuple(islice(later, len(inside)))
    return Columns(schema.version, ids, {column.id: column.name for column in schema.columns}, inner)


def schema_json(schema: TableSchema) -> str:
    """A new table's schema, in Iceberg's JSON, with the numbers that Iceberg will give (`first_columns`)."""
    schema = shown(schema)
    known = first_columns(schema)
    fields = [
        {
            "id": known.ids[column.id],
            "name": column.name,
            "required": column.key is not None,
            "type": _json_type(column.type, known.inner.get(column.id, ())),
        }
        for column in schema.columns
    ]
    doc: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": fields}
    if identifier(schema):
        doc["identifier-field-ids"] = [
            number for number, column in enumerate(schema.columns, 1) if column.key is not None
        ]
    return json.dumps(doc)


def _json_type(logical: str, inner: Sequence[int]) -> str | dict[str, Any]:
    element, fields = element_of(logical), fields_of(logical)
    if element is not None:
        return {"type": "list", "element-id": inner[0], "element": iceberg_type(element), "element-required": False}
    if fields is None:
        return iceberg_type(logical)
    return {
        "type": "struct",
        "fields": [
            {"id": id_, "name": name, "required": False, "type": iceberg_type(kind)}
            for (name, kind), id_ in zip(fields, inner, strict=True)
        ],
    }


def identifier(schema: TableSchema) -> tuple[Column, ...]:
    """The key, where Iceberg can have it as the table's identifier fields: one row has each."""
    key = () if schema.history == "Versions" else schema.key_columns
    return () if any(column.type in _NO_IDENTIFIER for column in key) else key


def days_of(schema: TableSchema) -> str | None:
    """The name of the column by whose days the copy is partitioned; None: it is not."""
    if schema.partition_by is None:
        return None
    return next(column.name for column in shown(schema).columns if column.id == _TIME)


def partition_of(columns: Columns) -> int | None:
    """The field id of that column."""
    return columns.ids[_TIME] if DAY.id in columns.ids else None


def properties(schema: TableSchema) -> dict[str, str]:
    """Table properties at creation."""
    full = {f"write.metadata.metrics.column.{column.name}": "full" for column in shown(schema).key_columns}
    return full | {
        "format-version": "3",
        "write.parquet.compression-codec": "zstd",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
    }


def arrow_schema(schema: TableSchema, columns: Columns, last_id: int) -> pa.Schema:
    """The schema of data files of this version; columns not in the table yet get the ids they will have."""
    known = columns.extended(shown(schema), last_id)
    if known.ids != columns.ids and schema.version <= columns.version:
        raise Retry(f"{schema.name} version {schema.version} has a column that version {columns.version} does not know")
    return pa.schema(
        [
            physical_field(known.names[c.id], c.type, known.ids[c.id], c.key is None, known.inner.get(c.id, ()))
            for c in schema.columns
        ]
    )


@dataclass(frozen=True)
class PresentField:
    """A field of the table as it is."""

    id: int
    name: str
    type: str
    """Iceberg's type text."""
    required: bool
    inner: tuple[int, ...] = ()
    """Field ids of a list's elements, or of a struct's fields."""


@dataclass(frozen=True)
class SchemaStep:
    """One step of `UpdateSchema`: method name and arguments; `type` is given as Iceberg's type text."""

    action: str
    name: str
    value: str = ""


def evolution(table: str, present: Sequence[PresentField], columns: Columns, wanted: TableSchema) -> list[SchemaStep]:
    """Steps from the table's fields to `wanted`. Drops come first, additions last: a dropped name can be used again."""
    wanted = shown(wanted)
    by_id = {field.id: field for field in present}
    by_column = {column_id: by_id[id_] for column_id, id_ in columns.ids.items() if id_ in by_id}
    kept = {column.id for column in wanted.columns}
    drops, changes, additions = [], [], []
    for column_id, field in by_column.items():
        if column_id not in kept:
            if field.required:
                raise _unsupported(table, f"key column {field.name} was dropped")
            drops.append(SchemaStep("deleteColumn", field.name))
    for column in wanted.columns:
        if column.id in by_column:
            changes += _changed(table, column, by_column[column.id])
        elif column.key is not None:
            raise _unsupported(table, f"column {column.name} was added to the key")
        else:
            additions.append(SchemaStep("addColumn", column.name, iceberg_type(column.type)))
    return [*drops, *changes, *additions]


def claims(dropped: Sequence[PresentField], schema: str, spec: str, order: str) -> tuple[str, str] | None:
    """A field that goes, and what others have defined by it, in Iceberg's JSON. (What they have defined by a field that
    is renamed follows its id.)"""
    listed = {
        "the partitioning": {f["source-id"] for f in json.loads(spec)["fields"]},
        "the sort order": {f["source-id"] for f in json.loads(order)["fields"]},
        "the identifier": set(json.loads(schema).get("identifier-field-ids", ())),
    }
    return next(((f.name, what) for what, ids in listed.items() for f in dropped if f.id in ids), None)


def _changed(table: str, column: Column, field: PresentField) -> list[SchemaStep]:
    steps, new = [], iceberg_type(column.type)
    if field.required != (column.key is not None):
        raise _unsupported(table, f"column {column.name} entered or left the key")
    if field.type != new:
        if not _promotable(field.type, new):
            raise _unsupported(table, f"column {column.name} changed from {field.type} to {new}")
        steps.append(SchemaStep("updateColumn", field.name, new))
    if field.name != column.name:
        steps.append(SchemaStep("renameColumn", field.name, column.name))
    return steps


def _unsupported(table: str, what: str) -> SchemaChangeUnsupported:
    return SchemaChangeUnsupported(
        table, f"{what}, which Iceberg cannot do in place", f"Replace the target by the table as it is now: {RESYNC}."
    )


def _promotable(old: str, new: str) -> bool:
    if (old, new) in {(_TYPES[a], _TYPES[b]) for a, b in _WIDER}:
        return True
    before, after = decimal_parts(old.replace(" ", "")), decimal_parts(new.replace(" ", ""))
    return before is not None and after is not None and before[1] == after[1] and before[0] <= after[0]


def present_fields(schema: str | Mapping[str, Any]) -> list[PresentField]:
    """The table's current fields, from Iceberg's schema JSON, as a text or read."""
    document = json.loads(schema) if isinstance(schema, str) else schema
    return [
        PresentField(f["id"], f["name"], _type_text(f["type"]), f["required"], _inner_ids(f["type"]))
        for f in document["fields"]
    ]


def field_ids(present: Sequence[PresentField]) -> frozenset[int]:
    """With those of what is in a list or a struct."""
    return frozenset(chain.from_iterable((field.id, *field.inner) for field in present))


def check_fields(schema: TableSchema, columns: Columns, fields: Collection[int]) -> None:
    """Raises `TargetChanged` if others have dropped a column. Iceberg would commit files that have it all the same, and
    no reader would see its values."""
    for column in shown(schema).columns:
        wanted = [columns.ids[column.id], *columns.inner.get(column.id, ())] if column.id in columns.ids else []
        if any(id_ not in fields for id_ in wanted):
            what = f"the target has no column {column.name!r}, or not all of it: another program has dropped it"
            raise TargetChanged(schema.name, what, f"To have it again, {RESYNC}.")


def unforeseen(columns: Columns, schema: TableSchema, after: Sequence[PresentField]) -> str | None:
    """A field to which Iceberg has given another id than the data files have."""
    given = {field.name: (field.id, *field.inner) for field in after}
    for column in shown(schema).columns:
        foreseen = columns.ids[column.id], *columns.inner.get(column.id, ())
        if given.get(column.name) != foreseen:
            return f"column {column.name} got field id {given.get(column.name)}, foreseen was {foreseen}"
    return None


def _type_text(found: object) -> str:
    if isinstance(found, dict) and found["type"] == "list" and not found["element-required"]:
        return f"list<{_type_text(found['element'])}>"
    if isinstance(found, dict) and found["type"] == "struct" and not any(f["required"] for f in found["fields"]):
        return struct_of((f["name"], _type_text(f["type"])) for f in found["fields"])
    return str(found)


def _inner_ids(found: object) -> tuple[int, ...]:
    if not isinstance(found, dict):
        return ()
    return (found["element-id"],) if found["type"] == "list" else tuple(f["id"] for f in found.get("fields", ()))


def bound(logical: str, raw: bytes) -> object | None:
    """A data file's bound from Iceberg's single-value bytes; None: no value that Python can hold."""
    try:
        return _bound(logical, raw)
    except (OverflowError, struct.error, UnicodeDecodeError):
        return None


def _bound(logical: str, raw: bytes) -> object | None:
    decimal = decimal_parts(logical)
    if decimal is not None:
        # Made from text it is exact; arithmetic would round to the context's 28 digits.
        return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{decimal[1]}")
    if logical in ("int32", "int64"):
        return int.from_bytes(raw, "little", signed=True)
    if logical in ("float32", "float64"):
        value: float = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        return value
    if logical == "string":
        return raw.decode()
    if logical == "binary":
        return raw
    if logical == "bool":
        return raw != b"\0"
    number = int.from_bytes(raw, "little", signed=True)
    if logical == "date":
        return date(1970, 1, 1) + timedelta(days=number)
    moment = _EPOCH + timedelta(microseconds=number)
    if logical == "time":
        return moment.time()
    return moment if logical == "timestamp" else moment.replace(tzinfo=UTC)
