"""An owner and its follower as `tailrace run`, started together: both are killed, and equal the source at the end."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.compare import compare
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status

Pair = tuple[Deployment, Deployment]
TABLES = ("public.orders", "public.items")


@pytest.fixture
def pair(postgres: PostgresServer, tmp_path: Path) -> Iterator[Pair]:
    place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
    source: dict[str, object] = {"type": "postgresql", **place}
    spec: dict[str, object] = {"tables": {"include": ["public.*"]}, "apply": {"freshness": "1s"}}
    owner = Deployment(tmp_path / "owner", source, spec=spec, name="owner")
    spec = spec | {"follow": {"location": owner.log.as_uri()}}
    follower = Deployment(tmp_path / "follower", source, spec=spec, name="follower")
    with ExitStack() as ended:
        for one in (follower, owner):
            ended.callback(one.close)
        yield owner, follower


def write(postgres: PostgresServer, first: int) -> None:
    postgres.execute(f"INSERT INTO orders SELECT i, 'new' FROM generate_series({first}, {first + 19}) i")
    postgres.execute(f"UPDATE orders SET v = 'updated {first}' WHERE id % 3 = 0")
    postgres.execute(f"UPDATE items SET id = id + 1000 WHERE id = {first}")
    postgres.execute(f"DELETE FROM items WHERE id % 7 = 1 AND id > {first}")


def until_equal(postgres: PostgresServer, one: Deployment, run: Program) -> None:
    run.until(lambda: (status(one) or {}).get("tablesReplicating") == 2, 200, f"{one.name} to replicate")
    with postgres.connect() as connection:
        run.until(lambda: compare(connection, TABLES, one.lake, "delta") == [], 60, f"{one.name} to be equal")


@pytest.mark.timeout(600)
def test_an_owner_and_its_follower_that_start_together_and_are_killed_both_equal_the_source(
    postgres: PostgresServer, pair: Pair
) -> None:
    postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, v text); CREATE TABLE items (id int PRIMARY KEY)")
    postgres.execute("INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 100) i")
    postgres.execute("INSERT INTO items SELECT generate_series(1, 200)")
    owner, follower = pair
    late = follower.start()
    waits = "has not begun"
    late.until(lambda: waits in str((status(follower) or {}).get("message")), 60, "the follower to wait")
    runs = owner.start(), late
    for one, run in zip(pair, runs, strict=True):
        until_equal(postgres, one, run)
    write(postgres, 101)
    for run in runs:
        run.kill()
    write(postgres, 121)
    runs = owner.start(), follower.start()
    write(postgres, 141)
    for one, run in zip(pair, runs, strict=True):
        until_equal(postgres, one, run)
    assert postgres.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)]
    assert all(run.stop() == 0 for run in reversed(runs))
