"""A change log is continued only in the very log that it was read from, whatever has the server's address by now."""

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun, config_of
from support.mysql_stalls import hanging_commits, make_commits_hang
from support.resources import replicator
from support.versions import turns
from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import connect, server_of
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.mysql import admission
from tailrace.sources.mysql.log import anchor
from tailrace.sources.mysql.position import OWN, file_of, offset_of
from tailrace.sources.mysql.state import Anchor, SourceState
from tailrace.sources.mysql.subscription import MysqlSubscription

TABLE = "CREATE TABLE d.t (id int PRIMARY KEY, v int)"
OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"
"""Transactions of another server."""


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script("CREATE DATABASE d", TABLE)
        yield running


def of(server: MysqlServer) -> Origin:
    """The origin that a change log of it has."""
    with closing(connect(config_of(server))) as connection:
        found = server_of(connection)
    identity = {admission.PRODUCT: found.product, admission.SERVER: found.identity}
    return Origin(log_id="l", source="mysql", identity=identity, owner="o")


def check(server: MysqlServer, run: LogRun) -> None:
    """What every start looks at."""
    with closing(connect(config_of(server))) as connection:
        admission.check_point(config_of(server), connection, of(server), run.journal.state.resume_point)


def captured(server: MysqlServer, folder: Path) -> LogRun:
    """Up to a transaction of a captured table."""
    with LogRun(server, folder) as run:
        server.script("INSERT INTO d.t VALUES (1, 1)", "INSERT INTO d.t VALUES (2, 2)")
        run.catch_up()
    assert SourceState.read(run.journal.state.source_state).anchor is not None
    return run


def changed(server: MysqlServer) -> None:
    """Files of the log come and go, and so does the server's port."""
    server.script("FLUSH LOGS", "INSERT INTO d.t VALUES (3, 3)", "FLUSH LOGS")
    server.stop()
    server.port = 0
    server.start()


def test_the_same_log_is_continued_wherever_the_server_is(server: MysqlServer, tmp_path: Path) -> None:
    run = captured(server, tmp_path)
    changed(server)
    check(server, run)
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert [row["id"] for row in run.rows("d.t")] == [1, 2, 3]
    check(server, run)


@pytest.mark.parametrize("begun_by", ["FLUSH LOGS", "a start"])
def test_the_beginning_of_a_file_is_found_again_as_the_stream_has_read_it(
    server: MysqlServer, tmp_path: Path, begun_by: str
) -> None:
    """It is the anchor where a file has no transaction yet. A server marks the file with which it starts, and hides
    the mark from a reader that has had some of its log."""
    with LogRun(server, tmp_path) as run:
        run.catch_up()
    server.script("INSERT INTO d.t VALUES (1, 1)", "FLUSH LOGS", "FLUSH LOGS")
    if begun_by == "a start":
        server.restart()
    with LogRun(server, tmp_path) as run:
        run.catch_up()
    anchor = SourceState.read(run.journal.state.source_state).anchor
    assert anchor is not None and offset_of(anchor.at) == 4
    check(server, run)
    server.restart()
    check(server, run)


def test_a_log_that_leaves_databases_out_by_now_is_not_continued(server: MysqlServer, tmp_path: Path) -> None:
    """Nothing in the log tells of it."""
    run = captured(server, tmp_path)
    server.restart(binlog_ignore_db="d")
    server.script("INSERT INTO d.t VALUES (3, 3)")
    with closing(connect(config_of(server))) as connection:
        subscription = MysqlSubscription(config_of(server), connection, Replicator.model_validate(replicator()))
        with pytest.raises(SourceRefused, match=r"leaves out databases.*restart the server\. .*resync"):
            subscription.resume(of(server), run.journal.state.resume_point)


def test_a_beginning_has_an_anchor_that_is_found_again(server: MysqlServer) -> None:
    with closing(connect(config_of(server))) as connection:
        point = admission.end_of_log(config_of(server), connection)
        assert SourceState.read(point.source_state).anchor is not None
        server.script("INSERT INTO d.t VALUES (1, 1)", "FLUSH LOGS")
        admission.check_point(config_of(server), connection, of(server), point)


def test_a_commit_that_waits_for_a_replica_is_no_sign_of_a_restored_server(server: MysqlServer, tmp_path: Path) -> None:
    """It is in the log, and read, before the server says that it knows it."""
    make_commits_hang(server)
    with LogRun(server, tmp_path) as run, ThreadPoolExecutor() as pool:
        run.catch_up()
        with hanging_commits(server):
            commit = pool.submit(server.script, "INSERT INTO d.t VALUES (1, 1)")
            while not run.changes("d.t"):
                run.read()
            assert not commit.done()
            start = pool.submit(check, server, run)
            time.sleep(2)  # it must not be refused meanwhile
            assert start.done() == server.mariadb, "MariaDB's log itself says what is in it"
        start.result(20)
        commit.result(20)


def restored(server: MysqlServer, folder: Path, run: Callable[[], LogRun]) -> LogRun:
    """The server's files are put back to what they were before `run`."""
    server.stop()
    shutil.copytree(server.data_dir, folder / "backup")
    server.start()
    made = run()
    server.stop()
    shutil.rmtree(server.data_dir)
    shutil.copytree(folder / "backup", server.data_dir)
    server.start()
    return made


def test_a_restored_backup_that_was_written_to_is_another_log(server: MysqlServer, tmp_path: Path) -> None:
    """It has the server's name, and as many transactions with the same ids."""
    run = restored(server, tmp_path, lambda: captured(server, tmp_path))
    server.script("INSERT INTO d.t VALUES (8, 8)", "INSERT INTO d.t VALUES (9, 9)", "INSERT INTO d.t VALUES (10, 10)")
    with pytest.raises(PositionLost, match="has another event"):
        check(server, run)


def test_a_successor_at_the_address_is_another_log(server: MysqlServer, tmp_path: Path) -> None:
    run = captured(server, tmp_path)
    ids = (server.variables["server_id"], server.port)
    uuid = (server.data_dir / "auto.cnf").read_bytes() if not server.mariadb else b""
    server.stop()
    with MysqlServer(server.name, server_id=ids[0]) as successor:
        successor.stop()
        successor.port = ids[1]
        if uuid:
            (successor.data_dir / "auto.cnf").write_bytes(uuid)
        successor.start()
        successor.script("CREATE DATABASE d", TABLE)
        for i in range(1, 9):
            successor.script(f"INSERT INTO d.t VALUES ({i}, {i})")
        successor.script(*["FLUSH LOGS"] * 3)
        with pytest.raises(PositionLost):
            check(successor, run)


def test_a_log_that_has_lost_its_end_is_noticed_whatever_came_after(server: MysqlServer, tmp_path: Path) -> None:
    """As a crash of the host does with `sync_binlog` = 0: the file is shorter, the next transactions are in another."""
    run = captured(server, tmp_path)
    file = server.execute("SHOW BINARY LOGS")[-1][0]
    (before,) = [r for r in server.execute(f"SHOW BINLOG EVENTS IN '{file}'") if "table_id" in str(r[5])][-1:]
    at = [r for r in server.execute(f"SHOW BINLOG EVENTS IN '{file}'") if "gtid" in str(r[2]).lower()][-1][1]
    assert at < before[1]
    server.kill()
    with (server.data_dir / file).open("r+b") as log:
        log.truncate(at)
    server.start()
    server.script("INSERT INTO d.t VALUES (8, 8)", "INSERT INTO d.t VALUES (9, 9)", "FLUSH LOGS")
    with pytest.raises(PositionLost, match="lost the end of it"):
        check(server, run)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_what_was_written_without_gtids_is_a_lost_position(
    server: MysqlServer, tmp_path: Path, everything: bool
) -> None:
    """The server began behind it if everything before had been read, and the row was missing for good."""
    run = captured(server, tmp_path)
    steps = ("ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
    for mode in steps[1:]:
        server.script(f"SET GLOBAL gtid_mode = {mode}")
    for mode in steps[2::-1]:
        server.script(f"SET GLOBAL gtid_mode = {mode}")
    server.script("FLUSH LOGS", "INSERT INTO d.t VALUES (5, 5)", "FLUSH LOGS")
    check(server, run)
    if everything:
        with LogRun(server, tmp_path) as run:
            run.catch_up()
    for mode in steps[1:]:
        server.script(f"SET GLOBAL gtid_mode = {mode}")
    server.script("INSERT INTO d.t VALUES (6, 6)")
    for mode in steps[2::-1]:
        server.script(f"SET GLOBAL gtid_mode = {mode}")
    server.script("INSERT INTO d.t VALUES (7, 7)")
    with pytest.raises(PositionLost, match="without GTIDs"):
        check(server, run)
        assert not everything, "found before it begins to read"
        with LogRun(server, tmp_path) as run:
            run.catch_up()


@pytest.mark.parametrize("name", turns(MYSQL, "mysql-8.0"))
def test_transactions_that_were_never_in_the_log_are_a_lost_position(name: str, tmp_path: Path) -> None:
    """A dump that is restored tells the server of them, and keeps its rows out of the log."""
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", TABLE)
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (1, 1)", "FLUSH LOGS", "INSERT INTO d.t VALUES (2, 2)", "FLUSH LOGS")
            run.catch_up()
            server.script("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY", "INSERT INTO d.t VALUES (3, 3)")
            assert server.execute("SELECT @@GLOBAL.gtid_purged")[0][0]
            run.catch_up()
            restored = ("SET sql_log_bin = 0", "INSERT INTO d.t VALUES (4, 4)", f"SET GLOBAL gtid_purged = '+{OTHER}'")
            server.script(*restored)
            with pytest.raises(PositionLost, match="never in the server's log, as after a dump was restored"):
                run.catch_up()


def test_a_log_that_is_reset_under_its_reader_is_noticed(server: MysqlServer, tmp_path: Path) -> None:
    """The server goes on with its heartbeats, and lag was 0 while changes were lost."""
    file = int(str(server.execute("SHOW BINARY LOGS")[-1][0]).rpartition(".")[2])
    with LogRun(server, tmp_path) as run:
        server.script(*[f"INSERT INTO d.t VALUES ({i}, {i})" for i in range(20)])
        run.catch_up()
        server.script(f"RESET {'MASTER' if server.mariadb else 'BINARY LOGS AND GTIDS'} TO {file}")
        server.script("INSERT INTO d.t VALUES (31, 1)")
        with pytest.raises(Retry, match="it was reset"):
            run.stream.poll_catalog()
    with pytest.raises(PositionLost):
        check(server, run)


def test_in_the_middle_of_an_event_is_no_anchor(server: MysqlServer, tmp_path: Path) -> None:
    """There a restored backup may have the place of an event that was read. Anything can be read there."""
    run = captured(server, tmp_path)
    known = SourceState.read(run.journal.state.source_state).anchor
    assert known is not None and offset_of(known.at) > 200
    file = server.execute("SHOW BINARY LOGS")[-1][0]
    begins = {row[1] for row in server.execute(f"SHOW BINLOG EVENTS IN '{file}'")}
    for place in range(known.at - 60, known.at):
        if offset_of(Position(place)) not in begins:
            assert anchor.anchor_at(config_of(server), file, Position(place)) is None
    moved = Anchor(Position(known.at - 9), known.digest)
    with pytest.raises(PositionLost, match="has another event"):
        check_at(server, run, moved)


def test_a_log_that_ends_where_the_anchor_began_has_lost_its_end(server: MysqlServer, tmp_path: Path) -> None:
    run = captured(server, tmp_path)
    size = server.execute("SHOW BINARY LOGS")[-1][1]
    known = SourceState.read(run.journal.state.source_state).anchor
    assert known is not None
    with pytest.raises(PositionLost, match="lost the end of it"):
        check_at(server, run, Anchor(OWN.of(f".{file_of(known.at)}", size), known.digest))


def test_a_stream_that_ends_before_the_anchor_says_nothing_about_the_log(server: MysqlServer) -> None:
    """As that of a server which shuts down: here the end of the log itself."""
    file, size = server.execute("SHOW BINARY LOGS")[-1][:2]
    with pytest.raises(Retry, match="ended the log stream"):
        anchor.anchor_at(config_of(server), file, OWN.of(file, size))


def check_at(server: MysqlServer, run: LogRun, known: Anchor) -> None:
    """With another anchor than the one that was read."""
    point = run.journal.state.resume_point
    state = replace(SourceState.read(point.source_state), anchor=known)
    with closing(connect(config_of(server))) as connection:
        admission.check_point(config_of(server), connection, of(server), point._replace(source_state=str(state)))


def test_a_state_of_an_older_change_log_has_no_anchor(server: MysqlServer, tmp_path: Path) -> None:
    run = captured(server, tmp_path)
    state = SourceState.read(run.journal.state.source_state)
    point = run.journal.state.resume_point._replace(source_state=state.done)
    with closing(connect(config_of(server))) as connection:
        admission.check_point(config_of(server), connection, of(server), point)


@pytest.mark.parametrize("server", [MARIADB_NEWEST], indirect=True)
def test_a_server_that_becomes_a_replica_without_logging_what_it_applies_is_refused(
    server: MysqlServer, tmp_path: Path
) -> None:
    """`log_slave_updates` is off by default."""
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        server.execute("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'none'")
        with pytest.raises(SourceRefused, match="a replica that does not log what it applies"):
            run.catch_up()
