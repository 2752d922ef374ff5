"""Values of statements and of answers, and rows as files of Parquet for load jobs."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.changelog.types import list_type
from tailrace.errors import RESYNC
from tailrace.targets.bigquery import types
from tailrace.targets.sql import parquet_files
from tailrace.targets.sql.session import UnfitValue
from tailrace.targets.sql.texts import each, json_text, of_four_digits, placed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAST_INT64 = -(1 << 63)
"""The number whose digits alone are none of INT64."""
ALSO_NULL = (
    "also an array of several dimensions, one that does not begin at 1, or one with a value that the type of its"
    " elements cannot hold"
)
"""Arrays of the source that are NULL where lists are copied (docs/types.md)."""
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\u0000"})


class UnfitList(UnfitValue):
    """A list that a repeated column cannot hold."""

    fix = f"Correct the value, or copy the column as text: remove it from options[].as, then {RESYNC}."


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"FROM_BASE64('{base64.b64encode(value).decode()}')"
    if isinstance(value, str):
        return f"'{value.translate(_ESCAPES)}'"
    return str(value).upper()


_READ: Mapping[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "INT64": int,
    "FLOAT": float,
    "FLOAT64": float,
    "BOOLEAN": lambda text: text == "true",
    "BOOL": lambda text: text == "true",
    "NUMERIC": Decimal,
    "BIGNUMERIC": Decimal,
    "BYTES": base64.b64decode,
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "TIMESTAMP": lambda text: EPOCH + timedelta(microseconds=int(text)),
}


def rows_of(answer: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """The rows of one page, whose instants are microseconds."""
    readers = [_READ.get(str(field["type"]), str) for field in fields]
    for row in answer.get("rows", ()):
        values = (cell["v"] for cell in row["f"])
        yield tuple(None if v is None else read(v) for v, read in zip(values, readers, strict=True))


_LITERALS: Mapping[str, Callable[[Any], str]] = {
    "INT64": lambda value: str(value) if value > LEAST_INT64 else f"CAST('{value}' AS INT64)",
    "FLOAT64": lambda value: f"CAST('{value!r}' AS FLOAT64)",
    "NUMERIC": lambda value: f"'{value:f}'",
    "BIGNUMERIC": lambda value: f"'{value:f}'",
    "STRING": lambda value: literal(value) if "\0" not in value else f"SAFE_CONVERT_BYTES_TO_STRING({_bytes(value)})",
    "DATE": lambda value: f"DATE '{value.isoformat()}'",
    "TIME": lambda value: f"TIME '{value.isoformat()}'",
    "DATETIME": lambda value: f"DATETIME '{value.isoformat(sep=' ')}'",
    "TIMESTAMP": lambda value: f"TIMESTAMP '{value.isoformat(sep=' ')}'",
}
"""Literals of the types that have others than `literal`."""
_PARSED = {"NUMERIC": "PARSE_NUMERIC", "BIGNUMERIC": "PARSE_BIGNUMERIC"}
"""Functions for types whose values are listed as texts: the emulator has their literals with fewer digits."""


def listed(rows: pa.Table, names: Sequence[str], kinds: Sequence[str]) -> str:
    """Rows as an expression that stands for a table, with the values that their file would have. Raises
    `UnfitValue`."""
    plain = [types.api_type(kind) for kind in kinds]
    columns = [
        ["NULL" if value is None else _LITERALS.get(kind, literal)(value) for value in fitted.to_pylist()]
        for fitted, kind in zip(_fitted(rows, kinds), plain, strict=True)
    ]
    quoted = [(f"`{name}`", kind) for name, kind in zip(names, plain, strict=True)]
    struct = ", ".join(f"{name} {types.TEXT if kind in _PARSED else kind}" for name, kind in quoted)
    values = ", ".join(f"STRUCT({', '.join(row)})" for row in zip(*columns, strict=True))
    taken = ", ".join(f"{_PARSED[kind]}({name}) AS {name}" if kind in _PARSED else name for name, kind in quoted)
    return f"(SELECT {taken} FROM UNNEST(ARRAY<STRUCT<{struct}>>[{values}]))"


def _bytes(text: str) -> str:
    return literal(text.encode())


def _fitted(rows: pa.Table, kinds: Sequence[str]) -> Iterator[pa.Array]:
    whole = rows.combine_chunks()
    for name, kind in zip(rows.column_names, kinds, strict=True):
        column = whole.column(name)
        yield _fitting(name, column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, kind)


def files(rows: Iterable[pa.Table], names: Sequence[str], kinds: Sequence[str]) -> Iterator[bytes]:
    """Files for load jobs. Raises `UnfitValue`."""
    return parquet_files.files(rows, names, kinds, _fitting)


def _fitting(name: str, values: pa.Array, kind: str) -> pa.Array:
    """The column in Parquet's form of the type."""
    is_of, element = values.type, types.element_kind(kind)
    if element is not None:
        return _repeated(name, values, element)
    if pa.types.is_nested(is_of):
        return each(values, json_text)
    if pa.types.is_date(is_of) or pa.types.is_timestamp(is_of):
        if not of_four_digits(values):
            raise UnfitValue(name, "a date outside of the years 1 to 9999")
        return values
    if pa.types.is_decimal(is_of):
        if kind == types.TEXT:
            return placed(values, keys.texts(values.drop_null()))
        return values.cast(pa.decimal128(38, 9)) if kind == types.NUMERIC else values
    if pa.types.is_floating(is_of):
        return values.cast(pa.float64())
    return values.cast(pa.int64()) if pa.types.is_integer(is_of) else values


def _repeated(name: str, lists: pa.ListArray, kind: str) -> pa.ListArray:
    """The lists with elements of this type, where an array can hold them: its place is never NULL, nor is one of its
    elements."""
    if lists.null_count:
        raise UnfitList(name, f"NULL in place of a list ({ALSO_NULL}), for which a repeated column has an empty one")
    elements = lists.flatten()
    if elements.null_count:
        raise UnfitList(name, "a list with NULL in it, which a repeated column cannot hold")
    ends = pc.cumulative_sum(lists.value_lengths().cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    fitted = _fitting(name, elements, kind)
    return pa.ListArray.from_arrays(offsets, fitted, type=list_type(fitted.type))
