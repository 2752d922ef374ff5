"""JSON for a column of MySQL's type `json`, whose documents keep what a text does not say: a number that came from a
decimal keeps its digits, while the server reads the same text as a double. Called by `literals`."""

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.targets.sql.texts import each

_SUSPECT = re.compile(r"\d\.\d|\d{19}")
"""Without one, all numbers are integers that the server keeps, or doubles with an exponent."""
_LEAST, _MOST, _DIGITS, _SCALE = 1e-4, 1e15, 65, 30
"""Doubles between these are written without an exponent; digits of a decimal, and those behind the point."""
_INT64, _UINT64 = -(1 << 63), 1 << 64


class _Number(str):
    """A number as it is written."""


class _Decimals(_Number):
    """One that must become a decimal."""


def literals(documents: pa.Array) -> pa.Array:
    """An expression for each document."""
    return each(documents, literal)


def literal(document: str) -> str:
    text = "'" + document.replace("'", "''") + "'"
    if _SUSPECT.search(document) is None:
        return text
    seen: list[str] = []
    node = json.loads(document, parse_float=_number(seen), parse_int=_number(seen), object_pairs_hook=_members)
    if not seen:
        return text
    return f"CAST({node} AS JSON)" if isinstance(node, _Decimals) else _expression(node)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def _number(seen: list[str]) -> Callable[[str], str]:
    def of(text: str) -> str:
        if _is_plain(text):
            return _Number(text)
        seen.append(text)
        return _Decimals(text)

    return of


def _is_plain(text: str) -> bool:
    """The server reads the text as what is written like it."""
    if "e" in text or "E" in text:
        return True
    if "." not in text:
        return _INT64 <= int(text) < _UINT64
    digits, fraction = text.lstrip("-").replace(".", ""), text.partition(".")[2]
    if len(digits.lstrip("0")) > _DIGITS or len(fraction) > _SCALE:
        return True  # no decimal has them
    number = float(text)
    return repr(number) == text and (number == 0 or _LEAST <= abs(number) < _MOST)


def _expression(node: Any) -> str:
    if isinstance(node, dict):
        return f"JSON_OBJECT({', '.join(f'{_text(key)}, {_expression(value)}' for key, value in node.items())})"
    if isinstance(node, list):
        return f"JSON_ARRAY({', '.join(map(_expression, node))})"
    if isinstance(node, _Number):
        # Without an exponent a number with a point is a decimal.
        return node if isinstance(node, _Decimals) or "." not in node or "e" in node.lower() else f"{node}e0"
    if isinstance(node, str):
        return _text(node)
    return "NULL" if node is None else str(node).lower()


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
