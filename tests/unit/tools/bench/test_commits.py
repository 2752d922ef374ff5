"""The bench of small commits: its Replicator is one that a driver takes."""

from pathlib import Path

import pytest

from bench import commits


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_change_log_is_beside_the_tables(format: str, tmp_path: Path) -> None:
    spec = commits.replicator(tmp_path / format, format).spec
    assert spec.target.type == format and spec.storage.location != spec.target.location
