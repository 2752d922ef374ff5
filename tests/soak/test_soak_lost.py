"""Lost targets and lost positions that take long to come back: filled again, or named until a snapshot fills them."""

import shutil

import pytest

from support.proof.harness import Begin, Proof

POSITION_LOST = 12


@pytest.fixture
def proof(prove: Begin) -> Proof:
    """A Replicator that has copied everything once and is stopped."""
    proof = prove("delta", seed=8, snapshot={"chunkRows": 150})
    proof.deployment.once()
    return proof


@pytest.mark.timeout(600)
def test_a_deleted_target_table_is_filled_again_or_named_until_a_snapshot_fills_it(proof: Proof) -> None:
    shutil.rmtree(proof.deployment.lake / "proof" / "single")
    proof.server.execute("UPDATE proof.composite SET v = 81")
    run = proof.deployment.start("--once")
    if run.wait(300) != 0:
        assert "proof.single" in run.tail() and "Fix:" in run.tail(), run.tail()
        request = proof.deployment.request("again", tables=["proof.single"])
        again = proof.deployment.start("-f", str(request), "--once")
        assert again.wait(300) == 0, again.tail()
    proof.assert_equal()


@pytest.mark.timeout(600)
def test_rows_deleted_while_the_position_was_lost_leave_the_target_by_a_snapshot(proof: Proof) -> None:
    """T12, as the operations page tells it: a new change log and slot, the old tables put aside."""
    proof.server.drop_slot(proof.slot())
    proof.server.execute("DELETE FROM proof.single WHERE id % 2 = 0")
    proof.assert_refused(POSITION_LOST, "PositionLost")
    for folder in (proof.deployment.log, proof.deployment.lake):
        folder.rename(folder.with_suffix(".old"))
    proof.deployment.once()
    proof.assert_equal()
