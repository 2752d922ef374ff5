"""The demo from beginning to end, on a fiftieth of its rows."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import demo
from support.proof.process import ENVIRONMENT
from support.versions import turns


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "source, target", turns(("postgresql", "delta"), ("postgresql", "postgresql"), ("mysql", "postgresql"))
)
def test_the_demo_ends_with_equal_tables_and_leaves_no_process(source: str, target: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "demo",
            "--source",
            source,
            "--target",
            target,
            "--scale",
            "0.02",
            "--folder",
            str(folder),
        ],
        text=True,
        capture_output=True,
        timeout=500,
        check=False,
        env=ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(demo.__file__).parents[1]}"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "verdict EQUAL" in done.stdout
    assert "shop.reviews 400" in done.stdout, "the table that came into being meanwhile"
    left = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or ())]
    assert left == []
