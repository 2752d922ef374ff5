"""Copies in a database of the proof's tables and of money that moves between two of them; a reader that adds it up."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from _pytest.mark.structures import ParameterSet
from typing_extensions import override

from mysql_packages import RELEASES
from support import copies_of_mysql, mysql_shop
from support.database_copies import of_mysql, of_postgres, place_of
from support.full_disks import mounted, on_small_disk
from support.mysql import MARIADB_NEWEST, MYSQL, TARGETS, MysqlServer
from support.mysql_stalls import commits_that_stall
from support.postgres import PostgresServer
from support.proof import money, tables
from support.proof.harness import SMALL, Proof
from support.proof.process import Deployment
from support.versions import turns

POSTGRES = "postgresql"
Pair = tuple[str, str]
"""Source and target: POSTGRES or one of `mysql_packages.RELEASES`."""
OF_POSTGRES: tuple[Pair, ...] = ((POSTGRES, POSTGRES), *((POSTGRES, target) for target in TARGETS))
OF_MYSQL: tuple[Pair, ...] = (
    *((source, POSTGRES) for source in RELEASES),
    (MYSQL, MYSQL),
    (MYSQL, "mariadb-10.11"),
    (MARIADB_NEWEST, MARIADB_NEWEST),
    (MARIADB_NEWEST, MYSQL),
    ("mysql-8.0", MYSQL),
    ("mariadb-10.11", MARIADB_NEWEST),
)
PAIRS = (*OF_POSTGRES, *OF_MYSQL)


def in_turn(pairs: Sequence[Pair]) -> list[ParameterSet]:
    """Parameters of a fixture that takes turns."""
    return turns(*((pair,) for pair in pairs))


OFTEN = 25
NOTE = "SELECT note FROM proof.savings WHERE id = 1"
SUM = "SELECT (SELECT sum(balance) FROM proof.giro) + (SELECT sum(balance) FROM proof.savings)"
CHUNKS = {"chunkRows": 17, "parallelism": 3}
Server = PostgresServer | MysqlServer


def level(one: str, other: str, server: Server) -> str:
    """The query for the number of these tables that are at the same moment: 2. A table that was replaced since the
    transaction began has another number than the one that it is told of."""
    told = f"SELECT count(*) FROM _tailrace.tables WHERE member AND place_name IN ('{one}', '{other}')"
    if isinstance(server, PostgresServer):
        return f"{told} AND relation = to_regclass(format('%I.%I', place_schema, place_name))::oid"
    comment = "SELECT table_comment FROM information_schema.tables WHERE table_schema = place_schema"
    return f"{told} AND CONCAT('Tailrace copy ', relation) = ({comment} AND table_name = place_name)"


class Copies(ABC):
    """A source of the proof's tables and of the money, and the server of their copies. Those in PostgreSQL are in its
    database `copy`."""

    source: Server
    names: Sequence[str]

    def __init__(self, server: Server) -> None:
        self.server = server
        if isinstance(server, PostgresServer):
            server.execute("CREATE DATABASE copy")

    @abstractmethod
    def begin(self, folder: Path, seed: int, rows: int = SMALL, **spec: object) -> Deployment:
        """Fill the source: a Replicator into the copies."""

    @abstractmethod
    def writing(self, seed: int, count: int) -> Any:
        """A context in which so many sessions write to the source."""

    @property
    @abstractmethod
    def place(self) -> dict[str, object]:
        """The source as a manifest names it."""

    @abstractmethod
    def differences(self, *names: str) -> list[str]:
        """What the copies, or those of these tables, lack or have too much; empty: nothing."""

    @abstractmethod
    def assert_nothing_acknowledged_early(self) -> None: ...

    @property
    def target(self) -> dict[str, object]:
        """What the manifest says of it, with some haste."""
        return {"target": place_of(self.server), "apply": {"freshness": "300ms"}}

    @contextmanager
    def looking(self, query: str, level: str) -> Iterator[Callable[[], int | None]]:
        """Looks at a number in one snapshot; None: the tables are not level. The rows are read first: from then on
        nothing replaces the tables, and what is told of them afterwards is told of those that were read."""
        with closing(self._reading()) as connection:

            def row(statement: str) -> Any:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
                    return cursor.fetchone()

            def look() -> int | None:
                try:
                    (total,) = row(query)
                    return int(total) if row(level) == (2,) else None
                except (psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError, pymysql.err.OperationalError):
                    return None  # a table is not there yet, or was just made
                finally:
                    connection.rollback()

            yield look

    def note(self) -> Any:
        """What the copy has of `Reader.sees_news`."""
        if isinstance(self.server, MysqlServer):
            return self.server.execute(NOTE)
        return self.server.execute(NOTE, dbname="copy")

    def _reading(self) -> Any:
        if isinstance(self.server, MysqlServer):
            level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            return self.server.connect(autocommit=False, init_command=level)
        connection = self.server.connect("copy", autocommit=False)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return connection


class OutOfPostgres(Copies):
    """In another database of the source's server, or in another server."""

    source: PostgresServer
    names = (*(f"proof.{table.name}" for table in tables.TABLES), "proof.giro", "proof.savings")

    def __init__(self, source: PostgresServer, server: Server) -> None:
        super().__init__(server)
        self.source = source
        self._proof: Proof | None = None

    @property
    def spec(self) -> Mapping[str, Any]:
        """MySQL has no infinite numbers."""
        if isinstance(self.server, PostgresServer):
            return {}
        return {"options": [{"match": "proof.typed", "asText": ["f"]}]}

    @property
    def proof(self) -> Proof:
        assert self._proof is not None, "it has not begun"
        return self._proof

    @override
    def begin(self, folder: Path, seed: int, rows: int = SMALL, **spec: object) -> Deployment:
        given = {**self.target, **self.spec, **spec}
        self._proof = Proof.begin(self.source, folder, "delta", seed, rows=rows, **given)
        self.source.execute(money.MONEY)
        return self._proof.deployment

    @override
    @contextmanager
    def writing(self, seed: int, count: int) -> Iterator[None]:
        writers = self.proof.writers(seed, count)
        try:
            yield
        finally:
            writers.stop()

    @property
    @override
    def place(self) -> dict[str, object]:
        return self.source.source()

    @override
    def differences(self, *names: str) -> list[str]:
        return [name for name in names or self.names if not self._equal(name)]

    def _equal(self, name: str) -> bool:
        """True if the table's rows are written alike in both databases."""
        try:
            if isinstance(self.server, MysqlServer):
                return of_mysql(self.server, name) == of_postgres(self.source, name)
            query = f"SELECT t::text FROM {name} t"
            return sorted(self.source.execute(query)) == sorted(self.server.execute(query, dbname="copy"))
        except (psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError, pymysql.err.OperationalError):
            return False

    @override
    def assert_nothing_acknowledged_early(self) -> None:
        self.proof.assert_nothing_acknowledged_early()


class OutOfMysql(Copies):
    """In another server. Commits of the source stall now and then: they are in its log, and not visible yet."""

    source: MysqlServer
    names = (*(f"shop.{table}" for table in mysql_shop.TABLES), "proof.giro", "proof.savings")

    def __init__(self, source: MysqlServer, server: Server) -> None:
        super().__init__(server)
        self.source = source

    @override
    def begin(self, folder: Path, seed: int, rows: int = SMALL, **spec: object) -> Deployment:
        mysql_shop.create(self.source)
        mysql_shop.fill(self.source, seed, statements=4 * rows)
        money.fill(self.source)
        given = {"tables": {"include": ["shop.*", "proof.*"]}, "snapshot": CHUNKS, **self.target, **spec}
        deployment = Deployment(folder / "proof", self.place, "delta", given)
        deployment.write_manifest()
        return deployment

    @override
    @contextmanager
    def writing(self, seed: int, count: int) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(mysql_shop.writers(self.source, count, seed))
            if self.source.name != "mysql-8.0":  # which has come without plugins
                stack.enter_context(commits_that_stall(self.source, seed))
            yield

    @property
    @override
    def place(self) -> dict[str, object]:
        return mysql_shop.spec(self.source)

    @override
    def differences(self, *names: str) -> list[str]:
        found = (copies_of_mysql.differences(self.source, self.server, name) for name in names or self.names)
        return [line for lines in found for line in lines]

    @override
    def assert_nothing_acknowledged_early(self) -> None:
        """The server knows of no reader."""


@contextmanager
def copies_in(product: str, source: PostgresServer) -> Iterator[OutOfPostgres]:
    """In another database of the source's server, or in another server."""
    if product == POSTGRES:
        yield OutOfPostgres(source, source)
        return
    with MysqlServer(product) as server:
        yield OutOfPostgres(source, server)


@contextmanager
def copies_between(request: pytest.FixtureRequest) -> Iterator[Copies]:
    """`request`: of a fixture whose parameter is a pair. A PostgreSQL is the test's."""
    source, target = request.param
    if source == POSTGRES:
        with copies_in(target, request.getfixturevalue("postgres")) as made:
            yield made
        return
    with ExitStack() as servers:
        here = servers.enter_context(MysqlServer(source))
        if target == POSTGRES:
            yield OutOfMysql(here, request.getfixturevalue("postgres"))
        else:
            yield OutOfMysql(here, servers.enter_context(MysqlServer(target)))


@contextmanager
def copies_on_small_disks(product: str, source: PostgresServer) -> Iterator[tuple[OutOfPostgres, list[Path]]]:
    """In another server, and its disks: of PostgreSQL all of it, of the others the tables, as these may leave sessions
    waiting where their own logs find no room."""
    with ExitStack() as stack:
        if product == POSTGRES:
            postgres = PostgresServer(source.major)
            stack.enter_context(on_small_disk(postgres.data_dir, "160m"))
            stack.enter_context(postgres)
            yield OutOfPostgres(source, postgres), [postgres.data_dir]
            return
        server = stack.enter_context(MysqlServer(product))
        disks = [server.data_dir / name for name in ("proof", "_tailrace")]
        for disk in disks:
            server.execute(f"CREATE DATABASE {disk.name}")
            stack.enter_context(mounted(disk, server.data_dir, "60m"))
            # An empty one is dropped by the look at what the target lacks, and its folder would stay.
            server.execute(f"CREATE TABLE {disk.name}.kept (n int)")
        yield OutOfPostgres(source, server), disks


LEFT_OPEN = (
    "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_rows_modified > 0"
    " AND trx_started < now() - INTERVAL 6 SECOND ORDER BY trx_started LIMIT 1"
)


def end_by_hand(copies: Copies, wait: Callable[[Callable[[], object]], None]) -> None:
    """In MariaDB, which does not tell whose transaction has locked what: the transaction that a driver has left open
    (30 minutes later the server would end it). `wait`: until what it is given finds one."""
    server = copies.server
    if isinstance(server, MysqlServer) and server.mariadb:
        wait(lambda: server.execute(LEFT_OPEN))
        ((number,),) = server.execute(LEFT_OPEN)
        server.execute(f"KILL {number}")


class Reader:
    """Somebody who adds up two tables of the copy in one snapshot, again and again."""

    def __init__(self, copies: Copies, query: str = SUM, tables: tuple[str, str] = ("giro", "savings")) -> None:
        self.sums: list[int] = []
        self._copies = copies
        self._looking = partial(copies.looking, query, level(*tables, copies.server))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def sees_news(self) -> Callable[[], bool]:
        """Whether a change that is made now is in the copy, and its sum has been seen often since."""
        before, news = len(self.sums), f"news {len(self.sums)}"
        statement = f"UPDATE proof.savings SET note = '{news}' WHERE id = 1"
        self._copies.source.execute(statement)

        def look() -> bool:
            nonlocal before
            if list(self._copies.note()) != [(news,)]:
                before = len(self.sums)
            return len(self.sums) > before + OFTEN

        return look

    def _run(self) -> None:
        lost = psycopg.OperationalError, pymysql.err.OperationalError, pymysql.err.InterfaceError
        while not self._ending.wait(0.04):
            with suppress(*lost), self._looking() as look:  # the server may restart
                while not self._ending.wait(0.04):
                    if (found := look()) is not None:
                        self.sums.append(found)
