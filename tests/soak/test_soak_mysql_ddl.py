"""Random DDL of MySQL and MariaDB among rows: each copy is equal to its source, or its table stops by name.

`TAILRACE_SOAK_MYSQL_DDL_SECONDS` (default 600) of each server from seed `TAILRACE_SOAK_MYSQL_DDL_SEED` (default 0) on.
"""

import os
import time
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.mysql_ddl import Round

SECONDS = float(os.environ.get("TAILRACE_SOAK_MYSQL_DDL_SECONDS", "600"))
SEED = int(os.environ.get("TAILRACE_SOAK_MYSQL_DDL_SEED", "0"))


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", RELEASES)
def test_a_copy_follows_random_ddl_or_its_table_stops_by_name(name: str, tmp_path: Path) -> None:
    end, seed, compared, altered, in_place = time.monotonic() + SECONDS, SEED, 0, 0, 0
    with MysqlServer(name, explicit_defaults_for_timestamp="ON") as server:
        while time.monotonic() < end:
            played = Round(server, tmp_path / str(seed), seed)
            fault = played.fault()
            assert fault is None, "\n".join([f"seed {seed}", *played.trace, fault])
            compared, altered = compared + played.compared, altered + played.altered
            in_place += played.in_place
            seed += 1
    print(f"{name}: {seed - SEED} rounds, {compared} copies compared, {in_place} of {altered} ALTERs in place")
    assert compared and in_place
