"""Two tables between which money moves: the sum over both is the same in the source at every commit."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

from support.mysql import MysqlServer
from support.postgres import PostgresServer

ACCOUNTS, EACH = 40, 1000
TOTAL = 2 * ACCOUNTS * EACH
_ROWS = ", ".join(f"({number}, {EACH})" for number in range(1, ACCOUNTS + 1))
MONEY = f"""
CREATE TABLE proof.giro (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE proof.savings (id int PRIMARY KEY, balance bigint NOT NULL, note text);
INSERT INTO proof.giro VALUES {_ROWS};
INSERT INTO proof.savings (id, balance) VALUES {_ROWS};
"""
"""In PostgreSQL the schema is there."""


def fill(server: MysqlServer) -> None:
    server.script("CREATE DATABASE proof", *filter(None, map(str.strip, MONEY.split(";"))))


@contextmanager
def transfers(server: PostgresServer | MysqlServer) -> Iterator[None]:
    """Money moves between the two tables, in one transaction each."""
    ending, random, errors = threading.Event(), Random(3), list[BaseException]()

    def move(connection: Any) -> None:
        amount, pair = random.randint(1, 50), ("giro", "savings")
        with connection.cursor() as cursor:
            for table, change in zip(random.sample(pair, 2), (amount, -amount), strict=True):
                account = random.randint(1, ACCOUNTS)
                cursor.execute(f"UPDATE proof.{table} SET balance = balance + {change} WHERE id = {account}")
        connection.commit()

    def run() -> None:
        try:
            with closing(server.connect(autocommit=False)) as connection:
                while not ending.wait(0.01):
                    move(connection)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    assert not errors
