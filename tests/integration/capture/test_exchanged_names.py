"""Names of two columns are exchanged while a table is read, and exchanged back before the next look at the catalog: the
chunk must not bring the values under the wrong names."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer

EXCHANGE = "ALTER TABLE s.t RENAME a TO x; ALTER TABLE s.t RENAME b TO a; ALTER TABLE s.t RENAME x TO b"


@pytest.fixture
def running(fork_server: ForkServer, tmp_path: Path) -> Iterator[InProcess]:
    with PostgresServer(18) as server, in_process(server, fork_server, tmp_path, "exchanged") as one:
        one.sql("CREATE SCHEMA s")
        one.sql("CREATE TABLE s.t (id int PRIMARY KEY, a text, b text)")
        one.sql("INSERT INTO s.t SELECT g, 'a' || g, 'b' || g FROM generate_series(1, 20) g")
        one.start()
        one.settle()
        yield one


def test_a_chunk_read_while_names_are_exchanged_is_not_taken(running: InProcess) -> None:
    running.gate(True)
    running.sql(EXCHANGE)
    running.ask(["s.t"])
    end = time.monotonic() + 6
    while time.monotonic() < end and any(s.ended is None for s in running.turn().snapshots.values()):
        pass
    running.sql(EXCHANGE)
    verdict = verify(running, running.settle())
    assert not verdict.wrong
