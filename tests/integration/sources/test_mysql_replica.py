"""A replica that applies on many threads as the source: chunks and changes end in what the replica holds, in whichever
order it commits, and while its commits hang between its log and its readers."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_replicas import caught_up, follow
from support.mysql_stalls import commits_that_stall
from support.pipeline import Pipeline
from support.resources import replicator as document_of
from support.versions import turns

SECONDS = 10
"""Of writing."""
KINDS: dict[str, tuple[str, dict[str, str | int]]] = {
    "in-order": (MYSQL, {"replica_parallel_workers": 8, "replica_preserve_commit_order": "ON"}),
    "out-of-order": (MYSQL, {"replica_parallel_workers": 8, "replica_preserve_commit_order": "OFF"}),
    "optimistic": (
        MARIADB_NEWEST,
        {"slave_parallel_threads": 8, "slave_parallel_mode": "optimistic", "log_slave_updates": "ON"},
    ),
}


@pytest.fixture(params=turns(*KINDS))
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[MysqlServer, MysqlServer]]:
    """Primary and replica."""
    name, settings = KINDS[request.param]
    with MysqlServer(name) as primary, MysqlServer(name, **settings) as replica:
        primary.script("CREATE USER repl IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl")
        follow(replica, primary)
        mysql_shop.create(primary)
        caught_up(replica, primary)
        yield primary, replica


def test_what_a_parallel_replica_holds_is_copied(servers: tuple[MysqlServer, MysqlServer], tmp_path: Path) -> None:
    primary, replica = servers
    with mysql_shop.writers(primary, 6):
        threading.Event().wait(1)
    document = document_of(
        source=mysql_shop.spec(replica),
        tables={"include": ["shop.*"]},
        target={"type": "delta", "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
        snapshot={"chunkRows": 20, "parallelism": 2},
    )
    copy = Pipeline(document, mysql_shop.source(replica), tmp_path)
    with copy.running():
        with commits_that_stall(replica), mysql_shop.writers(primary, 6):
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                copy.ask("shop.*")
                for _ in range(20):
                    copy.turn()
        caught_up(replica, primary)
        with copy.source.session() as session:
            end = session.log_end()
        copy.settle(end)
        assert copy.driver.faults() == {}
        assert not mysql_shop.differences(replica, lambda name: copy.lake.table("shop", name).rows())
