"""A server that is killed in the middle of a statement on a table without transactions: the table keeps rows that the
log does not have, so it is read again."""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun
from tailrace.errors import Retry

SLOW = "UPDATE d.kept SET v = id + SLEEP(0.05)"


@pytest.fixture(params=[MYSQL, "mysql-8.0", MARIADB_NEWEST])
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script("CREATE DATABASE d", "CREATE TABLE d.other (id int PRIMARY KEY)")
        running.script("CREATE TABLE d.kept (id int PRIMARY KEY, v int) ENGINE = MyISAM")
        yield running


@contextmanager
def killed_halfway(server: MysqlServer) -> Iterator[None]:
    """Statements inside are run while it works."""

    def write() -> None:
        with suppress(pymysql.err.MySQLError):
            server.execute(SLOW)

    writer = threading.Thread(target=write)
    writer.start()
    until = time.monotonic() + 60
    while not server.execute("SELECT 1 FROM information_schema.processlist WHERE info LIKE 'UPDATE%SLEEP%'"):
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.5)
    yield
    server.kill()
    writer.join()
    server.start()
    server.execute("REPAIR NO_WRITE_TO_BINLOG TABLE d.kept")


def rereads(run: LogRun) -> dict[str, int | None]:
    return {t.schema.name: t.reread_record for t in run.journal.state.tables.values()}


@pytest.mark.parametrize("behind", [False, True])
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
            server.script("INSERT INTO d.other VALUES (900)")
    assert server.execute("SELECT id FROM d.kept WHERE v > 0")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert not any(row["v"] for row in run.rows("d.kept")) and len(run.rows("d.other")) == behind
        once = rereads(run)
        assert once["d.kept"] != before["d.kept"] and once["d.other"] == before["d.other"]
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert rereads(run) == once


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
