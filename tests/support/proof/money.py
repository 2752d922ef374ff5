"""Two tables between which money moves: the sum over both is the same in the source at every commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from support.postgres import PostgresServer

ACCOUNTS, EACH = 40, 1000
TOTAL = 2 * ACCOUNTS * EACH
MONEY = f"""
CREATE TABLE proof.giro (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE proof.savings (id int PRIMARY KEY, balance bigint NOT NULL, note text);
INSERT INTO proof.giro SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n;
INSERT INTO proof.savings SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n;
"""


@contextmanager
def transfers(server: PostgresServer) -> Iterator[None]:
    """Money moves between the two tables, in one transaction each."""
    ending, random = threading.Event(), Random(3)

    def run() -> None:
        with server.connect(autocommit=False) as connection:
            while not ending.wait(0.01):
                amount, pair = random.randint(1, 50), ("giro", "savings")
                for table, change in zip(random.sample(pair, 2), (amount, -amount), strict=True):
                    account = random.randint(1, ACCOUNTS)
                    connection.execute(
                        f"UPDATE proof.{table} SET balance = balance + {change} WHERE id = {account}".encode()
                    )
                connection.commit()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
