"""Delta's per-file statistics from Parquet footers, and back into bounds that `locate` prunes by.

A statistic is either true or absent: strings are cut as Delta cuts them (a lower bound by cutting, an upper bound by
cutting and going up), times are widened to milliseconds, floats have none (a NaN is outside Parquet's bounds but above
everything in Spark's order).
"""

import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PREFIX = 32
"""Characters that Delta keeps of a string's bounds."""
INDEXED_COLUMNS = 32
"""Columns with statistics besides the key; Delta's own default."""
_TOP = "\U0010ffff"
_MILLI = dt.timedelta(milliseconds=1)
_ENCODER, _DECODER = json.JSONEncoder(separators=(",", ":")), json.JSONDecoder(parse_float=decimal.Decimal)


def dumps(value: object) -> str:
    """JSON that keeps decimals exact (a float would make a bound wrong)."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    try:
        return _ENCODER.encode(value)
    except TypeError:  # it has one
        assert isinstance(value, Mapping)
        return "{" + ",".join(f"{_ENCODER.encode(key)}:{dumps(item)}" for key, item in value.items()) + "}"


def loads(text: str) -> dict[str, Any]:
    """The reverse: numbers with a point stay decimals."""
    out: dict[str, Any] = _DECODER.decode(text)
    return out


def file_stats(footer: pq.FileMetaData, columns: Sequence[pa.Field], tight: bool) -> str:
    """Statistics of one file for these physical columns, as Delta's JSON text."""
    out: dict[str, dict[str, object]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    place = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for field in columns:
        if pa.types.is_nested(field.type):
            continue
        if field.name not in place:
            out["nullCount"][field.name] = footer.num_rows
            continue
        found = [group.column(place[field.name]).statistics for group in groups]
        if not found or any(item is None or not item.has_null_count for item in found):
            continue
        nulls = sum(item.null_count for item in found)
        out["nullCount"][field.name] = nulls
        # A group of nulls alone has no bounds and needs none; any other without bounds leaves the file without.
        bounded = [item for item, group in zip(found, groups, strict=True) if item.null_count < group.num_rows]
        if bounded and all(item.has_min_max for item in bounded):
            low, high = _bounds(bounded, field.type)
            if low is not None:
                out["minValues"][field.name] = low
            if high is not None:
                out["maxValues"][field.name] = high
    return dumps({"numRecords": footer.num_rows, **out, "tightBounds": tight})


def _bounds(found: Sequence[pq.Statistics], kind: pa.DataType) -> tuple[object, object]:
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return None, None
    try:
        low, high = min(item.min for item in found), max(item.max for item in found)
    except (OverflowError, ValueError):  # outside the years that Python's dates know
        return None, None
    if pa.types.is_string(kind):
        return low[:PREFIX], _cut_up(high)
    if pa.types.is_timestamp(kind):
        return _instant(low, kind, up=False), _instant(high, kind, up=True)
    if isinstance(low, dt.date):
        return low.isoformat(), high.isoformat()
    return low, high


def _cut_up(high: str) -> str | None:
    if len(high) <= PREFIX:
        return high
    return high[:PREFIX] + _TOP if high[PREFIX] < _TOP else None


def _instant(value: dt.datetime, kind: pa.TimestampType, up: bool) -> str | None:
    plain = value.replace(tzinfo=None)
    whole = plain.replace(microsecond=plain.microsecond // 1000 * 1000)
    if up and whole != plain:
        if whole > dt.datetime.max - _MILLI:
            return None
        whole += _MILLI
    return whole.isoformat(timespec="milliseconds") + ("Z" if kind.tz else "")


def bounds(stats: str | None, fields: Mapping[str, pa.Field]) -> tuple[dict[str, object], dict[str, object]]:
    """Lower and upper bounds by source column name from a file's statistics, whichever program wrote them."""
    return parsed_bounds(loads(stats) if stats else {}, fields)


def parsed_bounds(
    stats: Mapping[str, Any], fields: Mapping[str, pa.Field]
) -> tuple[dict[str, object], dict[str, object]]:
    low, high = stats.get("minValues") or {}, stats.get("maxValues") or {}
    lower: dict[str, object] = {}
    upper: dict[str, object] = {}
    for name, field in fields.items():
        read = _reader(field.type)
        if read is None or low.get(field.name) is None or high.get(field.name) is None:
            continue
        try:
            lower[name], upper[name] = read(low[field.name], False), read(high[field.name], True)
        except (OverflowError, ValueError):  # outside the years that Python's dates know
            lower.pop(name, None)
    return lower, upper


def _reader(kind: pa.DataType) -> Callable[[Any, bool], object] | None:
    """A function from JSON to a value of the column's type; None: its bounds are not used."""
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        return lambda value, up: value
    if pa.types.is_decimal(kind):
        return lambda value, up: decimal.Decimal(value)
    if pa.types.is_date(kind):
        return lambda value, up: dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return _read_instant
    return None


def _read_instant(value: str, up: bool) -> dt.datetime:
    """Delta's own writer cuts to milliseconds, so an upper bound is taken one millisecond higher (`OverflowError` where
    Python's time ends)."""
    read = dt.datetime.fromisoformat(value)
    return read + _MILLI if up else read
