"""The demo's shop in MySQL: the same tables and rows as in PostgreSQL, in its types, and what the demo asks of it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pymysql
from pymysql.connections import Connection
from pymysql.cursors import SSCursor

from demo import shop
from demo.compare import Row, compared, is_text, plain
from demo.mysql_server import MYSQL, MysqlServer

DDL = """
CREATE DATABASE shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name varchar(60) NOT NULL, email varchar(60) NOT NULL,
    region varchar(10) NOT NULL, credit decimal(12,2) NOT NULL, vip boolean NOT NULL, created timestamp NOT NULL);
CREATE TABLE shop.addresses (customer_id bigint, kind varchar(10), street text NOT NULL, city text NOT NULL,
    PRIMARY KEY (customer_id, kind),
    FOREIGN KEY (customer_id) REFERENCES shop.customers (id) ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE shop.products (sku varchar(20) PRIMARY KEY, title text NOT NULL, price decimal(10,2) NOT NULL,
    tags set('a', 'b', 'c'), attributes json, description text);
CREATE TABLE shop.stock (sku varchar(20) PRIMARY KEY, pieces int NOT NULL, counted datetime(6),
    FOREIGN KEY (sku) REFERENCES shop.products (sku) ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL,
    status enum('open', 'paid', 'sent', 'done') NOT NULL, region varchar(10) NOT NULL, total decimal(12,2) NOT NULL,
    placed timestamp(6) NOT NULL, note text);
CREATE TABLE shop.order_items (order_id bigint, line smallint, sku varchar(20) NOT NULL, pieces int NOT NULL,
    price decimal(10,2) NOT NULL, PRIMARY KEY (order_id, line),
    FOREIGN KEY (order_id) REFERENCES shop.orders (id) ON DELETE CASCADE);
CREATE TABLE shop.payments (id binary(16) PRIMARY KEY, order_id bigint NOT NULL, amount decimal(12,2) NOT NULL,
    method varchar(10) NOT NULL, paid date, receipt varbinary(40));
SET SESSION cte_max_recursion_depth = 100000000;
"""
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT"
FILL = f"""
INSERT INTO shop.customers {NUMBERS.format("{customers}")} i, CONCAT('Customer ', i), CONCAT('c', i, '@example.org'),
    ELT(1 + i % 3, 'eu', 'us', 'asia'), (i * 37 % 100000) / 100, i % 50 = 0,
    '2020-01-01' + INTERVAL 7 * i MINUTE FROM n;
INSERT INTO shop.addresses SELECT id, 'home', CONCAT('Street ', id % 900), CONCAT('City ', id % 300)
    FROM shop.customers;
INSERT INTO shop.products {NUMBERS.format("{products}")} CONCAT('SKU-', LPAD(i, 6, '0')), CONCAT('Product ', i),
    (i * 17 % 30000) / 100, ELT(1 + i % 3, 'a', 'a,c', ''),
    JSON_OBJECT('weight', i % 90, 'colour', CONCAT('c', i % 12)), REPEAT(SHA2(i, 256), 50) FROM n;
INSERT INTO shop.stock SELECT sku, 1000, '2024-06-01 12:00' FROM shop.products;
INSERT INTO shop.orders {NUMBERS.format("{orders}")} i, 1 + i * 31 % {{customers}}, 1 + i % 4,
    ELT(1 + i % 3, 'eu', 'us', 'asia'), (i * 53 % 90000) / 100, '2022-01-01' + INTERVAL i MINUTE,
    CASE WHEN i % 9 = 0 THEN 'Leave at the door' END FROM n;
INSERT INTO shop.order_items SELECT id, line, CONCAT('SKU-', LPAD(1 + (2 * id + line) * 13 % {{products}}, 6, '0')),
    1 + id % 5, (id * 17 % 30000) / 100 FROM shop.orders, (SELECT 1 AS line UNION ALL SELECT 2) lines_;
INSERT INTO shop.payments SELECT LEFT(UNHEX(SHA2(id, 256)), 16), id, (id * 53 % 90000) / 100,
    ELT(1 + id % 2, 'card', 'bill'), '2022-01-01' + INTERVAL id % 900 DAY, LEFT(UNHEX(SHA2(id, 256)), 16)
    FROM shop.orders;
"""
REVIEWS = f"""
CREATE TABLE shop.reviews (id bigint PRIMARY KEY, sku varchar(20) NOT NULL, stars tinyint NOT NULL, body text,
    written timestamp);
SET SESSION cte_max_recursion_depth = 100000000;
INSERT INTO shop.reviews {NUMBERS.format("{reviews}")} i, CONCAT('SKU-', LPAD(1 + i % 1000, 6, '0')), 1 + i % 5,
    REPEAT('good ', 1 + i % 40), '2024-01-01' + INTERVAL i SECOND FROM n;
"""
MOVED = """UPDATE shop.customers SET id = %s WHERE id = %s
    AND NOT EXISTS (SELECT 1 FROM (SELECT id FROM shop.customers WHERE id = %s) taken)"""
_COLUMNS = """SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
    AND NOT (VERSION() LIKE '%%MariaDB%%' AND generation_expression IS NOT NULL)"""
"""Those that a copy must have: MariaDB's generated columns are left out."""
_KEY = """SELECT column_name FROM information_schema.key_column_usage
    WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY'"""
_LOST = (1205, 1213)
"""Errors of a transaction that another one was in the way of: it is rolled back."""


class MysqlShop:
    """The embedded server and the shop in it: a context manager. `__main__.Source` says what its methods do."""

    title = "MySQL 9"
    faults: tuple[type[Exception], ...] = (pymysql.MySQLError,)

    def __init__(self) -> None:
        self._server = MysqlServer(MYSQL, innodb_buffer_pool_size="256M", innodb_redo_log_capacity="512M")

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.close()

    @property
    def port(self) -> int:
        return self._server.port

    def spec(self) -> dict[str, object]:
        server = self._server
        return {"type": "mysql", "host": server.host, "port": server.port, "username": server.user,
                "tls": {"mode": "disable"}}  # fmt: skip

    def fill(self, scale: float) -> int:
        sizes = {"customers": int(120_000 * scale), "products": int(10_000 * scale), "orders": int(260_000 * scale)}
        self._script(DDL + FILL.format(**sizes))
        return sum(map(self.count, shop.TABLES))

    def add_reviews(self, count: int) -> None:
        self._script(REVIEWS.format(reviews=count))

    def load(self, scale: float) -> shop.Load:
        return shop.Load(session_of(self._server.connect), scale, moved=MOVED)

    def log_end(self) -> int:
        row = self._server.execute("SHOW BINARY LOG STATUS")[0]
        return self.number(f"{row[0]}:{row[1]}")

    def number(self, position: str) -> int:
        file, _, offset = position.rpartition(":")
        return int(file.rpartition(".")[2]) << 40 | int(offset)

    def count(self, table: str) -> int:
        return int(self._server.execute(f"SELECT COUNT(*) FROM shop.{table}")[0][0])

    def differences(self, tables: Sequence[str], read: Callable[[str], pa.Table]) -> list[str]:
        return compare(self._server, tables, read)

    def _script(self, text: str) -> None:
        self._server.script(*filter(None, (part.strip() for part in text.split(";"))))


def session_of(connect: Callable[[], "Connection[Any]"]) -> shop.Session:
    """Sessions of MySQL."""

    @contextmanager
    def session() -> Iterator[shop.Transact]:
        with closing(connect()) as connection, connection.cursor() as cursor:

            def transact(statements: Iterable[shop.Statement]) -> None:
                connection.begin()
                try:
                    for text, values in statements:
                        cursor.execute(text, values)
                    connection.commit()
                except pymysql.err.OperationalError as error:
                    connection.rollback()
                    if error.args[0] not in _LOST:
                        raise

            yield transact

    return session


def _rows(connection: "Connection[Any]", statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def compare(server: MysqlServer, tables: Iterable[str], read: Callable[[str], pa.Table]) -> list[str]:
    """Compare tables of the shop with what `read` finds, as `compare.compare_by`; the source is read by PyMySQL."""
    found: list[str] = []
    with closing(server.connect(init_command="SET time_zone = '+00:00'")) as connection:
        for table in tables:
            names = [[str(row[0]) for row in _rows(connection, sql, ("shop", table))] for sql in (_COLUMNS, _KEY)]
            rows = partial(source_rows, connection, table)
            found += compared(f"shop.{table}", names[0], names[1], rows, read(table))
    return found


def _expression(field: pa.Field) -> str:
    """Exact, where the server's own form of a value is another one than the target's."""
    if is_text(field.type):
        return f"CAST(`{field.name}` AS CHAR)"
    if pa.types.is_integer(field.type):
        return f"`{field.name}` + 0"
    return f"`{field.name}` + 0e0" if pa.types.is_float32(field.type) else f"`{field.name}`"


def source_rows(connection: "Connection[Any]", table: str, target: pa.Schema) -> Iterator[Row]:
    """The source's rows with the target's columns in the target's order."""
    zoned = [pa.types.is_timestamp(field.type) and field.type.tz is not None for field in target]
    columns = ", ".join(map(_expression, target))
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT {columns} FROM shop.{table}")
        while found := cursor.fetchmany(20_000):
            for row in found:
                yield tuple(plain(_at(v) if z else v) for v, z in zip(row, zoned, strict=True))


def _at(value: object) -> object:
    """A `timestamp` as the session's zone has it, which is UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
