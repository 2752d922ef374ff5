"""A look at the catalog reads again what may differ, and no more: the partition trees that something was written to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from typing_extensions import override

from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.contract.resources import TablesSpec
from tailrace.databases.postgresql.connect import Connection, connect
from tailrace.sources.postgresql.fingerprint import look
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.trees import Tree, Trees

TABLES = TablesSpec(include=("s.*",))
SETUP = """
CREATE SCHEMA s; CREATE SCHEMA other;
CREATE TABLE s.t (id int PRIMARY KEY, v varchar(9), w text, k int NOT NULL DEFAULT 0) PARTITION BY RANGE (id);
CREATE TABLE s.a PARTITION OF s.t FOR VALUES FROM (0) TO (10);
CREATE TABLE other.b PARTITION OF s.t FOR VALUES FROM (10) TO (20);
CREATE TABLE s.deep PARTITION OF s.t FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (id);
CREATE TABLE other.c PARTITION OF s.deep FOR VALUES FROM (20) TO (30);
CREATE TABLE other.free (id int NOT NULL, v varchar(9), w text, k int NOT NULL);
CREATE TABLE s.calm (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE other.calm1 PARTITION OF s.calm FOR VALUES FROM (0) TO (10);
CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root);
INSERT INTO s.t VALUES (1), (11), (21);
"""
STEPS = (
    "ALTER TABLE other.b REPLICA IDENTITY FULL",
    "ALTER TABLE other.b REPLICA IDENTITY NOTHING",
    "CREATE UNIQUE INDEX by_id ON other.b (id); CREATE UNIQUE INDEX by_both ON other.b (id, k);"
    " ALTER TABLE other.b REPLICA IDENTITY USING INDEX by_id",
    "ALTER TABLE other.b REPLICA IDENTITY USING INDEX by_both",
    "ALTER TABLE other.b REPLICA IDENTITY USING INDEX by_id",
    "DROP INDEX other.by_id",
    "ALTER TABLE other.b REPLICA IDENTITY DEFAULT",
    "TRUNCATE other.c",
    "TRUNCATE s.t",
    "VACUUM FULL s.a",
    "ALTER TABLE s.t RENAME COLUMN id TO ident",
    "ALTER TABLE s.t ADD COLUMN x int DEFAULT 7",
    "ALTER TABLE s.t ALTER COLUMN x DROP DEFAULT",
    "ALTER TABLE s.t DROP COLUMN w",
    "ALTER TABLE s.t ALTER COLUMN v TYPE varchar(20)",
    "ALTER TABLE s.t ALTER COLUMN v TYPE text USING v || '!'",
    "ALTER TABLE other.b RENAME TO renamed; ALTER TABLE other.renamed SET UNLOGGED",
    "ALTER SCHEMA other RENAME TO again",
    "ALTER TABLE again.renamed SET LOGGED",
    "ALTER TABLE again.free RENAME COLUMN id TO ident; ALTER TABLE again.free ADD COLUMN x int, DROP COLUMN w;"
    " ALTER TABLE again.free ALTER COLUMN v TYPE text;"
    " ALTER TABLE s.deep ATTACH PARTITION again.free FOR VALUES FROM (30) TO (40)",
    "ALTER TABLE s.deep DETACH PARTITION again.free",
    "ALTER TABLE s.deep ATTACH PARTITION again.free FOR VALUES FROM (30) TO (40);"
    " ALTER TABLE s.deep DETACH PARTITION again.free;"
    " ALTER TABLE s.deep ATTACH PARTITION again.free FOR VALUES FROM (30) TO (40)",
    "ALTER TABLE s.deep DETACH PARTITION again.free CONCURRENTLY",
    "CREATE TABLE again.late PARTITION OF s.deep FOR VALUES FROM (30) TO (40)",
    "ALTER TABLE s.t DETACH PARTITION s.deep",
    "ALTER TABLE s.t ATTACH PARTITION s.deep FOR VALUES FROM (20) TO (40)",
    "DROP TABLE again.c",
    "DROP TABLE s.t",
)


@pytest.mark.parametrize("major", [14, 18])
def test_a_look_that_knows_the_last_one_sees_what_a_first_look_sees(major: int) -> None:
    with PostgresServer(major) as server, connect(config_of(server)) as admin:
        _run(admin, SETUP)
        trees = Trees()
        before = _look(admin, trees)
        for step in STEPS:
            _run(admin, step)
            now = _look(admin, trees)
            assert now == _look(admin, Trees()), step
            assert now != before, f"{step} tests nothing"
            before = now


def test_a_partition_that_nobody_touched_is_not_read_again(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        _run(admin, SETUP)
        trees = Trees()
        admin.cursor_factory = Counting
        rows = [_rows(admin, trees) for _ in range(2)]
        for number in range(60):
            _run(
                admin,
                f"CREATE TABLE other.n{number} PARTITION OF s.t FOR VALUES FROM ({100 + number}) TO ({101 + number})",
            )
        rows += [_rows(admin, trees) for _ in range(2)]
        _run(admin, "TRUNCATE other.calm1")
        rows += [_rows(admin, trees)]
    first, second, grown, again, other = rows
    assert second < first < grown, "the first look at a tree reads its partitions"
    assert again == second, "what a look reads does not go by the number of partitions"
    assert other == again + 1, "one partition, of one tree"


@pytest.mark.parametrize("gone", ["s.t", "s.plain"])
def test_a_table_that_is_dropped_within_a_look_is_not_in_it(postgres: PostgresServer, gone: str) -> None:
    with connect(config_of(postgres)) as admin:
        _run(admin, SETUP + "CREATE TABLE s.plain (id int PRIMARY KEY)")
        before = look(admin, TABLES, (), "p", Trees()).tables
        now = look(admin, TABLES, (), "p", Dropping(gone)).tables
    assert {table.name for table in before.values()} == {"s.t", "s.plain", "s.calm"}
    assert {table.name for table in now.values()} == {"s.t", "s.plain", "s.calm"} - {gone}
    assert all(now[oid].parts == before[oid].parts for oid in now)


class Dropping(Trees):
    """Somebody drops a table when the look has found it and its columns."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self._table = table

    @override
    def look(self, connection: Connection, roots: Sequence[int]) -> Mapping[int, Tree]:
        connection.execute(f"DROP TABLE {self._table}".encode())
        return super().look(connection, roots)


class Counting(psycopg.Cursor[Any]):
    """Counts the rows that the server sends."""

    rows = 0

    @override
    def fetchall(self) -> list[Any]:
        found = super().fetchall()
        Counting.rows += len(found)
        return found


def _rows(admin: Connection, trees: Trees) -> int:
    Counting.rows = 0
    _look(admin, trees)
    return Counting.rows


def _look(admin: Connection, trees: Trees) -> dict[int, tuple[PgTable, str]]:
    """Two stops are never equal, their texts are."""
    found = look(admin, TABLES, (), "p", trees).tables
    return {oid: (replace(table, stop=None), str(table.stop)) for oid, table in found.items()}


def _run(admin: Connection, script: str) -> None:
    for statement in _statements(script):
        admin.execute(statement.encode())


def _statements(script: str) -> Iterator[str]:
    """One at a time: some may not run in a transaction with others."""
    return (statement for statement in script.split(";") if statement.strip())
