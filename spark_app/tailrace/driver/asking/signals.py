"""Reads signals in Debezium's form: what one line asks for. Pure; `asking.signal_file` carries it out.

Debezium's documentation says what a signal is: `id`, `type` and `data`, an object or a text that holds one as JSON.
Names of tables are regular expressions there, fully matched against `schema.table`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.changelog.state import TableLog

WATERMARKS = ("snapshot-window-open", "snapshot-window-close")
"""Debezium writes rows of these types itself."""
TYPES = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log")
LONGEST_CONDITION = 4096
"""Characters; the limit of a SnapshotRequest."""


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
class SelectedRows:
    """The rows to read of the tables that match."""

    tables: re.Pattern[str]
    where: str | None
    """None: all rows."""


@dataclass(frozen=True)
class Execution:
    """The content of `execute-snapshot`."""

    tables: tuple[re.Pattern[str], ...]
    conditions: tuple[SelectedRows, ...]
    blocking: bool
    surrogate_key: bool

    def where(self, table: TableLog) -> str | None:
        """The first condition that matches counts, as in Debezium."""
        return next((c.where for c in self.conditions if named(table, (c.tables,))), None)


def parse(line: str) -> Signal:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SignalIgnored("the line is not JSON", "Write one object with id, type and data a line.") from error
    if not isinstance(found, dict):
        raise SignalIgnored("the line is no JSON object", "Write one object with id, type and data a line.")
    named_id, kind, data = found.get("id"), found.get("type"), found.get("data")
    if not isinstance(named_id, str) or not named_id:
        raise SignalIgnored("the line has no id", 'Add "id", a text that is found again in the log.')
    if not isinstance(kind, str):
        raise SignalIgnored(f"signal {named_id!r} has no type", f"Add one of {', '.join(TYPES)}.")
    return Signal(named_id, kind, _data(named_id, data))


def _data(named_id: str, data: object) -> Mapping[str, Any]:
    if isinstance(data, str) and data.strip():
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SignalIgnored(f"data of signal {named_id!r} is not JSON", "Correct it.") from error
    if data is None or data == "":
        return {}
    if not isinstance(data, dict):
        raise SignalIgnored(f"data of signal {named_id!r} is no JSON object", 'Write {"data-collections": [...]}.')
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
    if not isinstance(given, list):
        raise SignalIgnored("additional-conditions is no list", 'Write [{"data-collection": …, "filter": …}].')
    conditions = [_condition(item, dialect) for item in given]
    of_all = data.get("additional-condition")
    if of_all is not None:
        conditions.append(SelectedRows(re.compile(".*", re.DOTALL), where_of(of_all, dialect)))
    return Execution(tables, tuple(conditions), kind == "blocking", bool(data.get("surrogate-key")))


def _condition(item: object, dialect: str) -> SelectedRows:
    if not isinstance(item, dict) or "filter" not in item:
        raise SignalIgnored("an additional condition has no filter", "Give each data-collection and filter.")
    return SelectedRows(_pattern(item.get("data-collection")), where_of(item["filter"], dialect))


def collections(data: Mapping[str, Any]) -> tuple[re.Pattern[str], ...]:
    given = data.get("data-collections")
    given = [] if given is None else given
    if not isinstance(given, list):
        raise SignalIgnored("data-collections is no list", 'Write ["schema.table"].')
    return tuple(_pattern(item) for item in given)


def _pattern(item: object) -> re.Pattern[str]:
    if not isinstance(item, str) or not item:
        raise SignalIgnored(f"{item!r} is no name of a data collection", 'Write "schema.table".')
    try:
        return re.compile(item.strip(), re.DOTALL)
    except re.error as error:
        raise SignalIgnored(f"{item!r} is no regular expression ({error})", "Correct it.") from error


def named(table: TableLog, patterns: Iterable[re.Pattern[str]]) -> bool:
    """Debezium's statements may quote names that have dots or capital letters."""
    schema, name = table.schema.schema_name, table.schema.table_name
    forms = (f"{schema}.{name}", f'"{schema}"."{name}"', f"`{schema}`.`{name}`")
    return any(pattern.fullmatch(form) for pattern in patterns for form in forms)


def where_of(given: object, dialect: str) -> str | None:
    """The condition of a filter: an expression, or `SELECT * FROM t [WHERE …]`, which is Debezium's form for blocking
    snapshots. None: all rows."""
    if not isinstance(given, str) or not given.strip():
        raise SignalIgnored("the filter is empty", "Leave it out, or write a condition on the source's columns.")
    text = given.strip().rstrip(";").strip()
    selects = re.match(r"select\b", text, re.IGNORECASE) is not None
    where = _of_select(text, dialect) if selects else _checked(text, dialect)
    if where is not None and len(where) > LONGEST_CONDITION:
        raise SignalIgnored(f"the filter has more than {LONGEST_CONDITION} characters", "Shorten it.")
    return where


def _of_select(text: str, dialect: str) -> str | None:
    wanted = "Write SELECT * FROM schema.table WHERE condition, or the condition alone."
    found = re.fullmatch(
        r"select\s+\*\s+from\s+(?:[\w$]+|\"[^\"]+\"|`[^`]+`)(?:\.(?:[\w$]+|\"[^\"]+\"|`[^`]+`))*(?:\s+where\s+(.*))?",
        text,
        re.IGNORECASE | re.DOTALL,
    )
    if found is None:
        raise SignalIgnored("the filter selects other things than the rows of one table", wanted)
    return None if found[1] is None else _checked(found[1].strip(), dialect)


def _checked(condition: str, dialect: str) -> str:
    """The condition, if it is one and nothing follows it."""
    wanted = "Write a condition on the source's columns, as after WHERE."
    try:
        parsed = sqlglot.parse(f"SELECT 1 WHERE {condition}", dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise SignalIgnored("the filter is no condition", wanted) from error
    only = parsed[0] if len(parsed) == 1 else None
    if not isinstance(only, exp.Select) or {k for k, v in only.args.items() if v} != {"expressions", "where"}:
        raise SignalIgnored("the filter is more than a condition", wanted)
    return condition
