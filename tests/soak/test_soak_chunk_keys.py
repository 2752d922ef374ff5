"""The end of a snapshot over millions of keys: four times the keys cost some four times as much."""

from pathlib import Path

import pytest

from support.rereads import seconds
from tailrace.apply import engine


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
