"""Two snapshots of the whole table at a time: the older one has read keys that rows came under since, without a word
in the log. Its end must not remove them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer
from support.waiting import until
from tailrace.changelog.state import LogState

SETUP = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.t (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.t1 PARTITION OF s.t FOR VALUES FROM (100) TO (200)",
    "INSERT INTO s.t SELECT g, 'old' FROM generate_series(101, 180) g",
    "CREATE TABLE s.t2 (LIKE s.t INCLUDING ALL)",
    "INSERT INTO s.t2 SELECT g, 'attached' FROM generate_series(201, 204) g",
)
ATTACH = "ALTER TABLE s.t ATTACH PARTITION s.t2 FOR VALUES FROM (200) TO (300)"


@pytest.fixture
def one(postgres: PostgresServer, fork_server: ForkServer, tmp_path: Path) -> Iterator[InProcess]:
    with in_process(postgres, fork_server, tmp_path, "two", tables={"include": ["s.t"]}) as made:
        for line in SETUP:
            made.sql(line)
        made.start()
        made.settle()
        yield made


def begun(state: LogState, snapshot_id: str) -> bool:
    return any(part.chunks_done for part in state.snapshots[snapshot_id].tables.values())


def read_again(state: LogState) -> bool:
    return any(s.plan.reason == "schema" and s.ended is not None for s in state.snapshots.values())


def test_the_end_of_an_older_snapshot_leaves_what_a_newer_one_has_read(one: InProcess) -> None:
    """Suspended, the older one ends last in any case; in a large table it often does. Its first chunk is the end of
    the key's range, in which the attached rows are."""
    asked = one.ask(["s.t"], parallelism=1)
    until(lambda: begun(one.turn(), asked), "a chunk is registered")
    assert one.driver is not None
    one.driver.control.suspend_snapshot(asked, True)
    one.sql(ATTACH)
    until(lambda: read_again(one.turn()), "the partition is read")
    until(lambda: one.turn() and one.lake.table("s", "t").rows().num_rows == 84, "its rows are in the target")
    assert one.driver.journal.state.snapshots[asked].ended is None
    one.driver.control.suspend_snapshot(asked, False)
    verdict = verify(one, one.settle())
    assert verdict.wrong == ()
    assert verdict.stopped == {}
