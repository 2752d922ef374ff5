"""A database as the target: readers see whole source transactions, whoever is killed; source = target afterwards."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest

from support.database_copies import of_mysql, of_postgres, place_of
from support.mysql import TARGETS, MysqlServer
from support.postgres import PostgresServer
from support.proof import tables
from support.proof.harness import Begin
from support.proof.money import MONEY, TOTAL, transfers
from support.versions import turns

SUM = "SELECT (SELECT sum(balance) FROM proof.giro) + (SELECT sum(balance) FROM proof.savings)"
LEVEL = (
    "SELECT count(*) FROM _tailrace.tables WHERE member AND place_schema = 'proof'"
    " AND place_name IN ('giro', 'savings')"
)
NAMES = [*(f"proof.{table.name}" for table in tables.TABLES), "proof.giro", "proof.savings"]


class InPostgres:
    """Copies in another database of the source's server."""

    spec: Mapping[str, Any] = {}

    def __init__(self, source: PostgresServer) -> None:
        self.source = self.server = source
        source.execute("CREATE DATABASE copy")

    @contextmanager
    def looking(self) -> Iterator[Callable[[], int | None]]:
        with self.source.connect("copy", autocommit=False) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

            def look() -> int | None:
                try:
                    return self.sum_by(lambda statement: connection.execute(statement.encode()).fetchone())
                except psycopg.errors.UndefinedTable:
                    return None
                finally:
                    connection.rollback()

            yield look

    @staticmethod
    def sum_by(row: Callable[[str], Any]) -> int | None:
        """The sum of both tables, if they are level."""
        return int(row(SUM)[0]) if row(LEVEL) == (2,) else None

    def equal(self, name: str) -> bool:
        """True if the table's rows are written alike in both databases."""
        query = f"SELECT t::text FROM {name} t"
        try:
            copy = self.source.execute(query, dbname="copy")
        except psycopg.errors.UndefinedTable:
            return False
        return sorted(self.source.execute(query)) == sorted(copy)


class InMysql:
    """Copies in MySQL or MariaDB, which have no infinite numbers."""

    spec: Mapping[str, Any] = {"options": [{"match": "proof.typed", "asText": ["f"]}]}

    def __init__(self, source: PostgresServer, server: MysqlServer) -> None:
        self.source, self.server = source, server

    @contextmanager
    def looking(self) -> Iterator[Callable[[], int | None]]:
        with closing(self.server.connect(autocommit=False)) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

            def row(statement: str) -> Any:
                cursor.execute(statement)
                return cursor.fetchone()

            def look() -> int | None:
                try:
                    return InPostgres.sum_by(row)
                except (pymysql.err.ProgrammingError, pymysql.err.OperationalError):
                    return None  # a table is not there yet, or was just made
                finally:
                    connection.rollback()

            yield look

    def equal(self, name: str) -> bool:
        try:
            return of_mysql(self.server, name) == of_postgres(self.source, name)
        except (pymysql.err.ProgrammingError, pymysql.err.OperationalError):
            return False


@pytest.fixture(params=turns("postgresql", *TARGETS))
def copies(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[InPostgres | InMysql]:
    if request.param == "postgresql":
        yield InPostgres(postgres)
        return
    with MysqlServer(request.param) as server:
        yield InMysql(postgres, server)


class Reader:
    """Somebody who adds up both tables of the copy in one snapshot, again and again."""

    def __init__(self, copies: InPostgres | InMysql) -> None:
        self.sums: list[int] = []
        self._copies, self._ending = copies, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with self._copies.looking() as look:
            while not self._ending.wait(0.02):
                if (found := look()) is not None:
                    self.sums.append(found)


def differences(copies: InPostgres | InMysql) -> list[str]:
    return [name for name in NAMES if not copies.equal(name)]


@pytest.mark.timeout(900)
def test_readers_see_whole_source_transactions_whoever_is_killed(
    prove: Begin, postgres: PostgresServer, copies: InPostgres | InMysql
) -> None:
    proof = prove("delta", seed=5, target=place_of(copies.server), apply={"freshness": "300ms"}, **copies.spec)
    postgres.execute(MONEY)
    writers = proof.writers(seed=5, count=2)
    with Reader(copies) as reader, transfers(postgres):
        for seam in ("apply.before-commit=kill@15", "apply.after-commit=kill@8"):
            run = proof.deployment.start(seams=seam)
            assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
        run, before = proof.deployment.start(), len(reader.sums)
        run.until(lambda: len(reader.sums) > before + 50, 240, "both tables are level again")
    writers.stop()
    run.until(lambda: not differences(copies), 240, "source = target")
    assert run.stop() == 0, run.tail()
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not differences(copies)
    proof.assert_nothing_acknowledged_early()
