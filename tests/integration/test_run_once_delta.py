"""The whole path for Delta: real PostgreSQL, the real command, source and target compared row by row."""

import pytest

from support.proof.harness import Begin


@pytest.mark.timeout(900)
def test_once_copies_three_tables_under_writers_and_a_second_run_goes_on(prove: Begin) -> None:
    proof = prove("delta", seed=1)
    writers = proof.writers(seed=1, count=3)
    try:
        proof.deployment.once(400)
    finally:
        writers.stop()
    proof.assert_nothing_acknowledged_early()
    proof.deployment.once(400)
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()


@pytest.mark.timeout(900)
def test_a_snapshot_is_asked_for_while_changes_go_on(prove: Begin) -> None:
    proof = prove("delta", seed=2)
    run = proof.deployment.start()
    run.until(proof.completed(3), 200, "the initial snapshots")
    writers = proof.writers(seed=2, count=3)
    proof.ask("again", tables=["proof.single", "proof.typed"])
    run.until(proof.completed(4), 200, "the snapshot that was asked for")
    writers.stop()
    assert run.stop() == 0, run.tail()
    proof.deployment.once(400)
    proof.assert_equal()
