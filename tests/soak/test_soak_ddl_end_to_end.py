"""All scenarios of DDL, and random ones, under the whole product: Spark, Delta and Iceberg, SIGKILL and restarts.

`TAILRACE_SOAK_WHOLE_SECONDS` (default 1200) of random rounds for each format and policy, from seed
`TAILRACE_SOAK_WHOLE_SEED` (default 0) on.
"""

import os
import time
from pathlib import Path

import pytest

from support.ddl.end_to_end import directed, fuzz, over
from support.ddl.scenarios import Pack, packs, read
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_WHOLE_SECONDS", "1200"))
SEED = int(os.environ.get("TAILRACE_SOAK_WHOLE_SEED", "0"))
PER_REPLICATOR, OPERATIONS = 10, 20
"""Rounds over one Replicator; statements of a round."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("timing", ["over", "killed"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_all_scenarios(tmp_path: Path, format: str, timing: str) -> None:
    shared = [pack for pack in packs(read(), timing) if len(pack.scenarios) > 1]
    assert len(shared) == 2
    for number, pack in enumerate(shared):
        with PostgresServer(18) as server, over(server, tmp_path / str(number), format, pack) as whole:
            whole.restarts = 1
            directed(whole, pack, timing)
            whole.stop()


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("policy", ["Evolve", "EvolveAdditive", "Stop"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_random_ddl(tmp_path: Path, format: str, policy: str) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < end:
        with PostgresServer(18) as server, over(server, tmp_path / str(seed), format, Pack.of([]), policy) as whole:
            for _ in range(PER_REPLICATOR):
                whole.restarts = 1
                stopped = fuzz(whole, seed, OPERATIONS)
                print(f"seed {seed}: {len(stopped)} stopped, {sorted(stopped.values())}; all equal then", flush=True)
                seed += 1
            whole.stop()
