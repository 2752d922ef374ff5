"""A target's server that is lost in the middle of a COMMIT, or fails over to one that has not got the last ones."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from support.database_copies import SHOP, TABLES, begin, of_mysql, of_postgres, settle
from support.mysql import MARIADB_NEWEST, MYSQL, TARGETS, MysqlServer
from support.mysql_replicas import caught_up, follow, promote
from support.pipeline import Pipeline
from support.postgres import PostgresServer, standby_of
from support.relay import Relay
from support.versions import one_of, turns
from support.waiting import until
from tailrace.databases.mysql.connect import MyConfig
from tailrace.targets.mysql import session as mysql_session
from tailrace.targets.pauses import PAUSES

Server = PostgresServer | MysqlServer
CHANGES = "UPDATE shop.item SET price = price + 1; INSERT INTO shop.visit VALUES (9, 'new'), (9, 'new')"
"""A row without a key that is applied twice would be there twice."""


def texts(server: PostgresServer, table: str, dbname: str) -> list[str]:
    return sorted(row for (row,) in server.execute(f"SELECT t::text FROM shop.{table} t", dbname=dbname))


@contextmanager
def level(relay: Relay, source: PostgresServer, target: Server, folder: Path) -> Iterator[Pipeline]:
    """A copy that is level. Its connections go through the relay, which sees what they say."""
    plain = {"mode": "disable"}
    copy = begin(source.source(), target, folder, host=relay.host, port=relay.port, tls=plain)
    with copy.running():
        settle(copy)
        yield copy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("product", turns("postgresql", "mysql"))
def test_a_commit_whose_answer_is_lost_counts_once(postgres: PostgresServer, product: str, tmp_path: Path) -> None:
    postgres.execute(SHOP)
    postgres.execute("CREATE DATABASE copy")
    with ExitStack() as stack:
        target = stack.enter_context(other(product, postgres))
        relay = stack.enter_context(Relay(target.port))
        copy = stack.enter_context(level(relay, postgres, target, tmp_path))
        for cut in ("after", "before", "after"):
            relay.cut = cut
            postgres.execute(CHANGES)
            copy.until(lambda _: relay.cut is None, work=True)
            settled(copy)
            for table in TABLES:
                if isinstance(target, MysqlServer):
                    assert of_mysql(target, f"shop.{table}") == of_postgres(postgres, f"shop.{table}")
                else:
                    assert texts(target, table, "copy") == texts(postgres, table, "postgres")


@contextmanager
def other(product: str, postgres: PostgresServer) -> Iterator[Server]:
    if product == "postgresql":
        yield postgres
        return
    with MysqlServer(one_of(TARGETS, __name__)) as server:
        yield server


def settled(copy: Pipeline) -> None:
    """Whatever had to be tried again."""
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(end)
    copy.until(lambda _: not copy.driver.faults(), work=True)


@pytest.mark.timeout(300)
def test_what_a_standby_has_not_got_is_applied_again_after_a_failover(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute(SHOP)
    with PostgresServer(postgres.major) as primary:
        primary.execute("CREATE DATABASE copy")
        with ExitStack() as stack:
            relay = stack.enter_context(Relay(primary.port))
            copy = stack.enter_context(level(relay, postgres, primary, tmp_path))
            standby = stack.enter_context(standby_of(primary))
            received = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            ((end,),) = primary.execute("SELECT pg_current_wal_lsn()")
            copy.until(lambda _: standby.execute(received, [end]) == [(True,)])
            standby.stop()
            postgres.execute(CHANGES)
            settle(copy)
            before = texts(primary, "item", "copy")
            primary.kill()
            standby.start()
            standby.execute("SELECT pg_promote()")
            assert texts(standby, "item", "copy") != before
            relay.server_port = standby.port
            postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id < 9")
            settled(copy)
            for table in TABLES:
                assert texts(standby, table, "copy") == texts(postgres, table, "postgres")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_what_a_replica_of_mysql_has_not_got_is_applied_again_after_a_failover(
    postgres: PostgresServer, name: str, tmp_path: Path
) -> None:
    postgres.execute(SHOP)
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(MysqlServer(name)) for _ in range(2))
        primary.script("CREATE USER repl IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl")
        follow(replica, primary)
        relay = stack.enter_context(Relay(primary.port))
        copy = begin(postgres.source(), primary, tmp_path, host=relay.host, port=relay.port)
        with copy.running():
            settle(copy)
            caught_up(replica, primary)
            replica.script("STOP REPLICA")
            postgres.execute(CHANGES)
            settle(copy)
            before = of_mysql(primary, "shop.item")
            primary.kill()
            promote(replica)
            assert of_mysql(replica, "shop.item") != before
            relay.server_port = replica.port
            postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id < 9")
            settled(copy)
            for table in TABLES:
                assert of_mysql(replica, f"shop.{table}") == of_postgres(postgres, f"shop.{table}")


def test_a_mysql_that_does_not_answer_is_named_while_it_is_waited_for(
    mysql: MysqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock stands in for a full disk, on which sessions wait without an error."""
    monkeypatch.setattr(mysql_session, "SILENT_SECONDS", 0.1)
    config = MyConfig(mysql.host, mysql.port, None, mysql.user, "tailrace test", part="target")
    waiting = mysql_session.MysqlTargetSession(config)
    with closing(mysql.connect()) as holder, closing(waiting), holder.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK('disk', 0)")
        thread = threading.Thread(target=waiting.rows, args=("SELECT GET_LOCK('disk', 60)",), daemon=True)
        assert PAUSES.why is None
        thread.start()
        said = until(lambda: PAUSES.why, "it is told")
        assert f"{mysql.host}:{mysql.port} has not answered for 0 s: " in said and "room on its disk" in said
        cursor.execute("SELECT RELEASE_LOCK('disk')")
        thread.join(60)
        assert PAUSES.why is None
