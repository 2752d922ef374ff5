"""Names of two columns are exchanged while a table is read, and exchanged back before the next look at the catalog: the
chunk must not bring the values under the wrong names."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.judge import judge
from support.ddl.nursery import Nursery
from support.ddl.quick import Quick, quick
from support.postgres import PostgresServer

EXCHANGE = "ALTER TABLE s.t RENAME a TO x; ALTER TABLE s.t RENAME b TO a; ALTER TABLE s.t RENAME x TO b"


@pytest.fixture
def running(nursery: Nursery, tmp_path: Path) -> Iterator[Quick]:
    with PostgresServer(18) as server, quick(server, nursery, tmp_path, "exchanged") as one:
        one.sql("CREATE SCHEMA s")
        one.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text, b text)")
        one.sql("INSERT INTO s.t SELECT g, 'a' || g, 'b' || g FROM generate_series(1, 20) g")
        one.start()
        one.settle()
        yield one


def test_a_chunk_read_while_names_are_exchanged_is_not_taken(running: Quick) -> None:
    running.gate(True)
    running.sql(EXCHANGE)
    running.ask(["s.t"])
    end = time.monotonic() + 6
    while time.monotonic() < end and any(s.ended is None for s in running.turn().snapshots.values()):
        pass
    running.sql(EXCHANGE)
    verdict = judge(running, running.settle())
    assert not verdict.wrong
