"""Logical column types and their Arrow form: the one table that segments, chunk files and targets share.

A logical type is a short text in the journal (`decimal(10,2)`, see `records.terms.Column.type`). Sources choose it from
the catalog; everything downstream asks here what it looks like in Arrow.
"""

import json
import re
from collections.abc import Iterable

import pyarrow as pa

_SIMPLE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_LIST = re.compile(r"list<([^<>]+)>")
_STRUCT = re.compile(r"struct<(.*)>", re.DOTALL)
_FIELD = re.compile(r'("(?:[^"\\]|\\.)*"):([a-z0-9_]+(?:\([0-9]+, ?[0-9]+\))?)(?:,|$)')
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
MAX_PRECISION = 38
"""Digits that Arrow, Spark and the formats of tables can hold in a decimal."""


def decimal_parts(logical: str) -> tuple[int, int] | None:
    """Precision and scale of `decimal(p,s)`; None: another type."""
    found = _DECIMAL.fullmatch(logical)
    return (int(found[1]), int(found[2])) if found else None


def element_of(logical: str) -> str | None:
    """The logical type of the elements of `list<…>`, each of which may be null; None: another type."""
    found = _LIST.fullmatch(logical)
    return found[1] if found else None


Fields = tuple[tuple[str, str], ...]
"""Names and types."""


def fields_of(logical: str) -> Fields | None:
    """The fields of `struct<"name":type,…>`, with the names as in JSON; each field may be null. None: another type."""
    found = _STRUCT.fullmatch(logical)
    if not found:
        return None
    fields = list(_FIELD.finditer(found[1]))
    if not fields or "".join(field[0] for field in fields) != found[1]:
        raise ValueError(f"unknown logical type {logical!r}")
    return tuple((json.loads(field[1]), field[2]) for field in fields)


def struct_of(fields: Iterable[tuple[str, str]]) -> str:
    """The reverse of `fields_of`."""
    return f"struct<{','.join(f'{json.dumps(name, ensure_ascii=False)}:{kind}' for name, kind in fields)}>"


def inner_types(logical: str) -> tuple[str, ...]:
    """The types inside each value of a list or a struct; empty: another type."""
    element = element_of(logical)
    if element is not None:
        return (element,)
    return tuple(kind for _, kind in fields_of(logical) or ())


def list_type(element: pa.DataType, metadata: dict[bytes, bytes] | None = None) -> pa.DataType:
    """A list type whose elements have the name that Parquet and the formats of tables use."""
    return pa.list_(pa.field("element", element, metadata=metadata))


def arrow_type(logical: str) -> pa.DataType:
    """The Arrow type of a logical type; `ValueError` names one that does not exist."""
    if logical in _SIMPLE:
        return _SIMPLE[logical]
    element = element_of(logical)
    if element is not None:
        return list_type(arrow_type(element))
    fields = fields_of(logical)
    if fields is not None:
        return pa.struct([pa.field(name, arrow_type(kind)) for name, kind in fields])
    parts = decimal_parts(logical)
    if parts is None or not (1 <= parts[0] <= MAX_PRECISION and parts[1] <= parts[0]):
        raise ValueError(f"unknown logical type {logical!r}")
    return pa.decimal128(*parts)
