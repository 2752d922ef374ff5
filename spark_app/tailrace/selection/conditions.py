"""Conditions of row filters (`options[].where`): the language and its text in the change log.

Comparisons of a column with a literal, IN, BETWEEN, IS [NOT] NULL, boolean columns, AND, OR, NOT. `parsing` makes a
condition of what is written, `binding` gives its literals the columns' logical types; the canonical text of that is
what the change log keeps (`TableSchema.where`). NULL is as in SQL: only TRUE passes (`rows`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

Value = str | bool | int | Decimal | date | datetime
LANGUAGE = (
    "Write comparisons of a column with a literal (=, <>, <, <=, >, >=), IN, BETWEEN, IS NULL and IS NOT NULL, joined "
    "by AND, OR and NOT."
)


class ConditionRefused(ValueError):
    """`str` says what is wrong, `fix` what to write instead."""

    def __init__(self, what: str, fix: str = LANGUAGE) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True)
class Comparison:
    column: str
    operator: str
    value: Value


@dataclass(frozen=True)
class Membership:
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class IsTrue:
    """A boolean column by itself; NULL where it is."""

    column: str


@dataclass(frozen=True)
class Not:
    inner: "Condition"


@dataclass(frozen=True)
class Joined:
    word: str
    """AND or OR."""
    parts: tuple["Condition", ...]


Condition = Comparison | Membership | IsNull | IsTrue | Not | Joined


def columns_of(condition: Condition) -> Iterator[str]:
    match condition:
        case Not(inner):
            yield from columns_of(inner)
        case Joined(_, parts):
            for part in parts:
                yield from columns_of(part)
        case _:
            yield condition.column


def values_of(condition: Condition) -> Iterator[tuple[str, Value]]:
    """Columns, each with a literal that it is compared with."""
    match condition:
        case Not(inner):
            yield from values_of(inner)
        case Joined(_, parts):
            for part in parts:
                yield from values_of(part)
        case Membership(column, values):
            yield from ((column, value) for value in values)
        case Comparison(column, _, value):
            yield column, value
        case IsNull() | IsTrue():
            pass


def canonical(condition: Condition) -> str:
    """Equal for texts that are bound to the same condition; itself a condition of the language."""
    match condition:
        case Not(inner):
            return f"NOT ({canonical(inner)})"
        case Joined(word, parts):
            return f" {word} ".join(f"({canonical(p)})" if isinstance(p, Joined) else canonical(p) for p in parts)
        case IsNull(column):
            return f"{_name(column)} IS NULL"
        case IsTrue(column):
            return _name(column)
        case Membership(column, values):
            return f"{_name(column)} IN ({', '.join(map(text_of_value, values))})"
        case Comparison(column, operator, value):
            return f"{_name(column)} {operator} {text_of_value(value)}"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def text_of_value(value: Value) -> str:
    match value:
        case bool():
            return str(value).upper()
        case datetime():
            return f"'{value.isoformat(' ')}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case Decimal():
            digits = f"{value:f}"
            plain = digits.rstrip("0").removesuffix(".") if "." in digits else digits
            return "0" if plain == "-0" else plain
        case _:
            return str(value)
