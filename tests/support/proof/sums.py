"""Copies in a database of the proof's tables and of money that moves between two of them; a reader that adds it up."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from support.database_copies import of_mysql, of_postgres, place_of
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from support.proof import tables
from support.proof.harness import SMALL, Proof
from support.proof.money import MONEY

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


Copies = InPostgres | InMysql


@contextmanager
def copies_in(product: str, source: PostgresServer) -> Iterator[Copies]:
    """In another database of the source's server, or in another server."""
    if product == "postgresql":
        yield InPostgres(source)
        return
    with MysqlServer(product) as server:
        yield InMysql(source, server)


class Reader:
    """Somebody who adds up both tables of the copy in one snapshot, again and again."""

    def __init__(self, copies: Copies) -> None:
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
            while not self._ending.wait(0.04):
                if (found := look()) is not None:
                    self.sums.append(found)


def differences(copies: Copies) -> list[str]:
    return [name for name in NAMES if not copies.equal(name)]


def replicated(copies: Copies, folder: Path, seed: int) -> Proof:
    """The proof's tables, and those of the money, with a Replicator into the copies."""
    into, spec = place_of(copies.server), {"apply": {"freshness": "300ms"}, **copies.spec}
    proof = Proof.begin(copies.source, folder, "delta", seed, rows=SMALL, target=into, **spec)
    copies.source.execute(MONEY)
    return proof
