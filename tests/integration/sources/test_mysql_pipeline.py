"""MySQL and MariaDB through capture, change log, chunks and apply: once writing stops, source and target are equal, row
by row and column by column, whatever was restarted meanwhile."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MYSQL, MysqlServer
from support.mysql_log import by_chunk
from support.pipeline import Pipeline
from support.resources import replicator as document_of
from support.versions import turns
from tailrace.changelog.records.terms import Position
from tailrace.errors import PositionLost, SourceRefused


@pytest.fixture(scope="module", params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        yield running


def manifest(server: MysqlServer, folder: Path) -> dict[str, Any]:
    return document_of(
        source=mysql_shop.spec(server),
        tables={"include": ["shop.*"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 50, "parallelism": 2},
    )


def seen(copy: Pipeline, *, work: bool) -> None:
    """By capture; `work`: as `Pipeline.until` has it."""
    with copy.source.session() as session:
        end = session.log_end()
    copy.until(lambda state: state.position >= end, work=work)


def level(server: MysqlServer, copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(Position(end))
    assert copy.driver.faults() == {}


def test_a_copy_is_equal_after_writers_and_restarts(server: MysqlServer, tmp_path: Path) -> None:
    mysql_shop.create(server)
    with mysql_shop.writers(server):
        threading.Event().wait(1)
    copy = Pipeline(manifest(server, tmp_path), mysql_shop.source(server), tmp_path)
    try:
        copy.start()
        with mysql_shop.writers(server):
            for turn in range(100):
                copy.turn()
                if turn % 40 == 20:
                    copy.stop()
                    server.execute("FLUSH BINARY LOGS")
                    copy.start()
        level(server, copy)
        assert not mysql_shop.differences(server, lambda name: copy.lake.table("shop", name).rows())
        plain = {row["id"]: (row["v"], row["n"]) for row in copy.lake.table("shop", "plain").rows().to_pylist()}
        assert plain == {i: (v, n) for i, v, n in server.execute("SELECT id, v, n FROM shop.plain")}
    finally:
        copy.stop()


CHANGES = (
    "RENAME COLUMN a TO x",
    "RENAME COLUMN x TO n, RENAME COLUMN n TO x",
    "RENAME COLUMN x TO n, RENAME COLUMN n TO x",
    "DROP b, ADD y int NULL",
    "MODIFY x bigint, ADD b varchar(9) NULL FIRST",
    "DROP c, CHANGE b c varchar(30) AFTER n",
    "DROP n, ADD n int NULL",
    "CHANGE y b decimal(9,2)",
)


def test_a_copy_is_equal_whose_columns_are_dropped_and_renamed_while_it_is_read(
    server: MysqlServer, tmp_path: Path
) -> None:
    server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (id int PRIMARY KEY, a int, b varchar(20), c text, n int)")
    rows = (f"({i}, {i}, 'b{i}', 'c{i}', {-i})" for i in range(1, 201))
    server.execute(f"INSERT INTO d.t VALUES {', '.join(rows)}")
    document = manifest(server, tmp_path)
    document["spec"] |= {"tables": {"include": ["d.*"]}}
    copy = Pipeline(document, mysql_shop.source(server), tmp_path)
    with copy.running():
        for number, change in enumerate(CHANGES, 1):
            if number % 3 == 1:
                copy.ask("d.t")
            server.script(
                f"UPDATE d.t SET id = id + 1000 WHERE id = {number}",
                f"DELETE FROM d.t WHERE id = {number + 20}",
                f"ALTER TABLE d.t {change}",
                f"INSERT INTO d.t (id, n) VALUES ({number + 500}, {number})",
                f"UPDATE d.t SET n = n + 1 WHERE id > {190 - number}",
            )
            seen(copy, work=number % 2 == 0)
        level(server, copy)
        assert [table.generation for table in copy.state.tables.values()] == [1]
        found = sorted(copy.lake.table("d", "t").rows().to_pylist(), key=lambda row: int(row["id"]))
        assert found == by_chunk(server, "d.t")


def copied(server: MysqlServer, folder: Path) -> Pipeline:
    """A pipeline that has copied a shop, and was stopped."""
    mysql_shop.create(server)
    server.execute("INSERT INTO shop.plain VALUES (1, 'one', 1), (2, 'two', 2)")
    copy = Pipeline(manifest(server, folder), mysql_shop.source(server), folder)
    with copy.running():
        level(server, copy)
    return copy


def resynced(server: MysqlServer, copy: Pipeline) -> None:
    """A request to read everything again brings a copy back whose position is lost."""
    copy.resync = copy.folder / "resync.json"
    asked = {"replicator": "shop", "tables": ["*.*"], "resync": True}
    meta = {"name": "again", "namespace": "team", "uid": "first"}
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": meta, "spec": asked}
    copy.resync.write_text(json.dumps(document))
    with copy.running():
        level(server, copy)
        server.execute("INSERT INTO shop.plain VALUES (50, 'after', 50)")
        level(server, copy)
        assert not mysql_shop.differences(server, lambda name: copy.lake.table("shop", name).rows())


def test_tables_that_a_session_changed_by_statements_are_equal_after_a_resync(
    server: MysqlServer, tmp_path: Path
) -> None:
    copy = copied(server, tmp_path)
    server.script(
        "SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO shop.plain VALUES (60, CONCAT('by ', 'text'), 60)"
    )
    with copy.running():
        copy.until(lambda state: all(t.stopped is not None for t in state.tables.values()))
        assert {t.stopped.error for t in copy.state.tables.values() if t.stopped is not None} == {"LogIncomplete"}
    resynced(server, copy)


FLUSH = "FLUSH BINARY LOGS"


def purge(server: MysqlServer) -> None:
    """Everything but the newest file is gone. MariaDB 10.11 keeps what the connection of an ended capture still has
    open, until it notices."""
    for _ in range(60):
        newest = server.execute("SHOW BINARY LOGS")[-1][0]
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        if len(server.execute("SHOW BINARY LOGS")) == 1:
            return
        time.sleep(1)
    raise AssertionError("the binary logs are not purged")


def test_logs_that_are_purged_before_they_were_read_are_a_lost_position(server: MysqlServer, tmp_path: Path) -> None:
    copy = copied(server, tmp_path)
    server.script(FLUSH, "INSERT INTO shop.plain VALUES (3, 'three', 3)", FLUSH)
    purge(server)
    copy.refused(PositionLost, "purged")
    resynced(server, copy)


def test_a_log_that_was_reset_is_a_lost_position(server: MysqlServer, tmp_path: Path) -> None:
    server.script(FLUSH, FLUSH)
    copy = copied(server, tmp_path)
    server.execute("RESET BINARY LOGS AND GTIDS" if server.name == MYSQL else "RESET MASTER")
    server.execute("DELETE FROM shop.plain WHERE id = 1")
    copy.refused(PositionLost, "resync|restored")
    resynced(server, copy)


def test_another_server_is_refused_by_its_name(server: MysqlServer, tmp_path: Path) -> None:
    copy = copied(server, tmp_path)
    with MysqlServer(server.name) as other:
        mysql_shop.create(other)
        strange = Pipeline(manifest(other, tmp_path), mysql_shop.source(other), tmp_path)
        strange.refused(SourceRefused, "the change log is read from")
    with copy.running():
        level(server, copy)


def test_an_xa_transaction_that_was_prepared_before_is_waited_for_and_then_copied(
    server: MysqlServer, tmp_path: Path
) -> None:
    mysql_shop.create(server)
    server.script("XA START 'x'", "INSERT INTO shop.plain VALUES (7, 'prepared', 7)", "XA END 'x'", "XA PREPARE 'x'")
    copy = Pipeline(manifest(server, tmp_path), mysql_shop.source(server), tmp_path)
    waiting = threading.Timer(3, server.execute, ["XA COMMIT 'x'"])
    waiting.start()
    with copy.running():
        level(server, copy)
        assert copy.lake.table("shop", "plain").rows().column("v").to_pylist() == ["prepared"]
    waiting.join()


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
@pytest.mark.parametrize("repair", ["correct", "leave out"])
def test_a_byte_that_its_character_set_lacks_stops_the_table_until_it_is_corrected_or_left_out(
    server: MysqlServer, tmp_path: Path, repair: str
) -> None:
    server.script("DROP DATABASE IF EXISTS odd", "CREATE DATABASE odd")
    server.execute("CREATE TABLE odd.t (id int PRIMARY KEY, v varchar(9) CHARACTER SET cp1251, n int)")
    document = {**manifest(server, tmp_path)}
    strict = [{"match": "odd.t", "onUnsupported": "Fail"}]
    document["spec"] = {**document["spec"], "tables": {"include": ["odd.*"]}, "options": strict}
    copy = Pipeline(document, mysql_shop.source(server), tmp_path)
    with copy.running():
        level(server, copy)
        server.execute("INSERT INTO odd.t VALUES (1, x'98', 7)")
        copy.until(lambda _: copy.driver.faults() == {"odd.t": "ValueUnsupported"}, work=True)
        (fault,) = (t.fault for t in copy.driver.control.status().tables if t.fault is not None)
        assert "Correct the value" in fault.fix and "columns: [<all others>]" in fault.fix
        server.execute("INSERT INTO odd.t VALUES (2, 'x', 8)")
    if repair == "correct":
        server.execute("UPDATE odd.t SET v = 'я' WHERE id = 1")
    else:
        document["spec"]["options"] = [{"match": "odd.t", "columns": ["id", "n"]}]
    with copy.running():
        copy.ask("odd.t", resync=True)
        level(server, copy)
        rows = copy.lake.table("odd", "t").rows().sort_by("id").to_pylist()
        assert [(row["id"], row["n"]) for row in rows] == [(1, 7), (2, 8)]
        assert repair != "correct" or [row["v"] for row in rows] == ["я", "x"]
