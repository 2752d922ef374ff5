"""Memory of a batch whose updates leave wide values unchanged: by what is worked at a time, not by what is read."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.proof.process import ENVIRONMENT

ARROW = 400
"""MiB of the values that are held. 354 in every run."""
PROCESS = 1500
"""MiB of the whole process, Python and libraries included: 700 to 1,010, as the allocator gives memory back sooner or
later. Held whole, the unchanged values alone are 2,060 MiB."""


@pytest.mark.turn(1, 2)
def test_updates_over_more_than_2_gib_of_unchanged_values_stay_within_bounds(tmp_path: Path) -> None:
    """36,000 rows of 60 kB: more than an Arrow array with 32-bit offsets holds."""
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-m", "support.wide_rows", str(tmp_path), "36000", "60000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    arrow, process = map(int, done.stdout.split())
    assert arrow < ARROW, "MiB"
    assert process < PROCESS, "MiB"
