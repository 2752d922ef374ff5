"""Rounds of random kills with MySQL or MariaDB as the source: any process, any seam, any time, and the server itself,
with writers, prepared XA transactions and stalled commits; its log is flushed, and purged as far as it was read.

`TAILRACE_SOAK_ROUNDS` (default 4) rounds; MySQL and MariaDB, Delta and Iceberg alternate. Each ends with source =
target, row by row and column by column: the source is read by PyMySQL, the target by delta-rs or pyiceberg.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from demo.compare import READERS
from demo.mysql_shop import compare
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_stalls import commits_that_stall
from support.proof.kills import live_and_die
from support.proof.process import Deployment
from tailrace.changelog.records import Record
from tailrace.sources.mysql.position import file_of
from tailrace.sources.mysql.state import SourceState

ROUNDS = int(os.environ.get("TAILRACE_SOAK_ROUNDS", "4"))
TABLES = (*mysql_shop.TABLES, "xa")
SPEC: dict[str, object] = {
    "tables": {"include": ["shop.*"]},
    "snapshot": {"chunkRows": 40, "parallelism": 2},
    "retention": {"time": "5s"},
}


class Disturbance:
    """What befalls the server."""

    def __init__(self, server: MysqlServer, deployment: Deployment, random: Random) -> None:
        self._server, self._deployment, self._random = server, deployment, random
        self.kills = self.purged = 0

    def __call__(self) -> None:
        for _ in range(self._random.randint(0, 3)):
            self._server.execute("FLUSH BINARY LOGS")
            time.sleep(self._random.random())
        if self._random.random() < 0.5:
            self._purge()
        if self._random.random() < 0.4:
            self._server.kill()
            time.sleep(self._random.choice([0, 0, 3]))
            self._server.start()
            self.kills += 1

    def _purge(self) -> None:
        """Files of which everything was decided and is in the journal. The rows of a prepared XA transaction are read
        again, from where they are; with MariaDB, whose crashes can lose one that is in the log, for ever."""
        file = self._server.execute("SHOW BINARY LOGS")[-1][0]
        until = time.monotonic() + 5
        if self._server.execute("XA RECOVER") or not self._is_exact():
            return
        while self._read() < int(file.rpartition(".")[2]):
            if time.monotonic() > until:
                return
            time.sleep(0.1)
        before = len(self._server.execute("SHOW BINARY LOGS"))
        self._server.execute(f"PURGE BINARY LOGS TO '{file}'")
        self.purged += before - len(self._server.execute("SHOW BINARY LOGS"))

    def _read(self) -> int:
        """The file up to which the journal has the log."""
        newest = last_record(self._deployment)
        return 0 if newest is None else file_of(newest.position)

    def _is_exact(self) -> bool:
        states = (record.source_state for record in records(self._deployment))
        return SourceState.read(next(filter(None, states), None)).exact


def records(deployment: Deployment) -> Iterator[Record]:
    """Newest first."""
    for path in sorted((deployment.log / "journal").glob("[0-9]*.json"), reverse=True):
        yield Record.model_validate_json(path.read_bytes())


def last_record(deployment: Deployment) -> Record | None:
    return next(records(deployment), None)


@pytest.fixture
def server(number: int) -> Iterator[MysqlServer]:
    with MysqlServer((MYSQL, MARIADB_NEWEST)[number % 2]) as running:
        mysql_shop.create(running)
        running.execute("CREATE TABLE shop.xa (id int PRIMARY KEY, v text)")
        yield running


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_kills_of_driver_capture_and_server_leave_no_wrong_row(
    server: MysqlServer, tmp_path: Path, number: int
) -> None:
    random, format = Random(number), ("delta", "iceberg")[(number + number // 2) % 2]
    deployment = Deployment(tmp_path / "proof", mysql_shop.spec(server), format, SPEC)
    deployment.write_manifest()
    disturb, kills = Disturbance(server, deployment, random), 0
    try:
        with mysql_shop.writers(server, seed=number, xa=True), commits_that_stall(server, seed=number):
            for life in range(5):
                kills += live_and_die(deployment, "shop.*", random, life, disturb)
    finally:
        deployment.close()
    deployment.once(600)
    copies: dict[str, pa.Table] = {}

    def read(name: str) -> pa.Table:
        copies[name] = READERS[format](deployment.lake / "shop" / name)
        return copies[name]

    found, newest = compare(server, TABLES, read), last_record(deployment)
    rows, changes = sum(map(len, copies.values())), newest and newest.last_seq
    print(f"{server.name}, {format}: {kills} kills, {disturb.kills} of the server, {disturb.purged} files purged")
    print(f"{changes} changes, {rows} rows compared, {len(found)} differences")
    assert not found, "\n".join(found)
    assert disturb.kills and rows and (disturb.purged or server.mariadb)
