"""The whole path for Delta: real PostgreSQL, the real command, source and target compared row by row."""

import time
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.proof.harness import Proof
from support.proof.process import status, wait_until
from tailrace.contract.status import Status


@pytest.mark.timeout(900)
def test_once_copies_three_tables_under_writers_and_a_second_run_goes_on(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    proof = Proof.begin(postgres, tmp_path, "delta", seed=1)
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
def test_a_snapshot_is_asked_for_while_changes_go_on(postgres: PostgresServer, tmp_path: Path) -> None:
    proof = Proof.begin(postgres, tmp_path, "delta", seed=2)
    run = proof.deployment.start()
    try:
        wait_until(lambda: running(proof), 180, "all tables replicate")
        writers = proof.writers(seed=2, count=3)
        request = proof.deployment.request("again", tables=["proof.single", "proof.typed"])
        done = proof.deployment.command("snapshot", "-f", str(request), "--run-dir", str(proof.deployment.state))
        assert done.returncode == 0, done.stderr
        wait_until(lambda: ended(proof, "again") == "Completed", 120, "the snapshot ends")
        time.sleep(1)
        writers.stop()
        assert run.stop() == 0, run.tail()
    finally:
        run.kill()
    proof.deployment.once(400)
    proof.assert_equal()


def document(proof: Proof) -> Status | None:
    """None: the driver does not answer yet."""
    folder = proof.deployment
    if folder.command("status", "-f", str(folder.manifest), "--run-dir", str(folder.state)).returncode != 0:
        return None
    return Status.model_validate(status(folder))


def running(proof: Proof) -> bool:
    found = document(proof)
    return found is not None and found.tables_total == 3 == found.tables_replicating


def ended(proof: Proof, name: str) -> str | None:
    found = document(proof)
    return next((s.state for s in found.snapshots if s.name == name), None) if found is not None else None
