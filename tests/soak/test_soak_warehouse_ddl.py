"""Random DDL of PostgreSQL, MySQL and MariaDB into the emulators of BigQuery and Snowflake: `TAILRACE_SOAK_DDL_SECONDS`
(default 3600) of random scripts for each pair, from seed `TAILRACE_SOAK_DDL_SEED` (default 0) on."""

import os
import time
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.fuzz import ALL, Rounds
from support.ddl.mysql_rounds import InWarehouse as OfMysql
from support.ddl.mysql_rounds import MysqlRound
from support.ddl.warehouse_copies import OF_ARRAYS, InWarehouse
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.warehouse_reader import WITH_ARRAYS, block_of, service_of

SECONDS = float(os.environ.get("TAILRACE_SOAK_DDL_SECONDS", "3600"))
SEED = int(os.environ.get("TAILRACE_SOAK_DDL_SEED", "0"))


@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("target", ["bigquery", "snowflake", WITH_ARRAYS])
def test_random_ddl_is_followed_or_stops_the_table_by_name(
    target: str, fork_server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    service, block = service_of(target, request), block_of(target)
    tables = OF_ARRAYS if target == WITH_ARRAYS else ALL
    end, seed, failed = time.monotonic() + SECONDS, SEED, list[str]()
    while time.monotonic() < end:
        with PostgresServer((18, 14)[seed // 3 % 2]) as server:  # the way of following changes by `seed % 3`
            folder = tmp_path / str(seed)
            rounds = Rounds(
                server,
                fork_server,
                folder,
                shrink_seconds=300,
                into=lambda _: InWarehouse(service, **block),
                tables=tables,
            )
            told = rounds.play(seed, operations=20)
        if told is not None:
            print(told)
            failed.append(told)
        seed += 1
        print(f"{seed - SEED} rounds, {len(failed)} failed", flush=True)
    assert not failed, f"{len(failed)} of {seed - SEED} rounds failed; the first:\n{failed[0]}"


@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("product", ["bigquery", "snowflake"])
@pytest.mark.parametrize("release", [MYSQL, MARIADB_NEWEST])
def test_random_ddl_of_mysql_is_followed_or_stops_the_table_by_name(
    release: str, product: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    service = request.getfixturevalue(product)
    end, seed, equal, stopped, failed = time.monotonic() + SECONDS, SEED, 0, 0, list[str]()
    with MysqlServer(release, explicit_defaults_for_timestamp="ON") as server:
        while time.monotonic() < end:
            played = MysqlRound(server, OfMysql(service), seed)
            told = played.fault(tmp_path / str(seed), draws=40)
            if told is not None:
                print(told)
                failed.append(told)
            seed, equal, stopped = seed + 1, equal + len(played.equal), stopped + len(played.stopped)
            print(f"{seed - SEED} rounds: {equal} tables equal, {stopped} stopped, {len(failed)} failed", flush=True)
    assert not failed, f"{len(failed)} of {seed - SEED} rounds failed; the first:\n{failed[0]}"
    assert equal
