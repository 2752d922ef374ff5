"""Where capture begins, and what stalls a commit: the hazards T1, T3, A1 on the whole path."""

import pytest

from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import status
from support.proof.writers import StalledCommits
from support.versions import turns


@pytest.mark.timeout(900)
@pytest.mark.turn(1, 2)  # whole drivers: nearly a minute of CPU
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_an_open_transaction_at_the_start_and_commits_that_are_logged_and_not_visible_leave_no_wrong_row(
    postgres: PostgresServer, prove: Begin, format: str
) -> None:
    """One begun before the slot is committed after it; commits stall while rows are read again."""
    proof = prove(format, seed=3, rows=SMALL, snapshot={"chunkRows": 15, "parallelism": 3})
    with postgres.connect(autocommit=False) as old:
        old.execute("INSERT INTO proof.single VALUES (9001, 1), (9002, 2)")
        old.execute("UPDATE proof.single SET v = -5 WHERE id = (SELECT min(id) FROM proof.single)")
        run = proof.deployment.start()
        run.until(lambda: waits_for(proof), 120, "the start to wait for the open transaction")
        old.commit()
    with postgres.connect() as connection:
        assert connection.execute("SELECT count(*) FROM proof.single WHERE v IN (1, 2, -5)").fetchone() == (3,)
    run.until(proof.completed(3), 200, "the initial snapshots")
    run.until(lambda: not proof.differences("proof.single"), 200, "the transaction's rows to be in the target")
    stalls = StalledCommits(postgres.connect, seed=3)
    writers = proof.writers(seed=3, count=6, truncate=True)
    stalls.start()
    for number in range(2):
        proof.ask(f"again-{number}", tables=["proof.*"], chunkRows=7 + number)
        run.until(proof.completed(number + 4), 240, f"snapshot {number}")
    stalls.stop()
    writers.stop()
    proof.settle(run)


def waits_for(proof: Proof) -> bool:
    """Whether the status tells whom the start waits for."""
    found = status(proof.deployment)
    return found is not None and "transaction" in ((found["capture"] or {}).get("waitingFor") or "")
