"""A database as the target: readers see whole source transactions, whoever is killed; source = target afterwards."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import psycopg
import pytest

from support.postgres import PostgresServer
from support.proof import tables
from support.proof.harness import Begin, Proof

ACCOUNTS, EACH = 40, 1000
TOTAL = 2 * ACCOUNTS * EACH
MONEY = f"""
CREATE TABLE proof.giro (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE proof.savings (id int PRIMARY KEY, balance bigint NOT NULL, note text);
INSERT INTO proof.giro SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n;
INSERT INTO proof.savings SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n;
"""
SUM = "SELECT (SELECT sum(balance) FROM proof.giro) + (SELECT sum(balance) FROM proof.savings)"
LEVEL = (
    "SELECT count(*) FROM _tailrace.tables WHERE member AND place_schema = 'proof'"
    " AND place_name IN ('giro', 'savings')"
)
NAMES = [*(f"proof.{table.name}" for table in tables.TABLES), "proof.giro", "proof.savings"]


def target_of(server: PostgresServer) -> dict[str, object]:
    server.execute("CREATE DATABASE copy")
    place = {"host": server.host, "port": server.port, "database": "copy", "username": "postgres"}
    return {"type": "postgresql", **place}


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


class Reader:
    """Somebody who adds up both tables of the copy in one snapshot, again and again."""

    def __init__(self, server: PostgresServer) -> None:
        self.sums: list[int] = []
        self._server, self._ending = server, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with self._server.connect("copy", autocommit=False) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not self._ending.wait(0.02):
                try:
                    level = connection.execute(LEVEL.encode()).fetchone()
                    if level == (2,):
                        found = connection.execute(SUM.encode()).fetchone()
                        assert found is not None
                        self.sums.append(int(found[0]))
                except psycopg.errors.UndefinedTable:
                    pass
                connection.rollback()


def differences(proof: Proof) -> list[str]:
    """Tables whose rows are not written alike in both databases."""
    found = []
    for name in NAMES:
        query = f"SELECT t::text FROM {name} t"
        try:
            copy = proof.server.execute(query, dbname="copy")
        except psycopg.errors.UndefinedTable:
            copy = []
        if sorted(proof.server.execute(query)) != sorted(copy):
            found.append(name)
    return found


@pytest.mark.timeout(900)
def test_readers_see_whole_source_transactions_whoever_is_killed(prove: Begin, postgres: PostgresServer) -> None:
    proof = prove("delta", seed=5, target=target_of(postgres), apply={"freshness": "300ms"})
    postgres.execute(MONEY)
    writers = proof.writers(seed=5, count=2)
    with Reader(postgres) as reader, transfers(postgres):
        for seam in ("apply.before-commit=kill@15", "apply.after-commit=kill@8"):
            run = proof.deployment.start(seams=seam)
            assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
        run, before = proof.deployment.start(), len(reader.sums)
        run.until(lambda: len(reader.sums) > before + 50, 240, "both tables are level again")
    writers.stop()
    run.until(lambda: not differences(proof), 240, "source = target")
    assert run.stop() == 0, run.tail()
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not differences(proof)
    proof.assert_nothing_acknowledged_early()
