"""Two processes of one Replicator: the one that came later goes on, the other ends and changes nothing any more.

(Others who work on the target: `tests/integration/targets/test_pipeline.py`.)
"""

import json
import time
from pathlib import Path

import pytest

from support.proof import process
from support.proof.harness import Begin, Proof
from tailrace.faults import TERMINATION_VARIABLE

FENCED = 13
SETTLED = 5.0
"""Seconds without a commit after which none is under way."""
FEW_CHUNKS = {"chunkRows": 150}

# Py4J closes its idle connections from the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.timeout(600)
def test_a_second_process_of_the_same_replicator_takes_over_and_the_first_ends(
    prove: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a node that was cut off comes back: its driver must not write beside the one that took its place, nor
    take it back when the kubelet starts its container again."""
    monkeypatch.setitem(process.ENVIRONMENT, TERMINATION_VARIABLE, str(tmp_path / "last-words"))
    proof = prove("iceberg", seed=24, snapshot=FEW_CHUNKS)
    first = proof.deployment.start()
    first.until(proof.completed(3), 200, "the initial snapshots")
    second = proof.deployment.start("--run-dir", str(proof.deployment.folder / "run-elsewhere"))
    writers = proof.writers(seed=24, count=2)
    assert first.wait(120) == FENCED, first.tail()
    assert "Fenced" in first.tail()
    restarted = proof.deployment.start()
    assert restarted.wait(60) == FENCED, restarted.tail()
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
    second.until(lambda: _epoch(proof) == 1, 200, "the second to take over")
    before = _settled_versions(proof)
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


def _settled_versions(proof: Proof) -> list[str]:
    """Once commits of the other tables, which were let through before the takeover, have ended."""
    before, since = _versions(proof), time.monotonic()
    while time.monotonic() - since < SETTLED:
        time.sleep(0.2)
        if (now := _versions(proof)) != before:
            before, since = now, time.monotonic()
    return before


def _versions(proof: Proof) -> list[str]:
    return sorted(str(path) for path in proof.deployment.lake.rglob("_delta_log/*.json"))
