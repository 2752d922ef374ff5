"""Where capture begins, and what stalls a commit: the hazards T1, T3, A1 on the whole path."""

import pytest

from support.postgres import PostgresServer
from support.proof.harness import Begin, Proof
from support.proof.process import status
from support.proof.writers import StalledCommits
from support.versions import turns


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_commits_that_are_logged_and_not_visible_leave_no_wrong_row(
    postgres: PostgresServer, prove: Begin, format: str
) -> None:
    proof = prove(format, seed=3, snapshot={"chunkRows": 7, "parallelism": 3})
    stalls = StalledCommits(postgres.connect, seed=3)
    writers = proof.writers(seed=3, count=6, pause=0.01, truncate=True)
    run = proof.deployment.start()
    stalls.start()
    for number in range(2):
        run.until(proof.completed(number + 3), 240, f"snapshot {number}")
        proof.ask(f"again-{number}", tables=["proof.*"], chunkRows=5 + number)
    run.until(proof.completed(5), 240, "the last snapshot")
    stalls.stop()
    writers.stop()
    proof.settle(run)


@pytest.mark.timeout(900)
def test_a_transaction_open_before_the_slot_and_committed_after_it_is_not_lost(
    postgres: PostgresServer, prove: Begin
) -> None:
    proof = prove("delta", seed=4)
    with postgres.connect(autocommit=False) as old:
        old.execute("INSERT INTO proof.single VALUES (9001, 1), (9002, 2)")
        old.execute("UPDATE proof.single SET v = -5 WHERE id = (SELECT min(id) FROM proof.single)")
        run = proof.deployment.start()
        run.until(lambda: waits_for(proof), 120, "the start to wait for the open transaction")
        old.commit()
    run.until(proof.completed(3), 200, "the initial snapshots")
    proof.settle(run)


def waits_for(proof: Proof) -> bool:
    """Whether the status tells whom the start waits for."""
    found = status(proof.deployment)
    return found is not None and "transaction" in ((found["capture"] or {}).get("waitingFor") or "")
