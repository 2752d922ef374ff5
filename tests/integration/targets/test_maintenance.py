"""Random maintenance of lake tables: what kept versions need stays, what nobody needs goes. See support/maintenance."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.maintenance import DeltaWalk, IcebergWalk, Walk
from tailrace.targets.lake.delta.cleanup import CurrentTable
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import vectors
from tailrace.targets.lake.iceberg.cleanup import IcebergCleaner
from tailrace.targets.lake.iceberg.java import guarded
from tailrace.targets.lake.kept import KeptChunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


@pytest.fixture(autouse=True)
def vectors_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of large data files are: several in a file, instead of each in Delta's log."""
    monkeypatch.setattr(vectors, "INLINE_LIMIT", 16)


@pytest.mark.parametrize(("walk", "seed"), [(DeltaWalk, 1), (IcebergWalk, 2)])
def test_kept_versions_stay_whole_and_nothing_else_stays(
    spark: "SparkSession", tmp_path: Path, walk: type[Walk], seed: int
) -> None:
    walk(spark, tmp_path, seed).run(45)


def by_icebergs_own_clean_up(
    self: IcebergCleaner, older_than: float, chunks: KeptChunks, at_once: int, let_go: bool
) -> bool:
    """The same versions, and their files as Iceberg takes them."""
    with guarded(self.reader.name, "expiring"):
        self.reader.table.refresh()
        cutoff = self._history(self.reader.table.operations().current()).cutoff_ms(older_than)
        self.reader.table.expireSnapshots().expireOlderThan(cutoff).commit()
    return True


def test_a_clean_up_that_goes_by_path_is_found_in_iceberg(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IcebergCleaner, "expire", by_icebergs_own_clean_up)
    with pytest.raises(AssertionError, match=r"needs \{.*\.puffin"):
        IcebergWalk(spark, tmp_path, 3).run(60, "change", "mark", "clean")


def test_a_clean_up_that_goes_by_path_is_found_in_delta(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DeltaTable._present

    def blind(table: DeltaTable) -> CurrentTable:
        """The vector files of the present version are forgotten, as if each were its data file's alone."""
        present = real(table)
        return replace(present, needed=frozenset(name for name in present.needed if not name.endswith(".bin")))

    monkeypatch.setattr(DeltaTable, "_present", blind)
    with pytest.raises(AssertionError, match=r"needs \{.*deletion_vector"):
        DeltaWalk(spark, tmp_path, 3).run(60, "change", "mark", "clean")
