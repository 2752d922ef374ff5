"""A large table is verified in the background at its default rate while others change: memory, the chunk at which it
continues after SIGKILL, and what it costs the changes.

TAILRACE_SOAK_VERIFIED_ROWS: rows of the table (10 million); TAILRACE_SOAK_VERIFIED_QUIET: the
seconds before. It prints what it measures, and changes may wait by no more than `MOST_WAIT` beside it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import psutil
import pyarrow.compute as pc
import pytest

from demo.compare import READERS
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.seen import TABLE, Reader, Writer
from tailrace.capture.loop import Timing
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.state import SnapshotTable
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

ROWS = int(os.environ.get("TAILRACE_SOAK_VERIFIED_ROWS", "10000000"))
QUIET = float(os.environ.get("TAILRACE_SOAK_VERIFIED_QUIET", "60"))
"""Seconds for which the changes are measured beside no verification."""
MOST_MEMORY = 4 << 30
"""Bytes that all processes of the driver have, of 1 GiB of heap: far less than the rows."""
PERCENT = 95
MOST_WAIT = 1.2
"""What the percentile beside a verification may be, of that without: a fifth more; and the length of a record besides,
within which a change waits by chance."""
ON_THE_WAY = 10.0
"""Changes of the seconds before the kill wait for the next start."""


@pytest.fixture
def large(postgres: PostgresServer, tmp_path: Any) -> Iterator[Deployment]:
    with closing(postgres.connect()) as connection:
        connection.execute("CREATE SCHEMA proof; CREATE TABLE proof.large (id int PRIMARY KEY, v bigint, name text)")
        fill = f"INSERT INTO proof.large SELECT n, n::bigint * 7919, md5(n::text) FROM generate_series(1, {ROWS}) n"
        connection.execute(fill.encode())
        connection.execute(f"CREATE TABLE {TABLE} (id int PRIMARY KEY)".encode())
    made = Deployment(tmp_path / "large", postgres.source(), "delta", {"apply": {}})
    yield made
    made.close()


@pytest.mark.timeout(5400)
def test_a_large_table_is_verified_within_bounded_memory_from_where_it_was_and_changes_hardly_wait(
    large: Deployment, postgres: PostgresServer
) -> None:
    run = large.start()
    run.until(lambda: states(large) == ["REPLICATING"] * 2, 3000, "the tables are read")
    writer, reader = Writer(postgres.connect, 0.05), Reader(lambda: newest(large), 0.1)
    writer.start()
    reader.start()
    time.sleep(QUIET / 4)
    before = time.time(), time.time() + QUIET
    time.sleep(QUIET)
    verify(large)
    begun, most = time.time(), 0
    while (part := verified(large)) is None or compared(part) < ROWS // 3:
        most = max(most, memory(run))
        time.sleep(1)
    first = begun + 5, time.time() - ON_THE_WAY
    run.kill()
    killed = verified(large)
    assert killed is not None
    done = {chunk.chunk for chunk in killed.chunks} - set(killed.uncompared)
    run = large.start()
    resumed = time.time()
    last = killed
    while (part := verified(large)) is None or part.finished is None:
        last = part or last
        most = max(most, memory(run))
        time.sleep(1)
    ended = time.time()
    writer.stop()
    run.until(lambda: reader.newest == len(writer.commits), 120, "every change is seen")
    reader.stop()
    assert run.stop() == 0, run.tail()
    final = verified(large)
    assert final is not None and final.found is not None
    quiet, busy = (percentile(writer, reader, *window) for window in (before, first))
    files = [[chunk.path for chunk in part.chunks] for part in (killed, last)]
    kept = files[1][: len(files[0])] == files[0] and not done & set(last.uncompared)
    print(f"{ROWS} rows, {len(last.chunks)} chunks; killed behind {len(done)} compared ones")
    rate = compared(killed) / (first[1] + ON_THE_WAY - begun)
    print(f"  until the kill {rate:.0f} rows/s, then {ended - resumed:.0f} s to its end")
    print(f"  all processes at most {most / 2**20:.0f} MiB")
    print(f"  p{PERCENT} of changes {quiet:.2f} s without, {busy:.2f} s beside the verification")
    assert kept, "what was read and compared before is not read and compared again"
    assert (final.found.rows, final.found.differences) == (ROWS, 0)
    assert most < MOST_MEMORY
    assert busy <= quiet * MOST_WAIT + Timing().record, "changes wait for the verification"


def states(deployment: Deployment) -> list[str]:
    found = status(deployment)
    return [] if found is None else [table["state"] for table in found["tables"]]


def newest(deployment: Deployment) -> int:
    return int(pc.max(READERS["delta"](deployment.lake / TABLE.replace(".", "/"))["id"]).as_py() or 0)


def verify(deployment: Deployment) -> None:
    deployment.spec["verify"] = {}
    deployment.write_manifest()
    here = ("-f", str(deployment.manifest), "--run-dir", str(deployment.state))
    done = deployment.command("reload", *here, timeout=180)
    assert done.returncode == 0, done.stderr


def verified(deployment: Deployment) -> SnapshotTable | None:
    """The large table's verification, as the change log has it."""
    state = JournalReader.open(Storage.open(StorageLocation(location=deployment.log.as_uri()))).state
    names = {table.table_id: table.schema.name for table in state.tables.values()}
    for snapshot in state.snapshots.values():
        if snapshot.plan.in_background and names[snapshot.plan.tables[0]] == "proof.large":
            return snapshot.tables[snapshot.plan.tables[0]]
    return None


def compared(part: SnapshotTable) -> int:
    return 0 if part.found is None else part.found.rows


def memory(run: Program) -> int:
    """Bytes of all processes of the driver, capture and executors."""
    total = 0
    try:
        one = psutil.Process(run.process.pid)
        for process in (one, *one.children(recursive=True)):
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


def percentile(writer: Writer, reader: Reader, begin: float, end: float) -> float:
    """The age of changes of this time."""
    ages = [
        sum(reader.moment(number)) / 2 - committed
        for number, (at, committed) in enumerate(writer.commits, 1)
        if begin <= at <= end
    ]
    return float(np.percentile(ages, PERCENT)) if ages else float("nan")
