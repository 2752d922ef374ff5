"""A server that is killed when its log and its tables differ: in the middle of a statement on a table without
transactions, and while it decides an XA transaction. What the log does not have is read again."""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pymysql
import pytest

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun, by_chunk
from support.mysql_replicas import copy_of, level, read_all
from support.mysql_stalls import hanging_commits, make_commits_hang
from support.versions import turns
from support.waiting import until
from tailrace.errors import Retry

XA = ("XA START 'x'", "INSERT INTO shop.plain VALUES (7, 'seven', 7)", "XA END 'x'", "XA PREPARE 'x'")
OTHER = "CREATE TABLE d.other (id int PRIMARY KEY, v int)"
STUCK = "UPDATE d.kept SET v = id + SLEEP(IF(id < 20, 0, 3600))"
"""Changes some rows, and ends at the next one."""


@pytest.fixture(params=turns(MYSQL, "mysql-8.0", MARIADB_NEWEST))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script("CREATE DATABASE d", OTHER)
        running.script("CREATE TABLE d.kept (id int PRIMARY KEY, v int) ENGINE = MyISAM")
        yield running


@contextmanager
def killed_halfway(server: MysqlServer) -> Iterator[None]:
    """Statements inside are run while it hangs at a row."""

    def write() -> None:
        with suppress(pymysql.err.MySQLError):
            server.execute(STUCK)

    writer = threading.Thread(target=write)
    writer.start()
    hangs = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'UPDATE%SLEEP%' AND state = 'User sleep'"
    until(lambda: server.execute(hangs), "an UPDATE that hangs")
    yield
    server.kill()
    writer.join()
    server.start()
    server.execute("REPAIR NO_WRITE_TO_BINLOG TABLE d.kept")


def rereads(run: LogRun) -> dict[str, int | None]:
    return {t.schema.name: t.reread_record for t in run.journal.state.tables.values()}


@pytest.mark.parametrize("behind", turns(False, True))
def test_tables_without_transactions_are_read_again_after_a_crash(
    server: MysqlServer, tmp_path: Path, behind: bool
) -> None:
    """`behind`: the file in which the server crashed has changes that were not read before."""
    with LogRun(server, tmp_path) as run:
        server.execute("INSERT INTO d.kept VALUES " + ",".join(f"({i}, 0)" for i in range(200)))
        run.catch_up()
        before = rereads(run)
    with killed_halfway(server):
        if behind:
            server.script("INSERT INTO d.other (id) VALUES (900)")
    assert server.execute("SELECT id FROM d.kept WHERE v > 0")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert not any(row["v"] for row in run.rows("d.kept")) and len(run.rows("d.other")) == behind
        once = rereads(run)
        assert once["d.kept"] != before["d.kept"] and once["d.other"] == before["d.other"]
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert rereads(run) == once


@pytest.mark.parametrize("settings", [{"innodb_flush_log_at_trx_commit": 0}, {"sync_binlog": 0}], ids=str)
def test_every_table_is_read_again_after_a_crash_that_may_have_lost_rows_or_log(
    tmp_path: Path, settings: dict[str, int]
) -> None:
    """MySQL loses transactions here that its log has: they were not on the disk."""
    with MysqlServer(MYSQL, innodb_flush_log_at_timeout=600, **settings) as server:
        server.script("CREATE DATABASE d", OTHER)
        with LogRun(server, tmp_path) as run:
            server.script(*(f"INSERT INTO d.other (id) VALUES ({number})" for number in range(9)))
            run.catch_up()
            before = rereads(run)
            server.kill()
        server.start()
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            lost = len(run.rows("d.other")) > len(by_chunk(server, "d.other"))
            # A busy machine may have brought them to the disk all the same.
            assert not (lost and "sync_binlog" in settings) and rereads(run)["d.other"] != before["d.other"]


def test_a_server_that_was_shut_down_has_its_tables_read_once(server: MysqlServer, tmp_path: Path) -> None:
    """Also where it is shut down while its log is read, and where what came last was not read."""
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.kept VALUES (1, 1)")
        run.catch_up()
        before = rereads(run)
        server.restart()
        with pytest.raises(Retry):
            while True:
                run.stream.read(1 << 20, 0.2)
                select.select([run.stream.fileno()], [], [], 0.2)
        run.stream.cut()
    for statement in ("INSERT INTO d.kept VALUES (2, 2)", "FLUSH LOGS"):
        server.restart()
        server.script(statement)
        server.restart()
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            assert rereads(run) == before


def test_a_crash_is_met_once_also_where_an_older_transaction_is_sent_again(server: MysqlServer, tmp_path: Path) -> None:
    """As long as an XA transaction of before the crash is prepared, each start is sent the log from there on."""
    with LogRun(server, tmp_path) as run:
        xa = ("XA START 'x'", "INSERT INTO d.other (id) VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
        server.script("INSERT INTO d.kept VALUES (1, 1)", *xa)
        run.catch_up()
        before = rereads(run)
    server.kill()
    server.start()
    server.execute("REPAIR NO_WRITE_TO_BINLOG TABLE d.kept")
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.other (id) VALUES (2)")
        run.catch_up()
        once = rereads(run)
        assert once["d.kept"] != before["d.kept"]
    for _ in range(2):
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            assert rereads(run) == once
    server.execute("XA COMMIT 'x'")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert [row["id"] for row in run.rows("d.other")] == [1, 2] and rereads(run) == once


def killed_when_logged(server: MysqlServer, *statements: str) -> None:
    """The server is killed when the last statement of a session is in its log and not carried out."""

    def write() -> None:
        with suppress(pymysql.err.OperationalError):
            server.script(*statements)

    make_commits_hang(server)
    writer = threading.Thread(target=write)
    with suppress(pymysql.err.OperationalError), hanging_commits(server):
        writer.start()
        file, logged = server.execute("SHOW BINARY LOGS")[-1][0], statements[-1].rpartition(" ")[0]
        events = f"SHOW BINLOG EVENTS IN '{file}'"
        until(lambda: any(logged in str(row[5]) for row in server.execute(events)), "the statement in the log")
        server.kill()
    writer.join()
    server.start()


@pytest.mark.parametrize("server", [MARIADB_NEWEST], indirect=True)
@pytest.mark.parametrize(
    ("logged", "decided"), turns(("COMMIT", "COMMIT"), ("COMMIT", "ROLLBACK"), ("ROLLBACK", "COMMIT"))
)
def test_an_xa_transaction_that_is_decided_again_after_a_crash_ends_as_in_the_server(
    server: MysqlServer, tmp_path: Path, logged: str, decided: str
) -> None:
    """MariaDB comes back with the transaction prepared, although its log says how it was decided."""
    mysql_shop.create(server)
    copy = copy_of(server, tmp_path)
    with copy.running():
        read_all(copy)
        server.script(*XA)
        level(server, copy)
    killed_when_logged(server, f"XA {logged} 'x'")
    assert server.execute("XA RECOVER") and not server.execute("SELECT * FROM shop.plain")
    with copy.running():
        read_all(copy)
        assert len(copy.lake.table("shop", "plain").rows()) == (logged == "COMMIT")
    server.execute(f"XA {decided} 'x'")
    with copy.running():
        level(server, copy)
        server.execute("INSERT INTO shop.plain VALUES (8, 'eight', 8)")
        level(server, copy)


@pytest.mark.parametrize("server", [MARIADB_NEWEST], indirect=True)
@pytest.mark.parametrize("restarted", turns(False, True))
def test_an_xa_transaction_that_a_crash_took_back_is_not_waited_for(
    server: MysqlServer, tmp_path: Path, restarted: bool
) -> None:
    """MariaDB has logged its XA PREPARE. The log is not needed from there on. `restarted`: capture, too, in between."""
    mysql_shop.create(server)
    copy = copy_of(server, tmp_path)
    with copy.running():
        level(server, copy)
    killed_when_logged(server, *XA)
    assert not server.execute("XA RECOVER")
    if restarted:
        server.execute("INSERT INTO shop.plain VALUES (6, 'six', 6)")
        with copy.running():
            level(server, copy)
    with copy.running():
        end = time.monotonic() + 60
        for number in count(100):
            server.execute(f"INSERT INTO shop.plain VALUES ({number}, 'after', 1)")
            level(server, copy)
            if "~" not in str(copy.state.source_state):
                break
            assert time.monotonic() < end
    server.script("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{server.execute('SHOW BINARY LOGS')[-1][0]}'")
    with copy.running():
        level(server, copy)


def test_an_xa_transaction_that_is_still_prepared_is_waited_for_through_other_files_of_the_log(
    server: MysqlServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mysql_shop.create(server)
    copy = copy_of(server, tmp_path)
    xid = "X'00ff27','b~',7"  # bytes that are no text
    with copy.running():
        level(server, copy)
        rows = "INSERT INTO shop.plain VALUES (7, 'seven', 7)"
        server.script(f"XA START {xid}", rows, f"XA END {xid}", f"XA PREPARE {xid}")
        server.execute("FLUSH BINARY LOGS")
        end = time.monotonic() + 2.0
        for number in count(100):
            server.execute(f"INSERT INTO shop.plain VALUES ({number}, 'after', 1)")
            level(server, copy)
            if time.monotonic() > end:
                break
        assert server.execute("XA RECOVER" if server.mariadb else "XA RECOVER CONVERT XID")
        server.execute(f"XA COMMIT {xid}")
        level(server, copy)
    assert (7, "seven", 7) in server.execute("SELECT * FROM shop.plain")
    assert "read again" not in caplog.text and "never happened" not in caplog.text
