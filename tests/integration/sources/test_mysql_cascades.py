"""What InnoDB does to child tables below its log (CASCADE, SET NULL): the copies become equal all the same, over
chains, references of a table to itself, composite and non-key columns, and whatever was restarted meanwhile."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MysqlServer
from support.mysql_log import LogRun
from support.pipeline import Pipeline
from support.resources import replicator as document_of
from support.versions import turns
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import Position

NATIVE = "mysql-9 native"
REFUSED = (1062, 1451, 1452, 1761)
"""A key that is there already, or a parent that is not; an update that reaches its own table."""
TABLES = {
    "p": "id int PRIMARY KEY, a int, b int, up int, UNIQUE (a, b),"
    " FOREIGN KEY (up) REFERENCES c.p (id) ON DELETE SET NULL",
    "q": "id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES c.p (id) ON DELETE CASCADE ON UPDATE CASCADE",
    "r": "id int PRIMARY KEY, q int, a int, b int, FOREIGN KEY (q) REFERENCES c.q (id) ON DELETE CASCADE,"
    " FOREIGN KEY (a, b) REFERENCES c.p (a, b) ON UPDATE CASCADE ON DELETE SET NULL",
    "s": "id int PRIMARY KEY, q int, r int, FOREIGN KEY (r) REFERENCES c.r (id) ON DELETE SET NULL,"
    " FOREIGN KEY (q) REFERENCES c.q (id) ON UPDATE SET NULL ON DELETE CASCADE",
}


@pytest.fixture(scope="module", params=turns(*RELEASES, NATIVE))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    name, _, native = request.param.partition(" ")
    with MysqlServer(name, **({"innodb_native_foreign_keys": "ON"} if native else {})) as running:
        yield running


def create(server: MysqlServer) -> None:
    server.script("DROP DATABASE IF EXISTS c", "CREATE DATABASE c")
    for name, columns in TABLES.items():
        server.execute(f"CREATE TABLE c.{name} ({columns})")


def write(server: MysqlServer, rnd: random.Random) -> None:
    i, j = rnd.randrange(40), rnd.randrange(40)
    new = "NULL" if rnd.random() < 0.2 else str(j)
    statement = rnd.choice(
        [
            f"INSERT INTO c.p VALUES ({i}, {i % 7}, {i}, {new})",
            f"INSERT INTO c.q VALUES ({i}, {new})",
            f"INSERT INTO c.r VALUES ({i}, {new}, {j % 7}, {j})",
            f"INSERT INTO c.s VALUES ({i}, {new}, {j})",
            f"DELETE FROM c.{rnd.choice('pqr')} WHERE id = {i}",
            f"UPDATE c.{rnd.choice('pq')} SET id = {j} WHERE id = {i}",
            f"UPDATE c.p SET b = b + 40 WHERE id = {i}",
        ]
    )
    try:
        server.execute(statement)
    except (pymysql.IntegrityError, pymysql.OperationalError) as error:
        assert error.args[0] in REFUSED, (statement, error)


def logs_cascades(server: MysqlServer) -> bool:
    shown = server.execute("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'")
    return bool(shown) and shown[0][1] == "OFF"


def manifest(server: MysqlServer, folder: Path) -> dict[str, Any]:
    return document_of(
        source=mysql_shop.spec(server),
        tables={"include": ["c.*"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 10, "parallelism": 2},
    )


def level(server: MysqlServer, copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(Position(end))
    assert copy.driver.faults() == {}


def rows_of(server: MysqlServer, copy: Pipeline, name: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """In the source, and in the copy."""
    columns = [str(row[0]) for row in server.execute(f"SHOW COLUMNS FROM c.{name}")]
    source = [tuple(row) for row in server.execute(f"SELECT {', '.join(columns)} FROM c.{name} ORDER BY id")]
    copied = copy.lake.table("c", name).rows().select(columns).to_pylist()
    return source, sorted(tuple(row.values()) for row in copied)


def test_children_are_equal_after_writers_and_restarts(server: MysqlServer, tmp_path: Path) -> None:
    create(server)
    rnd = random.Random(7)
    for _ in range(300):
        write(server, rnd)
    copy = Pipeline(manifest(server, tmp_path), mysql_shop.source(server), tmp_path)
    try:
        copy.start()
        level(server, copy)
        for turn in range(60):
            for _ in range(5):
                write(server, rnd)
            copy.turn()
            if turn % 20 == 10:
                copy.stop()
                for _ in range(20):
                    write(server, rnd)
                copy.start()
        level(server, copy)
        for name in TABLES:
            source, copied = rows_of(server, copy, name)
            assert source == copied, name
            assert source or name == "s"
    finally:
        copy.stop()


def reached(run: LogRun) -> int:
    """The last record whose rows have reached the child."""
    return max((cascade.record for cascade in run.table("d.c").cascades), default=-1)


def test_each_record_with_a_parents_change_has_its_children_read_again(server: MysqlServer, tmp_path: Path) -> None:
    """MySQL 9.6 and newer log what foreign keys do, unless they are told to leave it to the engine: then nothing is
    read again."""
    server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "CREATE TABLE d.p (id int PRIMARY KEY, v int)")
    server.execute(
        "CREATE TABLE d.c (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE)"
    )
    logged = logs_cascades(server)
    server.script("INSERT INTO d.p VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO d.c VALUES (1, 1), (2, 2)")
    with LogRun(server, tmp_path) as run:
        server.script("UPDATE d.p SET v = 7", "INSERT INTO d.c VALUES (3, 3)", "DELETE FROM d.c WHERE id = 3")
        run.catch_up()
        server.script("SET foreign_key_checks = 0", "DELETE FROM d.p WHERE id = 3")
        run.catch_up()
        assert reached(run) == -1
        server.script("DELETE FROM d.p WHERE id = 1")
        run.read()
        first = reached(run)
        assert first == (-1 if logged else run.table("d.p").segments[-1].record)
    with LogRun(server, tmp_path) as run:  # the foreign key was there when the row was deleted, and is not now
        run.catch_up()
        assert reached(run) == first
        name = server.execute("SELECT constraint_name FROM information_schema.table_constraints WHERE table_schema ="
                              " 'd' AND table_name = 'c' AND constraint_type = 'FOREIGN KEY'")[0][0]  # fmt: skip
    server.script("DELETE FROM d.p WHERE id = 2", f"ALTER TABLE d.c DROP FOREIGN KEY `{name}`")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        second = reached(run)
        assert (second > first) == (not logged)
        server.script("INSERT INTO d.p VALUES (5, 5)", "DELETE FROM d.p")
        run.catch_up()
        assert reached(run) == second


def test_the_status_tells_since_when_a_child_lacks_what_its_foreign_keys_did(
    server: MysqlServer, tmp_path: Path
) -> None:
    create(server)
    server.script("INSERT INTO c.p VALUES (1, 1, 1, NULL)", "INSERT INTO c.q VALUES (1, 1)")
    copy = Pipeline(manifest(server, tmp_path), mysql_shop.source(server), tmp_path)
    try:
        copy.start()
        level(server, copy)
        since = {t.name: t.converging_since for t in copy.driver.control.status().tables}
        assert set(since.values()) == {None}
        begun = time.time()
        server.execute("DELETE FROM c.p WHERE id = 1")
        with copy.source.session() as session:
            end = session.log_end()
        copy.until(lambda state: state.position >= end)
        late = {t.name: t for t in copy.driver.control.status().tables if t.converging_since is not None}
        assert set(late) == (set() if logs_cascades(server) else {"c.p", "c.q", "c.r", "c.s"})
        assert all(int(begun) <= (t.converging_since or 0) <= time.time() for t in late.values())
        assert all((t.lag_seconds or 0.0) > 0 for t in late.values())
        level(server, copy)
        left = {t.name: (t.converging_since, t.lag_seconds) for t in copy.driver.control.status().tables}
        assert set(left.values()) == {(None, 0.0)}
        assert rows_of(server, copy, "q") == ([], [])
    finally:
        copy.stop()


def test_rows_are_read_by_their_keys_where_these_tell_which_were_reached(server: MysqlServer, tmp_path: Path) -> None:
    """Also children of a row that was deleted below the log, and inserted again under another parent."""
    server.script(
        "DROP DATABASE IF EXISTS c",
        "CREATE DATABASE c",
        "CREATE TABLE c.p (id int PRIMARY KEY)",
        "CREATE TABLE c.q (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES c.p (id) ON DELETE CASCADE)",
        "CREATE TABLE c.r (q int, n int, PRIMARY KEY (q, n), FOREIGN KEY (q) REFERENCES c.q (id) ON DELETE CASCADE)",
        "INSERT INTO c.p VALUES (1), (2), (3)",
        "INSERT INTO c.q VALUES (1, 1), (2, 1), (3, 2), (4, NULL)",
        "INSERT INTO c.r VALUES (1, 1), (1, 2), (2, 1), (3, 1), (4, 1)",
    )
    copy = Pipeline(manifest(server, tmp_path), mysql_shop.source(server), tmp_path)
    try:
        copy.start()
        level(server, copy)
        server.script("BEGIN", "DELETE FROM c.p WHERE id = 1", "INSERT INTO c.q VALUES (1, 2)", "COMMIT")
        level(server, copy)
        source = {name: sorted(map(tuple, server.execute(f"SELECT * FROM c.{name}"))) for name in "pqr"}
        copied = {
            name: sorted(tuple(row.values()) for row in copy.lake.table("c", name).rows().to_pylist()) for name in "pqr"
        }
        assert source == copied and source["r"] == [(3, 1), (4, 1)]
        own = [s.plan for s in copy.state.snapshots.values() if s.plan.reason != "initial"]
        names = sorted(copy.state.tables[plan.tables[0]].schema.table_name for plan in own)
        assert names == ([] if logs_cascades(server) else ["q", "r"])
        assert all(plan.keys is not None and plan.reason == "repair" for plan in own)
    finally:
        copy.stop()


@pytest.mark.parametrize("name", turns(MARIADB_NEWEST, "mysql-8.0"))
def test_a_child_that_was_taken_in_again_keeps_its_foreign_keys(name: str, tmp_path: Path) -> None:
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.p (id int PRIMARY KEY)", "INSERT INTO d.p VALUES (1)")
        server.execute(
            "CREATE TABLE d.c (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE)"
        )
        with LogRun(server, tmp_path) as run:
            child = run.table("d.c").table_id
            run.recorder.add(SnapshotPlanned(snapshot_id="again", tables=(child,), resync=True))
            run.catch_up()
            assert run.table("d.c").resync == "again" and "cascade" in (run.table("d.c").fingerprint or {})
            server.execute("DELETE FROM d.p")
            run.read()
            assert reached(run) > run.table("d.c").added_record
