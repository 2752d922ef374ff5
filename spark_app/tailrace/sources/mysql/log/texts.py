"""A statement's text as its session meant it: character set and quoting, out of the event that has it.

Used by the stream for each statement; and, for MySQL, the tables that a row change as text concerns alone.
"""

import time
from collections.abc import Collection, Mapping

import pyarrow as pa

from tailrace.databases.mysql.connect import Connection, execute, source_errors
from tailrace.sources.mysql import charsets, sql
from tailrace.sources.mysql.facts import rights
from tailrace.sources.mysql.log.events import Query
from tailrace.sources.mysql.log.lexed import Quoting, lexed
from tailrace.sources.mysql.log.statements import Name
from tailrace.sources.mysql.values import Undecodable

_ANSI_QUOTES, _BRACKETS, _NO_BACKSLASHES = 1 << 2, 1 << 10, 1 << 20
"""Bits of `sql_mode`. MariaDB's MSSQL has brackets for quotes."""
_SEES_TRIGGERS = frozenset(("TRIGGER", "ALL PRIVILEGES", "SUPER"))


def decoded(query: Query, names: Mapping[int, str]) -> str | None:
    """The text; None: its character set is not known, or it has bytes without a meaning there. `names`: of character
    sets, by the number of a collation."""
    charset = names.get(query.context.collation or 0)
    if charset not in charsets.KNOWN:
        return None
    try:
        found = charsets.decoded(pa.array([query.raw], pa.binary()), charset)
    except Undecodable:
        return None
    return str(found[0].as_py())


def quoting(query: Query) -> Quoting | None:
    mode = query.context.sql_mode
    if mode is None or (mode & _BRACKETS and b"[" in query.raw):
        return None
    return Quoting(ansi=bool(mode & _ANSI_QUOTES), backslashes=not mode & _NO_BACKSLASHES)


def described(query: Query, text: str, place: str) -> str:
    """The statement in a message: its beginning without values, its place in the log and its time."""
    mode = quoting(query)
    found = None if mode is None else lexed(text, mode)
    beginning = f"`{found.beginning()}`" if found is not None else "that cannot be read"
    return f"{beginning} behind {place}, {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(query.when))}"


def plain_tables(connection: Connection, schemas: Collection[str]) -> frozenset[Name]:
    """The tables of these databases without triggers; none where the user may not see triggers."""
    if not schemas or not rights(connection) & _SEES_TRIGGERS:
        return frozenset()
    there = f"IN {sql.listed(sorted(schemas))}"
    with source_errors("looking at triggers"):
        tables = execute(
            connection,
            "SELECT table_schema, table_name FROM information_schema.tables"
            f" WHERE table_type = 'BASE TABLE' AND table_schema {there}",
        )
        triggered = execute(
            connection,
            "SELECT event_object_schema, event_object_table FROM information_schema.triggers"
            f" WHERE trigger_schema {there}",
        )
    return frozenset((str(s), str(t)) for s, t in tables) - {(str(s), str(t)) for s, t in triggered}
