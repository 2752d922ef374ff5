"""SIGKILL at every seam between two durable writes, with writers running: source = target afterwards, and where a table
has a row filter, those of the source's rows that its own WHERE selects."""

import time

import pytest

from support.proof.harness import ROWS, SMALL, Begin
from support.proof.process import HELD
from support.proof.tables import TABLES
from support.versions import turns

START = ("capture.after-publication", "capture.after-slot", "capture.after-origin")
"""Capture dies at its very first start, half way through making what it needs."""
CAPTURE = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
"""Capture dies; the driver lives on and starts it again."""
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
"""An executor's Python worker dies; Spark and the planner read the chunk again. Or the driver, which reads small tables
itself, and first chunks of others."""
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rows", "tables"), turns((SMALL, ["proof.*"]), (ROWS, ["proof.single"])), ids=["small", "large"]
)
def test_the_driver_killed_while_it_reads_a_chunk_itself_loses_and_doubles_nothing(
    prove: Begin, rows: int, tables: list[str]
) -> None:
    """Of small tables, or of one that executors read as soon as Spark has started."""
    chunk_rows = 2 * SMALL if rows == SMALL else 17  # as many as the writers have keys, or twelve chunks
    proof = prove("delta", seed=3, rows=rows, tables={"include": tables}, snapshot={"chunkRows": chunk_rows})
    writers = proof.writers(seed=3, count=2)
    for seam, visit in zip(CHUNK, (1, 2, 1), strict=True):
        # Such a run starts Spark when it begins to read a large table: the first chunks find none.
        run = proof.deployment.start("--once", seams=f"{seam}=kill@{visit}")
        assert run.wait(120) == -9, f"{seam} was not reached by the driver\n{run.tail()}"
    writers.stop()
    proof.deployment.once()
    names = [f"proof.{table.name}" for table in TABLES if rows == SMALL or table.name == "single"]
    assert not (found := proof.differences(*names)), "\n".join(found)
    proof.assert_nothing_acknowledged_early()
