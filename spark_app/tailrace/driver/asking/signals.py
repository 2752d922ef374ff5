"""Reads signals in Debezium's form: what one line asks for. Pure; `asking.signal_file` carries it out.

Debezium's documentation says what a signal is: `id`, `type` and `data`, an object or a text that holds one as JSON.
Names of tables are regular expressions there, fully matched against `schema.table`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.changelog.state import TableLog
from tailrace.sources.signals import LONGEST

TYPES = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log")
WITHOUT_DATA = ("pause-snapshot", "resume-snapshot")
"""Types whose data is not read, whatever it is."""
EXAMPLE = '{"data-collections": ["public.orders"]}'
LONGEST_CONDITION = 4096
"""Characters; the limit of a SnapshotRequest."""
MOST_NAMES = 1_000
"""Data collections, and conditions; the limit of a SnapshotRequest. Each is matched with every table."""


class SignalIgnored(Exception):
    """A signal, or its part for one table, cannot be carried out; everything else continues."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}. Fix: {fix}")


@dataclass(frozen=True)
class Signal:
    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class CollectionPattern:
    """A regular expression that matches the whole of a name. By an engine whose time is linear: one that tries back
    and forth could take years for a short name."""

    pattern: str
    ignores_case: bool = False

    def matches(self, names: Sequence[str]) -> list[bool]:
        """A name also matches itself, whatever it would mean as an expression. `ArrowInvalid`: it is no expression."""
        found = pc.match_substring_regex(pa.array(names, pa.string()), self.whole)
        return [bool(one) or name == self.pattern for one, name in zip(found.to_pylist(), names, strict=True)]

    @property
    def whole(self) -> str:
        return rf"\A(?{'i' if self.ignores_case else ''}s:{self.pattern})\z"


@dataclass(frozen=True)
class SelectedRows:
    """The rows to read of the tables that match."""

    tables: CollectionPattern
    where: str | None
    """None: all rows."""
    selected: tuple[str, ...] = ()
    """The table that its SELECT names, behind its schema if that is given; empty: it is a condition alone."""


@dataclass(frozen=True)
class Execution:
    """The content of `execute-snapshot`."""

    tables: tuple[CollectionPattern, ...]
    conditions: tuple[SelectedRows, ...]
    blocking: bool
    surrogate_key: bool

    def where(self, table: TableLog) -> str | None:
        """The first condition that matches counts, as in Debezium. `SignalIgnored`: it selects from another table."""
        found = next((c for c in self.conditions if matches((c.tables,), (table,))), None)
        if found is None:
            return None
        own = (table.schema.schema_name, table.schema.table_name)
        if any(a.casefold() != b.casefold() for a, b in zip(reversed(found.selected), reversed(own), strict=False)):
            named = ".".join(found.selected)
            raise SignalIgnored(
                f"the filter selects from {named} instead of this table", f"Select from {'.'.join(own)}."
            )
        return found.where

    def unused(self, tables: Sequence[TableLog]) -> list[str]:
        """The data collections of conditions that concern none of these tables."""
        return [c.tables.pattern for c in self.conditions if not matches((c.tables,), tables)]


def parse(line: str) -> Signal:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SignalIgnored("the line is not JSON", "Write one object with id, type and data a line.") from error
    if not isinstance(found, dict):
        raise SignalIgnored("the line is no JSON object", "Write one object with id, type and data a line.")
    return signal(found.get("id"), found.get("type"), found.get("data"), "the line")


def signal(named_id: object, kind: object, data: object, where: str) -> Signal:
    """`where`: what has the three."""
    if isinstance(named_id, int) and not isinstance(named_id, bool):
        named_id = str(named_id)
    if not isinstance(named_id, str) or not named_id:
        raise SignalIgnored(f"{where} has no id", "Give it a text as its id, which is found again in the log.")
    if len(named_id) > LONGEST[0]:
        raise SignalIgnored(f"the id has more than {LONGEST[0]} characters", "Shorten it.")
    if not isinstance(kind, str):
        raise SignalIgnored(f"signal {named_id!r} has no type", f"Add one of {', '.join(TYPES)}.")
    return Signal(named_id, kind, {} if kind in WITHOUT_DATA else _data(named_id, data))


def _data(named_id: str, data: object) -> Mapping[str, Any]:
    if isinstance(data, str) and data.strip():
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SignalIgnored(f"data of signal {named_id!r} is not JSON", f"Write {EXAMPLE}.") from error
    if data is None or data == "":
        return {}
    if not isinstance(data, dict):
        raise SignalIgnored(f"data of signal {named_id!r} is no JSON object", f"Write {EXAMPLE}.")
    return data


def execution(data: Mapping[str, Any], dialect: str) -> Execution:
    """`dialect`: sqlglot's name of the SQL that the filters are in."""
    kind = str(data.get("type") or "incremental").lower()
    if kind not in ("incremental", "blocking"):
        raise SignalIgnored(f"{kind!r} is no type of snapshot", "Use incremental or blocking.")
    tables = collections(data)
    if not tables:
        raise SignalIgnored("data-collections is missing or empty", "Name the tables to read.")
    given = data.get("additional-conditions")
    given = [] if given is None else given
    if not isinstance(given, list) or len(given) > MOST_NAMES:
        what = f"additional-conditions is no list of {MOST_NAMES} at most"
        raise SignalIgnored(what, 'Write [{"data-collection": …, "filter": …}].')
    conditions = [_condition(item, dialect) for item in given]
    of_all = data.get("additional-condition")
    if of_all is not None and of_all != "":
        conditions.append(SelectedRows(CollectionPattern(".*"), where_of(of_all, dialect), selected_table(of_all)))
    return Execution(tables, tuple(conditions), kind == "blocking", bool(data.get("surrogate-key")))


def _condition(item: object, dialect: str) -> SelectedRows:
    if not isinstance(item, dict) or "filter" not in item:
        raise SignalIgnored("an additional condition has no filter", "Give each data-collection and filter.")
    pattern = _pattern(item.get("data-collection"))
    found = where_of(item["filter"], dialect)
    return SelectedRows(replace(pattern, ignores_case=True), found, selected_table(item["filter"]))


def collections(data: Mapping[str, Any]) -> tuple[CollectionPattern, ...]:
    given = data.get("data-collections")
    given = [] if given is None or given == "" else given
    if not isinstance(given, list) or len(given) > MOST_NAMES:
        what = f"data-collections is no list of {MOST_NAMES} at most"
        raise SignalIgnored(what, 'Write ["schema.table"], or one expression for several.')
    return tuple(_pattern(item) for item in given)


def _pattern(item: object) -> CollectionPattern:
    if not isinstance(item, str) or not item:
        raise SignalIgnored(f"{item!r} is no name of a data collection", 'Write "schema.table".')
    pattern = CollectionPattern(item.strip())
    try:
        # Both: `a)|(b` is an expression only with what surrounds it, and `\Qa` only without.
        for expression in (pattern.pattern, pattern.whole):
            pc.match_substring_regex(pa.array([""]), expression)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise SignalIgnored(
            f"{item!r} is no regular expression, or one that looks around or back",
            r'Write a name, or an expression such as "public\\.ord.*".',
        ) from error
    return pattern


def matches(patterns: Sequence[CollectionPattern], tables: Sequence[TableLog]) -> list[TableLog]:
    """The tables that a pattern names. Debezium's statements may quote names that have dots or capital letters."""
    forms = [form for table in tables for form in _forms(table.schema.schema_name, table.schema.table_name)]
    found = set[int]()
    for pattern in patterns:
        found |= {place // FORMS for place, matched in enumerate(pattern.matches(forms)) if matched}
    return [table for place, table in enumerate(tables) if place in found]


FORMS = 7


def _forms(schema: str, table: str) -> tuple[str, ...]:
    """The name as it may be written: each part bare or quoted, by one kind of quotes."""
    quoted = [(f"{q}{schema}{q}", f"{q}{table}{q}") for q in ('"', "`")]
    mixed = [(f"{one}.{two}", f"{schema}.{two}", f"{one}.{table}") for one, two in quoted]
    return (f"{schema}.{table}", *mixed[0], *mixed[1])


def where_of(given: object, dialect: str) -> str | None:
    """The condition of a filter: an expression, or `SELECT * FROM t [WHERE …] [ORDER BY …]`, Debezium's form for
    blocking snapshots. None: all rows."""
    if not isinstance(given, str) or not given.strip():
        raise SignalIgnored("the filter is empty", "Leave it out, or write a condition on the source's columns.")
    text = _bare(given)
    if len(text) > LONGEST_CONDITION:
        raise SignalIgnored(f"the filter has more than {LONGEST_CONDITION} characters", "Shorten it.")
    selects = _SELECTS.match(text) is not None
    return _of_select(text, dialect) if selects else _checked(text, dialect)


_SELECTS = re.compile(r"select\b", re.IGNORECASE)
_PART = r'(?:[\w$]+|"[^"]+"|`[^`]+`|\[[^\]]+\])'
_ROWS = re.compile(
    rf"select\s+\*\s+from\s+(?:{_PART}\.)*?(?:({_PART})\.)?({_PART})(?:\s+(.*))?", re.IGNORECASE | re.DOTALL
)
"""Schema, table and rest. Names as all of Debezium's databases write them: that of SQL Server is in its example for
all."""
_WHERE = re.compile(r"where\s+", re.IGNORECASE)


def selected_table(given: object) -> tuple[str, ...]:
    """The table of a filter that is a SELECT, behind its schema if that is given, without quotes; empty: it is none."""
    found = _ROWS.fullmatch(_bare(given)) if isinstance(given, str) else None
    return () if found is None else tuple(part.strip('"`[]') for part in found.group(1, 2) if part is not None)


def _bare(given: str) -> str:
    return given.strip().rstrip(";").strip()


def _of_select(text: str, dialect: str) -> str | None:
    wanted = "Write SELECT * FROM schema.table WHERE condition, or the condition alone."
    found = _ROWS.fullmatch(text)
    if found is None:
        raise SignalIgnored("the filter selects other things than the rows of one table", wanted)
    rest = _without_order((found[3] or "").strip(), dialect)
    if not rest:
        return None
    begin = _WHERE.match(rest)
    if begin is None:
        raise SignalIgnored("the filter selects other things than the rows of one table", wanted)
    return _checked(rest[begin.end() :], dialect)


def _without_order(rest: str, dialect: str) -> str:
    """Returns what follows the table, up to an ORDER BY at its end: rows are read in the order of the key."""
    depth = 0
    try:
        for token in sqlglot.tokenize(rest, read=dialect):
            kind = token.token_type.name
            depth += {"L_PAREN": 1, "R_PAREN": -1}.get(kind, 0)
            if kind == "ORDER_BY" and not depth:
                ordered = sqlglot.parse(f"SELECT 1 {rest[token.start :]}", dialect=dialect)
                return rest[: token.start].strip() if _has_only(ordered, "expressions", "order") else rest
    except (SqlglotError, RecursionError):
        pass  # what is wrong with it is told of the whole
    return rest


def _has_only(parsed: Sequence[object], *parts: str) -> bool:
    only = parsed[0] if len(parsed) == 1 else None
    return isinstance(only, exp.Select) and {k for k, v in only.args.items() if v} == set(parts)


def _checked(condition: str, dialect: str) -> str:
    """The condition, if it is one and nothing follows it."""
    wanted = "Write a condition on the source's columns, as after WHERE."
    try:
        parsed = sqlglot.parse(f"SELECT 1 WHERE {condition}", dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise SignalIgnored("the filter is no condition", wanted) from error
    if not _has_only(parsed, "expressions", "where"):
        raise SignalIgnored("the filter is more than a condition", wanted)
    return condition
