"""Real exceptions of Java, of Spark SQL and of Python tasks: what people read of them names classes, not values."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import Retry, privacy
from tailrace.targets.lake.iceberg.java import guarded

CANARY = "CANARY-7f3a"


def _java(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    jvm.java.lang.Integer.parseInt(CANARY)


def _sql(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.sql(f"SELECT CAST(v AS INT) FROM VALUES ('{CANARY}') AS t(v)").collect()


def _task(spark: SparkSession) -> None:
    spark.sparkContext.parallelize([CANARY], 1).map(int).collect()


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (_java, "java.lang.NumberFormatException"),
        (_sql, "NumberFormatException"),
        (_task, "PythonException <- ValueError"),
    ],
)
def test_real_exceptions_are_named_without_their_values(
    spark: SparkSession, act: Callable[[SparkSession], None], named: str
) -> None:
    with pytest.raises(Retry) as told, guarded("s.t", "reading"):
        act(spark)
    assert named in told.value.message and privacy.WITHHELD in told.value.message
    cause = told.value.__cause__
    assert cause is not None
    for text in (str(told.value), privacy.error_text(cause), privacy.traceback_text(cause)):
        assert CANARY not in text
