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
READERS = {
    "bool": ("boolean",),
    "int32": ("smallint", "integer"),
    "int64": ("bigint",),
    "float32": ("real",),
    "float64": ("double precision",),
    "binary": ("bytea",),
    "date": ("date",),
    "time": ("time",),
    "timestamp": ("timestamp",),
    "timestamptz": ("timestamp",),
}
"""Beginnings of the names of the types that have a logical type by themselves."""
_NAME = r'("([^"]|"")+"|[a-z_][a-z0-9_]*)'
_PLAIN = re.compile(r"[a-z][a-z0-9_ ]*(\([0-9, -]+\))?( with(out)? time zone)?(\[\])?")
"""Types of the system, as `format_type` writes them."""
_MADE = re.compile(rf"(?P<name>{_NAME}\.{_NAME})(\([0-9, -]+\))?(\[\])?")
"""Types that somebody made, or an extension: the target may have them, too."""
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
    """The type that the column has in PostgreSQL, if that type reads its values as they come; None: they come in
    another form (`options[].as`, a mask)."""
    kind = column.behind or column.source_type
    if column.mask is not None or kind.startswith(OF_THE_CATALOG):
        return None
    readers = _readers(column.type)
    if _PLAIN.fullmatch(kind):
        return kind if readers is None or kind.startswith(readers) else None
    # One that is made in the target later would not be compared with the text that the copy has until then.
    return kind if readers is None and column.key is None and _MADE.fullmatch(kind) else None


def _readers(logical: str) -> tuple[str, ...] | None:
    """The types that read values of a logical type as they are; None: all do, since it is their text."""
    if logical == "string" or element_of(logical) is not None:
        return None
    return ("numeric",) if decimal_parts(logical) is not None else READERS.get(logical, ())


def bare(kind: str) -> str:
    """The type's name alone, without digits and brackets."""
    made = _MADE.fullmatch(kind)
    return kind.partition("(")[0] if made is None else made["name"]
