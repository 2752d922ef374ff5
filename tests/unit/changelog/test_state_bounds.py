"""What the change log costs in memory and in storage, measured in a process of its own (docs/performance.md)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SEGMENTS = 60_000
BYTES_PER_SEGMENT = 200
"""Of each process that follows the journal. A table's newest 127 segments take 120 bytes each, all others about 20."""
HEAD_PER_TABLE = 6_000
"""Bytes of a roll-up's head: the table itself and its newest segments."""
STORED_PER_SEGMENT = 60
"""Bytes in the parts of all roll-ups; heads excluded."""


def measured(folder: Path, segments: int) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "support.many_segments", str(folder), str(segments)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'spark_app'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


def test_a_segment_takes_200_bytes_of_memory_at_most_and_a_roll_up_writes_what_is_new(tmp_path: Path) -> None:
    """It took 2.2 KB, in each of two processes, and each roll-up wrote all of it again."""
    found = measured(tmp_path / "m", SEGMENTS)
    assert found["bytes_per_segment"] < BYTES_PER_SEGMENT, found
    assert found["last_head"] < HEAD_PER_TABLE * found["tables"], found
    parts = found["part_bytes"]
    assert parts < STORED_PER_SEGMENT * found["segments"], found
