"""Whole drivers, and workers of Spark's that read a first copy, which stand still (SIGSTOP, as when their machine is
suspended) for longer than anybody waits for them, into a database in which a reader adds up two tables in one snapshot
while money moves between these in the source.

`TAILRACE_SOAK_FREEZES` (default 3): how often a driver that has been overtaken follows another one. All of Tailrace in
one process, frozen right before and after a commit: `tests/proof/test_frozen_drivers.py`.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from support.postgres import PostgresServer
from support.process import Program
from support.proof.harness import ROWS
from support.proof.money import TOTAL, transfers
from support.proof.process import HELD, Deployment
from support.proof.sums import OF_POSTGRES, PAIRS, Copies, Reader, copies_between, end_by_hand
from support.waiting import until

FREEZES = int(os.environ.get("TAILRACE_SOAK_FREEZES", "3"))
PATIENCE = 300
FROZEN_SECONDS = 60
"""Longer than any lock or answer is waited for."""
READING = "SELECT 1 FROM pg_replication_slots WHERE active"


@pytest.fixture(params=PAIRS, ids="-to-".join)
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.fixture(params=OF_POSTGRES, ids="-to-".join)
def copies_of_postgres(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


def elsewhere(deployment: Deployment, number: int) -> Deployment:
    """The same Replicator with a run directory of its own, as on another machine."""
    spec = {**deployment.spec, "storage": {"location": deployment.log.as_uri()}}
    return replace(deployment, folder=deployment.folder.parent / f"machine-{number}", spec=spec, started=[])


def sees_more(run: Program, reader: Reader, what: str) -> None:
    run.until(reader.sees_news(), PATIENCE, what)


def ends_level(run: Program, copies: Copies, reader: Reader) -> None:
    run.until(lambda: not copies.differences(), PATIENCE, "source = target", pause=1)
    assert run.stop() == 0, run.tail()
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()


@pytest.mark.timeout(1800)
def test_drivers_that_wake_up_after_others_have_taken_over_are_fenced(copies: Copies, tmp_path: Path) -> None:
    """The first one in the middle of a transaction of the target, the others wherever chance will have it."""
    deployment, random = copies.begin(tmp_path, seed=8, rows=ROWS), Random(8)
    with ExitStack() as machines, Reader(copies) as reader:
        machines.callback(deployment.close)
        with copies.writing(seed=8, count=2), transfers(copies.source):
            run = deployment.start(seams="apply.before-commit=freeze@25")
            for number in range(FREEZES):
                if number == 0:
                    run.until(run.frozen, PATIENCE, "a transaction is left open")
                else:
                    time.sleep(random.uniform(0, 3))  # where it is then is up to chance
                run.freeze()
                late, other = run, elsewhere(deployment, number)
                machines.callback(other.close)
                run = other.start()
                if number == 0:
                    end_by_hand(copies, partial(run.until, timeout=PATIENCE, what="what is left open"))
                sees_more(run, reader, "both tables are level again")
                late.thaw()
                assert late.wait(120) == 13 and "Fenced" in late.tail(), late.tail()
                sees_more(run, reader, "the late one has disturbed nothing")
        ends_level(run, copies, reader)


@pytest.mark.timeout(900)
def test_a_driver_that_stands_still_until_the_source_has_given_it_up_continues(
    copies_of_postgres: Copies, postgres: PostgresServer, tmp_path: Path
) -> None:
    """With its JVM, Spark's workers and capture; nobody has taken over."""
    copies = copies_of_postgres
    deployment = copies.begin(tmp_path, seed=9, rows=ROWS)
    with ExitStack() as machines, Reader(copies) as reader:
        machines.callback(deployment.close)
        with copies.writing(seed=9, count=2), transfers(copies.source):
            run = deployment.start()
            sees_more(run, reader, "both tables are level")
            run.freeze()
            until(lambda: not postgres.execute(READING), "the source has ended the session", 120)
            run.thaw()
            sees_more(run, reader, "both tables are level again")
        ends_level(run, copies, reader)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("seam", ["chunk.after-snapshot", "chunk.after-read"])
def test_a_worker_that_stands_still_in_a_first_copy_loses_and_doubles_nothing(
    copies: Copies, tmp_path: Path, seam: str, taken_over: bool
) -> None:
    """Before the rows of its chunk are on their way into the target, or after. `taken_over`: its driver stands still as
    well, and another one has taken over when both wake up."""
    deployment = copies.begin(tmp_path, seed=10, rows=ROWS)
    with ExitStack() as machines, Reader(copies) as reader:
        machines.callback(deployment.close)
        with copies.writing(seed=10, count=2), transfers(copies.source):
            run = deployment.start(seams=f"{seam}=freeze,{HELD}=hold")
            deployment.read_by_executors(run)
            run.until(run.frozen, PATIENCE, "a worker stands still")
            (worker,) = run.frozen()
            assert worker.pid != run.process.pid, "it is none of the driver's"
            if taken_over:
                run.freeze()
                late, other = run, elsewhere(deployment, 1)
                machines.callback(other.close)
                run = other.start()
                sees_more(run, reader, "both tables are level")
                late.thaw()
                assert late.wait(120) == 13 and "Fenced" in late.tail(), late.tail()
            else:
                time.sleep(FROZEN_SECONDS)
                assert run.poll() is None, run.tail()
                worker.resume()
            sees_more(run, reader, "both tables are level again")
        ends_level(run, copies, reader)
