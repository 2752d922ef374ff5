"""The DDL proofs' targets in a database or a warehouse, empty for each `InProcess`.

A copy is compared with its source by the text that PostgreSQL
makes of the values, or, in another product, by the values themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, cast

import psycopg
from psycopg import sql

from demo.compare import matched, plain
from support.database_copies import place_of
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from tailrace.contract.resources import Replicator
from tailrace.places import Places
from tailrace.storage.store import Storage
from tailrace.targets.api import Runtime, Units

Rows = Iterator[tuple[object, ...]]


class Copies(Protocol):
    """Copies of one Replicator."""

    target: dict[str, object]
    """`spec.target`."""

    def columns(self, schema: str, table: str) -> list[str]: ...

    def key(self, schema: str, table: str) -> list[str]: ...

    def rows(self, schema: str, table: str, columns: Sequence[str]) -> Rows: ...

    def shown(self, schema: str, table: str, column: str) -> sql.Composed:
        """The source's column as the copy has it."""

    def drop(self) -> None: ...


Make = Callable[[str], Copies]
"""Makes them, for a database of this name."""
UNCOPIED = ("as a target cannot bring forward", "may take NaN for equal", "have the same name for")
"""What a warehouse says of a table that it can have no copy of."""


def targets(replicator: Replicator, log: Storage) -> Units:
    """As a driver finds them that has just been started."""
    run = Runtime(log, lambda: None, lambda: cast(Any, None), replicator.spec.source.type)
    return Places(replicator.spec).target.units(run)


def differences(
    copies: Copies, source: psycopg.Connection, name: tuple[str, str], wanted: Sequence[str], key: Sequence[str]
) -> Iterator[str]:
    """What a copy lacks or has too much: columns, key and rows. `wanted`: the source's columns."""
    full, there, placed = ".".join(name), copies.columns(*name), copies.key(*name)
    if sorted(there) != sorted(wanted) or sorted(placed) != sorted(key):
        told = f"columns {sorted(wanted)}, key {sorted(key)} in the source"
        yield f"{full}: {told}, {sorted(there)}, {placed} in the target"
        return
    if not wanted:
        return
    shown = sql.SQL(", ").join(copies.shown(*name, column) for column in wanted)
    ((parts,),) = source.execute("SELECT relkind = 'p' FROM pg_class WHERE oid = %s::regclass", (_quoted(name),))
    only = sql.SQL("" if parts else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{} t").format(shown, only, sql.Identifier(*name))
    rows = (tuple(map(compared, row)) for row in source.execute(query).fetchall())
    places = [wanted.index(column) for column in key]
    yield from matched(full, wanted, places, rows, copies.rows(*name, wanted))


def text_of(column: str) -> sql.Composed:
    """The text that PostgreSQL makes of the values of `t`. (A composite value with an empty field is neither NULL nor
    NOT NULL.)"""
    text = "CASE WHEN num_nulls(t.{0}) = 0 THEN pg_catalog.format('%s', t.{0}) END"
    return sql.SQL(text).format(sql.Identifier(column))


def _quoted(name: tuple[str, str]) -> str:
    return sql.Identifier(*name).as_string()


def compared(value: object) -> object:
    """One form for both sides."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return plain(value)


class InPostgres:
    """Copies in another database of the source's server."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.database = server, f"{name}_copy"
        self.target: dict[str, object] = {**place_of(server), "database": self.database}
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {self.database}".encode())

    def _asked(self, query: sql.Composed, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.server.connect(self.database) as connection:
            return connection.execute(query, values or None).fetchall()

    def _names(self, condition: str, schema: str, table: str) -> list[str]:
        query = f"""SELECT attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
            JOIN pg_namespace n ON n.oid = relnamespace
            LEFT JOIN pg_index i ON i.indrelid = c.oid AND indisprimary AND attnum = ANY (indkey::int2[])
            WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped AND {condition} ORDER BY attnum"""
        return [name for (name,) in self._asked(sql.Composed([sql.SQL(cast(Any, query))]), (schema, table))]

    def columns(self, schema: str, table: str) -> list[str]:
        return self._names("true", schema, table)

    def key(self, schema: str, table: str) -> list[str]:
        return self._names("i.indrelid IS NOT NULL", schema, table)

    def rows(self, schema: str, table: str, columns: Sequence[str]) -> Rows:
        shown = sql.SQL(", ").join(self.shown(schema, table, column) for column in columns)
        query = sql.SQL("SELECT {} FROM {} t").format(shown, sql.Identifier(schema, table))
        return iter(self._asked(query))

    def shown(self, schema: str, table: str, column: str) -> sql.Composed:
        return text_of(column)

    def drop(self) -> None:
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE {self.database} WITH (FORCE)".encode())


class InMysql:
    """Copies in a MySQL or MariaDB server, which has no others then."""

    def __init__(self, server: MysqlServer) -> None:
        self.server, self.database = server, ""
        self.target = place_of(server)

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        with closing(self.server.connect(charset="utf8mb4")) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def _kinds(self, schema: str, table: str) -> dict[str, tuple[str, str]]:
        """Type and kind of key by column."""
        rows = self._asked(
            "SELECT column_name, data_type, column_key FROM information_schema.columns"
            f" WHERE table_schema = '{schema}' AND table_name = '{table}' AND column_name <> '_tailrace_row'"
            " ORDER BY ordinal_position"
        )
        return {str(name): (str(kind), str(key)) for name, kind, key in rows}

    def columns(self, schema: str, table: str) -> list[str]:
        return list(self._kinds(schema, table))

    def key(self, schema: str, table: str) -> list[str]:
        return [name for name, (_, key) in self._kinds(schema, table).items() if key == "PRI"]

    def rows(self, schema: str, table: str, columns: Sequence[str]) -> Rows:
        names = ", ".join(f"`{name}`" for name in columns)
        return (tuple(map(compared, row)) for row in self._asked(f"SELECT {names} FROM `{schema}`.`{table}`"))

    def shown(self, schema: str, table: str, column: str) -> sql.Composed:
        kind, _ = self._kinds(schema, table)[column]
        if kind in ("longtext", "varchar"):
            return text_of(column)
        return sql.SQL("t.{}::int" if kind == "tinyint" else "t.{}").format(sql.Identifier(column))

    def drop(self) -> None:
        for (name,) in self._asked("SHOW DATABASES"):
            if str(name) not in ("information_schema", "mysql", "performance_schema", "sys"):
                self.server.execute(f"DROP DATABASE `{name}`")


@contextmanager
def copies_in(product: str, source: PostgresServer) -> Iterator[Make]:
    """In the source's server, in databases beside it, or in another server."""
    if product == "postgresql":
        yield lambda name: InPostgres(source, name)
        return
    with MysqlServer(product) as server:
        yield lambda _: InMysql(server)
