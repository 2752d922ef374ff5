"""Fixtures of all tests: a PostgreSQL server per test, one Spark session and one S3 server per run."""

import atexit
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from support import halves
from support.costs import Costs, Quick
from support.postgres import PostgresServer
from support.s3 import S3Server
from support.versions import deselect_others, major_for, turn
from tailrace import logs

pytest_plugins = ["pytester"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cluster.deploy import Cluster
    from support.bigquery import BigQueryService
    from support.capture import CaptureRun
    from support.ddl.fork_server import ForkServer
    from support.kube import KubeApi
    from support.mysql import MysqlServer
    from support.one_session import OneSession
    from support.proof.harness import Begin
    from support.snowflake import SnowflakeService

# No test is timed: on a busy machine Hypothesis' 200 ms an example fail for want of CPU alone.
hypothesis.settings.register_profile("tailrace", deadline=None, max_examples=50)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("tailrace")

# Pytest gives its handlers to loggers that do not propagate, and those of PySpark would change the handlers' format.
logs.silence_pyspark()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`, for `make check`."""
    parser.addoption("--quick", action="store_true", help="leave out the files that are dear by tests/durations.json")


def pytest_configure(config: pytest.Config) -> None:
    """Measure what each file costs; the turn is settled before processes are started, which inherit it."""
    turn()
    config.pluginmanager.register(Costs(config))
    if config.getoption("quick"):
        config.pluginmanager.register(Quick())
    if halves.wanted(config):
        config.pluginmanager.register(halves.Backwards())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live as long as the run: the garbage collector need not go through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # the interpreter frees modules at its end: DuckDB's complain where it cannot


def pytest_report_header() -> str:
    """The turn, so that a failure can be repeated."""
    return f"turn: {turn() or 'all'} (TAILRACE_TURN=... repeats it)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases that take turns: the others wait for theirs."""
    deselect_others(config, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "OneSession | None":
    """Of runs by file (`--dist loadfile`)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from support.one_session import OneSession

    return OneSession(config, log)


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A fresh server. `@pytest.mark.postgres(14, wal_level="replica")` fixes version and settings."""
    marker = request.node.get_closest_marker("postgres")
    major = marker.args[0] if marker and marker.args else major_for(request.node.nodeid)
    with PostgresServer(major, marker.kwargs if marker else None) as server:
        yield server


@pytest.fixture(scope="session")
def fork_server() -> Iterator["ForkServer"]:
    """A process that forks the tests' capture processes; see support/ddl/fork_server.py."""
    from support.ddl.fork_server import ForkServer

    made = ForkServer()
    yield made
    made.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One local session with Delta and Iceberg for the whole run; see support/spark.py."""
    from support.spark import start_session

    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server) -> S3Server:
    """An S3 server with a new, empty bucket under `s3.bucket`."""
    s3_server.new_bucket()
    return s3_server


@pytest.fixture(scope="session")
def bigquery(tmp_path_factory: pytest.TempPathFactory) -> Iterator["BigQueryService"]:
    """BigQuery's emulator, or the service."""
    from support.bigquery import bigquery_service

    with bigquery_service(tmp_path_factory.mktemp("bigquery")) as service:
        yield service


@pytest.fixture(scope="session")
def snowflake(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SnowflakeService"]:
    """Snowflake's emulator, or an account."""
    from support.snowflake import snowflake_service

    with snowflake_service(tmp_path_factory.mktemp("snowflake")) as service:
        yield service


@pytest.fixture(scope="session")
def resting_kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator["KubeApi"]:
    from support.kube import KubeApi

    with KubeApi(tmp_path_factory.mktemp("kube")) as api:
        api.rest()
        yield api


@pytest.fixture(scope="module")
def kube_api(resting_kube_api: "KubeApi") -> Iterator["KubeApi"]:
    """A Kubernetes API without nodes, shared: a test works in a namespace, or on resources, of its own. It takes no
    CPU time while tests of modules without it run."""
    resting_kube_api.go_on()
    yield resting_kube_api
    resting_kube_api.rest()


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """A whole Kubernetes with one node, in a network namespace of its own, with the operator's chart in it.
    TAILRACE_KEEP_CLUSTER=1 leaves it running for the next run, which takes it as it is, images too."""
    from cluster.deploy import Cluster
    from cluster.node import Node

    made = Cluster.own("tests")
    keep = os.environ.get("TAILRACE_KEEP_CLUSTER") == "1"
    if not (keep and Node("tests").ready()):
        made.down()  # what an interrupted run left
        made.up(print)
        made.install()
    yield made
    if not keep:
        made.down()


@pytest.fixture
def capture(fork_server: "ForkServer", postgres: PostgresServer, tmp_path: Path) -> Iterator["CaptureRun"]:
    """Capture alone on the test's server; not started yet."""
    from support.capture import CaptureRun

    run = CaptureRun(fork_server, postgres, tmp_path / "c")
    yield run
    run.close()


@pytest.fixture
def prove(postgres: PostgresServer, tmp_path: Path) -> Iterator["Begin"]:
    """Begins proving runs on the test's server; whatever they leave running is ended."""
    from support.proof.harness import ROWS, Proof

    begun: list[Proof] = []

    def begin(format: str, seed: int, *, rows: int = ROWS, **spec: object) -> Proof:
        begun.append(Proof.begin(postgres, tmp_path, format, seed, rows=rows, **spec))
        return begun[-1]

    yield begin
    for proof in begun:
        proof.deployment.close()


@pytest.fixture
def mysql(request: pytest.FixtureRequest) -> Iterator["MysqlServer"]:
    """A fresh MySQL, or what `@pytest.mark.mysql("mariadb-11.8", binlog_row_metadata="MINIMAL")` names."""
    from support.mysql import MYSQL, MysqlServer

    marker = request.node.get_closest_marker("mysql")
    name = marker.args[0] if marker and marker.args else MYSQL
    with MysqlServer(name, **(marker.kwargs if marker else {})) as server:
        yield server
