"""The types of columns in PostgreSQL: those out of PostgreSQL keep theirs, others get the nearest exact one. Pure."""

import re

from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import decimal_parts, element_of

GENERAL = {
    "bool": "boolean",
    "int32": "integer",
    "int64": "bigint",
    "float32": "real",
    "float64": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
}
_PLAIN = re.compile(r"[a-z][a-z0-9_ ]*(\([0-9, -]+\))?( with(out)? time zone)?(\[\])?")
"""Types of the system: a type that somebody made may have the same name in the target and be another one."""
OF_THE_CATALOG = ("reg", "aclitem")
"""Types whose values name tables, functions or roles, which the target does not have: they are copied as text."""


def general_type(logical: str) -> str:
    """The type for values of a logical type."""
    if logical in GENERAL:
        return GENERAL[logical]
    parts = decimal_parts(logical)
    if parts is not None:
        return f"numeric({parts[0]},{parts[1]})"
    element = element_of(logical)
    return "jsonb" if element is None else f"{general_type(element)}[]"


def own_type(column: Column) -> str | None:
    """The type that the column has in PostgreSQL; None: its values come in another form."""
    if column.mask is not None or column.type.startswith("struct"):
        return None
    plain = _PLAIN.fullmatch(column.source_type) and not column.source_type.startswith(OF_THE_CATALOG)
    return column.source_type if plain else None
