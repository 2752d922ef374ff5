"""A process with Spark's own small cluster, for tests of what a large batch does without executors and with one:
`python -m support.missing_executors FOLDER`. Prints one word for each.

    vain        no worker has room for an executor: one is wanted, given up, worked in the driver
    at once     the next batch does not wait
    on demand   there is room: none runs before, one comes for the batch
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from support.folder_lake import FolderTable
from support.random_log import TABLE, RandomLog, first_schema
from tailrace.batch.slice import cut
from tailrace.contract.pods import Executors
from tailrace.spark import executors_wanted, settings
from tailrace.targets import demand
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.engine.spread import spread


def context_of(folder: Path, cores: int) -> SparkContext:
    """Executors of `cores`, on demand as on Kubernetes; the only worker has two."""
    conf = SparkConf(loadDefaults=False).setMaster("local-cluster[1,2,1024]").setAppName("tailrace")
    values = {
        **settings.on_demand(Executors(max=1)),
        "spark.executor.cores": str(cores),
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        # A worker's folder is another one: no relative path leads anywhere from there.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path),
    }
    for name, value in values.items():
        conf.set(name, value)
    return SparkContext(conf=conf)


def waiting(spark: SparkSession, done: Future[list[bool]]) -> Iterator[int]:
    """How many executors are wanted meanwhile."""
    wanted = executors_wanted.of(spark)
    while not done.done():
        yield wanted() or 0
        time.sleep(0.1)


def main(folder: Path) -> None:
    demand.PATIENCE = 5.0
    wanted = demand.Demand(look=0.2)
    log = RandomLog(random.Random(11), folder, first_schema(False), [(n,) for n in range(40)])
    whole, parted = FolderTable(folder / "whole", log.schema), FolderTable(folder / "parted", log.schema)

    def batch(spark: SparkSession) -> list[bool]:
        """Whether tasks worked it, if there was one; the tables are the same afterwards."""
        answers: list[bool] = []

        def spreads(work: PartInput) -> list[PartResult] | None:
            found = spread(spark, work, wanted)
            answers.append(found is not None)
            return None if found is None else list(found)

        while not answers:
            log.grow()
            for table, how, rows in ((whole, None, 1_000_000), (parted, spreads, 10)):
                engine.PART_ROWS = rows
                cutting = cut(log.state, TABLE, table.applied, log.record)
                if cutting is not None:
                    table.commit(engine.build(table.work(cutting, log.access), how))
        assert sorted(map(repr, whole.rows())) == sorted(map(repr, parted.rows()))
        return answers

    with context_of(folder, 3) as context:
        spark = SparkSession(context)
        with ThreadPoolExecutor(1) as other:
            done = other.submit(batch, spark)
            assert any(waiting(spark, done)), "one is wanted"
        assert (done.result(), wanted.missing) == ([False], True)
        print("vain")
        demand.PATIENCE = 600.0
        assert batch(spark) == [False]
        print("at once")
    wanted.came()
    with context_of(folder, 2) as context:
        assert context._jsc.sc().getExecutorMemoryStatus().size() == 1, "the driver's own"
        assert (batch(SparkSession(context)), wanted.missing) == ([True], False)
        print("on demand")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
