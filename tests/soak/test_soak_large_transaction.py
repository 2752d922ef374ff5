"""One transaction of ten million rows through the whole path, in 4 GiB for all processes together.

`TAILRACE_SOAK_ROWS` scales it. What is measured is the sum of the proportional set sizes of driver, JVM, Python
workers and capture, every second; pages that several of them share count once.
"""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from demo.compare import read_iceberg
from support import memory
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment
from tailrace.cli.client import DriverClient
from tailrace.driver.process.run_dir import NotRunning, RunFolder

ROWS = int(os.environ.get("TAILRACE_SOAK_ROWS", "10000000"))
LIMIT = 4 << 30
SECONDS_PER_MILLION = 120
CREATE = """
CREATE SCHEMA soak;
CREATE TABLE soak.big (
    id bigint PRIMARY KEY, customer_id bigint NOT NULL, status text NOT NULL, amount numeric(12, 2) NOT NULL,
    qty int NOT NULL, price float8, paid boolean, created_at timestamptz NOT NULL, day date, note text)
"""
INSERT = """
INSERT INTO soak.big
SELECT g, g * 7919 % 1000003, (ARRAY['new', 'paid', 'sent', 'done'])[1 + g % 4], g % 100000 / 100.0, g % 50,
       g * 0.25, g % 3 = 0, '2026-01-01T00:00:00Z'::timestamptz + g * interval '1 second',
       '2026-01-01'::date + (g % 365)::int,
       CASE WHEN g % 5 > 0 THEN 'note ' || md5(g::text) END
  FROM generate_series(1::bigint, {}) g
"""
SUMS = """
SELECT count(*), count(DISTINCT id), sum(id), sum(customer_id), sum(amount), sum(qty), count(note), sum(length(note)),
       min(created_at), max(created_at)
  FROM {}
"""


@dataclass
class Memory:
    """Watches a family of processes from a thread of its own."""

    run: Program
    peak: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """What each kind of process had at the peak."""
    _ending: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._ending.wait(1.0):
            parts = memory.by_part(self.run)
            if sum(parts.values()) > self.peak:
                self.peak, self.parts = sum(parts.values()), parts

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self.watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture(params=["delta", "iceberg"])
def soak(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    postgres.execute(CREATE)
    deployment = Deployment(tmp_path / "soak", postgres.source(), request.param, {"tables": {"include": ["soak.*"]}})
    yield deployment
    deployment.close()


def delta_sums(path: Path) -> list[tuple[object, ...]]:
    found = QueryBuilder().register("big", DeltaTable(str(path))).execute(SUMS.format("big"))
    return [tuple(row.values()) for row in pa.table(found.read_all()).to_pylist()]


def iceberg_sums(path: Path) -> list[tuple[object, ...]]:
    rows = read_iceberg(path)
    sums = [pc.sum(rows[name]) for name in ("id", "customer_id", "amount", "qty")]
    notes = [pc.count(rows["note"]), pc.sum(pc.utf8_length(rows["note"]))]
    times = [pc.min(rows["created_at"]), pc.max(rows["created_at"])]
    found = (value.as_py() for value in (pc.count_distinct(rows["id"]), *sums, *notes, *times))
    return [(rows.num_rows, *found)]


def inserted(deployment: Deployment) -> int:
    """Rows of the log that are in the target, as the running process tells; -1: it does not replicate yet."""
    try:
        tables = DriverClient.of(RunFolder(deployment.state)).status().tables
    except NotRunning:
        return -1
    return tables[0].counters.inserts if tables and tables[0].state == "REPLICATING" else -1


@pytest.mark.postgres(18, max_wal_size="8GB", shared_buffers="128MB")
@pytest.mark.timeout(300 + SECONDS_PER_MILLION * (1 + ROWS // 1_000_000))
def test_a_transaction_of_ten_million_rows_passes_within_four_gibibytes(
    postgres: PostgresServer, soak: Deployment
) -> None:
    run = soak.start()
    with Memory(run) as most:
        run.until(lambda: inserted(soak) == 0, 120, "the empty table is replicated")
        begun, idle = time.monotonic(), run.cpu_seconds()
        postgres.execute(INSERT.format(ROWS))
        written = time.monotonic()
        limit = SECONDS_PER_MILLION * (1 + ROWS // 1_000_000)
        run.until(lambda: inserted(soak) == ROWS, limit, f"{ROWS} rows in the target")
        seen, spent = time.monotonic(), run.cpu_seconds() - idle
        assert run.stop() == 0, run.tail()
    print(f"\n{ROWS} rows: written in {written - begun:.0f} s, in the target {seen - written:.0f} s later;")
    print(f"{spent:.0f} CPU seconds of all processes but the source, {ROWS / spent:,.0f} rows per CPU second;")
    print(f"peak {memory.text(most.parts)}")
    found = (delta_sums if soak.format == "delta" else iceberg_sums)(soak.lake / "soak" / "big")
    assert found == postgres.execute(SUMS.format("soak.big"))
    assert most.peak < LIMIT, memory.text(most.parts)
