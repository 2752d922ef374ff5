"""Generated columns, and those of MySQL whose values depend on the session that computes them: asked by the catalog.

A virtual column is computed in the session that reads or writes the row. The log has what the writer's session
computed, a chunk what ours does: the same row would have two values.
"""

import re
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
"""A row of information_schema.columns."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
"""MySQL's catalog shows an expression as the content of a string."""
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
"""A column's name, or a text."""
_BY_LANGUAGE = re.compile(r"\b(?:dayname|monthname)\b")
_BY_ZONE = re.compile(r"\bfrom_unixtime\b")
_FORMATTED = re.compile(r"\b(?:date_format|time_format|str_to_date)\b")
_NAMES = re.compile(r"%[abMW]")
"""Parts of a format that print names of days and months in the session's language."""


def is_generated(column: Row) -> bool:
    return is_virtual(column) or "STORED GENERATED" in column["extra"].upper()


def is_virtual(column: Row) -> bool:
    return "VIRTUAL GENERATED" in column["extra"].upper()


def of_session(columns: Sequence[Row]) -> set[str]:
    """Those of a MySQL table's columns, by name: by the session's time zone, since each session computes with a
    `timestamp` in its own, or by its language."""
    unsteady = {c["column_name"].casefold() for c in columns if c["data_type"] == "timestamp"}
    virtual = [column for column in columns if is_virtual(column)]
    found: set[str] = set()
    for _ in virtual:  # one can use another
        found |= {c["column_name"] for c in virtual if _depends(c, unsteady)}
        unsteady |= {name.casefold() for name in found}
    return found


def _depends(column: Row, unsteady: set[str]) -> bool:
    expression = _ESCAPED.sub(r"\1", column["generation_expression"])
    quoted = _QUOTED.findall(expression)
    names = {part[1:-1].replace("``", "`").casefold() for part in quoted if part.startswith("`")}
    calls = _QUOTED.sub("", expression).lower()
    formats = [part for part in quoted if "%" in part]
    named = not formats or any(map(_NAMES.search, formats))
    by_language = _BY_LANGUAGE.search(calls) or (_FORMATTED.search(calls) and named)
    by_zone = column["data_type"] == "timestamp" or names & unsteady or _BY_ZONE.search(calls)
    return bool(by_zone or by_language)
