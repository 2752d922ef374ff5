"""What a driver has in memory after some minutes of work, when nothing more comes: no more than its pod reserves.

Everything happens in the driver's own processes here, the snapshots too, which on Kubernetes executors read. `-s`
prints what each part had; `TAILRACE_SOAK_SECONDS` is the time with changes.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support import memory
from support.postgres import PostgresServer
from support.proof.process import Deployment
from tailrace.cli.client import DriverClient
from tailrace.driver.process.run_dir import NotRunning, RunFolder
from tailrace_operator.resources.pods import LEAST_REQUEST

SECONDS = float(os.environ.get("TAILRACE_SOAK_SECONDS", "240"))
IDLE_SECONDS = 60.0
TABLES, ROWS, MORE_ROWS = 20, 1_000_000, 20_000
"""Rows of the first table, and of each other one."""


@pytest.fixture(params=["delta", "iceberg"])
def soak(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    postgres.execute("CREATE SCHEMA soak")
    for number in range(TABLES):
        rows = MORE_ROWS if number else ROWS
        postgres.execute(f"CREATE TABLE soak.t{number} (id bigint PRIMARY KEY, a text, b numeric(12, 2))")
        postgres.execute(
            f"INSERT INTO soak.t{number} SELECT g, md5(g::text), g / 100.0 FROM generate_series(1, {rows}) g"
        )
    spec = {"tables": {"include": ["soak.*"]}, "driver": {}, "executors": {"max": 0}}
    deployment = Deployment(tmp_path / "soak", postgres.source(), request.param, spec)
    yield deployment
    deployment.close()


def replicating(deployment: Deployment) -> int:
    try:
        return sum(t.state == "REPLICATING" for t in DriverClient.of(RunFolder(deployment.state)).status().tables)
    except NotRunning:
        return 0


@pytest.mark.timeout(900 + SECONDS)
def test_an_idle_driver_stays_within_what_its_pod_reserves(postgres: PostgresServer, soak: Deployment) -> None:
    run = soak.start()
    run.until(lambda: replicating(soak) == TABLES, 600, "all snapshots")
    print(f"\n{soak.format}: after the snapshots {memory.text(memory.by_part(run))}")
    chance, end, key = random.Random(7), time.monotonic() + SECONDS, ROWS
    with psycopg.connect(postgres.dsn(), autocommit=True) as writer:
        while time.monotonic() < end:
            for _ in range(20):
                table, key = f"soak.t{chance.randrange(TABLES)}", key + 1
                writer.execute(f"INSERT INTO {table} VALUES ({key}, 'new', 1)")
                writer.execute(f"UPDATE {table} SET a = md5(a) WHERE id = {chance.randrange(MORE_ROWS)}")
            time.sleep(0.5)
    time.sleep(IDLE_SECONDS)
    parts = memory.by_part(run)
    print(f"{soak.format}: idle {memory.text(parts)}")
    assert run.stop() == 0, run.tail()
    assert sum(parts.values()) < LEAST_REQUEST << 20, memory.text(parts)
