"""Snapshots of many keys: what their end costs, and a table of a hundred million rows read again from end to end.

`TAILRACE_SOAK_KEYS` scales the second. What is measured is printed (docs/performance.md).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.rereads import seconds
from tailrace.targets.lake.engine import build as engine

ROOT = Path(__file__).parents[2]
KEYS = int(os.environ.get("TAILRACE_SOAK_KEYS", "100000000"))
SECONDS_PER_MILLION = 60
SLOT = 600 << 20
"""Bytes that a task slot may need for its part of a batch, Python and its libraries included."""


@pytest.mark.timeout(1800)
def test_four_times_the_keys_of_a_snapshot_cost_some_four_times_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PART_ROWS", 50_000)
    seconds(tmp_path / "warm", 100_000)
    few, many = (
        min(seconds(tmp_path / f"{rows}-{turn}", rows) for turn in range(3)) for rows in (1_000_000, 4_000_000)
    )
    print(f"{few:.1f} CPU s, {many:.1f} CPU s")
    assert many < 6 * few


@pytest.mark.timeout(600 + SECONDS_PER_MILLION * (KEYS // 1_000_000))
def test_a_hundred_million_keys_are_read_again_in_the_memory_of_one_batch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.many_chunk_keys", str(tmp_path), str(KEYS)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'spark_app'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    print(found)
    assert found["batch_peak_mib"] << 20 < SLOT
    assert found["end_peak_mib"] << 20 < SLOT
