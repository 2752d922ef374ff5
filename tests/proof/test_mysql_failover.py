"""The whole product is killed together with its MySQL or MariaDB and started again with the promoted replica as its
source: source = target afterwards, bit for bit, and no table was read again."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake.exceptions import TableNotFoundError

from demo.compare import read_delta
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_replicas import caught_up, follow, promote
from support.process import Program
from support.proof.process import Deployment, status
from support.versions import turns

LOGS_WHAT_IT_APPLIES: dict[str, str | int] = {"log_slave_updates": "ON"}


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST))
def primary(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, **LOGS_WHAT_IT_APPLIES) as running:
        mysql_shop.create(running)
        running.script("CREATE USER repl IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl")
        yield running


@pytest.fixture
def replica(primary: MysqlServer) -> Iterator[MysqlServer]:
    with MysqlServer(primary.name, **LOGS_WHAT_IT_APPLIES) as running:
        follow(running, primary)
        yield running


@pytest.fixture
def deployment(primary: MysqlServer, tmp_path: Path) -> Iterator[Deployment]:
    spec: dict[str, object] = {"tables": {"include": ["shop.*"]}, "snapshot": {"chunkRows": 40, "parallelism": 2}}
    made = Deployment(tmp_path / "proof", mysql_shop.spec(primary), spec=spec)
    yield made
    made.close()


def settled(server: MysqlServer, deployment: Deployment, run: Program) -> list[str]:
    """Source and target are equal, and all snapshots ended: their ids."""

    def level() -> bool:
        time.sleep(1)
        try:
            return not mysql_shop.differences(server, lambda name: read_delta(deployment.lake / "shop" / name))
        except (FileNotFoundError, TableNotFoundError):
            return False

    run.until(level, 200, "source = target")
    now = status(deployment)
    assert now is not None
    return sorted(snapshot["id"] for snapshot in now["snapshots"])


@pytest.mark.timeout(900)
def test_it_goes_on_at_a_promoted_replica_without_reading_a_table_again(
    primary: MysqlServer, replica: MysqlServer, deployment: Deployment
) -> None:
    run = deployment.start()
    with mysql_shop.writers(primary):
        time.sleep(2)
    snapshots = settled(primary, deployment, run)
    assert snapshots
    with mysql_shop.writers(primary):
        time.sleep(2)
        run.kill()  # what it has not read yet, only the replica can tell
        time.sleep(1)
    caught_up(replica, primary)
    primary.stop()
    promote(replica)
    deployment.source = mysql_shop.spec(replica)
    moved = deployment.start()
    with mysql_shop.writers(replica, seed=10):
        time.sleep(2)
    assert settled(replica, deployment, moved) == snapshots
    assert moved.stop() == 0, moved.tail()
