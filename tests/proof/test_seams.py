"""SIGKILL at every seam between two durable writes, with writers running: source = target afterwards, and where a table
has a row filter, those of the source's rows that its own WHERE selects."""

import time

import pytest

from support.proof.harness import SMALL, Begin
from support.proof.process import HELD
from support.versions import turns

START = ("capture.after-publication", "capture.after-slot", "capture.after-origin")
"""Capture dies at its very first start, half way through making what it needs."""
CAPTURE = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
"""Capture dies; the driver lives on and starts it again."""
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
"""An executor's Python worker dies; Spark and the planner read the chunk again."""
DRIVER = (
    ("delta", ("snapshot.after-plan", "snapshot.after-register")),
    ("iceberg", ("snapshot.before-register", "apply.before-commit")),
    ("delta", ("delta.before-commit", "apply.after-commit")),
    ("iceberg", ("snapshot.after-plan", "iceberg.before-commit")),
)
"""The driver dies with its JVM; the next `tailrace run` goes on. (After a format's commit: `test_mysql_seams.py`.)"""
WHERE = {"proof.composite": "(at >= '2020-01-01 00:00:00+00:00' OR v IS NULL) AND NOT a IN (2, 5)"}
"""By the key, and by columns that change."""


@pytest.mark.timeout(1200)
def test_capture_and_chunk_workers_killed_at_every_seam_lose_and_double_nothing(prove: Begin) -> None:
    proof = prove("delta", seed=1, options=[{"match": table, "where": where} for table, where in WHERE.items()])
    writers = proof.writers(seed=1, count=3)
    plan = [f"{seam}=kill@{3 + 4 * i}" for i, seam in enumerate(CAPTURE)]
    plan += [f"{seam}=kill" for seam in START]
    plan += [f"{seam}=kill@{2 + i}" for i, seam in enumerate(CHUNK)]
    run = proof.deployment.start(seams=",".join([*plan, f"{HELD}=hold"]))
    proof.deployment.read_by_executors(run)
    run.until(lambda: len(list(proof.deployment.marks.iterdir())) == len(plan), 400, f"all of {plan} to be reached")
    time.sleep(3)
    assert run.process.poll() is None, f"the driver ended with capture or a worker\n{run.tail()}"
    writers.stop()
    proof.settle(run)
    proof.assert_nothing_acknowledged_early()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("format", "seams"), turns(*DRIVER))
def test_the_driver_killed_at_every_seam_loses_and_doubles_nothing(
    prove: Begin, format: str, seams: tuple[str, ...]
) -> None:
    proof = prove(format, seed=2, rows=SMALL, snapshot={"chunkRows": 60})
    writers = proof.writers(seed=2, count=3)
    for number, seam in enumerate(seams):
        request = proof.deployment.request(f"again-{number}", tables=["proof.*"], chunkRows=250)
        run = proof.deployment.start("-f", str(request), seams=f"{seam}=kill@{1 + number % 2}")
        # Capture lives on, and the next driver adopts it.
        assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
