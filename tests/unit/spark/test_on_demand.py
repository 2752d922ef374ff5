import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from tailrace.errors import Retry
from tailrace.spark.on_demand import OnDemand
from tailrace.spark.session import Launched
from tailrace.targets.api import DriverJvm


def launched(gateway: object = None) -> Launched:
    return Launched(DriverJvm(gateway, None), cast(SparkConf, None), Path())


def test_a_session_is_started_by_the_first_who_asks_and_by_nobody_once_the_run_ends() -> None:
    made, asked, go_on = cast(SparkSession, SimpleNamespace()), list[str](), threading.Event()

    def launch() -> Launched:
        asked.append("jvm")
        return launched()

    def start(_: Launched) -> SparkSession:
        asked.append("session")
        assert go_on.wait(20)
        return made

    spark, never = OnDemand(launch, start), OnDemand(launch, start)
    assert not asked
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(spark.session) for _ in range(2)]
        go_on.set()
        assert [one.result(20) for one in waiting] == [made, made]
    assert (spark.started(), asked) == (made, ["jvm", "session"])
    spark.abandon(None)
    assert spark.session() is made, "for a commit under way when the run ends"
    assert never.started() is None
    never.abandon(None)
    never.stop()
    for ask in (never.session, never.jvm):
        with pytest.raises(Retry, match="the run ends"):
            ask()


def test_the_jvm_is_there_before_the_session_and_without_one() -> None:
    """A session takes longer than the JVM, and tables of Iceberg do not need it."""
    go_on = threading.Event()
    made = cast(SparkSession, SimpleNamespace())

    def start(_: Launched) -> SparkSession:
        assert go_on.wait(20)
        return made

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        alone = OnDemand(lambda: launched(SimpleNamespace(proc=process)), start)
        assert alone.jvm() is alone.jvm()
        assert alone.started() is None
        alone.check(Path("spark.log"))
        alone.stop()
        assert process.returncode == 0
        with pytest.raises(Retry, match="ended with code 0"):
            alone.check(Path("spark.log"))
    both = OnDemand(launched, start)
    both.begin()
    assert both.jvm().gateway is None and both.started() is None
    go_on.set()
    assert both.session() is made


def test_at_the_end_of_a_run_nobody_waits_for_a_session_and_the_jvm_stays_for_commits() -> None:
    starts, go_on = threading.Event(), threading.Event()

    def start(_: Launched) -> SparkSession:
        starts.set()
        assert go_on.wait(20)
        return cast(SparkSession, SimpleNamespace())

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process, ThreadPoolExecutor(1) as pool:
        spark = OnDemand(lambda: launched(SimpleNamespace(proc=process)), start)
        waiting = pool.submit(spark.session)
        assert starts.wait(20)
        spark.let_go(None)
        with pytest.raises(Retry, match="the run ends"):
            waiting.result(20)
        assert process.poll() is None and spark.jvm().gateway.proc is process
        go_on.set()
        spark._threads["spark-start"].join(20)
        spark.stop()
        assert process.returncode == 0


def test_whoever_waits_for_a_session_learns_why_there_is_none() -> None:
    def launch() -> Launched:
        raise Retry("no Java")

    spark = OnDemand(launch, lambda _: pytest.fail("there is no JVM"))
    for ask in (spark.session, spark.jvm, spark.started):
        with pytest.raises(Retry, match="no Java"):
            ask()
    spark.stop()
