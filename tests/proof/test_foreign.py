"""Others work on the target while Tailrace does: hazards T4, T5, T11 on the whole path."""

import json

import pytest
from pyspark.sql import SparkSession

from support.proof.harness import Begin, Proof
from support.proof.process import Deployment, status

CONFIGURATION, FENCED = 10, 13
FEW_CHUNKS = {"chunkRows": 150}

# Py4J closes its idle connections from the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.timeout(600)
def test_a_foreign_compaction_between_locating_and_committing_makes_the_batch_locate_again(
    prove: Begin, spark: SparkSession
) -> None:
    """T4: what was located lies elsewhere now; the conflict is refused, and what comes after it looks anew."""
    proof = prove("delta", seed=21, snapshot=FEW_CHUNKS)
    proof.deployment.once()
    table = proof.deployment.lake / "proof" / "single"
    run = proof.deployment.start(seams="apply.before-commit=hold")
    run.until(lambda: status(proof.deployment) is not None, 120, "the driver to answer")
    proof.server.execute("UPDATE proof.single SET v = v + 1 WHERE id % 2 = 0")
    held = proof.deployment.marks / "apply.before-commit"
    run.until(held.exists, 200, "the commit to be prepared")
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    held.unlink()
    run.until(lambda: "somebody else changed the table" in run.tail(100_000), 200, "the conflict to be told")
    proof.server.execute("DELETE FROM proof.single WHERE id % 3 = 0")
    proof.settle(run)


@pytest.mark.timeout(600)
def test_a_second_tailrace_on_the_same_target_is_refused_and_harms_nothing(prove: Begin) -> None:
    """T5: another name, slot and change log, the same tables in the same place."""
    proof = prove("delta", seed=22, snapshot=FEW_CHUNKS)
    first = proof.deployment.start()
    first.until(proof.completed(3), 200, "the initial snapshots")
    folder = proof.deployment.folder.parent / "second"
    target: dict[str, object] = {"target": {"type": "delta", "location": proof.deployment.lake.as_uri()}}
    second = Deployment(folder, proof.deployment.source, "delta", target, name="second")
    refused = second.start("--once")
    assert refused.wait(200) == CONFIGURATION, refused.tail()
    assert "TargetRefused" in refused.tail()
    second.close()
    proof.server.execute("UPDATE proof.single SET v = 83")
    proof.settle(first)


@pytest.mark.timeout(600)
def test_a_second_process_of_the_same_replicator_takes_over_and_the_first_ends(prove: Begin) -> None:
    """As when a node that was cut off comes back: its driver must not write beside the one that took its place."""
    proof = prove("iceberg", seed=24, snapshot=FEW_CHUNKS)
    first = proof.deployment.start()
    first.until(proof.completed(3), 200, "the initial snapshots")
    second = proof.deployment.start("--run-dir", str(proof.deployment.folder / "run-elsewhere"))
    writers = proof.writers(seed=24, count=2)
    assert first.wait(120) == FENCED, first.tail()
    assert "Fenced" in first.tail()
    writers.stop()
    proof.settle(second)


@pytest.mark.timeout(600)
def test_a_driver_that_stalls_before_its_commit_commits_nothing_once_another_has_taken_over(prove: Begin) -> None:
    proof = prove("delta", seed=25, snapshot=FEW_CHUNKS)
    first = proof.deployment.start(seams="delta.before-commit=hold@2")
    held = proof.deployment.marks / "delta.before-commit"
    first.until(held.exists, 200, "a commit to be prepared")
    proof.deployment.spec["apply"] = {"suspend": True}  # what the table gets now, it gets from the first
    second = proof.deployment.start("--run-dir", str(proof.deployment.folder / "run-elsewhere"))
    second.until(lambda: "capture started" in second.tail() and _epoch(proof) == 1, 200, "the second to take over")
    before = _versions(proof)
    held.unlink()
    assert first.wait(200) == FENCED, first.tail()
    assert _versions(proof) == before
    assert second.stop() == 0, second.tail()
    del proof.deployment.spec["apply"]
    proof.deployment.once()
    proof.assert_equal()


def _epoch(proof: Proof) -> int:
    newest = max(path.name for path in (proof.deployment.log / "journal").glob("[0-9]*.json"))
    return int(json.loads((proof.deployment.log / "journal" / newest).read_text())["epoch"])


def _versions(proof: Proof) -> list[str]:
    return sorted(str(path) for path in proof.deployment.lake.rglob("_delta_log/*.json"))


@pytest.mark.timeout(600)
def test_a_chunk_file_that_is_removed_before_its_adoption_is_read_again(prove: Begin) -> None:
    """T11: VACUUM, an orphan clean-up, or somebody's `rm` between registration and apply."""
    proof = prove("delta", seed=23, snapshot={"chunkRows": 60, "parallelism": 1})
    run = proof.deployment.start(seams="apply.before-commit=hold")
    held = proof.deployment.marks / "apply.before-commit"
    run.until(held.exists, 200, "a first commit to be prepared")
    lake = proof.deployment.lake
    run.until(lambda: len(list(lake.rglob("chunk-*.parquet"))) >= 4, 60, "chunks to be read")
    for path in lake.rglob("chunk-*.parquet"):
        path.unlink()
    held.unlink()
    run.until(lambda: "ChunkLost" in run.tail(100_000), 200, "the loss to be told")
    run.until(proof.completed(4, repairs=True), 300, "the snapshots and the one that makes up for the loss")
    proof.settle(run)
