"""What looks at the catalog cost a source with very many partitions, and capture.

`TAILRACE_SOAK_ROOTS` partitioned tables (default 1,000) with `TAILRACE_SOAK_LEAVES` partitions each (default 100), on
which nothing happens. Printed: CPU of a look at the source and here, cores while capture idles, and its memory
(docs/performance.md).
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.capture import CaptureRun
from support.ddl.fork_server import ForkServer
from support.pg_source import config_of
from support.postgres import PostgresServer
from support.waiting import until
from tailrace.contract.resources import TablesSpec
from tailrace.databases.postgresql.connect import Connection, connect
from tailrace.sources.postgresql.fingerprint import look
from tailrace.sources.postgresql.trees import Trees

ROOTS = int(os.environ.get("TAILRACE_SOAK_ROOTS", "1000"))
LEAVES = int(os.environ.get("TAILRACE_SOAK_LEAVES", "100"))
IDLE = 90.0
"""Seconds to measure: some three looks at their rarest."""
CORES = 0.1
"""Of the server and of capture: a look is a twentieth of the time, on a machine that has other work as well."""
BYTES_PER_LEAF = 3_000
PARTITIONS = """
DO $$ BEGIN FOR i IN 0..{last} LOOP
  EXECUTE format('CREATE TABLE many.t{root}_%s PARTITION OF many.t{root} FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);
END LOOP; END $$
"""


@pytest.fixture
def many(postgres: PostgresServer) -> Iterator[Connection]:
    with connect(config_of(postgres)) as connection:
        connection.execute("CREATE SCHEMA many")
        for root in range(ROOTS):
            columns = "id int PRIMARY KEY, v text, at timestamptz, n numeric(12, 2)"
            connection.execute(f"CREATE TABLE many.t{root} ({columns}) PARTITION BY RANGE (id)".encode())
            connection.execute(PARTITIONS.format(root=root, last=LEAVES - 1).encode())
        connection.execute("VACUUM ANALYZE")
        yield connection


@pytest.mark.postgres(18, max_locks_per_transaction="256", max_wal_size="8GB", shared_buffers="256MB")
@pytest.mark.timeout(1200 + ROOTS * LEAVES // 20)
def test_looks_at_a_hundred_thousand_partitions_cost_little(
    fork_server: ForkServer, postgres: PostgresServer, many: Connection, tmp_path: Path
) -> None:
    trees = Trees()
    for number in range(3):
        print(f"\nlook {number}: {_cost(many, trees)}", end="")
    run = CaptureRun(fork_server, postgres, tmp_path / "capture", include=("many.*",), timing={}).start(wait=False)
    try:
        until(run._reads, "capture reads the log", 900)
        time.sleep(IDLE / 3)
        capture, server, memory = _idle(postgres, run)
    finally:
        run.close()
    print(f"\nidle: capture {capture:.3f} cores, server {server:.3f} cores, capture holds {memory >> 20} MiB")
    assert capture < CORES
    assert server < CORES
    assert memory < (150 << 20) + ROOTS * LEAVES * BYTES_PER_LEAF


def _cost(connection: Connection, trees: Trees) -> str:
    backend, own = psutil.Process(connection.info.backend_pid), psutil.Process()
    before, begun = (_cpu(backend), _cpu(own)), time.monotonic()
    found = look(connection, TablesSpec(include=("many.*",)), (), "none", trees)
    wall = time.monotonic() - begun
    assert len(found.tables) == ROOTS
    return f"{_cpu(backend) - before[0]:.2f} CPU s there, {_cpu(own) - before[1]:.2f} here, {wall:.2f} s"


def _idle(server: PostgresServer, run: CaptureRun) -> tuple[float, float, int]:
    assert run.process is not None
    capture, servers = psutil.Process(run.process.pid), psutil.Process(server.pid).children()
    before, begun = (_cpu(capture), sum(map(_cpu, servers))), time.monotonic()
    time.sleep(IDLE)
    seconds = time.monotonic() - begun
    return (
        (_cpu(capture) - before[0]) / seconds,
        (sum(map(_cpu, servers)) - before[1]) / seconds,
        int(capture.memory_info().rss),
    )


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
