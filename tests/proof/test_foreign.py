"""Two processes of one Replicator: the one that came later goes on, the other ends and changes nothing any more.

(Others who work on the target: `tests/integration/targets/test_pipeline.py`.)
"""

import json
import time
from pathlib import Path

import pytest

from support.proof import process
from support.proof.harness import SMALL, Begin, Proof
from support.versions import turns
from tailrace.contract.faults import TERMINATION_VARIABLE

FENCED = 13
SETTLED = 5.0
"""Seconds without a commit after which none is under way."""
FEW_CHUNKS = {"chunkRows": 150}

# Py4J closes its idle connections from the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_driver_commits_nothing_once_another_has_taken_over_and_it_ends_and_stays_down(
    prove: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """As when a node that was cut off comes back: its driver, held just before a commit, must not write beside the one
    that took its place, nor take it back when the kubelet starts its container again."""
    monkeypatch.setitem(process.ENVIRONMENT, TERMINATION_VARIABLE, str(tmp_path / "last-words"))
    proof = prove(format, seed=25, rows=SMALL, snapshot=FEW_CHUNKS)
    seam = f"{format}.before-commit"
    first = proof.deployment.start(seams=f"{seam}=hold@2")
    held = proof.deployment.marks / seam
    first.until(held.exists, 200, "a commit to be prepared")
    proof.deployment.spec["apply"] = {"suspend": True}  # what the table gets now, it gets from the first
    elsewhere = ("--run-dir", str(proof.deployment.folder / "run-elsewhere"))
    second = proof.deployment.start(*elsewhere)
    second.until(lambda: _epoch(proof) == 1, 200, "the second to take over")
    before = _settled_versions(proof)
    writers = proof.writers(seed=25, count=2)
    held.unlink()
    assert first.wait(200) == FENCED and "Fenced" in first.tail(), first.tail()
    assert _versions(proof) == before
    restarted = proof.deployment.start()
    assert restarted.wait(60) == FENCED, restarted.tail()
    assert _versions(proof) == before
    writers.stop()
    del proof.deployment.spec["apply"]
    proof.deployment.write_manifest()
    reloaded = proof.deployment.command("reload", "-f", str(proof.deployment.manifest), *elsewhere)
    assert reloaded.returncode == 0, reloaded.stderr
    proof.settle(second)


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
    pattern = {"delta": "_delta_log/*.json", "iceberg": "metadata/*.metadata.json"}[proof.deployment.format]
    return sorted(str(path) for path in proof.deployment.lake.rglob(pattern))
