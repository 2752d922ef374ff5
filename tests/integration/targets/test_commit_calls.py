"""What a small commit asks of the JVM: each call over the gateway costs both processes, and a name many times that."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.delta import Target
from support.iceberg import Orders

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
CALL, LOOKUP = "c", "r"
"""The first letter of py4j's commands."""


@contextmanager
def counted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # never None here
    found: Counter[str] = Counter()
    send = client.send_command

    def count(command: str, *others: Any, **named: Any) -> Any:
        found[command.partition("\n")[0]] += 1
        return send(command, *others, **named)

    with monkeypatch.context() as patched:
        patched.setattr(client, "send_command", count)
        yield found


def delta(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    target = Target(spark, folder)
    return lambda step: target.apply(step, dict.fromkeys(range(step, step + 10), f"{step}"))


def iceberg(spark: SparkSession, _: Path) -> Callable[[int], None]:
    orders = Orders(spark)
    return lambda step: orders.apply(dict.fromkeys(range(step, step + 10), (None, f"{step}")))


@pytest.mark.parametrize(("table", "calls"), [(delta, 0), (iceberg, 4)])
def test_a_commit_is_few_calls_or_none_and_looks_up_no_name(
    table: Callable[[SparkSession, Path], Callable[[int], None]],
    calls: int,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = table(spark, tmp_path)
    for step in range(1, 4):  # the first file, one with a vector, one that replaces a vector
        commit(step)
    with counted(spark, monkeypatch) as asked:
        commit(4)
    assert asked[LOOKUP] == 0
    assert asked[CALL] <= calls


def test_the_manifests_that_an_iceberg_commit_reads_stay_few(spark: SparkSession) -> None:
    orders = Orders(spark)
    for step in range(20):  # each file keeps a live row
        orders.apply(dict.fromkeys(range(step, step + 3), (None, f"{step}")))
    reader = orders.table._open()[0]
    manifests = reader.table.currentSnapshot().allManifests(reader.table.io()).size()
    assert manifests == 2
    assert len(orders.table.files()) == 20
