"""Names of columns that no reader of a format could use: reserved ones, and those that differ only in case. Pure."""

from collections.abc import Collection

from tailrace.changelog.records import TableSchema
from tailrace.errors import RESYNC, SchemaChangeUnsupported
from tailrace.types import fields_of


def check(schema: TableSchema, format: str, reserved: Collection[str]) -> None:
    """`reserved`: in lower case; Spark compares names without case."""
    seen: dict[str, str] = {}
    for column in schema.columns:
        if column.name.lower() in reserved:
            raise _refused(
                schema, f"column {column.name!r} has a name that {format} reserves for itself", "Rename the column"
            )
        for name in (column.name, *(f"{column.name}.{name}" for name, _ in fields_of(column.type) or ())):
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                how = "differ only in case" if other != name else "(a column and a field of one) have the same name"
                what = f"columns {other!r} and {name!r} {how}, which readers of {format} cannot hold"
                raise _refused(schema, what, "Rename one of them")


def _refused(schema: TableSchema, what: str, rename: str) -> SchemaChangeUnsupported:
    fix = f"{rename}, or leave it out with options[].columns; if the table is captured already, then {RESYNC}."
    return SchemaChangeUnsupported(schema.name, f"{what} (table {schema.name})", fix)
