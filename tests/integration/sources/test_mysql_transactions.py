"""Transactions of the logs of MySQL and MariaDB in unusual forms: compressed, tagged, rolled back after they were
logged, and those of XA that an engine carries out later than the log tells.
"""

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from support import mysql_shop
from support.mysql import MYSQL, MysqlServer
from support.mysql_log import LogRun, by_chunk, config_of, source_rows
from support.mysql_replicas import copy_of, level, read_all
from support.versions import turns
from tailrace.changelog.records.terms import Seq
from tailrace.databases.mysql.connect import connect
from tailrace.snapshot.replay import replay_point
from tailrace.sources.mysql.log_end import visible_transactions
from tailrace.sources.mysql.position import OWN
from tailrace.sources.mysql.visibility import visibility

TABLE = "CREATE TABLE d.t (id int PRIMARY KEY, v varchar(20))"


@pytest.mark.mysql("mariadb-11.8", log_bin_compress=1, log_bin_compress_min_len=10)
def test_mariadbs_compressed_events_are_rows(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", TABLE)
    with LogRun(mysql, tmp_path) as run:
        mysql.script(
            "INSERT INTO d.t VALUES (1, REPEAT('a', 20)), (2, REPEAT('a', 20))",
            "UPDATE d.t SET v = REPEAT('b', 20)",
            "DELETE FROM d.t WHERE id = 2",
        )
        run.catch_up()
        assert run.rows("d.t") == source_rows(mysql)


@pytest.mark.mysql(MYSQL)
def test_mysqls_compressed_and_tagged_transactions_are_rows(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", TABLE)
    with LogRun(mysql, tmp_path) as run:
        mysql.script("SET SESSION binlog_transaction_compression = ON", "INSERT INTO d.t VALUES (1, 'a')")
        mysql.script(
            "SET gtid_next = 'AUTOMATIC:red'",
            "INSERT INTO d.t VALUES (2, 'b')",
            "SET SESSION binlog_transaction_compression = ON",
            "UPDATE d.t SET v = 'c'",
        )
        run.catch_up()
    mysql.script("SET gtid_next = 'AUTOMATIC:red'", "INSERT INTO d.t VALUES (3, 'c')")
    with LogRun(mysql, tmp_path) as run:
        run.catch_up()
        assert run.rows("d.t") == source_rows(mysql)
        assert ":red:1-3" in (run.journal.state.source_state or "")


@pytest.mark.mysql(MYSQL, max_allowed_packet="64M")
def test_a_compressed_transaction_is_unpacked_piece_by_piece(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v text)")
    numbers = " CROSS JOIN ".join(f"(SELECT 0 x UNION SELECT {1 << i}) a{i}" for i in range(11))
    total = "+".join(f"a{i}.x" for i in range(11))
    many = f"INSERT INTO d.t SELECT {total}, REPEAT('v', 16000) FROM {numbers}"
    with LogRun(mysql, tmp_path, memory=1 << 20) as run:
        mysql.script("SET SESSION binlog_transaction_compression = ON", many)
        tracemalloc.start()
        try:
            run.catch_up()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 16 << 20, f"{most >> 20} MiB for a transaction of {2048 * 16000 >> 20} MiB"
        assert run.table("d.t").stopped is None and len(run.changes("d.t")) == 2048


@pytest.mark.mysql("mariadb-11.8")
@pytest.mark.parametrize("back", [("ROLLBACK",), ("ROLLBACK TO s", "COMMIT")])
def test_rows_that_are_rolled_back_in_the_log_are_read_again(
    mysql: MysqlServer, tmp_path: Path, back: tuple[str, ...]
) -> None:
    """MariaDB logs a transaction with a temporary table's statement although it is rolled back."""
    mysql.script("CREATE DATABASE d", TABLE)
    with LogRun(mysql, tmp_path) as run:
        temporary = ("USE d", "CREATE TEMPORARY TABLE z (id int)", "BEGIN", "INSERT INTO t VALUES (1, 'a')")
        mysql.script(*temporary, "SAVEPOINT s", "INSERT INTO t VALUES (2, 'b')", "DROP TEMPORARY TABLE z", *back)
        mysql.script("INSERT INTO d.t VALUES (3, 'c')")
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and table.reread_record > 0
        assert run.rows("d.t")[-1] == {"id": 3, "v": "c"}


@pytest.mark.mysql("mariadb-11.8")
def test_a_rolled_back_transaction_of_which_segments_have_rows_is_read_over(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v text)", "CREATE TABLE d.u LIKE d.t")
    with LogRun(mysql, tmp_path, memory=1 << 20) as run:
        values = ", ".join(f"({i}, '{'x' * 1000}')" for i in range(3000))
        many = ("INSERT INTO u VALUES (7, 'u')", f"INSERT INTO t VALUES {values}")
        mysql.script("USE d", "CREATE TEMPORARY TABLE z (id int)", "BEGIN", *many, "DROP TEMPORARY TABLE z", "ROLLBACK")
        mysql.script("INSERT INTO d.t VALUES (3, 'c')")
        run.catch_up()
        for name in ("d.t", "d.u"):
            assert run.table(name).stopped is None and run.table(name).reread_record > 0
        assert {"id": 3, "v": "c"} in run.rows("d.t")


@pytest.mark.mysql("mariadb-11.8")
def test_what_an_xa_transaction_rolls_back_to_a_savepoint_is_read_again(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", TABLE)
    with LogRun(mysql, tmp_path) as run:
        begun = ("USE d", "CREATE TEMPORARY TABLE z (id int)", "XA START 'a'", "INSERT INTO t VALUES (1, 'a')")
        undone = ("SAVEPOINT s", "INSERT INTO t VALUES (2, 'b')", "DROP TEMPORARY TABLE z", "ROLLBACK TO s")
        mysql.script(*begun, *undone, "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'", "INSERT INTO t VALUES (3, 'c')")
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and table.reread_record > 0
        assert run.rows("d.t")[-1] == {"id": 3, "v": "c"}


@pytest.mark.mysql("mariadb-10.11")
def test_a_chunk_that_an_xa_commit_in_the_log_is_still_hidden_from_is_replayed_from_there(
    mysql: MysqlServer, tmp_path: Path
) -> None:
    """The server lists the transaction until its engine has carried the XA COMMIT out: a moment that is too short to
    wait for, so its list from before stands for it."""
    mysql.script("CREATE DATABASE d", TABLE)
    with (
        LogRun(mysql, tmp_path) as run,
        closing(connect(config_of(mysql))) as connection,
        mysql.connect() as session,
        session.cursor() as cursor,
    ):
        mysql.script("INSERT INTO d.t VALUES (1, 'a')")
        for statement in ("XA START 'b'", "INSERT INTO d.t VALUES (2, 'b')", "XA END 'b'", "XA PREPARE 'b'"):
            cursor.execute(statement)
        listed = visible_transactions(connection, OWN)
        run.catch_up()
        mysql.script("INSERT INTO d.t VALUES (3, 'c')")
        cursor.execute("XA COMMIT 'b'")
        mysql.script("INSERT INTO d.t VALUES (4, 'd')")
        carried_out = visible_transactions(connection, OWN)
        run.catch_up()
        hidden = f"{carried_out}/{listed.partition('/')[2]}"
        state = run.journal.state
        points = [
            replay_point(visibility(text), state.transactions, Seq(state.last_seq + 1))
            for text in (listed, hidden, carried_out)
        ]
        assert points == [2, 3, 5] and [row["id"] for row in run.changes("d.t")] == [1, 3, 2, 4]


@pytest.fixture(params=turns("mysql-8.0", "mariadb-10.11", "mariadb-11.8"))
def losing(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    """A server that can lose the rows of an XA COMMIT by another session than the one that prepared the transaction."""
    with MysqlServer(request.param) as server:
        mysql_shop.create(server)
        server.execute("CREATE TABLE shop.keys_only (a int, b int, PRIMARY KEY (a, b))")
        server.script(*(f"INSERT INTO shop.plain VALUES ({i}, 'old', {i})" for i in range(6)))
        yield server


XA_ROWS = (
    "INSERT INTO shop.plain VALUES (10, 'new', 1), (11, 'new', 2)",
    "UPDATE shop.plain SET v = 'xa' WHERE id IN (1, 2)",
    "UPDATE shop.plain SET id = id + 10 WHERE id IN (3, 4)",
    "DELETE FROM shop.plain WHERE id IN (0, 5)",
    "INSERT INTO shop.keys_only VALUES (1, 2), (3, 4)",
)


def prepared_and_left(server: MysqlServer, name: str, statements: Sequence[str]) -> None:
    """The session that prepared it is gone."""
    server.script(f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'")


def committed(server: MysqlServer, name: str) -> None:
    """By another session: as soon as the server lets it."""
    until = time.monotonic() + 30
    while True:
        try:
            return server.script(f"XA COMMIT '{name}'")
        except pymysql.MySQLError:
            assert time.monotonic() < until


def test_whether_such_rows_are_keys_alone_is_told_where_they_are_decoded(losing: MysqlServer, tmp_path: Path) -> None:
    """A column that a statement added is in the version from its first row on."""
    losing.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)", "CREATE TABLE d.u (id int PRIMARY KEY)")
    with LogRun(losing, tmp_path) as run:
        losing.execute("ALTER TABLE d.t ADD COLUMN v int")
        prepared_and_left(losing, "x", ["INSERT INTO d.t VALUES (1, 2)", "INSERT INTO d.u VALUES (1)"])
        time.sleep(0.2)
        committed(losing, "x")
        run.read()
        assert [(row["id"], row["v"], row["_unchanged"]) for row in run.changes("d.t")] == [(1, None, [1])]
        again = {name: [version.reread for version in run.table(name).schemas] for name in ("d.t", "d.u")}
        assert again == {"d.t": [False, False], "d.u": [False, True]}


@pytest.mark.parametrize("lost", [True, False])
def test_rows_of_an_xa_transaction_that_the_server_may_have_lost_are_looked_up(
    losing: MysqlServer, tmp_path: Path, lost: bool
) -> None:
    """Whether it lost them is not in its log. Here they are taken back behind the log's back."""
    copy = copy_of(losing, tmp_path)
    with copy.running():
        level(losing, copy)
        prepared_and_left(losing, "x", XA_ROWS)
        read_all(copy)
        copy.stop()
        time.sleep(0.2)
        committed(losing, "x")
        if lost:
            losing.script(
                "SET SESSION sql_log_bin = 0",
                "DELETE FROM shop.plain",
                *(f"INSERT INTO shop.plain VALUES ({i}, 'old', {i})" for i in range(6)),
                "DELETE FROM shop.keys_only",
            )
        copy.start()
        level(losing, copy)
        copied = copy.lake.table("shop", "keys_only").rows()
        assert len(copied) == (0 if lost else 2)
        assert not any(t.stopped for t in copy.state.tables.values())


@pytest.mark.parametrize("name", turns("mariadb-10.11", "mariadb-11.8"))
def test_rows_that_mariadb_may_have_undone_below_its_log_are_looked_up(name: str, tmp_path: Path) -> None:
    """What a failed statement takes with it: all that was inserted into the table while it was empty."""
    unchecked, insert = "SET unique_checks = 0, foreign_key_checks = 0", "INSERT INTO d.{} VALUES (1, 1), (2, 2)"
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d")
        server.script(*(f"CREATE TABLE d.{t} (id int PRIMARY KEY, v int, UNIQUE KEY (v))" for t in "tux"))
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            for table, settings in (("t", unchecked), ("u", "SET unique_checks = 0")):
                with closing(server.connect()) as session, session.cursor() as cursor:
                    for statement in (settings, "BEGIN", insert.format(table)):
                        cursor.execute(statement)
                    with pytest.raises(pymysql.MySQLError):
                        cursor.execute(f"INSERT INTO d.{table} VALUES (3, 1)")
                    cursor.execute("COMMIT")
            server.script(
                unchecked, "UPDATE d.u SET v = v + 10", "BEGIN", insert.format("x"), "UPDATE d.x SET v = v + 10"
            )
            run.catch_up()
            assert [by_chunk(server, f"d.{table}") for table in "tx"] == [[], []]
            assert [(row["id"], row["v"], row["_unchanged"]) for row in run.changes("d.t")] == [
                (1, None, [1]),
                (2, None, [1]),
            ]
            assert run.rows("d.u") == by_chunk(server, "d.u") and not run.changes("d.x")


@pytest.mark.mysql("mysql-8.0")
def test_an_xa_commit_of_the_session_that_prepared_it_is_certain(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE DATABASE d", TABLE)
    with LogRun(mysql, tmp_path) as run:
        whole = ("XA START 'x'", "INSERT INTO d.t VALUES (1, 'a')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
        mysql.script(*whole)
        run.catch_up()
        assert run.rows("d.t") == source_rows(mysql)


@pytest.mark.mysql(MYSQL)
@pytest.mark.parametrize("detaches", ["ON", "OFF"])
def test_an_xa_commit_of_another_session_is_certain_if_sessions_leave_what_they_prepared(
    mysql: MysqlServer, tmp_path: Path, detaches: str
) -> None:
    mysql.script("CREATE DATABASE d", TABLE, f"SET GLOBAL xa_detach_on_prepare = {detaches}")
    with LogRun(mysql, tmp_path) as run:
        prepared_and_left(mysql, "x", ["INSERT INTO d.t VALUES (1, 'a')"])
        committed(mysql, "x")
        run.catch_up()
        (row,) = run.changes("d.t")
        assert (row["v"], row["_unchanged"]) == (("a", None) if detaches == "ON" else (None, [1]))
