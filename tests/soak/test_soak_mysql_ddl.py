"""Random DDL of MySQL and MariaDB among rows: each copy is equal to its source, or its table stops by name; so it is
through all of Tailrace, which reads and applies meanwhile, and into databases, where it is killed as well.

`TAILRACE_SOAK_MYSQL_DDL_SECONDS` (default 600) of each server, or pair of servers, from seed
`TAILRACE_SOAK_MYSQL_DDL_SEED` (default 0) on.
"""

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mysql_packages import RELEASES
from support import mysql_shop
from support.ddl.mysql_rounds import MysqlRound, between
from support.mysql import MysqlServer
from support.mysql_ddl import TABLES, DefinitionWriter, Round
from support.mysql_log import by_chunk, exactly, table_of
from support.pipeline import Pipeline
from support.proof.sums import OF_MYSQL
from support.resources import replicator as document_of
from tailrace.changelog.records.terms import Position

SECONDS = float(os.environ.get("TAILRACE_SOAK_MYSQL_DDL_SECONDS", "600"))
SEAMS = (
    "apply.before-commit",
    "apply.after-commit",
    "chunk.after-read",
    "copy.recorded",
    "journal.after-create",
    "publish.before",
    "publish.after",
    "snapshot.before-register",
)
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


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", RELEASES)
def test_a_copy_is_equal_after_random_ddl_that_waits_for_nothing(name: str, tmp_path: Path) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    with MysqlServer(name, explicit_defaults_for_timestamp="ON") as server:
        while time.monotonic() < end:
            folder = tmp_path / str(seed)
            folder.mkdir()
            writer = DefinitionWriter(server, seed)
            copy = Pipeline(_document(server, folder), mysql_shop.source(server), folder)
            with copy.running():
                writer.start()
                while writer.is_alive():
                    copy.turn()
                fault = _fault(server, copy)
            assert fault is None and writer.ended, "\n".join([f"seed {seed}", *writer.trace, str(fault)])
            seed += 1
    print(f"{name}: {seed - SEED} rounds")


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize(("release", "product"), OF_MYSQL)
def test_copies_in_a_database_follow_random_ddl_whoever_is_killed(release: str, product: str, tmp_path: Path) -> None:
    end, seed, equal, failed = time.monotonic() + SECONDS, SEED, 0, list[str]()
    with between(release, product) as (server, make):
        while time.monotonic() < end:
            random, played = Random(seed), MysqlRound(server, make(), seed)
            kills = [f"{random.choice(SEAMS)}=kill@{random.randint(1, 5)}" for _ in range(random.randrange(4))]
            fault = played.fault(tmp_path / str(seed), draws=random.choice((20, 60, 120)), kills=kills)
            if fault is not None:
                print(f"{kills}\n{fault}", flush=True)
                failed.append(fault)
            seed, equal = seed + 1, equal + len(played.equal)
    print(f"{release} to {product}: {seed - SEED} rounds, {equal} copies equal, {len(failed)} failed")
    assert equal and not failed, failed[0]


def _document(server: MysqlServer, folder: Path) -> dict[str, Any]:
    return document_of(
        source=mysql_shop.spec(server),
        tables={"include": ["d.?"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 3, "parallelism": 2},
    )


def _fault(server: MysqlServer, copy: Pipeline) -> str | None:
    """After a while, in which tables start over that have to."""
    with copy.source.session() as session:
        position = Position(session.log_end())
    until, found = time.monotonic() + 60, list[str]()
    while time.monotonic() < until:
        copy.settle(position)
        found = [told for table in TABLES if (told := _differs(server, copy, table)) is not None]
        if not found:
            return None
        for _ in range(5):
            copy.turn()
    return "; ".join(found)


def _differs(server: MysqlServer, copy: Pipeline, table: str) -> str | None:
    if table_of(server, f"d.{table}") is None:
        return None  # it has no key now
    live = [t for t in copy.state.tables.values() if t.schema.table_name == table and not t.removed]
    if len(live) != 1 or live[0].stopped is not None:
        return f"{table} is {live}"
    asked = by_chunk(server, f"d.{table}")
    copied = sorted(copy.lake.table("d", table).rows().to_pylist(), key=lambda row: int(row["id"]))
    rows = [exactly([dict(sorted(row.items())) for row in side]) for side in (copied, asked)]
    return None if rows[0] == rows[1] else f"{table} has {rows[0]}, and not {rows[1]}"
