"""A warehouse's emulator as the target: whole drivers killed at every seam, at random, and while columns change.

`TAILRACE_SOAK_WAREHOUSES_SEED` (default 0) of the random numbers;
`TAILRACE_SOAK_ROUNDS` (default 6) lives of drivers that are killed at random.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.postgres import PostgresServer
from support.proof.harness import Proof
from support.proof.in_warehouse import replicated
from support.proof.kills import live_and_die
from support.proof.process import HELD
from support.warehouse_reader import WITH_ARRAYS

SEED = int(os.environ.get("TAILRACE_SOAK_WAREHOUSES_SEED", "0"))
LIVES = int(os.environ.get("TAILRACE_SOAK_ROUNDS", "6"))
PRODUCTS = ("bigquery", "snowflake")
PAIRS = (
    ("capture.after-segments", "apply.before-commit"),
    ("journal.after-create", "apply.after-commit"),
    ("capture.before-ack", "snapshot.after-register"),
    ("journal.before-create", "snapshot.before-register"),
)
START = ("capture.after-publication", "capture.after-slot", "capture.after-origin")
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
"""An executor's Python worker dies."""
NEW_COPY = ("copy.recorded", "publish.before", "publish.after")
"""A new copy is made, and takes the place of the old one."""
OWN = {"bigquery": (), "snowflake": ("snowflake.filled", "snowflake.placed", "snowflake.before-commit")}
"""Seams of one product, which are reached with a new copy."""
COLUMNS = ("ADD COLUMN extra int DEFAULT 7", "ALTER v TYPE numeric(30,2)", "RENAME v TO w", "RENAME w TO x")
"""Changes of columns while the driver is dead. No change undoes another: the driver may have died before it made it."""


@pytest.fixture
def product(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proof(product: str, request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Proof]:
    made = replicated(postgres, tmp_path, product, request, seed=SEED, chunk_rows=9)
    yield made
    made.deployment.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("product", PRODUCTS, indirect=True)
@pytest.mark.parametrize(("of_capture", "of_driver"), PAIRS)
def test_a_driver_and_its_capture_that_are_killed_lose_and_double_nothing(
    proof: Proof, of_capture: str, of_driver: str
) -> None:
    """Capture dies first, and the driver starts another."""
    writers = proof.writers(seed=8, count=1, pause=0.1)
    run = proof.deployment.start(seams=f"{of_capture}=kill@2,{of_driver}=kill@3")
    assert run.wait(300) == -9, f"{of_driver} was never reached\n{run.tail()}"
    assert {mark.name for mark in proof.deployment.marks.iterdir()} == {of_capture, of_driver}
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("product", PRODUCTS, indirect=True)
def test_kills_at_every_other_seam_lose_and_double_nothing(proof: Proof, product: str) -> None:
    writers = proof.writers(seed=9, count=1, pause=0.1)
    plan = [f"{seam}=kill" for seam in START] + [f"{seam}=kill@{2 + i}" for i, seam in enumerate(CHUNK)]
    run = proof.deployment.start(seams=",".join([*plan, f"{HELD}=hold"]))
    proof.deployment.read_by_executors(run)
    run.until(lambda: len(list(proof.deployment.marks.iterdir())) == len(plan), 600, f"all of {plan} to be reached")
    run.until(proof.completed(1), 300, "the first snapshots to be completed")
    assert run.stop() == 0, run.tail()
    of_copies = (*NEW_COPY, *OWN[product])
    for number, seam in enumerate(("snapshot.after-plan", *of_copies)):
        again: dict[str, object] = {"resync": True} if seam in of_copies else {}
        request = proof.deployment.request(f"again-{number}", tables=["proof.*"], **again)
        run = proof.deployment.start("-f", str(request), seams=f"{seam}=kill@{1 + number % 2}")
        assert run.wait(300) == -9, f"{seam} was never reached\n{run.tail()}"
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("product", ["snowflake"], indirect=True)
def test_kills_while_columns_change_lose_and_double_nothing(proof: Proof) -> None:
    """The table is written again beside itself, and takes its own place. (BigQuery has one statement for it.)"""
    proof.deployment.once()
    for number, change in enumerate(COLUMNS):
        proof.server.execute(f"ALTER TABLE proof.single {change}; UPDATE proof.single SET n = n + 1")
        seam = ("snowflake.filled", "snowflake.placed")[number % 2]
        run = proof.deployment.start("--once", seams=f"{seam}=kill")
        assert run.wait(300) == -9, f"{seam} was never reached\n{run.tail()}"
    proof.deployment.once()
    proof.assert_equal()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("product", [*PRODUCTS, WITH_ARRAYS], indirect=True)
def test_random_kills_leave_no_wrong_row(proof: Proof) -> None:
    """Also in the middle of a request."""
    random, writers = Random(SEED), proof.writers(seed=10, count=2, pause=0.1, truncate=True)
    kills = sum(live_and_die(proof.deployment, "proof.*", random, life) for life in range(LIVES))
    print(f"{kills} kills")
    writers.stop()
    proof.deployment.close()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
