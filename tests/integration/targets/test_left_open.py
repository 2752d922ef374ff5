"""Transactions that keep copies locked while the server waits for their client: those of drivers are ended by whoever
needs the lock, others stay. (Whole copies and readers: `tests/proof/test_frozen_drivers.py`.)"""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.versions import turns
from support.waiting import until
from tailrace.databases.mysql.connect import MyConfig
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.errors import Retry
from tailrace.targets.mysql import left_open as left_open_in_mysql
from tailrace.targets.mysql.session import MysqlTargetSession
from tailrace.targets.postgresql import left_open
from tailrace.targets.postgresql.session import PgTargetSession

COPY, OTHER = ("shop", "item"), ("shop", "visit")
WRITES = "UPDATE shop.item SET n = n + 1"


class InPostgres:
    """Sessions of drivers, and of other programs."""

    def __init__(self, server: PostgresServer, stack: ExitStack) -> None:
        self.server, self.stack = server, stack
        server.execute("CREATE SCHEMA shop; CREATE TABLE shop.item AS SELECT 1 AS n; CREATE TABLE shop.visit (n int)")

    def session(self, program: str = "tailrace target") -> PgTargetSession:
        config = PgConfig(self.server.host, self.server.port, "postgres", "postgres", program, part="target")
        return self.stack.enter_context(closing(PgTargetSession(config, "")))


class InMysql:
    def __init__(self, server: MysqlServer, stack: ExitStack) -> None:
        self.server, self.stack = server, stack
        server.script(
            "CREATE DATABASE shop", "CREATE TABLE shop.item (n int PRIMARY KEY)", "INSERT INTO shop.item VALUES (1)",
            "CREATE TABLE shop.visit (n int PRIMARY KEY)",
        )  # fmt: skip

    def session(self, program: str = "tailrace target") -> MysqlTargetSession:
        config = MyConfig(self.server.host, self.server.port, None, self.server.user, program, part="target")
        return self.stack.enter_context(closing(MysqlTargetSession(config)))


Place = InPostgres | InMysql


@pytest.fixture(params=turns("postgresql", MYSQL))
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(left_open, "PATIENCE", "0 seconds")
    monkeypatch.setattr(left_open_in_mysql, "PATIENCE", 0)
    with ExitStack() as stack:
        if request.param == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres")
            yield InPostgres(server, stack)
        else:
            yield InMysql(stack.enter_context(MysqlServer(request.param)), stack)


def test_a_transaction_that_a_driver_has_left_open_is_ended(place: Place) -> None:
    late, mine = place.session(), place.session()
    with pytest.raises(Retry), late.transaction():
        late.run(WRITES)
        assert mine.end_left_open([OTHER]) == [], "it has changed nothing of this one"
        (ended,) = mine.end_left_open([COPY, OTHER])
        assert ended.startswith(("backend ", "connection "))
        late.run(WRITES)
    with mine.transaction():
        mine.run(WRITES)
    assert place.server.execute("SELECT n FROM shop.item") == [(2,)], "nothing of the late one's"
    assert mine.end_left_open([COPY]) == []


def test_transactions_of_other_programs_and_idle_sessions_stay(place: Place) -> None:
    idle, person, mine = place.session(), place.session("psql"), place.session()
    idle.run(WRITES)
    with person.transaction():
        person.run(WRITES)
        assert mine.end_left_open([COPY]) == []
    idle.run(WRITES)
    assert place.server.execute("SELECT n FROM shop.item") == [(4,)]


def test_a_reader_of_a_chunk_that_loads_it_stays(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be this driver's."""
    monkeypatch.setattr(left_open, "PATIENCE", "0 seconds")
    with ExitStack() as stack:
        place = InPostgres(postgres, stack)
        load, mine = place.session(), place.session()
        relation = load.relation(COPY)
        assert relation is not None
        with load.transaction():
            assert load.late_keys.enter(COPY, relation, [('"n"', "integer")], lambda: True)
            assert mine.end_left_open([COPY]) == []
            load.run(WRITES)
    assert postgres.execute("SELECT n FROM shop.item") == [(2,)]


def test_a_driver_that_stands_still_while_it_creates_a_copy_is_ended(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can create another one meanwhile, and nobody sees that table."""
    monkeypatch.setattr(left_open, "PATIENCE", "0 seconds")
    with ExitStack() as stack:
        place = InPostgres(postgres, stack)
        late, mine, program = place.session(), place.session(), place.session("psql")
        with pytest.raises(Retry), late.transaction():
            late.alone()
            late.run("CREATE TABLE shop.made (n int)")
            assert program.end_left_open([("shop", "made")]) == [], "it is of another program"
            assert len(mine.end_left_open([("shop", "made")])) == 1
            late.run("INSERT INTO shop.made VALUES (1)")
        with mine.transaction():
            mine.alone()
            mine.run("CREATE TABLE shop.made (n int)")
    assert postgres.execute("SELECT count(*) FROM shop.made") == [(0,)], "nothing of the late one's"


@pytest.mark.parametrize("release", turns("mariadb-10.11", MARIADB_NEWEST))
def test_mariadb_ends_them_by_itself(release: str) -> None:
    """It does not tell who has locked which table."""
    with MysqlServer(release) as server, ExitStack() as stack:
        place = InMysql(server, stack)
        late, mine = place.session(), place.session()
        ((_, seconds),) = late.rows("SHOW SESSION VARIABLES LIKE 'idle_write_transaction_timeout'")
        assert int(seconds) == 1800
        late.run("SET SESSION idle_write_transaction_timeout = 1")
        ((number,),) = late.rows("SELECT CONNECTION_ID()")
        lives = f"SELECT 1 FROM information_schema.processlist WHERE id = {number}"
        with pytest.raises(Retry), late.transaction():
            late.run(WRITES)
            assert mine.end_left_open([COPY]) == []
            until(lambda: not server.execute(lives), "it is ended")
            late.run(WRITES)
        assert server.execute("SELECT n FROM shop.item") == [(1,)]
