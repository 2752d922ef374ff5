"""Snowflake's emulator as the target of whole drivers that are killed at every seam, while columns change, and at
random: `TAILRACE_SOAK_ROUNDS` (default 6) lives, from seed `TAILRACE_SOAK_SEED` (default 0) on.
"""

import os
from random import Random

import pytest

from support.proof.harness import Begin, Proof
from support.proof.kills import live_and_die
from support.snowflake import SnowflakeService
from support.snowflake_reader import SnowflakeCopies

SEED = int(os.environ.get("TAILRACE_SOAK_SEED", "0"))
LIVES = int(os.environ.get("TAILRACE_SOAK_ROUNDS", "6"))
START = ("capture.after-publication", "capture.after-slot", "capture.after-origin")
CAPTURE = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
"""An executor's Python worker dies."""
DRIVER = (
    "snapshot.after-plan",
    "snapshot.before-register",
    "snapshot.after-register",
    "apply.before-commit",
    "apply.after-commit",
)
NEW_COPY = ("copy.recorded", "publish.before", "snowflake.filled", "snowflake.placed", "publish.after")
"""A new copy is made, and takes the place of the old one."""
COLUMNS = ("ADD COLUMN extra int DEFAULT 7", "ALTER v TYPE numeric(30,2)", "RENAME v TO w", "RENAME w TO x")
"""Changes of columns while the driver is dead. No change undoes another: the driver may have died before it made it."""


def begun(prove: Begin, snowflake: SnowflakeService, seed: int) -> Proof:
    copies = SnowflakeCopies.of(snowflake)
    proof = prove("delta", seed, target=copies.target, apply={"freshness": "300ms"}, onSchemaChange="Evolve")
    proof.reader = lambda _, table: copies.read(table)
    return proof


@pytest.mark.timeout(1800)
def test_kills_at_every_seam_lose_and_double_nothing(prove: Begin, snowflake: SnowflakeService) -> None:
    proof = begun(prove, snowflake, seed=9)
    writers = proof.writers(seed=9, count=2)
    plan = [f"{seam}=kill@{3 + 4 * i}" for i, seam in enumerate(CAPTURE)]
    plan += [f"{seam}=kill" for seam in START]
    plan += [f"{seam}=kill@{2 + i}" for i, seam in enumerate(CHUNK)]
    run = proof.deployment.start(seams=",".join(plan))
    run.until(lambda: len(list(proof.deployment.marks.iterdir())) == len(plan), 600, f"all of {plan} to be reached")
    run.until(proof.completed(1), 300, "the first snapshots to be completed")
    assert run.stop() == 0, run.tail()
    for number, seam in enumerate((*DRIVER, *NEW_COPY)):
        again: dict[str, object] = {"resync": True} if seam in NEW_COPY else {"chunkRows": 250}
        request = proof.deployment.request(f"again-{number}", tables=["proof.*"], **again)
        run = proof.deployment.start("-f", str(request), seams=f"{seam}=kill@{1 + number % 2}")
        assert run.wait(300) == -9, f"{seam} was never reached\n{run.tail()}"
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()


@pytest.mark.timeout(1800)
def test_kills_while_columns_change_lose_and_double_nothing(prove: Begin, snowflake: SnowflakeService) -> None:
    """The table is written again beside itself, and takes its own place."""
    proof = begun(prove, snowflake, seed=11)
    proof.deployment.once()
    for number, change in enumerate(COLUMNS):
        proof.server.execute(f"ALTER TABLE proof.single {change}; UPDATE proof.single SET n = n + 1")
        seam = ("snowflake.filled", "snowflake.placed")[number % 2]
        run = proof.deployment.start("--once", seams=f"{seam}=kill")
        assert run.wait(300) == -9, f"{seam} was never reached\n{run.tail()}"
    proof.deployment.once()
    proof.assert_equal()


@pytest.mark.timeout(1800)
def test_random_kills_leave_no_wrong_row(prove: Begin, snowflake: SnowflakeService) -> None:
    """Also in the middle of a request."""
    proof, random = begun(prove, snowflake, seed=10), Random(SEED)
    writers = proof.writers(seed=10, count=2, truncate=True)
    kills = sum(live_and_die(proof.deployment, "proof.*", random, life) for life in range(LIVES))
    print(f"{kills} kills")
    writers.stop()
    proof.deployment.close()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
