"""Conditions as they are written: sqlglot parses, and only the nodes named here are taken."""

import logging
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

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
)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it would log texts that it cannot parse

MOST_DIGITS = 80
"""Digits of a number, in front of the point and behind it: more fit no type."""
_ERRORS = (SqlglotError, RecursionError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""All that a text can make sqlglot raise."""
_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@lru_cache(maxsize=1024)
def parsed(text: str) -> Condition:
    """The condition as it is written; literals are texts, numbers and booleans. Raises `ConditionRefused`."""
    try:
        trees = sqlglot.parse(text)
    except _ERRORS:
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
