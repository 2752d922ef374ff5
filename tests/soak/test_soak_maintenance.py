"""Maintenance of lake tables for long: random walks over many seeds, and a table's size after a thousand commits."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.maintenance import AgedDeltaWalk, DeltaWalk, IcebergWalk, Walk, grow
from tailrace.targets.lake.files import vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SECONDS = 600
COMMITS = 1000
KEPT = 200
"""Versions that are kept: an hour's, in a table with a commit each 18 seconds."""


@pytest.mark.timeout(SECONDS * 2)
@pytest.mark.parametrize("walk", [DeltaWalk, IcebergWalk])
def test_random_walks_of_many_seeds(
    spark: "SparkSession", tmp_path: Path, walk: type[Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "INLINE_LIMIT", 16)
    end, seed = time.monotonic() + SECONDS, 100
    while time.monotonic() < end:
        print(f"{walk.__name__} {seed}")
        walk(spark, tmp_path, seed).run(60)
        seed += 1


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("walk", [AgedDeltaWalk, IcebergWalk])
def test_a_table_stays_as_large_as_what_is_kept(
    spark: "SparkSession", tmp_path: Path, walk: type[Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "INLINE_LIMIT", 16)
    size = grow(walk(spark, tmp_path, 1), COMMITS, KEPT)
    print(f"{walk.__name__} after {COMMITS} commits, {KEPT} kept: {size}")
    # Delta: a commit's file each, what waits for the next checkpoint, two checkpoints. Iceberg: a list and some six
    # manifests each, and twenty former states.
    assert size.log < (KEPT + 130 if walk is AgedDeltaWalk else 12 * KEPT)
    assert size.data < size.live + 3 * (KEPT + 40)
    assert size.tombstones < (20 * KEPT if walk is AgedDeltaWalk else KEPT + 40)
