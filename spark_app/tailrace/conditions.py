"""Conditions of row filters (`options[].where`): the language, its text in the change log, and which rows pass.

Comparisons of a column with a literal, IN, BETWEEN, IS [NOT] NULL, boolean columns, AND, OR, NOT. sqlglot parses; only
the nodes named here are taken. A condition is bound to the columns' logical types, of which its canonical text is made;
that text is what the change log keeps (`changelog.records.TableSchema.where`). NULL is as in SQL: only TRUE passes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import lru_cache, reduce
from typing import Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.types import arrow_type, decimal_parts

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it would log texts that it cannot parse

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Value = str | bool | int | Decimal | date | datetime
MOST_DIGITS = 80
"""Digits of a number, in front of the point and behind it: more fit no type."""
_WIDE = Context(prec=2 * MOST_DIGITS)
_PARSER_ERRORS = (SqlglotError, RecursionError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""All that a text can make sqlglot raise."""
_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARE: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "=": pc.equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
LANGUAGE = (
    "Write comparisons of a column with a literal (=, <>, <, <=, >, >=), IN, BETWEEN, IS NULL and IS NOT NULL, joined "
    "by AND, OR and NOT."
)


class ConditionRefused(ValueError):
    """`str` says what is wrong, `fix` what to write instead."""

    def __init__(self, what: str, fix: str = LANGUAGE) -> None:
        super().__init__(what)
        self.fix = fix


class Typed(Protocol):
    """`changelog.records.Column`."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


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


# ---- what is written ----


@lru_cache(maxsize=1024)
def parsed(text: str) -> Condition:
    """The condition as it is written; literals are texts, numbers and booleans. Raises `ConditionRefused`."""
    try:
        trees = sqlglot.parse(text)
    except _PARSER_ERRORS:
        raise ConditionRefused("it cannot be parsed") from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise ConditionRefused("it is empty" if not any(trees) else "it is more than one expression")
    try:
        return _condition(tree)
    except RecursionError:
        raise ConditionRefused("it is nested too deeply") from None


def _condition(node: exp.Expr) -> Condition:
    if type(node) in _OPERATORS:
        return _comparison(node)
    match node:
        case exp.Paren():
            return _condition(_only(node, "this").this)
        case exp.And() | exp.Or():
            word = "AND" if isinstance(node, exp.And) else "OR"
            return Joined(word, tuple(_condition(part) for part in _only(node, "this", "expression").flatten(False)))
        case exp.Not():
            return Not(_condition(_only(node, "this").this))
        case exp.In():
            values = tuple(_literal(value) for value in _only(node, "this", "expressions").expressions)
            if not values:
                raise ConditionRefused("IN has no values")
            return Membership(_column(node.this), values)
        case exp.Between():
            low, high = (_literal(_only(node, "this", "low", "high").args[end]) for end in ("low", "high"))
            column = _column(node.this)
            return Joined("AND", (Comparison(column, ">=", low), Comparison(column, "<=", high)))
        case exp.Is() if isinstance(node.expression, exp.Null):
            return IsNull(_column(_only(node, "this", "expression").this))
        case exp.Column():
            return IsTrue(_column(node))
        case _:
            raise _outside(node)


def _comparison(node: exp.Expr) -> Comparison:
    left, right, operator = _only(node, "this", "expression").this, node.expression, _OPERATORS[type(node)]
    if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
        left, right, operator = right, left, _TURNED[operator]
    return Comparison(_column(left), operator, _literal(right))


def _column(node: exp.Expr) -> str:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        raise _outside(node)
    return str(_only(node, "this").this.this)


def _literal(node: exp.Expr) -> Value:
    match node:
        case exp.Null():
            raise ConditionRefused("a comparison with NULL is never true", "Write IS NULL or IS NOT NULL.")
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal() if node.is_string:
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return -_number(str(node.this.this))
        case exp.Paren():
            return _literal(node.this)
        case exp.Column():
            quoted = "A column is compared with a literal; texts are in single quotes, names in double quotes."
            raise ConditionRefused(f"{node.sql()} stands where a literal is expected", quoted)
        case _:
            raise _outside(node)


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ConditionRefused(f"{text} is no number") from None
    if not number.is_finite() or max(abs(number.adjusted()), -int(number.as_tuple().exponent)) > MOST_DIGITS:
        raise ConditionRefused(f"{text} fits no column", "Write a number that the column can hold.")
    return number


def _only(node: exp.Expr, *known: str) -> exp.Expr:
    """The node, which says nothing but this: what another release of the parser may add is not passed over."""
    if any(value for name, value in node.args.items() if name not in known):
        raise _outside(node)
    return node


def _outside(node: exp.Expr) -> ConditionRefused:
    return ConditionRefused(f"{node.sql()} is more than a row filter can be")


# ---- what it means for columns of these types ----


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


def bound(text: str, columns: Iterable[Typed]) -> Condition:
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


# ---- its text ----


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


# ---- which rows pass ----


def passing(rows: pa.Table | pa.RecordBatch, where: str, columns: Iterable[Typed]) -> pa.Array | pa.ChunkedArray:
    """Computes for each row if the condition is TRUE; never NULL."""
    kept = tuple(columns)
    types = {column.name: arrow_type(column.type) for column in kept}
    return pc.fill_null(_truth(bound(where, kept), rows, types), False)


def _truth(
    condition: Condition, rows: pa.Table | pa.RecordBatch, types: Mapping[str, pa.DataType]
) -> pa.Array | pa.ChunkedArray:
    match condition:
        case Not(inner):
            return pc.invert(_truth(inner, rows, types))
        case Joined(word, parts):
            join = pc.and_kleene if word == "AND" else pc.or_kleene
            return reduce(join, (_truth(part, rows, types) for part in parts))
        case _:
            # Arrow's own look-up would take the last column for one that is missing.
            return _of_column(condition, rows.column(rows.schema.names.index(condition.column)), types)


def _of_column(
    condition: Comparison | Membership | IsNull | IsTrue,
    values: pa.Array | pa.ChunkedArray,
    types: Mapping[str, pa.DataType],
) -> pa.Array | pa.ChunkedArray:
    match condition:
        case IsNull():
            return pc.is_null(values)
        case IsTrue():
            return values
        case Membership(column, members):
            found = pc.is_in(values, value_set=pa.array(members, types[column]))
            return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
        case Comparison(column, operator, value):
            return _COMPARE[operator](values, pa.scalar(value, types[column]))


def matching(rows: Rows, where: str | None, columns: Iterable[Typed]) -> Rows:
    """The rows that are copied."""
    return rows if where is None else rows.filter(passing(rows, where, columns))
