"""A change log follows its source to another server that has all that was read; any other is refused."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_replicas import caught_up, copy_of, follow, level, promote
from support.pipeline import Pipeline
from support.states import chunk
from support.versions import turns
from support.waiting import until
from tailrace import sources
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.state import TableLog
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.api import Interrupted, KeyRange, Source
from tailrace.sources.mysql.position import file_of
from tailrace.sources.mysql.source import MysqlSource

FLUSH = "FLUSH BINARY LOGS"


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST))
def primary(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    own: dict[str, str | int] = {"log_slave_updates": "ON"} if request.param == MARIADB_NEWEST else {}
    with MysqlServer(request.param, **own) as running:  # it is a replica, later
        mysql_shop.create(running)
        running.script(*[FLUSH] * 4, "CREATE USER repl IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl")
        yield running


@pytest.fixture
def replica(primary: MysqlServer) -> Iterator[MysqlServer]:
    """It applies the log of the primary from its first transaction on."""
    mysql: dict[str, str | int] = {"replica_parallel_workers": 4, "replica_preserve_commit_order": "OFF"}
    own = {"log_slave_updates": "ON"} if primary.mariadb else mysql
    with MysqlServer(primary.name, **own) as running:
        follow(running, primary)
        yield running


def run_with_writers(server: MysqlServer, copy: Pipeline, turns: int) -> None:
    with mysql_shop.writers(server):
        for _ in range(turns):
            copy.turn()


def test_it_goes_on_at_a_promoted_replica_and_back_without_reading_a_table_again(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    """Transactions that the change log lacks are among those that it has, in another order and in other files."""
    copy = copy_of(primary, tmp_path)
    with copy.running():
        run_with_writers(primary, copy, 40)
        level(primary, copy)
        before = copy.state
    with mysql_shop.writers(primary):
        threading.Event().wait(1.0)
    caught_up(replica, primary)
    primary.stop()
    promote(replica)
    moved = copy_of(replica, tmp_path)
    with moved.running():
        run_with_writers(replica, moved, 30)
        level(replica, moved)
        state = moved.state
        assert state.origin != before.origin and state.position > before.position
        assert state.snapshots.keys() == before.snapshots.keys()
        assert [t.added_record for t in state.tables.values()] == [t.added_record for t in before.tables.values()]
    replica.execute(FLUSH)
    with moved.running():  # where the places of its files have been counted on
        run_with_writers(replica, moved, 10)
        level(replica, moved)
    primary.start()
    replica.script("CREATE USER IF NOT EXISTS repl IDENTIFIED BY 'r'")
    follow(primary, replica)
    caught_up(primary, replica)
    promote(primary)
    back = copy_of(primary, tmp_path)
    with back.running():
        run_with_writers(primary, back, 10)
        level(primary, back)
        assert back.state.snapshots.keys() == before.snapshots.keys()


@pytest.mark.parametrize("files_ahead", [0, 3])
def test_a_chunk_that_was_read_from_the_server_before_is_read_again(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path, files_ahead: int
) -> None:
    """It may have seen what the new server has never had; in the numbers of files nothing says so."""
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
        origin, table = copy.state.origin, next(iter(copy.state.tables.values()))
    assert origin is not None
    caught_up(replica, primary)
    primary.script("INSERT INTO shop.plain VALUES (1, 'lost', 1)", *[FLUSH] * files_ahead)
    chunk, seen = a_chunk(copy.source.bound_to(origin), table)
    replica.execute("STOP REPLICA")
    moved = copy_of(replica, tmp_path)
    with moved.running():
        columns = tuple(c.name for c in table.schema.columns)
        with pytest.raises(Retry, match="another server"):
            moved.driver.client.register_chunk(chunk, seen, columns)


def test_a_follower_of_the_change_log_moves_behind_its_owner(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    folders = tmp_path / "owner", tmp_path / "follower"
    for folder in folders:
        folder.mkdir()

    def both(server: MysqlServer) -> tuple[Pipeline, Pipeline]:
        owner, follower = (copy_of(server, folder) for folder in folders)
        follower.document["spec"]["follow"] = owner.document["spec"]["storage"]
        follower.source = sources.of_replicator(follower.replicator.spec, "test")
        return owner, follower

    owner, follower = both(primary)
    with owner.running(), follower.running():
        run_with_writers(primary, owner, 20)
        level(primary, owner)
        level(primary, follower)
        before = follower.state
    with mysql_shop.writers(primary):
        threading.Event().wait(0.5)
    caught_up(replica, primary)
    primary.stop()
    promote(replica)
    owner, follower = both(replica)
    with owner.running():
        run_with_writers(replica, owner, 20)
        follower.refused(Retry, match="another server")
        with follower.running():
            run_with_writers(replica, follower, 10)
            level(replica, owner)
            level(replica, follower)
            assert follower.state.snapshots.keys() == before.snapshots.keys()
            assert follower.state.origin != before.origin


def a_chunk(source: Source, known: TableLog) -> tuple[ChunkRegistered, str]:
    """Of the whole table, as a task would register it; what it saw."""
    with source.session() as session:
        table = session.table(known.table_id, ())
    assert table is not None
    read = source.reader().read(table, KeyRange(None, None), None, lambda _: None)
    return chunk(known.table_id, high=read.high), read.snapshot


def test_a_server_that_lacks_what_was_read_is_refused_until_it_has_it(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    caught_up(replica, primary)
    replica.execute("STOP REPLICA")
    copy = copy_of(primary, tmp_path)
    primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
    with copy.running():
        level(primary, copy)
    copy_of(replica, tmp_path).refused(SourceRefused, "lacks transactions that were read there")
    replica.execute("START REPLICA")
    caught_up(replica, primary)
    moved = copy_of(replica, tmp_path)
    with moved.running():
        level(replica, moved)


def own_write(replica: MysqlServer) -> str:
    """A transaction of the replica's own, while it is one; its id."""
    replica.script("INSERT INTO shop.plain VALUES (900, 'own', 1)")
    if replica.mariadb:
        return str(replica.execute("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
    return str(replica.execute("SELECT @@server_uuid")[0][0]) + ":1"


@pytest.mark.parametrize("flushed", [False, True])
def test_a_server_that_was_written_to_before_it_had_all_that_was_read_is_refused(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path, flushed: bool
) -> None:
    """Its own transaction would be applied last, or never. `flushed`: what was read is in another file."""
    if replica.mariadb:
        replica.execute("SET GLOBAL gtid_strict_mode = OFF")  # else it could not go on as a replica
    caught_up(replica, primary)
    name = own_write(replica)
    replica.script(*[FLUSH] * flushed)
    primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
    caught_up(replica, primary)
    promote(replica)
    replica.script(FLUSH, "INSERT INTO shop.plain VALUES (901, 'after', 1)")
    copy_of(replica, tmp_path).refused(SourceRefused, f"not read \\({name}\\) before others that were")


@pytest.mark.parametrize("primary", [MARIADB_NEWEST], indirect=True)
def test_mariadb_is_refused_where_it_may_lack_what_a_third_server_wrote(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    """Its own place in the log says only what came last."""
    for server in (primary, replica):
        server.execute("SET GLOBAL gtid_strict_mode = OFF")
    caught_up(replica, primary)
    replica.execute("STOP SLAVE")
    copy = copy_of(primary, tmp_path)
    with copy.running():
        primary.script("SET SESSION server_id = 77", "INSERT INTO shop.plain VALUES (1, 'third', 1)")
        ((third,),) = primary.execute("SELECT @@GLOBAL.gtid_binlog_pos")
        primary.script("INSERT INTO shop.plain VALUES (2, 'last', 1)")
        level(primary, copy)
    replica.script(f"SET GLOBAL gtid_slave_pos = '{third}'", "START SLAVE")
    caught_up(replica, primary)
    promote(replica)
    copy_of(replica, tmp_path).refused(SourceRefused, f"of {third} and before, and this server may lack")


def test_a_server_that_was_never_a_copy_is_refused_whatever_it_has_purged(primary: MysqlServer, tmp_path: Path) -> None:
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
    with MysqlServer(primary.name) as other:
        mysql_shop.create(other)
        other.execute(FLUSH)
        purge(other)
        copy_of(other, tmp_path).refused(SourceRefused, "lacks transactions that were read there")


@pytest.mark.parametrize("still_a_replica", [True, False])
def test_a_server_that_leaves_out_changes_as_a_replica_is_refused(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path, still_a_replica: bool
) -> None:
    """It counts them as applied (MariaDB: as soon as it has logged another one)."""
    copy = copy_of(primary, tmp_path)
    caught_up(replica, primary)
    replica.execute("STOP REPLICA")
    rule = "SET GLOBAL replicate_ignore_table = 'shop.plain'"
    replica.execute(rule if replica.mariadb else "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = (shop.plain)")
    replica.execute("START REPLICA")
    with copy.running():
        primary.script("INSERT INTO shop.plain VALUES (1, 'one', 1)", "INSERT INTO shop.pairs VALUES (1, 'a', 'one')")
        level(primary, copy)
    caught_up(replica, primary)
    assert not replica.execute("SELECT * FROM shop.plain")
    if not still_a_replica:
        promote(replica)
    copy_of(replica, tmp_path).refused(SourceRefused, "left out changes of shop")


@pytest.mark.parametrize("primary", [MARIADB_NEWEST], indirect=True)
@pytest.mark.parametrize("rule", ["IGNORE_DOMAIN_IDS = (7)", "DO_DOMAIN_IDS = (0)", "IGNORE_SERVER_IDS = (77)"])
def test_a_mariadb_that_leaves_out_domains_or_servers_as_a_replica_is_refused(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path, rule: str
) -> None:
    """What it left out is missing in its log for ever, and counts as applied."""
    name, _, _ = rule.partition(" ")
    primary.execute("SET GLOBAL gtid_strict_mode = OFF")
    caught_up(replica, primary)
    replica.script("STOP SLAVE", f"CHANGE MASTER TO {rule}", "START SLAVE")
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
    left_out = ("SET SESSION server_id = 77", "SET SESSION gtid_domain_id = 7")
    primary.script(*left_out, "INSERT INTO shop.plain VALUES (1, 'left out', 1)")
    primary.execute("INSERT INTO shop.plain VALUES (2, 'last', 1)")
    caught_up_with_last_row(replica)
    assert replica.execute("SELECT id FROM shop.plain") == [(2,)]
    copy_of(replica, tmp_path).refused(SourceRefused, f"left out changes of shop \\(replicate_{name.lower()}")


def caught_up_with_last_row(replica: MysqlServer) -> None:
    until(lambda: (2,) in replica.execute("SELECT id FROM shop.plain"), "the last row on the replica")


@pytest.mark.parametrize("primary", [MARIADB_NEWEST], indirect=True)
def test_a_mariadb_is_not_followed_to_where_it_cannot_be_seen_what_it_leaves_out(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    rights = ("REPLICATION SLAVE, BINLOG MONITOR ON *.*", "SELECT ON shop.*")
    primary.script("CREATE USER reader", *(f"GRANT {right} TO reader" for right in rights))
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
    caught_up(replica, primary)
    promote(replica)
    moved = copy_of(replica, tmp_path)
    moved.source = MysqlSource(replace(mysql_shop.source(replica).config, username="reader"))
    moved.refused(SourceRefused, "may not see whether the server leaves out changes")
    replica.execute("GRANT SLAVE MONITOR ON *.* TO reader")
    with moved.running():
        level(replica, moved)


def purge(server: MysqlServer) -> None:
    newest, end = server.execute("SHOW BINARY LOGS")[-1][0], time.monotonic() + 30
    while len(server.execute("SHOW BINARY LOGS")) > 1:  # MariaDB keeps a file until its checkpoint is in the next
        assert time.monotonic() < end
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")


def test_a_server_that_has_purged_what_was_not_read_has_lost_the_position(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
    primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
    caught_up(replica, primary)
    replica.execute(FLUSH)
    purge(replica)
    copy_of(replica, tmp_path).refused(PositionLost, "purged")
    with copy.running():
        level(primary, copy)


def without_gtid(server: MysqlServer, statement: str) -> None:
    server.script(*(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE")))
    server.execute(statement)
    server.script(*(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "ON")))


@pytest.mark.parametrize("primary", [MYSQL], indirect=True)
def test_transactions_without_gtids_hinder_a_move_where_they_may_be_unread(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    """Asked by GTIDs, the server passes over their files. Before the last one that was read they do not matter."""
    caught_up(replica, primary)
    without_gtid(replica, "CREATE DATABASE own")
    primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
    copies = [copy_of(primary, tmp_path / name) for name in ("early", "late")]
    for copy in copies:
        copy.folder.mkdir()
        with copy.running():
            level(primary, copy)
    with copies[1].running():
        origin, snapshots = copies[1].state.origin, len(copies[1].state.snapshots)
    caught_up(replica, primary)
    promote(replica)
    replica.execute(FLUSH)
    with (moved := copy_of(replica, copies[0].folder)).running():
        level(replica, moved)
        assert len(moved.state.snapshots) == snapshots, "no table is read again"
    without_gtid(replica, "INSERT INTO shop.plain VALUES (2, 'two', 2)")
    replica.execute("INSERT INTO shop.plain VALUES (3, 'three', 3)")
    copy_of(replica, copies[1].folder).refused(PositionLost, "without GTIDs")
    with copies[1].running():
        assert copies[1].state.origin == origin, "it has not moved"


def test_positions_are_counted_on_and_written_as_the_server_counts(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
        before = copy.state.position
    caught_up(replica, primary)
    moved = copy_of(replica, tmp_path)
    with moved.running():
        level(replica, moved)
        state = moved.state
        assert state.origin is not None
        shown = moved.source.bound_to(state.origin).text(state.position)
        file, _ = replica.execute("SHOW MASTER STATUS" if replica.mariadb else "SHOW BINARY LOG STATUS")[0][:2]
        assert file_of(state.position) > file_of(before) and shown.startswith(str(file).rpartition(".")[2])
        time.sleep(0.3)
        assert moved.state.origin == state.origin


@pytest.mark.parametrize("primary", [MARIADB_NEWEST], indirect=True)
def test_mariadb_is_not_left_while_an_xa_transaction_is_prepared(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    """It would come again there, with all that follows it, at places that mean nothing."""
    copy = copy_of(primary, tmp_path)
    with copy.running():
        level(primary, copy)
        xa = ("XA START 'x'", "INSERT INTO shop.plain VALUES (7, 'prepared', 7)", "XA END 'x'", "XA PREPARE 'x'")
        primary.script(*xa)
        primary.execute("INSERT INTO shop.plain VALUES (8, 'after', 8)")
        level(primary, copy)
    caught_up(replica, primary)
    copy_of(replica, tmp_path).refused(SourceRefused, "prepared and not decided")
    primary.execute("XA COMMIT 'x'")
    with copy.running():
        level(primary, copy)
    caught_up(replica, primary)
    moved = copy_of(replica, tmp_path)
    with moved.running():
        level(replica, moved)


def test_a_start_that_reads_a_new_servers_log_can_be_stopped(
    primary: MysqlServer, replica: MysqlServer, tmp_path: Path
) -> None:
    """A file of it can have gigabytes."""
    copy, stopping = copy_of(primary, tmp_path), threading.Event()
    with copy.running():
        level(primary, copy)
        state = copy.state
    assert state.origin is not None
    primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
    caught_up(replica, primary)
    moved = copy_of(replica, tmp_path)
    with moved.source.subscription(moved.replicator, "") as subscription:
        stopping.set()
        with pytest.raises(Interrupted):
            subscription.admit(state.origin, state.resume_point, False, stopping)
        stopping.clear()
        subscription.admit(state.origin, state.resume_point, False, stopping)
