"""A lock that somebody holds for long on one table, or on one partition, keeps no other table waiting."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.ddl.fork_server import ForkServer, looks
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer
from support.versions import turns
from support.waiting import until
from tailrace.contract.resources import TablesSpec
from tailrace.sources.postgresql.fingerprint import look
from tailrace.sources.postgresql.objects import ensure_publication
from tailrace.sources.postgresql.trees import Trees

PARTITIONED = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.t1 PARTITION OF s.t FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
    "CREATE TABLE s.t11 PARTITION OF s.t1 FOR VALUES FROM (0) TO (100)",
    "INSERT INTO s.t SELECT g, 'a' FROM generate_series(1, 15) g",
    "CREATE TABLE s.u (id int PRIMARY KEY)",
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def running(server: PostgresServer, fork_server: ForkServer, tmp_path: Path) -> Iterator[InProcess]:
    with in_process(server, fork_server, tmp_path, "locks") as one:
        for statement in PARTITIONED:
            one.sql(statement)
        one.start()
        one.settle()
        yield one


@contextmanager
def locked(one: InProcess, table: str, mode: str) -> Iterator[None]:
    one.sql("BEGIN", "holder")
    one.sql(f"LOCK TABLE {table} IN {mode} MODE", "holder")
    yield
    one.sql("ROLLBACK", "holder")


def rows_of(one: InProcess, table: str) -> int:
    """Changes of the table that the journal holds."""
    (found,) = [t for t in one.turn().tables.values() if t.schema.table_name == table]
    return sum(logged.segment.rows for logged in found.segments)


def arrives(one: InProcess, table: str) -> None:
    before = rows_of(one, table)
    one.sql(f"INSERT INTO s.{table} SELECT coalesce(max(id), 0) + 1 FROM s.{table}")
    until(lambda: rows_of(one, table) > before, f"a row of s.{table} in the journal")


def test_a_locked_partition_holds_nothing_up(running: InProcess) -> None:
    with locked(running, "s.t11", "ACCESS EXCLUSIVE"):
        was = looks(running.folder)
        for _ in range(2):
            arrives(running, "u")
        until(lambda: running.turn() and looks(running.folder) >= was + 2, "two more looks at the catalog")
    verdict = verify(running, running.settle())
    assert not verdict.wrong and not verdict.stopped


def test_a_new_table_that_is_locked_is_captured_later_and_holds_nothing_up(running: InProcess) -> None:
    running.gate(True)
    running.sql("CREATE TABLE s.fresh (id int PRIMARY KEY)")
    with locked(running, "s.fresh", "SHARE"):
        running.gate(False)
        for _ in range(3):
            arrives(running, "u")
            time.sleep(1)
        assert "s.fresh is not captured yet: backend" in running.tail()
    running.sql("INSERT INTO s.fresh VALUES (1)")
    verdict = verify(running, running.settle())
    assert not verdict.wrong and not verdict.stopped


def test_hundreds_of_locked_tables_leave_the_publication_without_holding_the_log_up(server: PostgresServer) -> None:
    with server.connect(autocommit=False) as holder, server.connect() as connection:
        for number in range(300):
            holder.execute(f"CREATE TABLE many{number} (id int PRIMARY KEY)".encode())
        holder.execute("CREATE PUBLICATION many FOR TABLE many0, " + ", ".join(f"many{n}" for n in range(1, 300)))
        holder.commit()
        members = "SELECT count(*)::int FROM pg_publication_tables WHERE pubname = 'many'"
        for number in range(1, 300):
            holder.execute(f"LOCK TABLE many{number} IN SHARE MODE".encode())
        begun = time.monotonic()
        ensure_publication(connection, "many", [], ours=True)
        assert time.monotonic() - begun < 5, "each look would take half a minute"
        holder.rollback()
        ensure_publication(connection, "many", [], ours=True)
        assert connection.execute(members).fetchone() == (0,)


def test_a_table_that_goes_between_a_look_and_its_publication_is_left_to_the_next_look(server: PostgresServer) -> None:
    with server.connect() as changing, server.connect() as looking:
        for statement in ("CREATE SCHEMA going", *(f"CREATE TABLE going.t{n} (id int PRIMARY KEY)" for n in range(3))):
            changing.execute(statement.encode())
        found = list(look(looking, TablesSpec(include=("going.*",)), [], "going", Trees()).tables.values())
        changing.execute("DROP TABLE going.t0")
        changing.execute("ALTER TABLE going.t1 RENAME TO other")
        left = ensure_publication(looking, "going", found, ours=True)
        assert {each.name for each in found if each.oid in left} == {"going.t0", "going.t1"}
        members = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'going'"
        assert looking.execute(members).fetchall() == [("t2",)]


@pytest.mark.parametrize("major", turns(14, 18))
def test_a_look_waits_for_no_lock(major: int) -> None:
    with PostgresServer(major) as server, server.connect(autocommit=False) as holder, server.connect() as looking:
        filtered = "s.u WHERE (id > 1), s.v (id)" if major >= 15 else "s.u, s.v"
        for statement in (*PARTITIONED, "CREATE TABLE s.v (id int PRIMARY KEY, w int GENERATED ALWAYS AS (id) STORED)"):
            holder.execute(statement)
        holder.execute(f"CREATE PUBLICATION p FOR TABLE s.t, {filtered} WITH (publish_via_partition_root)")
        holder.commit()
        for table in ("s.t", "s.u", "s.v"):
            holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        looking.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            looking.execute("TABLE s.t11")
        found = look(looking, TablesSpec(include=("s.*",)), [], "p", Trees())
        assert {table.name for table in found.tables.values()} == {"s.t", "s.u", "s.v"}
        (root,) = [table for table in found.tables.values() if table.name == "s.t"]
        assert len(root.parts["file"]) == 1 and len(root.parts["partition"]) == 2
