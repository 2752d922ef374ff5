"""A shop in MySQL or MariaDB: three tables of many types, sessions that write to them, and the comparison of a copy."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from random import Random
from typing import Any

import pyarrow as pa
import pymysql
from typing_extensions import override

from demo.compare import target_rows
from support.mysql import MysqlServer
from tailrace.contract.resources import SourceSpec, TablesSpec
from tailrace.sources.api import KeyRange
from tailrace.sources.mysql.source import MysqlSource

TABLES = {
    "plain": "id int PRIMARY KEY, v text, n int",
    "pairs": "a int, b varchar(20) COLLATE utf8mb4_general_ci, v longtext, PRIMARY KEY (a, b)",
    "typed": (
        "id bigint unsigned PRIMARY KEY, v varchar(40) CHARACTER SET latin1, d decimal(30,10), w decimal(65,30),"
        " f float, g double, b bit(9), y year, da date, tm time(3), dt datetime(6), ts timestamp(3) NULL, bn binary(6),"
        " e enum('x','y''z'), s set('p','q','r'), j json, p point, n int AS (id % 7) VIRTUAL, st int AS (id % 5) STORED"
    ),
}


def create(server: MysqlServer) -> None:
    server.script("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for name, columns in TABLES.items():
        server.execute(f"CREATE TABLE shop.{name} ({columns})")


def spec(server: MysqlServer) -> dict[str, Any]:
    """`spec.source` of a manifest."""
    return {"type": "mysql", "host": server.host, "port": server.port, "username": server.user}


def source(server: MysqlServer) -> MysqlSource:
    return MysqlSource.of(SourceSpec.model_validate(spec(server)), "test")


def fill(server: MysqlServer, seed: int, statements: int = 400) -> None:
    """Rows of the tables, at random."""
    writer = Writer(server, seed)
    with closing(server.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        for _ in range(statements):
            with suppress(pymysql.err.IntegrityError):
                cursor.execute(writer.statement())
        connection.commit()


class Writer(threading.Thread):
    """One session that inserts, updates, moves and deletes until told to stop; it comes back after the server does."""

    def __init__(self, server: MysqlServer, seed: int) -> None:
        super().__init__()
        self._server, self._random, self.stopping = server, Random(seed), threading.Event()
        self.error: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            while not self.stopping.wait(0.1):
                with suppress(pymysql.err.OperationalError, pymysql.err.InterfaceError):
                    self._session()
        except BaseException as error:
            self.error = error

    def _session(self) -> None:
        with closing(self._server.connect(autocommit=False)) as connection:
            while not self.stopping.wait(self._random.random() * 0.04):
                self._transaction(connection)

    def _transaction(self, connection: Any) -> None:
        with connection.cursor() as cursor, suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
            for _ in range(self._random.randint(1, 4)):
                cursor.execute(self.statement())
            (connection.rollback if self._random.random() < 0.1 else connection.commit)()
            return
        connection.rollback()

    def statement(self) -> str:
        r = self._random
        i, j, n = r.randint(1, 400), r.randint(1, 400), r.randint(-(2**31), 2**31 - 1)
        text = r.choice(["a", "A", "é", "E", "z"])
        return r.choice(
            [
                f"REPLACE INTO shop.plain VALUES ({i}, REPEAT('v{n}', {r.choice([0, 1, 30])}), {n}), ({j}, NULL, NULL)",
                f"UPDATE shop.plain SET n = {n} WHERE id BETWEEN {i} AND {i + 5}",
                f"UPDATE shop.plain SET id = {i} WHERE id = {j}",
                f"DELETE FROM shop.plain WHERE id = {i}",
                f"REPLACE INTO shop.pairs VALUES ({i % 9}, '{text}{j % 9}', REPEAT('x', {i}))",
                f"UPDATE shop.pairs SET a = {i % 9} WHERE a = {j % 9} AND b LIKE 'a{i % 9}'",
                f"DELETE FROM shop.pairs WHERE a = {i % 9} AND b = 'z{j % 9}'",
                typed(r, i),
                f"UPDATE shop.typed SET d = {n} / 7, dt = '2024-01-01' + INTERVAL {i} SECOND WHERE id % 10 = {i % 10}",
                f"DELETE FROM shop.typed WHERE id = {i}",
            ]
        )


def typed(r: Random, i: int) -> str:
    values = [
        str(i if r.random() < 0.8 else 2**64 - i),
        f"'é{i} €'",
        f"{r.randint(-(10**15), 10**15)} / 1000",
        f"'{r.randint(-9, 9)}.{r.randint(0, 10**29):030}'",
        str(r.random()),
        str(r.random() * 10 ** r.randint(-200, 200)),
        str(r.randint(0, 511)),
        str(r.randint(1901, 2155)),
        f"'{r.randint(1000, 9999)}-02-28'",
        f"'{r.choice(['', '-'])}{r.randint(0, 838)}:{r.randint(0, 59)}:07.{r.randint(0, 999):03}'",
        f"'{r.randint(1000, 9999)}-12-31 23:59:59.{r.randint(0, 999999):06}'",
        f"FROM_UNIXTIME({r.randint(1, 2**31 - 1)})",
        f"x'{r.randint(0, 2**32):012x}'",
        r.choice(["'x'", "'y''z'"]),
        r.choice(["''", "'p,r'", "'q'"]),
        f"""'{{"b": [{i}, null, "é"], "a": {{"x": 1.5}}}}'""",
        f"POINT({i}, -{i})",
    ]
    some = [v if k == 0 or r.random() < 0.85 else "NULL" for k, v in enumerate(values)]
    return f"REPLACE INTO shop.typed VALUES ({', '.join(some)}, DEFAULT, DEFAULT)"


class XaWriter(Writer):
    """One session whose transactions are prepared for a while before they are decided, in a table of their own."""

    @override
    def _session(self) -> None:
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            for _, length, _, name in cursor.fetchall():  # of before the server was killed
                text = name.decode() if isinstance(name, bytes) else str(name)
                cursor.execute(f"XA COMMIT '{text[:length]}'")
            while not self.stopping.wait(self._random.random() * 0.5):
                self._one(cursor)

    def _one(self, cursor: Any) -> None:
        i, name = self._random.randint(1, 50), f"x{self._random.random()}"
        cursor.execute(f"XA START '{name}'")
        cursor.execute(f"REPLACE INTO shop.xa VALUES ({i}, REPEAT('{i}', {self._random.choice([1, 50, 5000])}))")
        cursor.execute(f"DELETE FROM shop.xa WHERE id = {self._random.randint(1, 50)}")
        cursor.execute(f"XA END '{name}'")
        cursor.execute(f"XA PREPARE '{name}'")
        self.stopping.wait(self._random.random())
        cursor.execute(f"XA {self._random.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} '{name}'")


@contextmanager
def writers(server: MysqlServer, count: int = 3, seed: int = 0, xa: bool = False) -> Iterator[None]:
    """`xa`: one more, for the table `shop.xa` (id int PRIMARY KEY, v text)."""
    threads = [Writer(server, seed + i) for i in range(count)] + [XaWriter(server, seed)] * xa
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stopping.set()
        for thread in threads:
            thread.join()
    assert not [t.error for t in threads if t.error is not None]


def rows_of(server: MysqlServer, name: str, where: str | None = None) -> pa.Table:
    """The source's rows as a chunk has them (test_mysql_chunks.py: exactly): those of the log must be the same."""
    with source(server).session() as session:
        (table,) = session.tables(TablesSpec(include=(f"shop.{name}",)), ())
    batches: list[pa.RecordBatch] = []
    source(server).reader().read(table, KeyRange(None, None), where, batches.append)
    names = [column.name for column in table.schema.columns]
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.array([]) for name in names})


def differences(
    server: MysqlServer,
    read: Callable[[str], pa.Table],
    names: Iterable[str] = tuple(TABLES),
    where: Mapping[str, str] | None = None,
) -> list[str]:
    """Tables whose copy, as `read` brings it, is not equal: row by row, column by column, bit for bit. `where`: by
    table, which of the source's rows are copied, as the server selects them."""
    return [name for name in names if not _equal(rows_of(server, name, (where or {}).get(name)), read(name))]


def _equal(source: pa.Table, copy: pa.Table) -> bool:
    here, there = (sorted(map(repr, target_rows(table.select(source.column_names)))) for table in (source, copy))
    return here == there
