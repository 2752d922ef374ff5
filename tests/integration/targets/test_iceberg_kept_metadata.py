"""Tailrace's classes of the folder catalog: a commit waits for no other thread and does not read back what it wrote,
and a table that others have put in place of it is met all the same.
"""

import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.iceberg import Orders, local, random_rows
from tailrace.targets.lake.iceberg.java import CommitConflict
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
HUNG = 30
"""Seconds after which a commit waits for a thread that never comes."""


def change(orders: Orders, rng: random.Random, times: int = 1) -> None:
    for _ in range(times):
        orders.apply(random_rows(rng, rng.sample(range(40), 4)))


def folder(orders: Orders) -> Path:
    return local(f"{orders.table.location}/metadata")


def newest(orders: Orders) -> Path:
    return max(folder(orders).glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))


def metadata(table: IcebergTable) -> tuple[str, str]:
    """As the table's object has it: the file and its content."""
    opened = table._open()[0]
    found = opened.table.operations().current()
    return str(found.metadataFileLocation()), str(opened.java.iceberg.TableMetadataParser.toJson(found))


@contextmanager
def without_threads(orders: Orders) -> Iterator[None]:
    """Iceberg's pools never come to anything."""
    jvm = orders.catalog.java.jvm
    pools, loader = (
        jvm.org.apache.iceberg.util.ThreadPools,
        jvm.java.lang.Thread.currentThread().getContextClassLoader(),
    )
    files = jvm.java.lang.Class.forName("org.apache.iceberg.hadoop.HadoopFileIO", True, loader)
    of_files, latch = files.getDeclaredField("executorService"), jvm.java.util.concurrent.CountDownLatch(1)
    waits = jvm.java.beans.EventHandler.create(jvm.java.lang.Class.forName("java.lang.Runnable"), latch, "await")
    of_files.setAccessible(True)
    before, pool = of_files.get(None), pools.getWorkerPool()
    for _ in range(pools.WORKER_THREAD_POOL_SIZE):
        pool.execute(waits)
    of_files.set(None, pool)
    try:
        yield
    finally:
        of_files.set(None, before)
        latch.countDown()


def test_a_commit_waits_for_no_other_thread(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(1)
    table: Any = orders.table._open()[0].table
    table.updateProperties().set("write.metadata.previous-versions-max", "1").commit()
    change(orders, rng, 3)
    files = len(list(folder(orders).glob("*.metadata.json")))
    with ThreadPoolExecutor(1) as other, without_threads(orders):
        other.submit(change, orders, rng).result(HUNG)
    assert len(list(folder(orders).glob("*.metadata.json"))) == files, "it has deleted the oldest"
    assert orders.read() == orders.rows


def test_a_commit_does_not_read_back_the_metadata_of_the_one_before(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(2)
    change(orders, rng, 2)
    path = newest(orders)
    text, times = path.read_bytes(), path.stat()
    path.write_bytes(b" " * len(text))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    change(orders, rng)
    path.write_bytes(text)
    assert orders.read() == orders.rows


def test_what_is_kept_of_a_commit_is_what_others_read(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(3)
    for _ in range(3):
        change(orders, rng, 2)
        assert metadata(orders.table) == metadata(orders.another_opened())
        version = orders.table.version_at(orders.state.applied_record)
        assert version is None or version.number is not None
        orders.table.keep({"a": orders.table.newest_version or 0})
        assert metadata(orders.table) == metadata(orders.another_opened())
    orders.table.expire(2**40, at_once=1)
    change(orders, rng)
    assert metadata(orders.table) == metadata(orders.another_opened())
    assert orders.read() == orders.rows


def test_what_others_commit_is_met(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(4)
    change(orders, rng)
    state = orders.next()
    orders.another_opened().commit(TableCommit(orders.next(), orders.write({-1: (None, "other")})))
    with pytest.raises(CommitConflict):
        orders.table.commit(TableCommit(state, orders.write({-2: (None, "late")})))
    assert orders.read() == orders.rows | {-1: (None, "other")}


def test_what_others_commit_before_a_commit_is_kept_is_not_taken_for_it(spark: "SparkSession") -> None:
    """Another thread has read the commit, and another writer has committed the next version, before `keep` runs: that
    version's number stood for our metadata, and the next commit undid what the other had written."""
    orders = Orders(spark)
    change(orders, random.Random(7))
    table: Any = orders.table._open()[0].table
    operations, jvm, gateway = table.operations(), orders.catalog.java.jvm, spark.sparkContext._gateway
    base, before = operations.current(), int(newest(orders).name[1:].partition(".")[0])
    table.updateProperties().set("ours", "1").commit()
    written = operations.current()
    theirs: Any = orders.another_opened()._open()[0].table
    theirs.updateProperties().set("theirs", "1").commit()
    assert gateway is not None
    (keep,) = (m for m in operations.getClass().getDeclaredMethods() if m.getName() == "keep")
    keep.setAccessible(True)
    arguments = gateway.new_array(jvm.java.lang.Object, 3)
    arguments[0], arguments[1], arguments[2] = base, written, before
    keep.invoke(operations, arguments)
    table.updateProperties().set("later", "1").commit()
    found = orders.another_opened()._open()[0].table.properties()
    assert [found.get(name) for name in ("ours", "theirs", "later")] == ["1", "1", "1"]


def test_another_table_of_as_many_versions_in_its_place_is_met(spark: "SparkSession") -> None:
    orders, other = Orders(spark), Orders(spark)
    for one in (orders, other):
        change(one, random.Random(5), 3)
    state, files = orders.next(), orders.write({-1: (None, "late")})
    assert newest(orders).name == newest(other).name
    shutil.rmtree(folder(orders))
    shutil.copytree(folder(other), folder(orders))
    before = sorted(path.name for path in folder(orders).iterdir())
    with pytest.raises(CommitConflict, match="dropped or re-created"):
        orders.table.commit(TableCommit(state, files))
    assert sorted(path.name for path in folder(orders).iterdir()) == before


def test_a_version_that_is_gone_is_missed(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(6)
    change(orders, rng, 3)
    state, files = orders.next(), orders.write({-1: (None, "late")})
    newest(orders).unlink()
    with pytest.raises(CommitConflict, match="CommitFailedException"):
        orders.table.commit(TableCommit(state, files))
