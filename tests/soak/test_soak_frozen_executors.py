"""Whole drivers whose executor is frozen (SIGSTOP) in the middle of a load into the target: another reads its chunk,
and it continues afterwards. No row is lost, doubled or left.

With Spark's own small cluster, whose executors are processes of their own: Spark gives one up that does not answer, as
on Kubernetes. And locally, where the driver is killed and another one takes over. Readers alone:
`integration/targets/test_frozen_loads.py`.
"""

import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
import psycopg
import pymysql
import pytest
from typing_extensions import override

from support.database_copies import place_of
from support.mysql import MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import HELD, Deployment
from support.waiting import until

CLUSTER = {
    "TAILRACE_SPARK_MASTER": "local-cluster[2,1,1024]",
    "TAILRACE_SPARK_CONF_spark_executor_memory": "512m",
    "TAILRACE_SPARK_CONF_spark_authenticate": "false",
    "TAILRACE_SPARK_CONF_spark_network_crypto_enabled": "false",
    "TAILRACE_SPARK_CONF_spark_io_encryption_enabled": "false",
    "TAILRACE_SPARK_CONF_spark_executor_heartbeatInterval": "1s",
    "TAILRACE_SPARK_CONF_spark_network_timeout": "8s",
    "TAILRACE_SPARK_CONF_spark_network_timeoutInterval": "1s",
    # A worker's folder is another one: no relative path leads anywhere from there.
    "TAILRACE_SPARK_CONF_spark_executorEnv_PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path),
}
"""An executor that has not answered for 8 s is given up."""
ROWS = 600_000
TABLES = f"""
CREATE SCHEMA shop; CREATE TABLE shop.item (id int PRIMARY KEY, code text, price numeric(9,2), n bigint);
INSERT INTO shop.item SELECT n, md5(n::text), n / 7.0, n FROM generate_series(1, {ROWS}) n;
"""
SUMS = "SELECT count(*), count(DISTINCT id), sum(id), sum(price), min(code), max(n) FROM shop.item"
Load = tuple[int, int]
"""A connection's number in the server, and its port."""


class Target(ABC):
    """The database with the copy."""

    waits: ClassVar[bool]
    """A batch waits for the load's end: its rows go into the copy."""

    def __init__(self, server: PostgresServer | MysqlServer) -> None:
        self.server = server

    @abstractmethod
    def rows(self, statement: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def loads(self) -> list[Load]: ...

    @abstractmethod
    def is_open(self, load: Load) -> bool:
        """It is in the middle of its transaction."""

    @abstractmethod
    def left(self) -> int:
        """What a load or its end has left undone."""

    @abstractmethod
    def end(self, load: Load) -> None:
        """End its connection."""


class PostgresTarget(Target):
    waits = True

    @override
    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        assert isinstance(self.server, PostgresServer)
        with suppress(psycopg.errors.UndefinedTable):
            return self.server.execute(statement, dbname="copy")
        return []

    @override
    def loads(self) -> list[Load]:
        statement = "SELECT pid, client_port FROM pg_stat_activity WHERE datname = 'copy' AND state = 'active'"
        return [(int(pid), int(port)) for pid, port in self.rows(f'{statement} AND query ~ \'^COPY "shop"."item"\'')]

    @override
    def is_open(self, load: Load) -> bool:
        return load in self.loads()

    @override
    def left(self) -> int:
        ((count,),) = self.rows(
            "SELECT (SELECT count(*) FROM _tailrace.loading) + (SELECT count(*) FROM _tailrace.loads WHERE NOT applied)"
            " + 1 - (SELECT count(*) FROM pg_constraint WHERE conrelid = 'shop.item'::regclass AND contype = 'p')"
        )
        return int(count)

    @override
    def end(self, load: Load) -> None:
        self.server.execute(f"SELECT pg_terminate_backend({load[0]}, 60000)")


class MysqlTarget(Target):
    """Its rows are staged."""

    waits = False

    @override
    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with suppress(pymysql.err.ProgrammingError):  # not there yet
            return self.server.execute(statement)
        return []

    @override
    def loads(self) -> list[Load]:
        found = self.rows(
            "SELECT id, SUBSTRING_INDEX(host, ':', -1) FROM information_schema.processlist"
            " WHERE info LIKE 'INSERT INTO _tailrace.chunk\\_%'"
        )
        return [(int(number), int(port)) for number, port in found]

    @override
    def is_open(self, load: Load) -> bool:
        asked = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_rows_modified > 100 AND trx_mysql_thread_id"
        return self.rows(f"{asked} = {load[0]}") != []

    @override
    def left(self) -> int:
        ((count,),) = self.rows("SELECT count(*) FROM _tailrace.tables WHERE NOT member")
        return int(count)

    @override
    def end(self, load: Load) -> None:
        self.server.execute(f"KILL {load[0]}")


class FrozenExecutor:
    """A worker, and what it is below up to its executor, in the middle of a load."""

    def __init__(self, target: Target, run: Program, levels: int) -> None:
        """`levels`: processes above the worker that are frozen, too."""
        self.target = target
        self.load: Load = (0, 0)
        self.above: list[psutil.Process] = []
        self.worker: psutil.Process = until(
            lambda: self._caught(run, levels), lambda: f"a load is frozen\n{run.tail()}", 240, pause=0.005
        )

    def _caught(self, run: Program, levels: int) -> psutil.Process | None:
        for load in self.target.loads():
            with suppress(psutil.Error):
                worker = next((p for p in run.family()[1:] if _has_port(p, load[1])), None)
                if worker is None:
                    continue
                worker.suspend()
                until(lambda worker=worker: worker.status() == psutil.STATUS_STOPPED, "it stands", pause=0.001)
                if not self.target.is_open(load):
                    worker.resume()  # it had just ended
                    continue
                self.load = load
                self.above = worker.parents()[:levels]
                for process in self.above:
                    process.suspend()
                return worker
        return None

    @property
    def pids(self) -> set[int]:
        return {self.worker.pid, *(process.pid for process in self.above)}

    def thaw(self) -> None:
        """The worker continues; what is above it would end it."""
        self.worker.resume()
        until(lambda: not self.target.is_open(self.load), "its transaction has ended", 120)

    def end(self) -> None:
        for process in (self.worker, *self.above):
            with suppress(psutil.Error):
                process.kill()


def _has_port(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return any(c.laddr and c.laddr.port == port for c in process.net_connections("tcp"))
    return False


class FirstCopy:
    """A first copy by whole drivers."""

    def __init__(self, source: PostgresServer, target: Target, folder: Path, environment: dict[str, str]) -> None:
        self.source, self.target = source, target
        source.execute(TABLES)
        spec = {
            "tables": {"include": ["shop.*"]},
            "snapshot": {"chunkRows": 100_000, "parallelism": 2},
            "target": place_of(target.server),
            "apply": {"freshness": "300ms"},
        }
        place = {**place_of(source), "database": "postgres"}
        self.deployment = Deployment(folder, place, spec=spec, environment=environment)

    def start(self) -> Program:
        """Executors read all of it."""
        run = self.deployment.start(seams=f"{HELD}=hold")
        self.deployment.read_by_executors(run)
        return run

    def equal(self) -> bool:
        wanted, found = self.source.execute(SUMS), self.target.rows(SUMS)
        return [list(map(str, row)) for row in wanted] == [list(map(str, row)) for row in found]

    def finish(self, run: Program) -> None:
        run.until(self.equal, 300, "source = target", pause=1.0)
        run.until(lambda: self.target.left() == 0, 60, "nothing of a load is left", pause=0.3)
        assert run.stop() == 0, run.tail()
        assert self.equal()


@contextmanager
def copying(source: PostgresServer, target: Target, folder: Path, environment: dict[str, str]) -> Iterator[FirstCopy]:
    made = FirstCopy(source, target, folder, environment)
    try:
        yield made
    finally:
        made.deployment.close()


@pytest.fixture(params=["postgresql", MYSQL])
def target(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Target]:
    with ExitStack() as stack:
        if request.param == "postgresql":
            postgres.execute("CREATE DATABASE copy")
            yield PostgresTarget(postgres)
        else:
            yield MysqlTarget(stack.enter_context(MysqlServer(request.param)))


def others_are_done(copy: FirstCopy, run: Program, frozen: FrozenExecutor) -> None:
    """The chunk has been read again while the load stands; a batch that has to wait for it says so by name."""
    if copy.target.waits:
        told = f"(backend {frozen.load[0]})"
        run.until(lambda: told in run.tail(200_000), 240, f"a batch waits {told}")
    else:
        run.until(copy.equal, 300, "source = target, beside the load", pause=1.0)
    assert copy.target.is_open(frozen.load)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ended_by", ["its machine continues", "its connection is ended"])
def test_an_executor_that_is_frozen_for_longer_than_spark_waits(
    postgres: PostgresServer, target: Target, tmp_path: Path, ended_by: str
) -> None:
    with copying(postgres, target, tmp_path, CLUSTER) as copy:
        run = copy.start()
        frozen = FrozenExecutor(target, run, levels=2)  # Spark's daemon and the executor
        try:
            postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id % 1000 = 0")
            others_are_done(copy, run, frozen)
            if ended_by == "its connection is ended":
                target.end(frozen.load)
            frozen.thaw()
            postgres.execute("DELETE FROM shop.item WHERE id % 1000 = 1")
            copy.finish(run)
        finally:
            frozen.end()


@pytest.mark.timeout(900)
def test_a_worker_that_is_frozen_while_its_driver_is_killed_and_another_one_takes_over(
    postgres: PostgresServer, target: Target, tmp_path: Path
) -> None:
    with copying(postgres, target, tmp_path, {}) as copy:
        run = copy.start()
        frozen = FrozenExecutor(target, run, levels=1)  # Spark's daemon, which would end the worker
        try:
            for process in run.family():
                if process.pid not in frozen.pids:
                    with suppress(psutil.Error):
                        process.send_signal(signal.SIGKILL)
            run.wait(30)
            second = copy.deployment.start()
            others_are_done(copy, second, frozen)
            frozen.thaw()
            copy.finish(second)
        finally:
            frozen.end()
