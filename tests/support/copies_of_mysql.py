"""Tables of MySQL or MariaDB and their copies in a database, compared by what the two servers say of them: Tailrace's
own reading takes no part."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from demo.compare import matched
from support.ddl.copies import compared
from support.mysql import MysqlServer
from support.postgres import PostgresServer

Server = PostgresServer | MysqlServer
_COLUMNS = """SELECT column_name, data_type FROM information_schema.columns
    WHERE table_schema = '{0}' AND table_name = '{1}' AND column_name <> '_tailrace_row' ORDER BY ordinal_position"""
_WRITTEN = """SELECT column_name, data_type, column_key = 'PRI', generation_expression <> ''
    FROM information_schema.columns WHERE table_schema = '{0}' AND table_name = '{1}' ORDER BY ordinal_position"""
"""Of the source. A unique index is the key where it is the first one without NULL."""
_KEY = """SELECT column_name FROM information_schema.key_column_usage u JOIN information_schema.table_constraints c
    ON c.constraint_schema = u.constraint_schema AND c.constraint_name = u.constraint_name
    AND c.table_schema = u.table_schema AND c.table_name = u.table_name
    WHERE u.table_schema = '{0}' AND u.table_name = '{1}' AND constraint_type = 'PRIMARY KEY'"""
_TEXTS = frozenset(("text", "longtext", "varchar", "json"))
_NUMBERS = frozenset(("smallint", "integer", "bigint", "boolean"))
"""PostgreSQL's names: MySQL's bits and years are such numbers there."""


def differences(source: MysqlServer, copy: Server, name: str, database: str = "copy") -> list[str]:
    """What the copy lacks or has too much: columns, key and rows; empty: nothing. `database`: of a PostgreSQL."""
    schema, _, table = name.partition(".")
    place = schema, table
    there = {str(column): str(kind) for column, kind in _asked(copy, database, _COLUMNS.format(*place))}
    written = _asked(source, database, _WRITTEN.format(*place))
    # The log of MariaDB does not have generated columns, and a copy in MySQL or MariaDB is to compute them itself.
    left_out = source.mariadb or isinstance(copy, MysqlServer)
    wanted = {str(column): str(kind) for column, kind, _, generated in written if not (generated and left_out)}
    key = sorted(str(column) for column, _, in_key, _ in written if in_key)
    placed = sorted(str(column) for (column,) in _asked(copy, database, _KEY.format(*place)))
    if sorted(wanted) != sorted(there) or key != placed:
        return [f"{name}: {sorted(wanted)}, key {key} in the source; {sorted(there)}, {placed} in the copy"]
    no_sign = isinstance(copy, MysqlServer) and copy.mariadb
    here = (_of_source(column, kind, there[column], no_sign) for column, kind in wanted.items())
    of_copy = (_of_copy(copy, column, there[column]) for column in wanted)
    rows = [
        _rows(source, database, f"SELECT {', '.join(here)} FROM `{schema}`.`{table}`"),
        _rows(copy, database, f"SELECT {', '.join(of_copy)} FROM {schema}.{table}"),
    ]
    names = list(wanted)
    return matched(name, names, [names.index(column) for column in key], *rows)


def _of_source(column: str, kind: str, placed: str, no_sign: bool) -> str:
    """The column in the form that the copy has. `no_sign`: the copy has no -0.0."""
    if placed in _TEXTS:
        return f"CAST(`{column}` AS CHAR)"
    if placed in _NUMBERS:
        return f"`{column}` + 0"
    # The server shows a `float` rounded, and a sum of it whole.
    return f"`{column}` + 0e0" if kind == "float" or (no_sign and kind == "double") else f"`{column}`"


def _of_copy(copy: Server, column: str, kind: str) -> str:
    if isinstance(copy, PostgresServer):
        return f'"{column}"::float8' if kind == "real" else f'"{column}"'
    if kind == "float":
        return f"`{column}` + 0e0"
    return f"CAST(`{column}` AS CHAR)" if kind == "json" else f"`{column}`"


def _rows(server: Server, database: str, query: str) -> Iterator[tuple[object, ...]]:
    return (tuple(map(compared, row)) for row in _asked(server, database, query))


def _asked(server: Server, database: str, query: str) -> list[tuple[Any, ...]]:
    if isinstance(server, PostgresServer):
        return server.execute(query, dbname=database)
    zone = "SET time_zone = '+00:00'"
    with closing(server.connect(charset="utf8mb4", init_command=zone)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
