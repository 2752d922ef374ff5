"""The tests' Spark session reads and writes both lake formats."""

from pathlib import Path

from pyspark.sql import SparkSession


def test_delta_and_iceberg_tables_return_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    delta = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {delta} USING delta AS SELECT id FROM range(10)")
    spark.sql("CREATE TABLE iceberg.probe.t USING iceberg TBLPROPERTIES ('format-version' = '3') AS SELECT 1L AS id")
    spark.sql("INSERT INTO iceberg.probe.t SELECT id FROM range(10, 17)")
    spark.sql(f"DELETE FROM {delta} WHERE id < 4")
    spark.sql("DELETE FROM iceberg.probe.t WHERE id < 14")
    assert spark.table(delta).count() == 6
    assert spark.table("iceberg.probe.t").count() == 3
