"""What somebody else deletes, re-creates or puts back: the right recovery, or a refusal with a name."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import PostgresServer, copy_of, standby_of
from support.proof.harness import Begin, Proof
from support.proof.process import Deployment

POSITION_LOST, CONFIGURATION = 12, 10


@pytest.fixture(scope="module")
def copied_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    """A Replicator that has copied everything once; it and its server are stopped."""
    with PostgresServer(14) as server:
        proof = Proof.begin(server, tmp_path_factory.mktemp("once"), "delta", seed=7, snapshot={"chunkRows": 150})
        try:
            proof.deployment.once()
        finally:
            proof.deployment.close()
        server.stop()
        yield proof


@pytest.fixture
def proof(copied_once: Proof, tmp_path: Path) -> Iterator[Proof]:
    """A copy of it: server, change log, target and run directory."""
    first = copied_once.deployment
    shutil.copytree(first.folder, tmp_path / "proof", ignore=shutil.ignore_patterns("*.sock"))
    with copy_of(copied_once.server) as server:
        source = {**first.source, "port": server.port}
        deployment = Deployment(tmp_path / "proof", source, first.format, first.spec)
        yield Proof(server, deployment)
        deployment.close()


@pytest.fixture
def standby(proof: Proof) -> Iterator[PostgresServer]:
    """A hot standby that streams from the proof's server."""
    with standby_of(proof.server) as server:
        yield server


@pytest.mark.timeout(900)
def test_a_dropped_and_a_recreated_slot_are_refused(proof: Proof) -> None:
    name = proof.slot()
    proof.server.drop_slot(name)
    proof.server.execute("UPDATE proof.single SET v = 77")
    proof.assert_refused(POSITION_LOST, "PositionLost")
    proof.server.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    proof.assert_refused(POSITION_LOST, "PositionLost")


@pytest.mark.timeout(900)
def test_a_source_put_back_from_a_backup_is_refused(proof: Proof, tmp_path: Path) -> None:
    proof.server.stop()
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", proof.server.data_dir, backup], check=True)
    proof.server.start()
    proof.server.execute("UPDATE proof.single SET v = 79")
    proof.deployment.once()
    proof.server.stop()
    shutil.rmtree(proof.server.data_dir)
    subprocess.run(["cp", "-a", backup, proof.server.data_dir], check=True)
    proof.server.start()
    proof.assert_refused(POSITION_LOST, "PositionLost")


@pytest.mark.timeout(900)
def test_a_deleted_change_log_is_refused_by_the_target_that_it_filled(proof: Proof) -> None:
    shutil.rmtree(proof.deployment.log)
    proof.server.drop_slot(proof.slot())
    proof.assert_refused(CONFIGURATION, "TargetRefused")


@pytest.mark.timeout(900)
def test_a_deleted_checkpoint_costs_nothing(proof: Proof) -> None:
    for folder in proof.deployment.state.rglob("checkpoint*"):
        shutil.rmtree(folder)
    proof.server.execute("UPDATE proof.single SET v = 80")
    proof.server.execute("DELETE FROM proof.composite WHERE a = 3")
    proof.deployment.once()
    proof.assert_equal()


@pytest.mark.timeout(900)
def test_a_standby_is_refused_before_anything_is_made(proof: Proof, standby: PostgresServer) -> None:
    made = "SELECT slot_name::text FROM pg_replication_slots UNION ALL SELECT pubname::text FROM pg_publication"
    before = proof.server.execute(made)
    proof.deployment.source["port"] = standby.port
    shutil.rmtree(proof.deployment.log)
    proof.assert_refused(CONFIGURATION, "SourceRefused: the source is a standby")
    assert not proof.deployment.log.exists()
    assert proof.server.execute(made) == before


@pytest.mark.timeout(900)
def test_a_promoted_standby_is_refused(proof: Proof, standby: PostgresServer) -> None:
    assert standby.execute("SELECT pg_promote()") == [(True,)]
    proof.deployment.source["port"] = standby.port
    standby.execute("UPDATE proof.single SET v = 81")
    proof.assert_refused(POSITION_LOST, "the source is on timeline 2, the change log was created on 1")


PARTS = """
CREATE TABLE proof.parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE proof.parts_low PARTITION OF proof.parts FOR VALUES FROM (0) TO (100);
CREATE TABLE proof.parts_high PARTITION OF proof.parts FOR VALUES FROM (100) TO (200);
INSERT INTO proof.parts SELECT g, 'v' || g FROM generate_series(0, 199) g;
"""


@pytest.mark.timeout(900)
def test_rows_that_went_without_a_word_in_the_log_leave_the_target(prove: Begin) -> None:
    """T12's rule in place: a complete snapshot removes what it did not find, changes under way or not."""
    proof = prove("iceberg", seed=9, snapshot={"chunkRows": 150})
    proof.server.execute(PARTS)
    proof.deployment.once()
    proof.assert_equal("proof.parts")
    proof.server.execute("ALTER TABLE proof.parts DETACH PARTITION proof.parts_high")
    run = proof.deployment.start()
    writers = proof.writers(seed=9, count=2)
    run.until(lambda: proof.differences("proof.parts", "proof.parts_high") == [], 240, "the detached rows to go")
    writers.stop()
    proof.settle(run, "proof.parts", "proof.parts_high")
