"""The number of executors that Spark's tasks fill: what its dynamic allocation goes by.

Read by the driver for its status: by it the operator knows if executors are missing. Whatever makes a task is counted,
also Delta's own first look at a table's log: it waits for an executor as a chunk does.
"""

from collections.abc import Callable
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

LOCAL = "local["


def of(spark: SparkSession) -> Callable[[], int | None]:
    """Asks for the number; None: the JVM does not answer. In local mode the driver does all tasks itself."""
    return (lambda: 0) if (spark.sparkContext.master or "").startswith(LOCAL) else partial(_wanted, spark)


def _wanted(spark: SparkSession) -> int | None:
    """Executors for the tasks that run or wait, of all stages that have begun."""
    try:
        slots = int(spark.conf.get("spark.executor.cores", "1") or "1")
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    except (PySparkException, Py4JError, OSError):
        return None
    # Counted a little later than told: a stage may be gone, or have completed all.
    tasks = sum(max(0, one.numTasks - one.numCompletedTasks) for one in stages if one is not None)
    return -(-tasks // slots)
