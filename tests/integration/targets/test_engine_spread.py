"""Large batches as Spark tasks: the same commit as in the driver, and every file of the log read once."""

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from support.folder_lake import FolderTable, NotedAccess, layout_of
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from tailrace.batch.slice import cut
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.api import ChunkLost
from tailrace.targets.lake.engine import build as engine
from tailrace.targets.lake.engine import concerned
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.spread import spread
from tailrace.targets.lake.model import DataFile, FormatTable
from tailrace.targets.lake.table import LakeTable

# PySpark leaves the socket of an RDD's collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def work_of(log: RandomLog, table: FolderTable) -> PartInput | None:
    """The batch up to the log's end."""
    batch = cut(log.state, TABLE, table.applied, log.record)
    if batch is None:
        return None
    return table.work(batch, log.access)


@pytest.mark.parametrize("composite", [False, True], ids=["one key column", "two key columns"])
def test_parts_worked_by_spark_tasks_make_the_same_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composite: bool
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(40)]
    log = RandomLog(random.Random(seed), tmp_path, first_schema(composite), keys)
    whole, parted = FolderTable(tmp_path / "whole", log.schema), FolderTable(tmp_path / "parted", log.schema)
    rounds = spreads = 0
    while rounds < 3 or not spreads:  # of some seeds three rounds have nothing to spread
        rounds += 1
        assert rounds < 20
        for _ in range(3):
            log.grow()
        for table, how, rows in ((whole, None, 1_000_000), (parted, lambda work: spread(spark, work), 10)):
            monkeypatch.setattr(engine, "PART_ROWS", rows)
            work = work_of(log, table)
            if work is not None:
                change = engine.build(work, how)
                table.commit(change)
                spreads += len(change.add) > 1 and table is parted
        assert sorted(map(repr, whole.rows())) == sorted(map(repr, parted.rows()))
        assert whole.applied == parted.applied


class Empty:
    """An opened target table without files."""

    def __init__(self, location: str) -> None:
        self.location = location

    def files(self) -> list[DataFile]:
        return []


def test_a_chunk_file_that_only_a_task_misses_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T11 in a large batch: the missing file comes back as Spark's error, not as ours."""
    monkeypatch.setattr(engine, "PART_ROWS", 2)
    monkeypatch.setattr(concerned, "MANY", 0)  # else the driver looks into the file first
    log = RandomLog(random.Random(3), tmp_path, first_schema(composite=False), [(number,) for number in range(50)])
    log.grow_by_changes(20)
    while not log.table.chunks or log.table.chunks[-1].chunk.path is None:
        log.grow()
    lost = log.table.chunks[-1].chunk
    batch = cut(log.state, TABLE, FolderTable(tmp_path, log.schema).applied, log.record)
    assert batch is not None and lost in batch.chunks
    Path(str(lost.path).removeprefix("file://")).unlink()
    storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    empty = cast(FormatTable, Empty(f"{tmp_path.as_uri()}/table"))
    target = LakeTable(empty, storage, storage, partial(spread, spark))
    with pytest.raises(ChunkLost) as caught:
        target._build(batch, layout_of(batch.schema))
    assert isinstance(caught.value.__cause__, PySparkException | Py4JError)
    assert caught.value.chunks == (lost,)


def test_a_segment_is_opened_no_more_often_for_many_parts_than_for_two(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RandomLog(random.Random(5), tmp_path, first_schema(composite=False), [(number,) for number in range(200)])
    log.access = NotedAccess(str(tmp_path))
    for _ in range(3):
        log.grow_by_changes(100)
    table = FolderTable(tmp_path / "table", log.schema)
    opened = []
    for parts in (2, 12):
        monkeypatch.setattr(engine, "parts_for", lambda rows, size, parts=parts: parts)
        work = work_of(log, table)
        assert work is not None
        change = engine.build(work, lambda work: spread(spark, work))
        assert change.applied.applied_seq == log.seq
        opened.append(log.access.opened())
    assert set(opened[0]) == {segment.segment.path for segment in log.table.segments}
    assert opened[0] == opened[1]


def test_a_batch_has_executors_on_demand_and_is_worked_in_the_driver_where_none_comes(tmp_path: Path) -> None:
    """In a process of its own: executors need another master than the tests' session."""
    done = subprocess.run(
        [sys.executable, "-m", "support.missing_executors", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n") == ["vain", "at once", "on demand", ""]
