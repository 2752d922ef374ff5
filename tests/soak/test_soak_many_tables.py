"""Two thousand small tables: a first start, then days of quiet and of scattered writes, in miniature.

`TAILRACE_SOAK_TABLES` scales it. Printed: how long the first start took, and what the processes of Tailrace cost while
nothing is written and while every table is written to now and then.
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from demo.compare import compare
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status

TABLES = int(os.environ.get("TAILRACE_SOAK_TABLES", "2000"))
SECONDS_PER_TABLE = 2.0
QUIET, WRITTEN = 30.0, 60.0
"""Seconds to measure."""
WRITES = 20
"""Single-row transactions a second, over all tables."""


@pytest.fixture
def soak(postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    with postgres.connect() as connection:
        connection.execute("CREATE SCHEMA many")
        for number in range(TABLES):
            connection.execute(f"CREATE TABLE many.t{number} (id int PRIMARY KEY, v text, at timestamptz)".encode())
            # Every tenth is empty.
            rows = 0 if number % 10 == 9 else 10
            connection.execute(
                f"INSERT INTO many.t{number} SELECT i, md5(i::text), now() FROM generate_series(1, {rows}) i".encode()
            )
    deployment = Deployment(tmp_path / "soak", postgres.source(), "delta", {"tables": {"include": ["many.*"]}})
    yield deployment
    deployment.close()


class Writes:
    """`WRITES` a second from one thread, each to some table."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def __enter__(self) -> "Writes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        random = Random(5)
        with self._server.connect(autocommit=True) as connection:
            while not self._end.wait(1 / WRITES):
                table, key = random.randrange(TABLES), random.randint(1, 12)
                row = f"({key}, '{random.random()}', now())"
                connection.execute(
                    f"INSERT INTO many.t{table} VALUES {row} ON CONFLICT (id) DO UPDATE SET v = excluded.v".encode()
                )
                self.count += 1


def spent(run: Program, seconds: float) -> float:
    """Cores that the processes use over the next `seconds`; what ends meanwhile is not counted."""
    before, begun = run.cpu_by_process(), time.monotonic()
    time.sleep(seconds)
    after = run.cpu_by_process()
    used = sum(cpu - before.get(process, 0.0) for process, cpu in after.items())
    return used / (time.monotonic() - begun)


def replicating(deployment: Deployment) -> int:
    """Asked now and then: what the status of thousands of tables costs is not to be measured here."""
    time.sleep(5)
    document = status(deployment)
    return 0 if document is None else int(document["tablesReplicating"])


@pytest.mark.postgres(18, max_locks_per_transaction="256")
@pytest.mark.timeout(900 + 2 * SECONDS_PER_TABLE * TABLES)
def test_two_thousand_tables_start_and_then_cost_little(postgres: PostgresServer, soak: Deployment) -> None:
    begun = time.monotonic()
    run = soak.start()
    run.until(lambda: replicating(soak) == TABLES, 120 + SECONDS_PER_TABLE * TABLES, "all tables to replicate")
    print(f"\n{TABLES} tables: all replicate after {time.monotonic() - begun:.0f} s, {run.cpu_seconds():.0f} CPU s")
    time.sleep(10)
    print(f"nothing written: {spent(run, QUIET):.3f} cores")
    with Writes(postgres) as writes:
        cores = spent(run, WRITTEN)
    print(f"{writes.count / WRITTEN:.0f} single-row transactions a second, over all tables: {cores:.3f} cores")
    names = [f"many.t{number}" for number in range(TABLES)]

    def level() -> bool:
        """Nobody writes: a table that is equal once stays so."""
        with postgres.connect() as connection:
            names[:] = [name for name in names if compare(connection, [name], soak.lake, "delta")]
        return not names

    run.until(level, 240 + SECONDS_PER_TABLE * TABLES, "source = target")
    assert run.stop() == 0, run.tail()
