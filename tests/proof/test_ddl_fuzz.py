"""Random DDL of every kind between random DML, snapshots, stops and kills: a few rounds of the DDL fuzzer.

`tests/soak/test_soak_ddl.py` runs it for an hour.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from support.ddl.copies import copies_in
from support.ddl.fork_server import ForkServer
from support.ddl.fuzz import CopiedTables, Rounds
from support.ddl.mysql_rounds import MysqlRound, between
from support.ddl.warehouse_copies import OF_ARRAYS, InWarehouse
from support.mysql import TARGETS
from support.postgres import PostgresServer
from support.proof.sums import OF_MYSQL
from support.versions import major_for, turn, turns
from support.warehouse_reader import WITH_ARRAYS, block_of, service_of

SEEDS = range(4)
EVOLVED = 100
"""A seed whose tables follow every change of columns."""
FEW = CopiedTables(("s.plain", "s.typed", "s.ranged", "s.t*"))
"""Each table takes the emulator long at first; `s.t*` are renamed ones."""
KILLS = ("apply.before-commit=kill@4", "apply.after-commit=kill@3")
BETWEEN = (15, 16, 17)
"""Of all other tests each runs with the oldest or the newest."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("major", turns(*BETWEEN))
def test_every_version_follows_random_ddl(fork_server: ForkServer, tmp_path: Path, major: int) -> None:
    with PostgresServer(major) as server:
        failed = Rounds(server, fork_server, tmp_path).play(major, operations=20)
    assert failed is None, failed


@pytest.mark.timeout(900)
@pytest.mark.postgres(18)
def test_random_ddl_is_followed_or_stops_the_table_by_name(
    postgres: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    rounds = Rounds(postgres, fork_server, tmp_path)
    for seed in SEEDS:
        failed = rounds.play(seed, operations=20)
        assert failed is None, failed
    assert len(rounds.kinds) > 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("product", turns("postgresql", *TARGETS))
def test_copies_in_a_database_follow_random_ddl(fork_server: ForkServer, tmp_path: Path, product: str) -> None:
    """Columns and key as well: the copy has the source's."""
    with PostgresServer(major_for(product)) as server, copies_in(product, server) as into:
        failed = Rounds(server, fork_server, tmp_path, into=into).play(EVOLVED, operations=20)
    assert failed is None, failed


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("release", "product"), turns(*OF_MYSQL))
def test_copies_in_a_database_follow_random_ddl_of_mysql(tmp_path: Path, release: str, product: str) -> None:
    """Killed once before a commit and once after one."""
    with between(release, product) as (server, make):
        played = MysqlRound(server, make(), turn() or 0)
        fault = played.fault(tmp_path / "round", draws=40, kills=KILLS)
    assert fault is None, fault
    assert played.equal


@pytest.mark.timeout(600)
@pytest.mark.turn(0, 2)  # the emulators take long for each batch
@pytest.mark.parametrize("target", turns("bigquery", "snowflake", WITH_ARRAYS))
def test_copies_in_a_warehouse_follow_random_ddl(
    postgres: PostgresServer, fork_server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest, target: str
) -> None:
    service, block = service_of(target, request), block_of(target)
    tables = replace(OF_ARRAYS, include=("s.listed", "s.plain", "s.t*")) if target == WITH_ARRAYS else FEW
    rounds = Rounds(postgres, fork_server, tmp_path, into=lambda _: InWarehouse(service, **block), tables=tables)
    failed = rounds.play(EVOLVED, operations=8)
    assert failed is None, failed
