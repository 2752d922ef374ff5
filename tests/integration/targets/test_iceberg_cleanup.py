"""What Iceberg's expiry and sweep delete: nothing that a kept version can reach, and all that none can."""

import random
import time
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from support.iceberg import Orders, local, random_rows
from tailrace.seams import SeamFailure
from tailrace.targets.lake.iceberg import cleanup
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.model import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""

OLD = (Decimal("1.00"), "x")


def shared_vectors(spark: "SparkSession") -> Orders:
    """Two data files, a Puffin file with a vector of each, and then another vector for the first one alone."""
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(10)))
    orders.apply(random_rows(random.Random(2), range(10, 20)))
    orders.apply({}, deletes=[0, 10])
    orders.apply({}, deletes=[1])
    return orders


def test_a_chunk_file_that_a_former_version_of_tailrace_adopted_outlives_a_sweep(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is older than the oldest kept version, and later ones that need it do not say that they adopted anything."""
    orders = Orders(spark)
    (chunk,) = orders.write({1: OLD, 2: OLD})
    old, new = local(chunk.path), local(chunk.path).with_name(f"chunk-s-000001-{local(chunk.path).name}")
    old.rename(new)
    time.sleep(0.01)
    monkeypatch.setattr(iceberg_state, "ADOPTED", "other")
    orders.apply({3: OLD})
    since = time.time()
    time.sleep(0.01)
    path = f"{orders.table.location}/data/{new.name}"
    orders.table.commit(TableCommit(orders.next(), [replace(chunk, path=path)]))
    orders.table.commit(TableCommit(orders.next(), orders.write({1: OLD}), data_change=False, remove=[path]))
    monkeypatch.undo()
    assert orders.table.sweep(since, skew=0.0) == 0
    assert new.exists(), "a kept version needs it"
    assert orders.table.expire(time.time(), at_once=1)
    assert not new.exists()


def test_versions_are_forgotten_when_they_are_a_share_of_all(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each expiry reads the metadata of all of them."""
    orders = shared_vectors(spark)
    time.sleep(0.01)
    monkeypatch.setattr(cleanup, "SHARE", 100)
    assert not orders.table.expire(time.time(), at_once=1), "the present version is one of the four"
    monkeypatch.setattr(cleanup, "SHARE", 75)
    assert orders.table.expire(time.time(), at_once=1)
    assert orders.read() == orders.rows


def test_what_an_interrupted_expiry_leaves_is_swept_later(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = shared_vectors(spark)
    age(orders)

    def die(name: str) -> None:
        raise SeamFailure(name)

    folder = local(orders.table.location)
    before = set(folder.rglob("*.avro"))
    monkeypatch.setattr("tailrace.targets.lake.iceberg.cleanup.seam", die)
    time.sleep(0.01)
    with pytest.raises(SeamFailure):
        orders.table.expire(time.time(), at_once=1)
    monkeypatch.undo()
    assert before <= set(folder.rglob("*.avro"))
    orders.table = orders.another_opened()
    assert orders.table.sweep(time.time(), skew=0.0) > 20
    assert len(set(folder.rglob("snap-*.avro"))) == 1, "one version is left"
    assert orders.read() == orders.rows
    assert orders.another_opened().refresh() == orders.table.refresh()


def age(orders: Orders, commits: int = 25) -> None:
    """Versions enough for the older ones to be forgotten."""
    for key in range(1000, 1000 + commits):
        orders.apply({key: OLD})


def test_a_puffin_file_lives_as_long_as_one_of_its_vectors(spark: "SparkSession") -> None:
    orders = shared_vectors(spark)
    age(orders)
    time.sleep(0.01)
    assert orders.table.expire(time.time(), at_once=1)
    assert orders.read() == orders.rows
    assert orders.another_opened().refresh() == orders.table.refresh()


def test_compaction_of_one_file_leaves_the_vector_of_the_other(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(10)))
    orders.apply(random_rows(random.Random(2), range(10, 20)))
    first = orders.table.files()[0].path
    orders.apply({}, deletes=[0, 10])
    rows = {key: row for key, row in orders.rows.items() if key < 10}
    orders.table.commit(TableCommit(orders.table.refresh(), orders.write(rows), data_change=False, remove=[first]))
    age(orders)
    time.sleep(0.01)
    assert orders.table.expire(time.time(), at_once=1)
    assert orders.read() == orders.rows
    assert not local(first).exists(), "what no version reaches is gone"
