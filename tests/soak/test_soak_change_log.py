"""The change log's bounds at full length: a million kept segments of 500 tables, and a thousand short runs.

`TAILRACE_SOAK_SEGMENTS` and `TAILRACE_SOAK_RUNS` scale them. What is measured is printed (docs/performance.md).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from support import short_runs
from tailrace.changelog.writer import ROLLUP_AT_END
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

ROOT = Path(__file__).parents[2]
SEGMENTS = int(os.environ.get("TAILRACE_SOAK_SEGMENTS", "1000000"))
RUNS = int(os.environ.get("TAILRACE_SOAK_RUNS", "1000"))
BYTES_PER_SEGMENT = 60
HEAD_PER_TABLE = 6_000
STORED_PER_SEGMENT = 60
OBJECTS = 400
RUN_RECORDS = 8


def test_a_million_segments(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.many_segments", str(tmp_path), str(SEGMENTS)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'spark_app'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    print(found)
    assert found["bytes_per_segment"] < BYTES_PER_SEGMENT
    assert found["last_head"] < HEAD_PER_TABLE * found["tables"]
    assert found["part_bytes"] < STORED_PER_SEGMENT * found["segments"]


def test_a_thousand_short_runs(tmp_path: Path) -> None:
    measured = short_runs.run(Storage.open(StorageLocation(location=f"file://{tmp_path}/log")), RUNS)
    starts = sorted(measured.seconds)
    print(f"objects at most {max(measured.objects)}, records read at most {max(measured.read)},"
          f" starts {starts[len(starts) // 2]:.3f} s in the middle, {starts[-1]:.3f} s at most")  # fmt: skip
    assert max(measured.read) < ROLLUP_AT_END + RUN_RECORDS
    assert max(measured.objects) < OBJECTS
    half = RUNS // 2
    assert max(measured.objects[half:]) <= 1.1 * max(measured.objects[:half])
