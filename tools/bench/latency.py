"""The time from the source's commit to the row in the target, through the real `tailrace run`; and its cost when idle.

Each transaction inserts one row. Sequences are contiguous and only this table is written, so the n-th row has the n-th
sequence after the start; a row is visible from the first table version on whose applied sequence reaches it. Versions
are looked for in the table's log every 10 ms.
"""

import bisect
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo.postgres_server import PostgresServer
from tailrace.cli.client import DriverClient
from tailrace.driver.process.run_dir import NotRunning, RunFolder
from tailrace.targets.lake.delta.state import DOMAIN

from . import source
from .measure import Result, Watch, until

STAGE = "end to end"
RATE, WARM, IDLE = 50, 250, 30.0
"""Transactions a second; transactions before it counts; seconds."""


@dataclass
class Versions:
    """When each table version was first seen, and its applied sequence."""

    folder: Path
    seen: list[float] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        version = 0
        while not self.ending.wait(0.01):
            path = self.folder / f"{version:020}.json"
            while path.exists():
                now = time.time()
                self._take(path, now)
                version += 1
                path = self.folder / f"{version:020}.json"

    def _take(self, path: Path, now: float) -> None:
        for line in path.read_text().splitlines():
            domain = json.loads(line).get("domainMetadata")
            if domain is not None and domain["domain"] == DOMAIN:
                self.seen.append(now)
                self.applied.append(int(json.loads(domain["configuration"])["appliedSequence"]))

    def visible_at(self, sequence: int) -> float:
        return self.seen[bisect.bisect_left(self.applied, sequence)]

    def reached(self, sequence: int) -> bool:
        return bool(self.applied) and self.applied[-1] >= sequence


@contextmanager
def running(server: PostgresServer, folder: Path, table: str) -> Iterator[int]:
    """`tailrace run` with this table replicated; yields its process id."""
    driver = {"memory": "1Gi", "cores": 2}
    replicator = source.replicator(server, folder.as_uri(), table, driver=driver)
    manifest = folder / "replicator.yaml"
    manifest.write_text(replicator.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True))
    command = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(manifest), "--run-dir", str(folder / "run")]
    with (folder / "run.log").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ)

    def replicates() -> bool:
        if process.poll() is not None:
            raise RuntimeError((folder / "run.log").read_text()[-3000:])
        try:
            tables = DriverClient.of(RunFolder(folder / "run")).status().tables
        except NotRunning:
            return False
        return bool(tables) and tables[0].state == "REPLICATING"

    try:
        until(replicates, "the table is replicated", 240, pause=1.0)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def write(server: PostgresServer, table: str, first: int, count: int) -> list[float]:
    """One row a transaction at the rate; when each commit had returned."""
    done = []
    with server.connect() as connection:
        begun = time.time()
        for number in range(first, first + count):
            time.sleep(max(0.0, begun + (number - first) / RATE - time.time()))
            statement = f"INSERT INTO {table} SELECT {source.ROW} FROM (SELECT {number}::bigint AS g) s"
            connection.execute(statement.encode())
            done.append(time.time())
    return done


def run(server: PostgresServer, folder: Path, scale: float) -> list[Result]:
    folder.mkdir()
    table, filled, count = "public.live", 10_000, int(2000 * scale)
    source.create(server, table)
    source.insert(server, table, 1, filled)
    versions = Versions(folder / "lake" / "public" / "live" / "_delta_log")
    watcher = threading.Thread(target=versions.watch, daemon=True)
    watcher.start()
    try:
        with running(server, folder, table) as pid:
            start = versions.applied[-1]
            write(server, table, filled + 1, WARM)
            with Watch([pid], server.pid) as watch:
                done = write(server, table, filled + 1 + WARM, count)
                until(lambda: versions.reached(start + WARM + count), "all rows are visible", 120)
            time.sleep(5)
            with Watch([pid], server.pid) as idle:
                time.sleep(IDLE)
    finally:
        versions.ending.set()
        watcher.join()
        server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    late = sorted(versions.visible_at(start + WARM + n) - at for n, at in enumerate(done, start=1))
    quantiles = {"p50": late[len(late) // 2], "p95": late[len(late) * 95 // 100], "max": late[-1]}
    note = ", ".join(f"{name} {value:.2f} s" for name, value in quantiles.items())
    cost = f"{idle.cpu * 3600 / IDLE:.0f} CPU s per hour ({idle.cpu / IDLE:.1%} of a core)"
    return [
        watch.result(STAGE, f"commit to visible, {RATE} tx/s", "tailrace", count, note),
        idle.result(STAGE, "idle: driver and capture", "tailrace", 0, cost),
    ]
