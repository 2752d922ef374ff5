"""The snapshot runner with a world of tables, for tests that count what it begins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.snapshot_rounds import PARALLELISM, Surroundings
from support.snapshot_runs import runner_over
from tailrace.contract.resources import SnapshotSpec
from tailrace.reading.runner import SnapshotRunner


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[SnapshotRunner, Surroundings]]:
    def make(*edges: int) -> tuple[SnapshotRunner, Surroundings]:
        around = Surroundings(tmp_path, edges)
        runner = runner_over(around, tmp_path, monkeypatch, lambda: SnapshotSpec(parallelism=PARALLELISM))
        for part in (runner, runner._planning):
            monkeypatch.setattr(part, "_monotonic", lambda: around.now)
        return runner, around

    return make
