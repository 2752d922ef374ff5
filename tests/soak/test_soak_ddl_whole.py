"""All scenarios of DDL, and random ones, under the whole product: Spark, Delta and Iceberg, SIGKILL and restarts.

`TAILRACE_SOAK_WHOLE_SECONDS` (default 1200) of random rounds for each format, from seed `TAILRACE_SOAK_WHOLE_SEED`
(default 0) on.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.scenarios import Pack, packs, read
from support.ddl.whole import directed, fuzz, over
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_WHOLE_SECONDS", "1200"))
SEED = int(os.environ.get("TAILRACE_SOAK_WHOLE_SEED", "0"))
PER_REPLICATOR, OPERATIONS = 10, 20
"""Rounds over one Replicator; statements of a round."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("timing", ["over", "killed"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_all_scenarios(server: PostgresServer, tmp_path: Path, format: str, timing: str) -> None:
    shared = [pack for pack in packs(read(), timing) if len(pack.scenarios) > 1]
    for number, pack in enumerate(shared):
        with over(server, tmp_path / str(number), format, pack) as whole:
            whole.restarts = 1
            directed(whole, pack, timing)
            whole.stop()
        server.execute("DROP PUBLICATION IF EXISTS given")


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_random_ddl(server: PostgresServer, tmp_path: Path, format: str) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < end:
        with over(server, tmp_path / str(seed), format, Pack.of([])) as whole:
            for _ in range(PER_REPLICATOR):
                whole.restarts = 1
                stopped = fuzz(whole, seed, OPERATIONS)
                print(f"seed {seed}: {len(stopped)} stopped", flush=True)
                seed += 1
            whole.stop()
