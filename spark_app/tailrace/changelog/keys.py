"""The one text form of a key: in records (bounds and lists of chunks), in requests' plans and in the targets' states.

    bool                  true, false
    int32, int64          decimal digits
    decimal(p,s)          with s digits behind the point, never an exponent
    float32, float64      the shortest that reads back as the same value; NaN, Infinity, -Infinity
    string                as it is
    binary                lower-case hexadecimal digits
    date                  2024-01-31
    timestamp             2024-01-31T12:00:00.000000, always six digits
    timestamptz           2024-01-31T12:00:00.000000Z, always UTC

A source translates at its edge, from its own words and back. The order of keys is the source's alone. A bound may be a
value that the type cannot hold (a date `infinity`): it then is the source's text, and no row of a target equals it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.records.terms import Key
from tailrace.errors import CorruptLog, privacy

__all__ = ["Key", "column", "columns", "fitting", "keys", "texts"]

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def texts(column: pa.Array) -> list[str]:
    """The texts of a key column, which has no nulls."""
    if column.null_count:
        raise ValueError("a key has no nulls")
    return list(map(str, _texts(column)))


def _texts(column: pa.Array) -> Sequence[str]:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [value.hex() for value in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [f"{value:f}" for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        written = [str(value) for value in column.to_numpy(zero_copy_only=False)]
        return [_SPECIAL.get(text, text) for text in written]
    if pa.types.is_timestamp(kind):
        instants = column.cast(pa.int64()).to_numpy().astype(f"datetime64[{kind.unit}]")
        written = np.datetime_as_string(instants, unit="us").tolist()
        return [f"{text}Z" for text in written] if kind.tz else written
    listed: list[str] = column.cast(pa.string()).to_pylist()
    return listed


def keys(key_columns: Sequence[pa.Array]) -> list[Key]:
    """The keys of rows with these key columns, in key order."""
    return list(zip(*map(texts, key_columns), strict=True))


def column(values: Sequence[str], kind: pa.DataType) -> pa.Array:
    """The reverse of `texts`. `CorruptLog`: one is no such value."""
    try:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return pa.array([bytes.fromhex(text) for text in values], kind)
        if pa.types.is_boolean(kind):
            return _bools(pa.array(values, pa.string()))
        return pa.array(values, pa.string()).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CorruptLog(f"a key of the change log is no {kind}: {privacy.error_text(error)}") from error


def _bools(values: pa.StringArray) -> pa.BooleanArray:
    true = pc.equal(values, "true")
    if not pc.all(pc.or_(true, pc.equal(values, "false")), min_count=0).as_py():
        raise ValueError("neither true nor false")
    return true


def columns(listed: Sequence[Key], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The reverse of `keys`."""
    by_column = zip(*listed, strict=True) if listed else ([] for _ in kinds)
    return [column(list(values), kind) for values, kind in zip(by_column, kinds, strict=True)]


def fitting(listed: Sequence[Key], kinds: Sequence[pa.DataType]) -> tuple[Key, ...]:
    """Those that are values of these types."""

    def fits(some: Sequence[Key]) -> bool:
        try:
            columns(some, kinds)
        except CorruptLog:
            return False
        return True

    return tuple(listed) if fits(listed) else tuple(key for key in listed if fits([key]))
