"""Large batches as Spark tasks: the same commit as in the driver."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.folder_lake import FolderTable, layout_of
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from tailrace.apply import engine
from tailrace.apply.slice import cut
from tailrace.apply.spread import spread
from tailrace.apply.work import Work


# PySpark leaves the socket of an RDD's collect() to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_parts_worked_by_spark_tasks_make_the_same_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[KeyOf] = [(number,) for number in range(40)]
    log = RandomLog(random.Random(3), tmp_path, first_schema(composite=False), keys)
    here, there = FolderTable(tmp_path / "here", log.schema), FolderTable(tmp_path / "there", log.schema)
    monkeypatch.setattr(engine, "PART_ROWS", 10)
    for _ in range(4):
        for _ in range(3):
            log.grow()
        for table, how in ((here, None), (there, lambda work: spread(spark, work))):
            batch = cut(log.state, TABLE, table.applied, log.record)
            assert batch is not None
            work = Work(batch, layout_of(batch.schema), log.access, table.access, table.location, table.files)
            table.commit(engine.build(work, how))
        assert sorted(map(repr, here.rows())) == sorted(map(repr, there.rows()))
        assert here.applied == there.applied
    assert here.rows()
