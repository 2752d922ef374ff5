"""A backlog and nothing: what `tailrace run --once` takes when many small transactions wait for it, and when none do.

    PYTHONPATH=tools python -m bench.backlog [--rows 100000] [--changes 200000] [--formats delta,iceberg]

A table is copied; then rows of it are updated one by one, each in a transaction of its own, while nothing runs. Printed
for each format are a run with nothing to do and the run that brings the backlog: elapsed time and CPU of all of the
product's processes, and the changes a second and a CPU second with and without what the empty run took. PostgreSQL is
the source; its own CPU is not counted. After the last run the table's log must hold every change.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.postgres_server import PostgresServer
from tailrace.changelog.journal import JournalReader
from tailrace.contract.resources import Replicator, StorageLocation
from tailrace.storage.store import Storage

from . import source
from .measure import cpu_seconds, machine

TABLE, LOOK = "public.backlog", 0.1
HEADER = (
    "| target | nothing to do, s | CPU s | backlog, s | CPU s | changes/s | net of the empty run |"
    " changes/CPU s | net |\n|---|" + "---:|" * 8
)


@dataclass(frozen=True)
class Spent:
    wall: float
    cpu: float


def run(manifest: Path) -> Spent:
    """`tailrace run --once`. The CPU of a process that nobody waits for is known by the last look at it."""
    command = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(manifest), "--once"]
    command += ["--run-dir", str(manifest.parent / "run")]
    output = manifest.with_suffix(".log")
    begun, looked = time.monotonic(), 0.0
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ)
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        looked = max(looked, cpu_seconds(process.pid))
        time.sleep(LOOK)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(output.read_text()[-3000:])
    return Spent(time.monotonic() - begun, max(looked, used.ru_utime + used.ru_stime))


def update_one_by_one(server: PostgresServer, rows: int, changes: int) -> None:
    """Scattered keys, each change in a transaction of its own."""
    change = f"UPDATE {TABLE} SET qty = qty + 1 WHERE id = 1 + g::bigint * 7919 % {rows}"
    server.execute(f"DO $$ BEGIN FOR g IN 1..{changes} LOOP {change}; COMMIT; END LOOP; END $$")


def logged(folder: Path) -> int:
    """The rows that the change log has brought so far."""
    return JournalReader.open(Storage.open(StorageLocation(location=(folder / "log").as_uri()))).state.last_seq


def write_manifest(server: PostgresServer, folder: Path, format: str) -> Path:
    target = {"type": format, "location": f"{folder.as_uri()}/lake"}
    replicator: Replicator = source.replicator(server, folder.as_uri(), TABLE, target=target)
    manifest = folder / "replicator.yaml"
    manifest.write_text(replicator.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True))
    return manifest


def measure(server: PostgresServer, folder: Path, format: str, rows: int, changes: int) -> None:
    folder.mkdir()
    source.create(server, TABLE)
    source.insert(server, TABLE, 1, rows)
    manifest = write_manifest(server, folder, format)
    run(manifest)
    run(manifest)  # the first one after a copy tidies
    nothing = run(manifest)
    before = logged(folder)
    update_one_by_one(server, rows, changes)
    spent = run(manifest)
    found = logged(folder) - before
    assert found == changes, f"{found} of {changes} changes are in the log"
    net = Spent(max(spent.wall - nothing.wall, 0.01), max(spent.cpu - nothing.cpu, 0.01))
    rates = f"{changes / spent.wall:,.0f} | {changes / net.wall:,.0f} | {changes / spent.cpu:,.0f}"
    figures = f"{nothing.wall:.1f} | {nothing.cpu:.1f} | {spent.wall:.1f} | {spent.cpu:.1f} | {rates}"
    print(f"| {format} | {figures} | {changes / net.cpu:,.0f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.backlog", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--formats", default="delta,iceberg")
    options = parser.parse_args(arguments)
    print(f"{machine()}\n{options.changes:,} updates of one row each, {options.rows:,} rows\n\n{HEADER}")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as place:
        for format in options.formats.split(","):
            with source.server() as server:
                measure(server, Path(place) / format, format, options.rows, options.changes)


if __name__ == "__main__":
    main()
