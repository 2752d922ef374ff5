"""Delta's table metadata for a source schema: column mapping by name from the first day, ids never used twice. Pure.

Logical columns carry the source's names, as far as readers can have them (`lake.column_names`). A physical name is
`c<id>`, so a column that is dropped and made again never meets its predecessor's values. Which field is which column of
the source says a property of the table (`lake.columns`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.changelog.history import DAY
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import decimal_parts, element_of, fields_of, inner_types, struct_of
from tailrace.errors import RESYNC, SchemaChangeUnsupported, TargetChanged
from tailrace.targets.lake import column_names
from tailrace.targets.lake.columns import COLUMNS, Columns, claimed
from tailrace.targets.lake.files.layout import physical_field

_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_MAX_ID = "delta.columnMapping.maxColumnId"
_STATS = "delta.dataSkippingStatsColumns"
_CHECK = "delta.constraints."
_GENERATED = "delta.generationExpression"
_CLUSTERING = "delta.clustering"
"""Domain of the table's clustering columns, by their physical names."""
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
"""Reserved names in lower case: Spark reads nothing of a table with deletion vectors that has a column of such a
name."""
HISTORY = {
    # For other tools, and for what checkpoints carry of removed files; Tailrace deletes by the same time itself.
    "delta.logRetentionDuration": "interval 1 hour",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}
"""How long replaced versions stay readable, in Delta's words; a table that says something else keeps it."""
NEEDED = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "false"}
"""Without these Delta refuses every commit that changes or deletes a row."""
PROPERTIES = {
    # A checkpoint costs as much as ten small commits; reading a hundred small log files costs next to nothing.
    "delta.checkpointInterval": "100",
    "delta.columnMapping.mode": "name",
    "delta.feature.domainMetadata": "supported",
    **NEEDED,
    **HISTORY,
    # Refuse a concurrent append, too: what we located may not be all there is.
    "delta.isolationLevel": "Serializable",
}


def delta_type(logical: str, inner: Sequence[int] = ()) -> str | dict[str, Any]:
    """`inner`: ids of a struct's fields. Their physical names are their own: the columns of other names or types that
    the source has later are other columns."""
    fields = fields_of(logical)
    if fields is not None:
        return {
            "type": "struct",
            "fields": [
                _field(name, delta_type(kind), id_, name) for (name, kind), id_ in zip(fields, inner, strict=True)
            ],
        }
    element = element_of(logical)
    if element is not None:
        return {"type": "array", "elementType": delta_type(element), "containsNull": True}
    decimal = decimal_parts(logical)
    return f"decimal({decimal[0]},{decimal[1]})" if decimal else _DELTA[logical]


def _field(name: str, kind: str | dict[str, Any], id_: int, physical: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {_ID: id_, _PHYSICAL: physical}}


def logical_type(delta: object) -> str | None:
    """None: a type that Tailrace does not write."""
    if isinstance(delta, Mapping):
        return _nested_type(delta)
    if not isinstance(delta, str):
        return None
    return delta if delta.startswith("decimal(") else _LOGICAL.get(delta)


def _nested_type(delta: Mapping[str, Any]) -> str | None:
    inside = {"element": delta["elementType"]} if delta["type"] == "array" else {}
    if delta["type"] == "struct":
        inside = {field["name"]: field["type"] for field in delta["fields"]}
    fields = [(name, kind) for name, found in inside.items() if (kind := logical_type(found)) and not inner_types(kind)]
    if not fields or len(fields) < len(inside):
        return None
    return struct_of(fields) if delta["type"] == "struct" else f"list<{fields[0][1]}>"


def new_metadata(schema: TableSchema, table_id: str, now_ms: int) -> dict[str, Any]:
    """The `metaData` action of a new table."""
    schema = shown(schema)
    configuration = PROPERTIES | {_STATS: _stats_columns(schema)}
    empty = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": _partition(schema),
        "configuration": configuration,
        "createdTime": now_ms,
        "schemaString": json.dumps({"type": "struct", "fields": []}),
    }
    return evolved(empty, schema) or empty


def _partition(schema: TableSchema) -> list[str]:
    """The name of the column by which the copy is partitioned, where it is."""
    return [column.name for column in schema.columns if column.id == DAY.id]


def partition(metadata: Mapping[str, Any]) -> str | None:
    """The physical name of the column by whose days the table is partitioned; None: it is not."""
    names = {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in _fields(metadata)}
    return next((names[name] for name in metadata.get("partitionColumns") or ()), None)


def physical(column: Column, id_: int) -> str:
    return f"c{id_}"


def last_id(metadata: Mapping[str, Any]) -> int:
    """The highest column id ever used."""
    return int(metadata["configuration"].get(_MAX_ID, 0))


def replaced(metadata: Mapping[str, Any], schema: TableSchema, columns: Columns) -> dict[str, Any]:
    """The metadata for another generation: none of the present columns, all of `schema`'s, with ids never used."""
    schema = shown(schema)
    configuration = dict(metadata["configuration"]) | NEEDED | {_STATS: _stats_columns(schema)}
    empty = dict(metadata) | {
        "partitionColumns": _partition(schema),
        "configuration": configuration,
        "schemaString": json.dumps({"type": "struct", "fields": []}),
    }
    return _with_fields(empty, schema, columns, [], [_new_field(column, columns) for column in schema.columns])


def evolved(
    metadata: Mapping[str, Any], schema: TableSchema, before: TableSchema | None = None
) -> dict[str, Any] | None:
    """The metadata with the columns of `schema`, under its names; None: the table has them. Columns of Tailrace that it
    lacks are dropped, others' stay. `before`: the schema that the table has, for one that has no numbers yet."""
    schema = shown(schema)
    fields, columns = _fields(metadata), columns_of(metadata, before or schema)
    after, by_id = _extended(metadata, columns, schema), {field["metadata"].get(_ID): field for field in fields}
    wanted = {after.ids[column.id]: column for column in schema.columns}
    for column in schema.columns:
        field = by_id.get(after.ids[column.id])
        if field is None and column.id in columns.ids:
            raise _lacking(schema, column)
        if field is not None:
            _same(schema, column, field)
    ours = set(after.ids.values())
    kept = [
        {**field, "name": wanted[id_].name} if id_ in wanted else field
        for field in fields
        if (id_ := field["metadata"].get(_ID)) in wanted or id_ not in ours
    ]
    names = {f["name"] for f in fields} - {f["name"] for f in kept}
    if by := _claims(metadata, [f for f in kept if f["metadata"].get(_ID) not in ours], names):
        raise claimed(schema.name, *by)
    added = [_new_field(column, after) for column in schema.columns if after.ids[column.id] not in by_id]
    if not added and kept == fields:
        return None
    return _with_fields(metadata, schema, after, kept, added)


def _claims(metadata: Mapping[str, Any], others: list[dict[str, Any]], names: set[str]) -> tuple[str, str] | None:
    """A name that goes, and what others have defined by it."""
    listed = {
        f"CHECK constraint {k[len(_CHECK) :]!r}": v
        for k, v in metadata["configuration"].items()
        if k.startswith(_CHECK)
    }
    listed |= {f"the generated column {f['name']!r}": f["metadata"].get(_GENERATED, "") for f in others}
    if by := names & {*(metadata.get("partitionColumns") or ())}:
        return by.pop(), "the partitioning"
    # Rather one name too many: SQL is not taken apart here.
    return next(((name, what) for what, text in listed.items() for name in names if name.lower() in text.lower()), None)


def check_properties(table: str, location: str, metadata: Mapping[str, Any]) -> None:
    """Raises `TargetChanged` if others have set what must be as in `NEEDED`."""
    for name, needed in NEEDED.items():
        found = str(metadata["configuration"].get(name, "false")).lower()
        if found != needed:
            raise TargetChanged(
                table,
                f"the target table has {name} = {found!r}, under which none of its rows can be changed",
                f"Run ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('{name}' = '{needed}') in Spark; "
                "Tailrace then continues by itself.",
            )


def check_clustering(
    table: str, domains: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raises `TargetChanged` if a column that goes is one of those that others have the table clustered by."""
    used = {path[0] for path in json.loads(domains.get(_CLUSTERING, "{}")).get("clusteringColumns", ()) if path}
    left = {field["metadata"].get(_ID) for field in _fields(after)}
    for field in _fields(before):
        if field["metadata"].get(_ID) not in left and field["metadata"].get(_PHYSICAL) in used:
            raise claimed(table, field["name"], "the clustering")


def _with_fields(
    metadata: Mapping[str, Any],
    schema: TableSchema,
    columns: Columns,
    kept: list[dict[str, Any]],
    added: list[dict[str, Any]],
) -> dict[str, Any]:
    out = dict(metadata)
    configuration = dict(metadata["configuration"])
    out["schemaString"] = json.dumps({"type": "struct", "fields": [*kept, *added]})
    out["configuration"] = configuration | {
        _MAX_ID: str(max(int(configuration.get(_MAX_ID, 0)), columns.highest)),
        COLUMNS: columns.to_json(),
    }
    if kept != _fields(metadata):  # it names columns
        out["configuration"][_STATS] = _stats_columns(schema)
    kinds = [logical_type(field["type"]) or "" for field in added]
    if any("timestamp" in (kind, *inner_types(kind)) for kind in kinds):
        # Delta enables this by itself for a new table only; it takes the key into the protocol and out of here.
        out["configuration"]["delta.feature.timestampNtz"] = "supported"
    return out


def _new_field(column: Column, columns: Columns) -> dict[str, Any]:
    kind = delta_type(column.type, columns.inner.get(column.id, ()))
    return _field(column.name, kind, columns.ids[column.id], columns.names[column.id])


def columns_of(metadata: Mapping[str, Any], schema: TableSchema) -> Columns:
    """A table that was last evolved by a former version has no numbers. Until then columns were only added, so that the
    names of a version that it has, or is to get by additions, tell."""
    text = metadata["configuration"].get(COLUMNS)
    return Columns.from_json(text) if text is not None else _adopted(Columns(0, {}, {}), metadata, shown(schema))


def _adopted(columns: Columns, metadata: Mapping[str, Any], schema: TableSchema) -> Columns:
    """With the fields that belong to no column yet, by their names."""
    ids, names, taken = dict(columns.ids), dict(columns.names), set(columns.ids.values())
    free = {f["name"].lower(): f for f in _fields(metadata) if f["metadata"].get(_ID) not in taken}
    for column in schema.columns:
        field = free.get(column.name.lower())
        if column.id not in ids and field is not None:
            ids[column.id] = int(field["metadata"].get(_ID, 0))
            names[column.id] = field["metadata"].get(_PHYSICAL, field["name"])
    return Columns(columns.version, ids, names, columns.inner)


def _extended(metadata: Mapping[str, Any], columns: Columns, schema: TableSchema) -> Columns:
    """With the columns of `schema`: a field that another program has added under the name of one is taken for it."""
    return _adopted(columns, metadata, schema).extended(schema, last_id(metadata), physical)


def arrow_schema(metadata: Mapping[str, Any], schema: TableSchema, present: bool = True) -> pa.Schema:
    """Schema of data files for the source schema's columns, in the source's order. `present`: they are the table's;
    else those of a version that it had, which may have been dropped or renamed since."""
    schema = shown(schema)
    columns, by_id = columns_of(metadata, schema), {f["metadata"].get(_ID): f for f in _fields(metadata)}
    out = []
    for column in schema.columns:
        id_ = columns.ids.get(column.id)
        field = by_id.get(id_)
        if id_ is None or (present and (field is None or field["name"].lower() != column.name.lower())):
            raise _lacking(schema, column)
        if field is not None:
            _same(schema, column, field)
        inner = columns.inner.get(column.id, ())
        out.append(physical_field(columns.names[column.id], column.type, id_, inner=inner))
    return pa.schema(out)


def _lacking(schema: TableSchema, column: Column) -> TargetChanged:
    return TargetChanged(
        schema.name,
        f"the target has no column {column.name!r}",
        f"Give a column that was renamed its name back, or {RESYNC}.",
    )


def all_fields(metadata: Mapping[str, Any]) -> dict[str, pa.Field]:
    """Every column of the table that has a type of Tailrace: logical name -> data file field."""
    out = {}
    for field in _fields(metadata):
        logical = logical_type(field["type"])
        if logical is not None:
            physical = field["metadata"].get(_PHYSICAL, field["name"])
            out[field["name"]] = physical_field(physical, logical, int(field["metadata"].get(_ID, 0)))
    return out


def shown(schema: TableSchema) -> TableSchema:
    """Under the names that its columns have in the target."""
    return column_names.shown(schema, "Delta", RESERVED, elements=False)


def _same(schema: TableSchema, column: Column, field: Mapping[str, Any]) -> None:
    if logical_type(field["type"]) != column.type:
        raise SchemaChangeUnsupported(
            schema.name,
            f"column {column.name!r} is {logical_type(field['type']) or field['type']} in the target and {column.type}"
            " in the source",
            "Drop the target table and take a snapshot of it.",
        )
    inside = field["type"]["fields"] if fields_of(column.type) is not None else ()
    if any(found["metadata"].get(_PHYSICAL, found["name"]) != found["name"] for found in inside):
        what = f"column {column.name!r} of the target was added, or its fields renamed, by another program"
        raise TargetChanged(schema.name, what, f"Drop that column in the target table, then {RESYNC}.")


def _fields(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(metadata["schemaString"])["fields"]
    return fields


def _stats_columns(schema: TableSchema) -> str:
    """The columns of which others' writers (OPTIMIZE) keep statistics: the key first, then as many as Delta would
    choose. Delta refuses columns whose type it does not skip by."""
    rest = [column for column in schema.columns if column.key is None and column.id != DAY.id]
    chosen = [column for column in (*schema.key_columns, *rest[:32]) if _skipped_by(column.type)]
    names = [column.name for column in chosen]
    return ",".join("`" + name.replace("`", "``") + "`" for name in names)


def _skipped_by(logical: str) -> bool:
    return logical not in ("bool", "binary") and not inner_types(logical)
