"""Conditions for columns of given types: each literal becomes a value of its column's logical type."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import lru_cache

from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import decimal_parts
from tailrace.selection.conditions import (
    Comparison,
    Condition,
    ConditionRefused,
    IsNull,
    IsTrue,
    Joined,
    Membership,
    Not,
    Value,
    text_of_value,
)
from tailrace.selection.parsing import MOST_DIGITS, parsed

_WIDE = Context(prec=2 * MOST_DIGITS)


def bound(text: str, columns: Iterable[Column]) -> Condition:
    """The condition with literals of its columns' types. Raises `ConditionRefused`."""
    return _bound_once(text, tuple((column.name, column.type) for column in columns))


@lru_cache(maxsize=1000)
def _bound_once(text: str, types: tuple[tuple[str, str], ...]) -> Condition:
    return _bound(parsed(text), dict(types))


def _bound(condition: Condition, types: Mapping[str, str]) -> Condition:
    match condition:
        case Not(inner):
            return Not(_bound(inner, types))
        case Joined(word, parts):
            return Joined(word, tuple(_bound(part, types) for part in parts))
        case IsNull(column):
            _type(column, types)
            return condition
        case IsTrue(column):
            if _type(column, types) != "bool":
                raise ConditionRefused(f"column {column!r} is no boolean", "Compare it with a literal.")
            return condition
        case Membership(column, values):
            return Membership(column, tuple(_fitted(column, _type(column, types), "=", value) for value in values))
        case Comparison(column, operator, value):
            return Comparison(column, operator, _fitted(column, _type(column, types), operator, value))


def _type(column: str, types: Mapping[str, str]) -> str:
    if column not in types:
        exact = "Write a name as the source has it, in double quotes where it is no plain word."
        raise ConditionRefused(f"there is no copied column {column!r}", exact)
    return types[column]


def _fitted(column: str, type: str, operator: str, value: Value) -> Value:
    """The literal as a value of the column's type, or a refusal that names both."""
    if type in ("string", "bool") and operator not in ("=", "<>"):
        raise ConditionRefused(
            f"column {column!r} is {type}, of which rows are chosen by =, <> and IN only", "Name the values with IN."
        )
    if type in ("float32", "float64", "binary"):
        raise ConditionRefused(
            f"column {column!r} is {type}, which is not compared", "Use another column, or IS NULL and IS NOT NULL."
        )
    fitted, example = _value(type, value)
    if fitted is None:
        shown = text_of_value(value)
        raise ConditionRefused(f"{shown} does not fit column {column!r}, which is {type}", f"Write {example}.")
    return fitted


def _value(type: str, value: Value) -> tuple[Value | None, str]:
    """None: it is no value of the type; and what one looks like."""
    match type:
        case "string":
            return (value if isinstance(value, str) else None), "a text in single quotes"
        case "bool":
            return (value if isinstance(value, bool) else None), "TRUE or FALSE"
        case "int32" | "int64":
            most = 2 ** (int(type[3:]) - 1)
            whole = _whole(value)
            fits = whole is not None and -most <= whole < most
            return (whole if fits else None), f"a whole number between {-most} and {most - 1}"
        case "date":
            return _date(value), "a date like '2026-01-31'"
        case "timestamp":
            return _moment(value, zoned=False), "a time without a zone like '2026-01-31 18:00:00'"
        case "timestamptz":
            return _moment(value, zoned=True), "a time with its offset like '2026-01-31 18:00:00+01:00'"
        case _:
            precision, scale = decimal_parts(type) or (0, 0)
            fits = isinstance(value, Decimal) and _fits(value, precision, scale)
            return (value if fits else None), (
                f"a number with at most {precision - scale} digits and {scale} behind a point"
            )


def _whole(value: Value) -> int | None:
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else None


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    scaled = value.scaleb(scale, _WIDE)
    return bool(scaled == scaled.to_integral_value(context=_WIDE)) and abs(scaled) < 10**precision


def _date(value: Value) -> date | None:
    try:
        found = date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.isoformat() == value else None


def _moment(value: Value, zoned: bool) -> datetime | None:
    if not isinstance(value, str):
        return None
    text = value.removesuffix("Z") + "+00:00" if value.endswith("Z") else value
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    written = {found.isoformat(sep, unit) for sep in " T" for unit in ("minutes", "seconds", "milliseconds", "auto")}
    if (found.tzinfo is not None) != zoned or text not in written:
        return None
    try:
        return found.astimezone(UTC) if zoned else found
    except OverflowError:
        return None
