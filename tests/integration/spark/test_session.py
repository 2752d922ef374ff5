"""The tests' Spark session reads and writes both lake formats."""

import sys
from pathlib import Path
from zipimport import zipimporter

import pytest
from pyspark.sql import SparkSession

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_delta_and_iceberg_tables_return_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    delta = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {delta} USING delta AS SELECT id FROM range(10)")
    spark.sql("CREATE TABLE iceberg.probe.t USING iceberg TBLPROPERTIES ('format-version' = '3') AS SELECT 1L AS id")
    spark.sql("INSERT INTO iceberg.probe.t SELECT id FROM range(10, 17)")
    spark.sql(f"DELETE FROM {delta} WHERE id < 4")
    spark.sql("DELETE FROM iceberg.probe.t WHERE id < 14")
    assert spark.table(delta).count() == 6
    assert spark.table("iceberg.probe.t").count() == 3


def test_a_python_worker_has_no_archive_on_its_path_to_read_before_each_task(spark: SparkSession) -> None:
    def archives(number: int) -> tuple[list[str], list[str], str]:
        zips = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
        return (
            [path for path in sys.path if path.endswith((".zip", ".jar"))],
            zips,
            sys.modules["pyspark"].__file__ or "",
        )

    for paths, zips, pyspark in spark.sparkContext.parallelize([1, 2], 2).map(archives).collect():
        assert not paths and not zips
        assert Path(pyspark).is_file()
