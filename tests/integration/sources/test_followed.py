"""A second target from the same change log, out of real servers: the source has one reader of its log, and both copies
equal it. The log has key changes with large values that it does not carry, and rows that are withheld until they are
read again.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.contract.resources import Replicator
from tailrace.errors import SourceRefused

LARGE = "x" * 3_000
Server = PostgresServer | MysqlServer


@pytest.fixture(params=turns("postgresql", MYSQL, MARIADB_NEWEST))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = PostgresServer(18) if request.param == "postgresql" else MysqlServer(request.param)
    with made as started:
        yield started


def source_of(server: Server) -> dict[str, Any]:
    if isinstance(server, PostgresServer):
        place = {"host": server.host, "port": server.port, "username": "postgres"}
        return {"type": "postgresql", "database": "postgres", **place}
    return {"type": "mysql", "host": server.host, "port": server.port, "username": server.user}


def pipeline(server: Server, folder: Path, follows: Path | None = None) -> Pipeline:
    folder.mkdir()
    spec: dict[str, Any] = {
        "source": source_of(server),
        "tables": {"include": ["m.*"]},
        "target": {"type": "delta", "location": (folder / "lake").as_uri()},
        "storage": {"location": (folder / "log").as_uri()},
        "snapshot": {"chunkRows": 20, "parallelism": 2},
    }
    if follows is not None:
        spec["follow"] = {"location": (follows / "log").as_uri()}
    document = document_of(folder.name, **spec)
    made = sources.of_replicator(Replicator.model_validate(document).spec, "test")
    return Pipeline(document, made, folder)


def write(server: Server, random: Random) -> None:
    """A few changes; `b` has large values, and keys that move without them."""
    one, other = random.randrange(100), random.randrange(1_000, 9_000)
    server.execute(f"INSERT INTO m.a (id, v) VALUES ({other}, {one})" + _or_nothing(server))
    server.execute(f"UPDATE m.a SET v = v + 1 WHERE id % 50 = {one % 50}")
    server.execute(f"UPDATE m.b SET id = {other} WHERE id = {one}" + _unless(server, other))
    server.execute(f"UPDATE m.b SET v = '{other}' WHERE id = {one + 7}")
    server.execute(f"DELETE FROM m.b WHERE id = {one + 3}")


def _or_nothing(server: Server) -> str:
    return " ON CONFLICT DO NOTHING" if isinstance(server, PostgresServer) else " ON DUPLICATE KEY UPDATE v = v + 1"


def _unless(server: Server, id: int) -> str:
    return f" AND NOT EXISTS (SELECT 1 FROM (SELECT id FROM m.b) taken WHERE taken.id = {id})"


def source_rows(server: Server, table: str) -> dict[int, Any]:
    columns = "id, v" if table != "b" else "id, v, large"
    return {row[0]: tuple(row[1:]) for row in server.execute(f"SELECT {columns} FROM m.{table}")}


def copied(copy: Pipeline, table: str) -> dict[int, Any]:
    names = ("v",) if table != "b" else ("v", "large")
    rows = copy.lake.table("m", table).rows().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


def test_two_targets_of_one_reader_equal_the_source(server: Server, tmp_path: Path) -> None:
    random = Random(7)
    server.execute("CREATE SCHEMA m" if isinstance(server, PostgresServer) else "CREATE DATABASE m")
    server.execute("CREATE TABLE m.a (id int PRIMARY KEY, v int)")
    server.execute("CREATE TABLE m.b (id int PRIMARY KEY, v varchar(40), large text)")
    for id in range(100):
        server.execute(f"INSERT INTO m.a VALUES ({id}, 0)")
        server.execute(f"INSERT INTO m.b VALUES ({id}, '', '{id}{LARGE}')")
    owner = pipeline(server, tmp_path / "owner")
    follower = pipeline(server, tmp_path / "follower", follows=tmp_path / "owner")
    try:
        owner.start()
        for turn in range(48):
            write(server, random)
            owner.turn()
            if turn == 15:
                follower.start()
            if turn == 25:
                server.execute("CREATE TABLE m.c (id int PRIMARY KEY, v int)")
                server.execute("INSERT INTO m.c VALUES (1, 1), (2, 2)")
            if turn == 35:
                server.execute("ALTER TABLE m.a ADD COLUMN w int")
                server.execute("UPDATE m.a SET w = id")
            if turn == 45:
                follower.stop()
                follower.start()
            if turn >= 15:
                follower.turn()
        equal(server, owner, follower)
    finally:
        follower.stop()
        owner.stop()
    if isinstance(server, PostgresServer):
        assert server.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)]
        assert server.execute("SELECT count(*) FROM pg_publication") == [(1,)]


def equal(server: Server, owner: Pipeline, follower: Pipeline) -> None:
    """Within a time: the follower's position moves with its owner's records."""
    end = time.monotonic() + 120
    tables = {1: "a", 2: "b", 3: "c"}.values()
    wanted = {table: source_rows(server, table) for table in tables}
    while True:
        server.execute("UPDATE m.c SET v = v WHERE id = 1")  # the log moves on
        found = []
        for copy in (owner, follower):
            copy.turn()
            state = copy.state
            ready = len([t for t in state.tables.values() if t.applied_record or t.segments or t.chunks]) >= 3
            found += [ready and copy.driver.level(state)]
        if all(found) and all(copied(copy, table) == wanted[table] for copy in (owner, follower) for table in tables):
            break
        assert time.monotonic() < end, found
        time.sleep(0.02)
    assert owner.driver.faults() == {} and follower.driver.faults() == {}
    columns = {column.name for column in follower.state.tables[_id(follower)].schema.columns}
    assert columns == {"id", "v", "w"}


def _id(copy: Pipeline) -> int:
    return next(table.table_id for table in copy.state.tables.values() if table.schema.table_name == "a")


def test_rows_that_are_reached_through_a_table_that_only_the_owner_copies_are_read_again(tmp_path: Path) -> None:
    with MysqlServer(MYSQL) as server:
        server.execute("CREATE DATABASE m")
        server.execute("CREATE TABLE m.parent (id int PRIMARY KEY)")
        server.execute(
            "CREATE TABLE m.a (id int PRIMARY KEY, v int,"
            " FOREIGN KEY (v) REFERENCES m.parent (id) ON DELETE CASCADE ON UPDATE SET NULL)"
        )
        for id in range(30):
            server.execute(f"INSERT INTO m.parent VALUES ({id})")
            server.execute(f"INSERT INTO m.a VALUES ({id}, {id}), ({100 + id}, {id})")
        owner = pipeline(server, tmp_path / "owner")
        follower = pipeline(server, tmp_path / "follower", follows=tmp_path / "owner")
        follower.document["spec"]["tables"] = {"include": ["m.a"]}
        with owner.running(), follower.running():
            level(server, owner, follower)
            server.execute("DELETE FROM m.parent WHERE id < 5")
            server.execute("UPDATE m.parent SET id = id + 100 WHERE id BETWEEN 10 AND 12")
            level(server, owner, follower)
            assert len(copied(follower, "a")) == 50
            assert [t.schema.table_name for t in follower.state.tables.values()] == ["a"]


def level(server: Server, owner: Pipeline, follower: Pipeline) -> None:
    """Both have `m.a` as it is."""
    end = time.monotonic() + 60
    wanted = source_rows(server, "a")
    while True:
        server.execute("INSERT INTO m.parent VALUES (1000)")  # the log moves on
        server.execute("DELETE FROM m.parent WHERE id = 1000")
        ready = [copy.driver.level(copy.turn()) and bool(copy.state.snapshots) for copy in (owner, follower)]
        if all(ready) and all(copied(copy, "a") == wanted for copy in (owner, follower)):
            break
        assert time.monotonic() < end, ready
        time.sleep(0.02)
    assert owner.driver.faults() == {} and follower.driver.faults() == {}


def test_a_follower_whose_manifest_names_another_database_of_the_same_server_is_refused(tmp_path: Path) -> None:
    with PostgresServer(18) as server:
        server.execute("CREATE SCHEMA m")
        server.execute("CREATE TABLE m.a (id int PRIMARY KEY, v int)")
        server.execute("CREATE DATABASE other TEMPLATE template0")
        with pipeline(server, tmp_path / "owner").running():
            pass
        follower = pipeline(server, tmp_path / "follower", follows=tmp_path / "owner")
        follower.document["spec"]["source"]["database"] = "other"
        follower.source = sources.of_replicator(follower.replicator.spec, "test")
        follower.refused(SourceRefused, match="database")
