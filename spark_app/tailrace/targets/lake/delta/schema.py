"""Delta's table metadata for a source schema: column mapping by name from the first day, ids never used twice. Pure.

Logical columns carry the source's names. A physical name is `c<id>`, so a column that is dropped and made again never
meets its predecessor's values. Columns are only ever added; one that the source dropped stays, and is null in new rows.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tailrace.changelog.records import Column, TableSchema
from tailrace.errors import RESYNC, SchemaChangeUnsupported, TargetChanged
from tailrace.targets.lake import column_names
from tailrace.targets.lake.files.layout import physical_field
from tailrace.types import decimal_parts

_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_MAX_ID = "delta.columnMapping.maxColumnId"
_DELTA = {
    "bool": "boolean",
    "int32": "integer",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_LOGICAL = {delta: logical for logical, delta in _DELTA.items()}

RESERVED = frozenset({"_metadata", "_tmp_metadata_row_index", "__delta_internal_is_row_deleted"})
"""In lower case: Spark reads nothing of a table with deletion vectors that has a column of such a name."""
HISTORY = {
    # For other tools, and for what checkpoints carry of removed files; Tailrace deletes by the same time itself.
    "delta.logRetentionDuration": "interval 1 hour",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}
"""How long replaced versions stay readable, in Delta's words; a table that says something else keeps it."""
PROPERTIES = {
    # A checkpoint costs as much as ten small commits; reading a hundred small log files costs next to nothing.
    "delta.checkpointInterval": "100",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.appendOnly": "false",
    "delta.feature.domainMetadata": "supported",
    **HISTORY,
    # Refuse a concurrent append, too: what we located may not be all there is.
    "delta.isolationLevel": "Serializable",
}


def delta_type(logical: str) -> str:
    decimal = decimal_parts(logical)
    return f"decimal({decimal[0]},{decimal[1]})" if decimal else _DELTA[logical]


def logical_type(delta: object) -> str | None:
    """None: a type that Tailrace does not write."""
    if not isinstance(delta, str):
        return None
    return delta if delta.startswith("decimal(") else _LOGICAL.get(delta)


def new_metadata(schema: TableSchema, table_id: str, now_ms: int) -> dict[str, Any]:
    """The `metaData` action of a new table."""
    check_names(schema)
    configuration = PROPERTIES | {"delta.dataSkippingStatsColumns": _stats_columns(schema)}
    empty = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": now_ms,
        "schemaString": json.dumps({"type": "struct", "fields": []}),
    }
    return evolved(empty, schema) or empty


def replaced(metadata: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """The metadata for another generation: none of the present columns, all of `schema`'s with ids never used."""
    configuration = dict(metadata["configuration"]) | {"delta.dataSkippingStatsColumns": _stats_columns(schema)}
    empty = dict(metadata) | {
        "partitionColumns": [],
        "configuration": configuration,
        "schemaString": json.dumps({"type": "struct", "fields": []}),
    }
    return evolved(empty, schema) or empty


def evolved(metadata: Mapping[str, Any], schema: TableSchema) -> dict[str, Any] | None:
    """The metadata with the columns that `schema` has and the table lacks; None when it lacks none."""
    check_names(schema)
    fields = _fields(metadata)
    present = {field["name"].lower(): field for field in fields}
    last = int(metadata["configuration"].get(_MAX_ID, 0))
    added = []
    for column in schema.columns:
        field = present.get(column.name.lower())
        if field is None:
            last += 1
            added.append(
                {
                    "name": column.name,
                    "type": delta_type(column.type),
                    "nullable": True,
                    "metadata": {_ID: last, _PHYSICAL: f"c{last}"},
                }
            )
        else:
            _same(schema, column, field)
    if not added:
        return None
    out = dict(metadata)
    out["schemaString"] = json.dumps({"type": "struct", "fields": [*fields, *added]})
    out["configuration"] = dict(metadata["configuration"]) | {_MAX_ID: str(last)}
    if any(field["type"] == "timestamp_ntz" for field in added):
        # Delta enables this by itself for a new table only; it takes the key into the protocol and out of here.
        out["configuration"]["delta.feature.timestampNtz"] = "supported"
    return out


def arrow_schema(metadata: Mapping[str, Any], schema: TableSchema) -> pa.Schema:
    """Schema of data files for the source schema's columns, in the source's order."""
    present = {field["name"].lower(): field for field in _fields(metadata)}
    out = []
    for column in schema.columns:
        field = present.get(column.name.lower())
        if field is None:
            raise TargetChanged(
                schema.name,
                f"the target has no column {column.name!r}",
                f"Give a column that was renamed its name back, or {RESYNC}.",
            )
        _same(schema, column, field)
        physical = field["metadata"].get(_PHYSICAL, field["name"])
        out.append(physical_field(physical, column.type, int(field["metadata"].get(_ID, 0))))
    return pa.schema(out)


def all_fields(metadata: Mapping[str, Any]) -> dict[str, pa.Field]:
    """Every column of the table that has a type of ours: logical name -> data file field."""
    out = {}
    for field in _fields(metadata):
        logical = logical_type(field["type"])
        if logical is not None:
            physical = field["metadata"].get(_PHYSICAL, field["name"])
            out[field["name"]] = physical_field(physical, logical, int(field["metadata"].get(_ID, 0)))
    return out


def check_names(schema: TableSchema) -> None:
    column_names.check(schema, "Delta", RESERVED)


def _same(schema: TableSchema, column: Column, field: Mapping[str, Any]) -> None:
    if field["type"] != delta_type(column.type):
        raise SchemaChangeUnsupported(
            schema.name,
            f"column {column.name!r} is {field['type']} in the target and {column.type} in the source",
            "Drop the target table and take a snapshot of it.",
        )


def _fields(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(metadata["schemaString"])["fields"]
    return fields


def _stats_columns(schema: TableSchema) -> str:
    """What others' writers (OPTIMIZE) keep statistics of: the key first, then as many as Delta would. Delta refuses to
    be told of columns whose type it does not skip by."""
    rest = [column for column in schema.columns if column.key is None]
    chosen = [column for column in (*schema.key_columns, *rest[:32]) if column.type not in ("bool", "binary")]
    names = [column.name for column in chosen]
    return ",".join("`" + name.replace("`", "``") + "`" for name in names)
