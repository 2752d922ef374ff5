"""Random DDL into the emulators of BigQuery and Snowflake: `TAILRACE_SOAK_DDL_SECONDS` (default 3600) of random scripts
for each, from seed `TAILRACE_SOAK_DDL_SEED` (default 0) on."""

import os
import time
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.fuzz import Rounds
from support.ddl.warehouse_copies import InWarehouse
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_DDL_SECONDS", "3600"))
SEED = int(os.environ.get("TAILRACE_SOAK_DDL_SEED", "0"))


@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("product", ["bigquery", "snowflake"])
def test_random_ddl_is_followed_or_stops_the_table_by_name(
    product: str, fork_server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    service = request.getfixturevalue(product)
    end, seed, failed = time.monotonic() + SECONDS, SEED, list[str]()
    while time.monotonic() < end:
        with PostgresServer((18, 14)[seed // 3 % 2]) as server:  # the way of following changes by `seed % 3`
            folder = tmp_path / str(seed)
            rounds = Rounds(server, fork_server, folder, shrink_seconds=300, into=lambda _: InWarehouse(service))
            told = rounds.play(seed, operations=20)
        if told is not None:
            print(told)
            failed.append(told)
        seed += 1
        print(f"{seed - SEED} rounds, {len(failed)} failed", flush=True)
    assert not failed, f"{len(failed)} of {seed - SEED} rounds failed; the first:\n{failed[0]}"
