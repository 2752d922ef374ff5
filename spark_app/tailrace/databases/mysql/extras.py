"""Defaults, AUTO_INCREMENT, generated columns, indexes, foreign keys and checks of MySQL's and MariaDB's tables, as the
server shows them. Called for sources and for their copies."""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pymysql

from tailrace.databases.extras import TABLE, Extra, TableName
from tailrace.databases.mysql import faults

CLAUSE = "\x04"
"""Mark of a statement that is only the clause of a column's definition: `CLAUSE column CLAUSE clause`."""
COMMENT = re.compile(r" COMMENT '(?:[^'\\]|''|\\.)*'")
COLUMN_LINE = re.compile(r"  (`(?:[^`]|``)+`) (.*?),?")
_OTHER_LINE = re.compile(r"  ((?:UNIQUE |FULLTEXT |SPATIAL )?KEY .*?|CONSTRAINT .*?),?")
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'")
_NAME = re.compile(r"`((?:[^`]|``)+)`")
_ENDS = (" COMMENT ", " CHECK (", " /*")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def lines_of(rows: Callable[[str], list[tuple[Any, ...]]], schema: str, table: str) -> list[str]:
    """The lines of the table's definition."""
    ((_, text, *_),) = rows(f"SHOW CREATE TABLE {quoted(schema)}.{quoted(table)}")
    return str(text).splitlines()


def extras(rows: Callable[[str], list[tuple[Any, ...]]], tables: Collection[TableName]) -> list[Extra]:
    found: list[Extra] = []
    for name in sorted(tables):
        try:
            lines = lines_of(rows, *name)
        except pymysql.MySQLError as error:
            if faults.kind(error) != "gone":
                raise
        else:
            found += _extras(name, lines)
    return found


def _extras(table: TableName, lines: list[str]) -> Iterator[Extra]:
    columns = {line[1]: line[2] for line in filter(None, map(COLUMN_LINE.fullmatch, lines))}
    computed = {_bare(name) for name, definition in columns.items() if _is_generated(definition)}
    for name, definition in columns.items():
        if _bare(name) in computed:
            names = _names(definition) - computed
            statement = f"ALTER TABLE {TABLE} ADD COLUMN {name} {COMMENT.sub('', definition)}"
            yield Extra(table, f"generated column {name}", frozenset(names), statement)
            continue
        for clause in _clauses(definition):
            statement = f"{CLAUSE}{_bare(name)}{CLAUSE}{clause}"
            yield Extra(table, f"default of {name}: {clause}", frozenset((_bare(name),)), statement)
    for line in filter(None, map(_OTHER_LINE.fullmatch, lines)):
        part = _masked(line[1]).partition(" REFERENCES ")[0]
        names = _names(line[1][line[1].index("(") : len(part)]) - computed
        yield Extra(table, line[1], frozenset(names), f"ALTER TABLE {TABLE} ADD {line[1]}")


def _is_generated(definition: str) -> bool:
    return " GENERATED ALWAYS AS (" in _masked(definition)


def _clauses(definition: str) -> Iterator[str]:
    plain = _masked(definition)
    if " AUTO_INCREMENT" in plain:
        yield "AUTO_INCREMENT"
    at = plain.find(" DEFAULT ")
    if at < 0:
        return
    end = min((found for found in (plain.find(text, at) for text in _ENDS) if found >= 0), default=len(plain))
    clause = definition[at:end].strip().removeprefix("DEFAULT NULL").strip()
    if clause:
        yield clause


def _masked(text: str) -> str:
    """The text without what is quoted in it, each character at its place."""
    return _QUOTED.sub(lambda found: "\0" * len(found[0]), text)


def _names(text: str) -> set[str]:
    return {found.replace("``", "`") for found in _NAME.findall(text)}


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`")
