"""The demo's shop: seven related tables, over a million rows, and the load that changes them meanwhile."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from random import Random

import psycopg

SCHEMA = "shop"

DDL = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, email text NOT NULL, region text NOT NULL,
    credit numeric(12,2) NOT NULL, vip boolean NOT NULL, created timestamptz NOT NULL);
CREATE TABLE shop.addresses (customer_id bigint REFERENCES shop.customers ON UPDATE CASCADE ON DELETE CASCADE,
    kind text, street text NOT NULL, city text NOT NULL, PRIMARY KEY (customer_id, kind));
CREATE TABLE shop.products (sku text PRIMARY KEY, title text NOT NULL, price numeric(10,2) NOT NULL, tags text[],
    attributes jsonb, description text);
CREATE TABLE shop.stock (sku text PRIMARY KEY REFERENCES shop.products ON UPDATE CASCADE ON DELETE CASCADE,
    pieces integer NOT NULL, counted timestamp);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL, status text NOT NULL,
    region text NOT NULL, total numeric(12,2) NOT NULL, placed timestamptz NOT NULL, note text);
CREATE TABLE shop.order_items (order_id bigint REFERENCES shop.orders ON DELETE CASCADE, line smallint,
    sku text NOT NULL, pieces integer NOT NULL, price numeric(10,2) NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE shop.payments (id uuid PRIMARY KEY, order_id bigint NOT NULL, amount numeric(12,2) NOT NULL,
    method text NOT NULL, paid date, receipt bytea);
"""

FILL = """
INSERT INTO shop.customers SELECT i, 'Customer ' || i, 'c' || i || '@example.org', (ARRAY['eu','us','asia'])[1 + i % 3],
    (i * 37 % 100000) / 100.0, i % 50 = 0, timestamptz '2020-01-01 00:00+00' + i * interval '7 minutes'
    FROM generate_series(1, {customers}) i;
INSERT INTO shop.addresses SELECT i, 'home', 'Street ' || i % 900, 'City ' || i % 300
    FROM generate_series(1, {customers}) i;
INSERT INTO shop.products SELECT 'SKU-' || lpad(i::text, 6, '0'), 'Product ' || i, (i * 17 % 30000) / 100.0,
    ARRAY['tag' || i % 7, 'tag' || i % 11], jsonb_build_object('weight', i % 90, 'colour', 'c' || i % 12),
    (SELECT string_agg(md5((i * 100 + g)::text), ' ') FROM generate_series(1, 100) g)
    FROM generate_series(1, {products}) i;
INSERT INTO shop.stock SELECT sku, 1000, timestamp '2024-06-01 12:00' FROM shop.products;
INSERT INTO shop.orders SELECT i, 1 + i * 31 % {customers}, (ARRAY['open','paid','sent','done'])[1 + i % 4],
    (ARRAY['eu','us','asia'])[1 + i % 3], (i * 53 % 90000) / 100.0,
    timestamptz '2022-01-01 00:00+00' + i * interval '1 minute', CASE WHEN i % 9 = 0 THEN 'Leave at the door' END
    FROM generate_series(1, {orders}) i;
INSERT INTO shop.order_items SELECT 1 + i / 2, 1 + i % 2, 'SKU-' || lpad((1 + i * 13 % {products})::text, 6, '0'),
    1 + i % 5, (i * 17 % 30000) / 100.0 FROM generate_series(0, 2 * {orders} - 1) i;
INSERT INTO shop.payments SELECT md5(i::text)::uuid, i, (i * 53 % 90000) / 100.0, (ARRAY['card','bill'])[1 + i % 2],
    date '2022-01-01' + i % 900, decode(md5(i::text), 'hex') FROM generate_series(1, {orders}) i;
ANALYZE;
"""

REVIEWS = """
CREATE TABLE shop.reviews (id bigint PRIMARY KEY, sku text NOT NULL, stars smallint NOT NULL, body text,
    written timestamptz);
INSERT INTO shop.reviews SELECT i, 'SKU-' || lpad((1 + i % 1000)::text, 6, '0'), 1 + i % 5, repeat('good ', 1 + i % 40),
    timestamptz '2024-01-01 00:00+00' + i * interval '1 second' FROM generate_series(1, {reviews}) i;
"""
"""The table that comes into being while the Replicator runs."""

TABLES = ("customers", "addresses", "products", "stock", "orders", "order_items", "payments")


def create(connection: psycopg.Connection, scale: float) -> int:
    """Make and fill the shop; `scale` 1 gives 1.3 million rows. Returns the rows."""
    sizes = {"customers": int(120_000 * scale), "products": int(10_000 * scale), "orders": int(260_000 * scale)}
    connection.execute(DDL.encode())
    connection.execute(FILL.format(**sizes).encode())
    counts = (connection.execute(f"SELECT count(*) FROM shop.{table}".encode()).fetchone() for table in TABLES)
    return sum(int(row[0]) for row in counts if row)


Statement = tuple[str, tuple[object, ...]]
Transact = Callable[[Iterable[Statement]], None]
"""Executes the statements as one transaction."""
Session = Callable[[], AbstractContextManager[Transact]]
MOVED = """UPDATE shop.customers SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM shop.customers WHERE id = %s)"""


def session_of(connect: Callable[[], psycopg.Connection]) -> Session:
    """Sessions of PostgreSQL."""

    @contextmanager
    def session() -> Iterator[Transact]:
        with connect() as connection:
            connection.autocommit = True

            def transact(statements: Iterable[Statement]) -> None:
                with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
                    for text, values in statements:
                        connection.execute(text.encode(), values)

            yield transact

    return session


class Load:
    """Threads that shop: orders come, are paid, change and vanish; customers move to new ids; prices change."""

    def __init__(self, session: Session, scale: float, threads: int = 2, pause: float = 0.004, moved: str = MOVED):
        """`moved`: the statement that gives a customer a new id, unless another one has it."""
        self._session = session
        self._scale = scale
        self._pause = pause
        self._moved = moved
        self._end = threading.Event()
        self._faults: list[Exception] = []
        self._orders = itertools.count(time.time_ns() // 1_000_000)  # beyond the numbers of earlier loads
        self.transactions = 0
        self._threads = [threading.Thread(target=self._run, args=(self._shop, i), daemon=True) for i in range(threads)]
        self._threads.append(threading.Thread(target=self._run, args=(self._take_stock, 99), daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the load; raise what a thread died of."""
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        if self._faults:
            raise self._faults[0]

    def _run(self, work: Callable[[Transact, int], None], number: int) -> None:
        try:
            with self._session() as transact:
                work(transact, number)
        except Exception as fault:
            self._faults.append(fault)

    def _shop(self, transact: Transact, number: int) -> None:
        random = Random(number)
        while not self._end.is_set():
            transact(self._one(random, next(self._orders)))
            self.transactions += 1
            time.sleep(random.random() * 2 * self._pause)

    def _one(self, random: Random, order: int) -> list[Statement]:
        customers, products, orders = (int(n * self._scale) for n in (120_000, 10_000, 260_000))
        customer, old = random.randint(1, customers), random.randint(1, orders)
        sku = f"SKU-{random.randint(1, products):06d}"
        kind = random.random()
        if kind < 0.4:
            return [
                ("INSERT INTO shop.orders VALUES (%s, %s, 'open', 'eu', 12.50, now(), NULL)", (order, customer)),
                ("INSERT INTO shop.order_items VALUES (%s, 1, %s, 2, 6.25)", (order, sku)),
            ]
        if kind < 0.6:
            return [("UPDATE shop.orders SET status = 'done', note = 'x' WHERE id = %s", (old,))]
        if kind < 0.7:
            return [("DELETE FROM shop.orders WHERE id = %s", (old,))]
        if kind < 0.85:
            return [
                ("UPDATE shop.products SET price = price + 0.01 WHERE sku = %s", (sku,)),
                ("UPDATE shop.stock SET pieces = pieces - 1, counted = now() WHERE sku = %s", (sku,)),
            ]
        if kind < 0.95:
            return [("UPDATE shop.customers SET credit = credit + 1 WHERE id = %s", (customer,))]
        target = customer + 1_000_000 if random.random() < 0.5 else customer
        source = customer if target != customer else customer + 1_000_000
        return [(self._moved, (target, source, target))]

    def _take_stock(self, transact: Transact, number: int) -> None:
        """A long transaction: counts part of the stock, slowly, again and again."""
        random = Random(number)
        while not self._end.is_set():
            transact(self._counts(random.randint(1, max(1, int(9_000 * self._scale)))))
            self.transactions += 1

    def _counts(self, start: int) -> Iterator[Statement]:
        for step in range(10):
            few = f"SKU-{start + step * 20:06d}", f"SKU-{start + step * 20 + 19:06d}"
            yield "UPDATE shop.stock SET pieces = 1000 WHERE sku BETWEEN %s AND %s", few
            self._end.wait(0.3)
