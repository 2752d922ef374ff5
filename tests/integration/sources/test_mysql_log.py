"""The binary logs of MySQL and MariaDB as a change stream: transactions, XA through restarts, DDL, large rows, ends."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pymysql
import pytest

from support.mysql import MARIADB_NEWEST, MysqlServer
from support.mysql_log import PATIENCE, LogRun, by_chunk, config_of, source_rows
from support.versions import release_for, turns
from tailrace.changelog.dropped import due
from tailrace.errors import PositionLost, Retry
from tailrace.sources.mysql import admission, catalog
from tailrace.sources.mysql.log import tables
from tailrace.sources.mysql.log_end import log_end, visible_transactions
from tailrace.sources.mysql.model import identity, number_of
from tailrace.sources.mysql.position import OWN

TABLE = "CREATE TABLE d.t (id int PRIMARY KEY, v varchar(20))"


@pytest.fixture(params=turns("mysql", "mariadb"))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(release_for(request.param, request.node.nodeid), max_allowed_packet="64M") as running:
        running.script("CREATE DATABASE d", TABLE)
        yield running


@pytest.fixture
def run(server: MysqlServer, tmp_path: Path) -> Iterator[LogRun]:
    with LogRun(server, tmp_path) as begun:
        yield begun


def test_every_operation_arrives_once_in_order(server: MysqlServer, run: LogRun) -> None:
    server.script("INSERT INTO d.t VALUES (1, 'a'), (2, NULL), (3, 'c')", "UPDATE d.t SET v = 'x' WHERE id < 3")
    server.script("UPDATE d.t SET id = id + 10 WHERE id > 1", "DELETE FROM d.t WHERE id = 1")
    server.script("TRUNCATE d.t", "INSERT INTO d.t VALUES (7, 'z')")
    run.catch_up()
    assert run.rows("d.t") == source_rows(server) == [{"id": 7, "v": "z"}]
    operations = [row["_op"] for row in run.changes("d.t")]
    assert operations == ["I", "I", "I", "U", "U", *["D", "M"] * 2, "D", "I"]
    assert [row["_seq"] for row in run.changes("d.t")] == [*range(1, 11), 12]


def test_what_was_rolled_back_never_arrives(server: MysqlServer, run: LogRun) -> None:
    server.script(
        "SET autocommit = 0", "INSERT INTO d.t VALUES (1, 'a')", "ROLLBACK", "INSERT INTO d.t VALUES (2, 'b')"
    )
    server.script(
        "SET autocommit = 0",
        "INSERT INTO d.t VALUES (3, 'a')",
        "SAVEPOINT s",
        "DELETE FROM d.t",
        "ROLLBACK TO s",
        "COMMIT",
    )
    run.catch_up()
    assert run.rows("d.t") == source_rows(server) == [{"id": 3, "v": "a"}]


def test_xa_rows_count_from_their_commit_also_through_restarts(server: MysqlServer, tmp_path: Path) -> None:
    sessions = {name: server.connect() for name in ("kept", "undone")}
    with LogRun(server, tmp_path) as run:
        for key, (name, session) in enumerate(sessions.items(), 1):
            with session.cursor() as cursor:
                cursor.execute(f"XA START '{name}'")
                cursor.execute(f"INSERT INTO d.t VALUES ({key}, 'xa')")
                cursor.execute(f"XA END '{name}'")
                cursor.execute(f"XA PREPARE '{name}'")
        server.script("INSERT INTO d.t VALUES (3, 'plain')")
        run.catch_up()
        assert run.rows("d.t") == [{"id": 3, "v": "plain"}]
    with LogRun(server, tmp_path) as run:
        for (name, session), how in zip(sessions.items(), ("COMMIT", "ROLLBACK"), strict=True):
            with closing(session), session.cursor() as cursor:
                cursor.execute(f"XA {how} '{name}'")
        server.script("XA START 'b'", "INSERT INTO d.t VALUES (4, 'xa')", "XA END 'b'", "XA COMMIT 'b' ONE PHASE")
        run.catch_up()
        assert run.rows("d.t") == source_rows(server)
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert [row["id"] for row in run.changes("d.t")] == [3, 1, 4]


def test_a_restart_continues_behind_what_is_recorded_over_rotated_files_and_a_restarted_server(
    server: MysqlServer, tmp_path: Path
) -> None:
    for life in range(3):
        with LogRun(server, tmp_path) as run:
            server.script(f"INSERT INTO d.t VALUES ({life}, 'v')", "FLUSH LOGS", f"UPDATE d.t SET v = 'w{life}'")
            run.catch_up()
        server.script(f"INSERT INTO d.t VALUES (1{life}, 'meanwhile')")
        server.restart()
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert run.rows("d.t") == source_rows(server)


def test_a_log_that_the_server_no_longer_has_is_a_lost_position(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path) as run:
        run.catch_up()
    server.script("INSERT INTO d.t VALUES (1, 'gone')", "FLUSH LOGS", "INSERT INTO d.t VALUES (2, 'kept')")
    first, last = (server.execute("SHOW BINARY LOGS")[i][0] for i in (0, -1))
    until = time.monotonic() + 30
    while server.execute("SHOW BINARY LOGS")[0][0] == first:  # a file that is still being sent stays
        assert time.monotonic() < until
        server.script(f"PURGE BINARY LOGS TO '{last}'")
    with pytest.raises(PositionLost), LogRun(server, tmp_path) as run:
        run.catch_up()


def test_a_server_that_goes_away_is_tried_again(server: MysqlServer, run: LogRun) -> None:
    run.catch_up()
    server.kill()
    with pytest.raises(Retry):
        while True:
            run.stream.read(1 << 20, 0.1)


def test_whatever_is_asked_on_a_connection_that_the_server_has_ended_is_tried_again(
    server: MysqlServer, run: LogRun
) -> None:
    run.catch_up()
    server.kill()
    stream, connection = run.stream, run._connection
    asked: list[Callable[[], object]] = [
        *(stream.current_snapshot, stream.poll_catalog, lambda: stream.distance(stream.position)),
        *(lambda: log_end(connection, OWN), lambda: visible_transactions(connection, OWN)),
        lambda: admission.end_of_log(config_of(server), connection),
    ]
    for ask in asked:
        with pytest.raises(Retry):
            ask()


@pytest.mark.parametrize("missing", [0, 7])
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_transaction_that_a_crash_cut_off_never_happened(server: MysqlServer, tmp_path: Path, missing: int) -> None:
    """Before its end: MariaDB leaves it at the end of the file (MySQL takes it away). `missing`: bytes of its rows."""
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.t VALUES (1, 'whole')")
        run.catch_up()
    server.script("INSERT INTO d.t VALUES (2, 'cut')")
    file = server.execute("SHOW BINARY LOGS")[-1][0]
    behind_rows = server.execute(f"SHOW BINLOG EVENTS IN '{file}'")[-1][1]
    server.kill()
    with (server.data_dir / file).open("r+b") as log:
        log.truncate(behind_rows - missing)
    server.start()
    server.script("DELETE FROM d.t WHERE id = 2", "INSERT INTO d.t VALUES (3, 'after')")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert run.rows("d.t") == source_rows(server)
        assert 2 not in [row["id"] for row in run.changes("d.t") if row["_op"] != "D"]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before `server`: where its files are in memory, 100 MB are committed before anybody can kill it."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")


def test_a_large_transaction_in_which_the_server_was_killed_is_read_over(
    on_disk: None, server: MysqlServer, tmp_path: Path
) -> None:
    """Parts of it are in segments by then."""
    server.script("CREATE TABLE d.big (id int PRIMARY KEY, v longtext)")
    with LogRun(server, tmp_path, memory=1 << 20) as run:
        run.catch_up()
        before = run.table("d.big").reread_record
    killed_while_logging(server)
    server.start()
    server.script("INSERT INTO d.big VALUES (1, 'after')", "INSERT INTO d.t VALUES (3, 'after')")
    assert server.execute("SELECT COUNT(*) FROM d.big") == [(1,)]
    with LogRun(server, tmp_path, memory=1 << 20) as run:
        run.catch_up()
        table = run.table("d.big")
        assert run.rows("d.t") == source_rows(server)
        assert table.stopped is None and (len(run.changes("d.big")) == 1 or table.reread_record > before)


def killed_while_logging(server: MysqlServer) -> None:
    """At the commit of 100 MB, when its log has begun to grow."""
    file = server.data_dir / server.execute("SHOW BINARY LOGS")[-1][0]
    with closing(server.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        for i in range(100):
            values = ", ".join(f"({i * 20 + j}, REPEAT('x', 50000))" for j in range(20))
            cursor.execute(f"INSERT INTO d.big VALUES {values}")
        begun = file.stat().st_size
        commit = threading.Thread(target=lambda: suppressed(connection.commit))
        commit.start()
        while file.stat().st_size < begun + (8 << 20) and commit.is_alive():
            pass
        server.kill()
        commit.join()


def suppressed(action: Callable[[], object]) -> None:
    with suppress(pymysql.MySQLError):
        action()


def test_a_transaction_larger_than_memory_and_a_row_of_many_packets_arrive_whole(
    server: MysqlServer, tmp_path: Path
) -> None:
    server.script("DROP TABLE d.t", "CREATE TABLE d.t (id int PRIMARY KEY, v longtext)")
    with LogRun(server, tmp_path, memory=1 << 20) as run:
        rows = ", ".join(f"({i}, '{'x' * 1000}')" for i in range(3, 5000))
        server.script(
            "SET autocommit = 0", f"INSERT INTO d.t VALUES {rows}", "UPDATE d.t SET v = 'y' WHERE id = 9", "COMMIT"
        )
        server.script("INSERT INTO d.t VALUES (1, REPEAT('z', 34000000))", "INSERT INTO d.t VALUES (2, 'small')")
        run.catch_up()
        assert run.rows("d.t") == source_rows(server)


def test_a_new_column_begins_with_the_first_row_that_has_it(server: MysqlServer, run: LogRun) -> None:
    server.script(
        "INSERT INTO d.t VALUES (1, 'a')",
        "ALTER TABLE d.t ADD COLUMN n int NULL FIRST",
        "INSERT INTO d.t VALUES (5, 2, 'b')",
    )
    run.catch_up()
    table = run.table("d.t")
    assert [(s.table.version, s.after_seq) for s in table.schemas] == [(1, 0), (2, 1)]
    assert (table.stopped, run.rows("d.t")[1]) == (None, {"id": 2, "v": "b", "n": 5})
    assert table.reread_record < 0


def test_a_default_that_fills_old_rows_has_them_read_again(server: MysqlServer, run: LogRun) -> None:
    server.script("INSERT INTO d.t VALUES (1, 'a')", "ALTER TABLE d.t ADD COLUMN n int NOT NULL DEFAULT 7")
    run.catch_up()
    table = run.table("d.t")
    assert (table.schema.version, table.stopped, table.reread_record > 0) == (2, None, True)


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_column_that_options_left_out_before_has_old_rows_read_again(
    server: MysqlServer, tmp_path: Path, with_rows: bool
) -> None:
    with LogRun(server, tmp_path, options=[{"match": "d.t", "columns": ["id"]}]) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')")
        run.catch_up()
    if with_rows:
        server.script("INSERT INTO d.t VALUES (2, 'b')")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        table = run.table("d.t")
        assert [c.name for c in table.schema.columns] == ["id", "v"]
        assert table.stopped is None and table.reread_record > 0


@pytest.mark.parametrize("when", ["at the statement", "from a restart on"])
def test_a_new_column_that_was_left_out_at_first_has_old_rows_read_again(
    server: MysqlServer, tmp_path: Path, when: str
) -> None:
    """It was NULL in every row when a statement added it, and is not by the time it is copied."""
    narrow = [{"match": "d.t", "columns": ["v"]}]
    with LogRun(server, tmp_path, options=narrow if when == "at the statement" else ()) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')", "CREATE TABLE d.other (id int PRIMARY KEY)")
        run.catch_up()
        server.script("ALTER TABLE d.t ADD COLUMN n int", "INSERT INTO d.other VALUES (1)")
        run.read()
    with LogRun(server, tmp_path, options=narrow) as run:
        server.script("UPDATE d.t SET n = 5")
        run.catch_up()
        assert run.table("d.t").reread_record == -1 and run.table("d.t").stopped is None
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        table = run.table("d.t")
        assert [c.name for c in table.schema.columns] == ["id", "v", "n"]
        assert table.stopped is None and table.reread_record > 0


def test_a_new_column_that_the_log_does_not_tell_of_has_old_rows_read_again(server: MysqlServer, run: LogRun) -> None:
    server.script("INSERT INTO d.t VALUES (1, 'a')")
    run.catch_up()
    server.script("SET SESSION sql_log_bin = 0", "ALTER TABLE d.t ADD COLUMN n int NOT NULL DEFAULT 7")
    run.catch_up()
    table = run.table("d.t")
    assert (table.schema.version, table.stopped, table.reread_record > 0) == (2, None, True)


def test_a_new_column_that_was_told_of_before_a_restart_is_not_read_again(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')", "CREATE TABLE d.other (id int PRIMARY KEY)")
        run.catch_up()
        server.script("ALTER TABLE d.t ADD COLUMN n int, ADD INDEX (n)", "INSERT INTO d.other VALUES (1)")
        run.read()
        assert run.table("d.t").schema.version == 1
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.t VALUES (2, 'b', 7)")
        run.catch_up()
        table = run.table("d.t")
        assert (table.schema.version, table.stopped, table.reread_record) == (2, None, -1)
        server.script("SET SESSION sql_log_bin = 0", "ALTER TABLE d.t ADD COLUMN m int NOT NULL DEFAULT 7")
        run.catch_up()
        assert run.table("d.t").reread_record > 0


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE d.t DROP COLUMN v", "ALTER TABLE d.t RENAME COLUMN v TO w", "ALTER TABLE d.t MODIFY v varbinary(20)"],
)
def test_what_cannot_be_followed_stops_the_table_by_name(server: MysqlServer, tmp_path: Path, statement: str) -> None:
    with LogRun(server, tmp_path, options=ADDITIVE) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')", statement, "INSERT INTO d.t (id) VALUES (2)")
        run.catch_up()
        stopped = run.table("d.t").stopped
        assert stopped is not None and (stopped.error, stopped.seq) == ("SchemaChangeUnsupported", 1)


ADDITIVE = ({"match": "d.t", "onSchemaChange": "EvolveAdditive"},)
STILL = ({"match": "d.t", "onSchemaChange": "Stop"},)


@pytest.mark.parametrize("seen_by", ["rows", "look", "restart"])
def test_a_table_that_is_to_stand_still_stops_at_a_new_column(
    server: MysqlServer, tmp_path: Path, seen_by: str
) -> None:
    with LogRun(server, tmp_path, options=STILL) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')")
        run.catch_up()
        if seen_by != "restart":
            server.script("ALTER TABLE d.t ADD COLUMN n int")
            server.script(*["INSERT INTO d.t VALUES (2, 'b', 7)"] * (seen_by == "rows"))
            run.catch_up()
            assert_still(run)
    if seen_by == "restart":
        server.script("ALTER TABLE d.t ADD COLUMN n int", "INSERT INTO d.t VALUES (2, 'b', 7)")
    with LogRun(server, tmp_path, options=STILL) as run:
        run.catch_up()
        assert_still(run)
    with LogRun(server, tmp_path, options=EVOLVE) as run:
        run.catch_up()
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and [c.name for c in table.schema.columns] == ["id", "v", "n"]


def assert_still(run: LogRun) -> None:
    table = run.table("d.t")
    assert table.stopped is not None and (table.stopped.error, table.stopped.seq) == ("SchemaChangeUnsupported", 1)
    assert "new column 'n', and onSchemaChange is Stop" in table.stopped.message


EVOLVE = ({"match": "d.t", "onSchemaChange": "Evolve"},)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE d.t DROP COLUMN v, ENGINE = InnoDB",
        "ALTER TABLE d.t RENAME COLUMN v TO w, ENGINE = InnoDB",
        "ALTER TABLE d.t MODIFY v varbinary(20), ENGINE = InnoDB",
        "ALTER TABLE d.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
    ],
)
def test_a_table_that_evolves_starts_over_in_its_new_form(server: MysqlServer, tmp_path: Path, statement: str) -> None:
    server.script("ALTER TABLE d.t ADD COLUMN n int NOT NULL DEFAULT 1")
    with LogRun(server, tmp_path, options=EVOLVE) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a', 1)")
        run.catch_up()
        before = run.table("d.t").generation
        server.script(statement, "INSERT INTO d.t (id, n) VALUES (2, 2)")
        run.catch_up()
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and table.initial_snapshot and table.generation > before
        there = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'd' AND table_name = 't'"
        assert {c.name for c in table.schema.columns} == {str(name) for (name,) in server.execute(there)}
        server.script("INSERT INTO d.t (id, n) VALUES (3, 3)")
        run.catch_up()
        assert run.table("d.t").generation == table.generation and 3 in [row["id"] for row in run.changes("d.t")]


def test_a_table_starts_over_once_its_log_is_behind_every_change_of_its_form(
    server: MysqlServer, tmp_path: Path
) -> None:
    with LogRun(server, tmp_path, options=EVOLVE) as run:
        server.script("INSERT INTO d.t VALUES (1, 'a')", "ALTER TABLE d.t RENAME COLUMN v TO w, ENGINE = InnoDB")
        server.script("INSERT INTO d.t VALUES (2, 'b')")
        run.read()
        server.script("ALTER TABLE d.t RENAME COLUMN w TO v", "INSERT INTO d.t VALUES (3, 'c')")
        server.script("ALTER TABLE d.t ADD COLUMN w varchar(20)", "INSERT INTO d.t VALUES (4, 'd', 'e')")
        run.stream.poll_catalog()
        assert run.table("d.t").stopped is not None, "rows in the form of before are still to come"
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and [c.name for c in table.schema.columns] == ["id", "v", "w"]


def test_text_means_what_it_meant_when_it_was_logged(server: MysqlServer, tmp_path: Path) -> None:
    """Rows of before and behind an ALTER that gives the same bytes another meaning."""
    columns = "p geometry, b blob, v varchar(20) CHARACTER SET latin1, e enum('a', 'b')"
    server.script("DROP TABLE d.t", f"CREATE TABLE d.t (id int PRIMARY KEY, {columns})")
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.t VALUES (1, NULL, x'62', 'é', 'b')")
        run.catch_up()
        server.script("ALTER TABLE d.t MODIFY v varchar(20) CHARACTER SET utf8mb4, MODIFY e enum('a', 'new', 'b')")
        server.script("INSERT INTO d.t (id, v, e) VALUES (2, 'é', 'b'), (3, '€', 'new')")
        run.catch_up()
        assert run.table("d.t").stopped is None
        assert run.rows("d.t") == source_rows(server, "id, p, b, v, e")


def test_rows_of_before_a_change_are_read_as_they_were_also_by_a_restart(server: MysqlServer, tmp_path: Path) -> None:
    """The catalog has the table as it is behind the ALTER."""
    columns = "v varchar(20) CHARACTER SET latin1, e enum('a', 'b'), x time(3), d datetime(3)"
    server.script("DROP TABLE d.t", f"CREATE TABLE d.t (id int PRIMARY KEY, {columns}, n decimal(9, 2))")
    times = "'12:00:00.125', '2024-01-01 12:00:00.125', 1.5"
    with LogRun(server, tmp_path) as run:
        server.script(f"INSERT INTO d.t VALUES (1, 'é', 'b', {times})")
        run.catch_up()
    server.script(f"INSERT INTO d.t VALUES (2, 'ü', 'a', {times})")
    server.script("ALTER TABLE d.t MODIFY v varchar(20) CHARACTER SET utf8mb4, MODIFY e enum('a', 'new', 'b')")
    server.script("ALTER TABLE d.t MODIFY d datetime(6)", f"INSERT INTO d.t VALUES (3, '€', 'new', {times})")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and table.reread_record > 0
        assert [(row["v"], row["e"]) for row in run.rows("d.t")] == [("é", "b"), ("ü", "a"), ("€", "new")]
        assert len({str(row["d"]) for row in run.rows("d.t")}) == 1


def test_rows_that_the_catalog_no_longer_explains_stop_the_table(server: MysqlServer, tmp_path: Path) -> None:
    """Unless the table is still to be read for the first time."""
    with LogRun(server, tmp_path, options=ADDITIVE, initial=False) as run:
        server.script("ALTER TABLE d.t MODIFY v varchar(20) CHARACTER SET latin1", "INSERT INTO d.t VALUES (1, 'é')")
        server.script("ALTER TABLE d.t MODIFY v varchar(20) CHARACTER SET utf8mb4")
        run.catch_up()
        stopped = run.table("d.t").stopped
        assert stopped is not None and (stopped.error, stopped.seq) == ("SchemaChangeUnsupported", 0)


def test_a_table_that_is_dropped_and_made_again_begins_anew(server: MysqlServer, run: LogRun) -> None:
    server.script("INSERT INTO d.t VALUES (1, 'a')")
    run.catch_up()
    server.script("DROP TABLE d.t", "CREATE TABLE d.t (id bigint PRIMARY KEY)", "INSERT INTO d.t VALUES (9)")
    run.catch_up()
    table = run.table("d.t")
    assert (table.removed, table.stopped, [c.name for c in table.schema.columns]) == (False, None, ["id"])
    assert run.to_drop == ["d.t"] and due(run.journal.state) == [], "the place is the other's"
    server.script("RENAME TABLE d.t TO d.u")
    run.catch_up()
    assert run.table("d.t").removed and run.to_drop == ["d.t"], "what was there before it was renamed was dropped"
    assert [(d.table_ids, d.generation < table.generation) for d in run.journal.state.dropped] == [
        ((table.table_id,), True)
    ], "and only that: the copy of the renamed one is of a later generation"
    server.script("DROP TABLE d.u")
    run.catch_up()
    assert run.table("d.u").removed and run.to_drop == ["d.t", "d.u"]


def test_a_table_that_comes_later_begins_where_the_look_found_it(server: MysqlServer, run: LogRun) -> None:
    server.script("CREATE TABLE d.late (id int PRIMARY KEY)", "INSERT INTO d.late VALUES (1)")
    run.catch_up()
    server.script("INSERT INTO d.late VALUES (2)")
    run.catch_up()
    added = run.table("d.late")
    assert added.edge and [row["id"] for row in run.changes("d.late")] == [2]


def test_a_table_on_which_the_user_lost_its_right_is_not_taken_for_dropped(server: MysqlServer, tmp_path: Path) -> None:
    server.script("CREATE USER reader", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    server.execute("GRANT SELECT ON d.* TO reader")
    with LogRun(server, tmp_path, user="reader") as run:
        server.execute("INSERT INTO d.t VALUES (1, 'a')")
        run.catch_up()
        server.script("REVOKE SELECT ON d.* FROM reader", "INSERT INTO d.t VALUES (2, 'b')")
        run.catch_up()
        stopped = run.table("d.t").stopped
        assert not run.table("d.t").removed and stopped is not None and stopped.error == "ReadRefused"
        server.execute("GRANT SELECT ON d.* TO reader")
        run.catch_up()
        assert run.table("d.t").stopped is None and run.table("d.t").initial_snapshot
        assert run.to_drop == []
        server.execute("DROP TABLE d.t")
        run.catch_up()
        assert run.table("d.t").removed and run.to_drop == ["d.t"]


@pytest.mark.parametrize("revoked_first", [True, False])
def test_a_table_that_is_dropped_and_its_right_revoked_is_removed(
    server: MysqlServer, tmp_path: Path, revoked_first: bool
) -> None:
    server.script("CREATE USER reader", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    server.script("CREATE TABLE d.other (id int PRIMARY KEY)")
    server.script("GRANT SELECT ON d.t TO reader", "GRANT SELECT ON d.other TO reader")
    with LogRun(server, tmp_path, user="reader") as run:
        run.catch_up()
        revoke, drop = "REVOKE SELECT ON d.t FROM reader", "DROP TABLE d.t"
        server.execute(revoke if revoked_first else drop)
        if revoked_first:
            run.catch_up()
            assert run.table("d.t").stopped is not None
        server.execute(drop if revoked_first else revoke)
        run.catch_up()
        assert run.table("d.t").removed and run.to_drop == [], "nobody has shown us that it is gone"


@pytest.mark.parametrize("how", ["dropped without a word in the log", "dropped", "excluded", "excluded and dropped"])
def test_a_stopped_table_that_is_gone_is_no_longer_told(server: MysqlServer, tmp_path: Path, how: str) -> None:
    """Where the fix says `exclude it`, that ends it."""
    server.script("CREATE TABLE d.other (id int PRIMARY KEY)")
    with LogRun(server, tmp_path, options=ADDITIVE) as run:
        server.script("ALTER TABLE d.t DROP COLUMN v")
        run.catch_up()
        assert run.table("d.t").stopped is not None and not run.table("d.t").removed
    if how != "excluded":
        server.script(f"SET SESSION sql_log_bin = {int('without' not in how)}", "DROP TABLE d.t")
    with LogRun(server, tmp_path, include="d.o*" if "excluded" in how else "d.*") as run:
        run.catch_up()
        assert run.table("d.t").removed and not run.table("d.other").removed
        assert run.to_drop == (["d.t"] if how == "dropped" else [])


def test_a_table_whose_number_is_another_by_now_is_read_again(
    server: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a database with a dot in its name: once, after the upgrade, also without initial snapshots."""
    server.script("CREATE DATABASE `a.b`", "CREATE TABLE `a.b`.t (id int PRIMARY KEY)")
    with monkeypatch.context() as before:
        for module in (catalog, tables):
            before.setattr(module, "identity", lambda schema, table: f"{schema}.{table}")
        with LogRun(server, tmp_path, include="a?b.*", initial=False) as run:
            server.script("INSERT INTO `a.b`.t VALUES (1)")
            run.catch_up()
            (old,) = run.journal.state.tables.values()
            assert not old.initial_snapshot
    server.script("INSERT INTO `a.b`.t VALUES (2)")
    for _ in range(2):
        with LogRun(server, tmp_path, include="a?b.*", initial=False) as run:
            run.catch_up()
            now = run.journal.state.tables[number_of(identity("a.b", "t"))]
            assert run.journal.state.tables[old.table_id].removed
            assert now.initial_snapshot and now.reread_record == -1 and not now.removed


def test_a_table_that_becomes_part_of_a_merge_table_stops(server: MysqlServer, run: LogRun) -> None:
    """The log has what is written through that under its name."""
    server.script("CREATE DATABASE m", *(f"CREATE TABLE d.{n} (id int PRIMARY KEY) ENGINE = MyISAM" for n in "xyz"))
    run.catch_up()
    assert run.table("d.x").stopped is None
    server.script("CREATE TABLE m.all_of (id int PRIMARY KEY) ENGINE = MERGE UNION = (d.x, d.y) INSERT_METHOD = LAST")
    server.script("CREATE TABLE m.broken (id int PRIMARY KEY) ENGINE = MERGE UNION = (d.nothing)")
    server.script("INSERT INTO m.all_of VALUES (7)")
    run.catch_up()
    stops = {name: run.table(name).stopped for name in ("d.x", "d.y", "d.z", "d.t")}
    assert [name for name, stop in stops.items() if stop is not None] == ["d.x", "d.y"]
    assert stops["d.y"] is not None and "part of the MERGE table m.all_of" in stops["d.y"].message
    server.script("DROP TABLE m.all_of")
    run.catch_up()
    table = run.table("d.y")
    assert table.stopped is None and table.initial_snapshot


def test_changes_that_are_logged_as_statements_stop_the_table(server: MysqlServer, run: LogRun) -> None:
    server.script("SET SESSION binlog_format = STATEMENT", "INSERT INTO d.t VALUES (1, CONCAT('a'))")
    run.catch_up()
    stopped = run.table("d.t").stopped
    assert stopped is not None and stopped.error == "LogIncomplete"
    what = (
        "rows of d.t may have been changed by a statement that the log has as text: `INSERT INTO d.t VALUES (?, CONCAT"
    )
    assert stopped.message.startswith(what)


def test_checksums_may_be_switched_off_and_on_while_the_log_is_read(server: MysqlServer, run: LogRun) -> None:
    for number, checksum in enumerate(("NONE", "CRC32", "NONE", "CRC32")):
        server.execute(f"INSERT INTO d.t VALUES ({2 * number}, 'before')")
        server.execute(f"SET GLOBAL binlog_checksum = {checksum}")
        server.execute(f"INSERT INTO d.t VALUES ({2 * number + 1}, '{checksum}')")
        if number > 1:
            run.catch_up()
    assert run.rows("d.t") == source_rows(server)


@pytest.mark.parametrize("compressed", [False, True])
def test_updates_without_what_they_did_not_change_are_followed(tmp_path: Path, compressed: bool) -> None:
    """MariaDB's FULL_NODUP: their second image has changed columns only."""
    with MysqlServer(MARIADB_NEWEST, log_bin_compress=int(compressed), log_bin_compress_min_len=10) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int, k char(9), v text, n int, PRIMARY KEY (k, id))")
        with LogRun(server, tmp_path) as run:
            server.script(
                "SET SESSION binlog_row_image = FULL_NODUP",
                "INSERT INTO d.t VALUES (1, 'a', NULL, 5), (2, 'b', 'long', NULL), (3, 'c', 'x', 7), (4, 'd', '', 0)",
                "UPDATE d.t SET v = IF(id = 1, 'new', v), n = n + 1 WHERE id < 4",
                "UPDATE d.t SET k = 'z', n = NULL WHERE id = 3",
                "UPDATE d.t SET id = id + 10",
                "DELETE FROM d.t WHERE id = 12",
            )
            run.catch_up()
            assert run.table("d.t").stopped is None
            assert sorted(map(str, run.rows("d.t"))) == sorted(map(str, source_rows(server, "id, k, v, n")))
            assert sorted(map(str, run.rows("d.t"))) == sorted(map(str, by_chunk(server, "d.t")))


def test_rows_without_column_names_stop_the_table(server: MysqlServer, run: LogRun) -> None:
    server.script("INSERT INTO d.t VALUES (1, 'a')", "SET GLOBAL binlog_row_metadata = MINIMAL")
    server.script("INSERT INTO d.t VALUES (2, 'b')", "SET GLOBAL binlog_row_metadata = FULL")
    server.script("INSERT INTO d.t VALUES (3, 'c')")
    run.catch_up()
    stopped = run.table("d.t").stopped
    assert stopped is not None and stopped.error == "LogIncomplete"
    assert "SET GLOBAL binlog_row_metadata = FULL" in stopped.fix
    assert [row["id"] for row in run.changes("d.t")] == [1]


def test_a_table_is_not_added_in_the_middle_of_a_transaction(server: MysqlServer, tmp_path: Path) -> None:
    """Its edge would lack the transaction, and the change log its first rows."""
    rows = 3000
    with LogRun(server, tmp_path) as run:
        values = ", ".join(f"({i}, '{'x' * 1000}')" for i in range(rows))
        server.script("CREATE TABLE d.late (id int PRIMARY KEY, v text)", f"INSERT INTO d.late VALUES {values}")
        end, until = log_end(run._connection, OWN), time.monotonic() + PATIENCE
        while run.stream.position < end:
            assert time.monotonic() < until
            run.stream.read(1, 0.1)
            run.stream.poll_catalog()
        run.stream.cut()
        assert len(run.changes("d.late")) in (0, rows)
