"""The product as a user runs it, with many tables: what a start, a steady stream of small changes and idleness cost.

    PYTHONPATH=tools python -m bench.product [--tables 200] [--seconds 60] [--freshness 5s] [--formats delta,iceberg]
    PYTHONPATH=tools python -m bench.product --tables 1 --rows 100000 --rate 1000 [--freshness 1s]
    PYTHONPATH=tools python -m bench.product --tables 2000 --changing 200

Each table has ten rows (or `--rows`); one of them in turn is updated every second, in a transaction of its own, or
`--rate` rows a second in all tables together. With `--changing` only so many of the tables change. Counted is the CPU
of all of the product's processes (driver, JVM, capture, workers), not the source's. The lag of a change is the time
from its statement to the data file that holds it; the commit follows within milliseconds. Commits are those of all
tables in the time that is measured. Printed beside it is PostgreSQL's own logical replication of the same tables under
the same writes, and the figures that are kept in `product.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo.postgres_server import PostgresServer
from tailrace.cli.client import DriverClient
from tailrace.contract.resources import Replicator
from tailrace.driver.process.run_dir import NotRunning, RunFolder

from .measure import Watch, cpu_seconds, cpu_times, machine, until

KEPT = Path(__file__).with_name("product.json")
"""Earlier figures by what was `measured`: `[cores, lag p95 in seconds, seconds until all replicate, CPU s]`."""
ROWS = 10
"""Rows of each table, unless `--rows` says otherwise."""
STEP = 7919
"""Between the rows that are changed one after the other: a prime, so that all have their turn."""
IDLE, SETTLED = 20.0, 10.0
"""Seconds that idleness is measured, and those before."""


def names(tables: int) -> list[str]:
    return [f"t{number:04}" for number in range(tables)]


def create(server: PostgresServer, tables: int, rows: int) -> None:
    server.execute("CREATE SCHEMA many")
    made = "CREATE TABLE many.{t} (id int PRIMARY KEY, n int, at timestamptz)"
    for name in names(tables):
        server.execute(
            f"{made.format(t=name)}; INSERT INTO many.{name} SELECT g, 0, now() FROM generate_series(1, {rows}) g"
        )


def write(server: PostgresServer, options: argparse.Namespace, ending: threading.Event) -> None:
    """So many rows a second, each in the next table, in an even flow."""
    tables, rate = options.changing, options.rate or options.changing
    written = names(tables)
    with server.connect() as connection:
        begun = time.monotonic()
        for number in range(10**9):
            if ending.wait(max(0.0, begun + number / rate - time.monotonic())):
                return
            name = written[number % tables]
            # Scattered, and no row twice in a row's turn: a change that another one replaces before its commit reaches
            # no file, so its lag would not be known.
            key = 1 + number // tables * STEP % options.rows
            change = f"UPDATE many.{name} SET n = n + 1, at = clock_timestamp() WHERE id = {key}"
            connection.execute(change.encode())


@contextmanager
def writing(server: PostgresServer, options: argparse.Namespace) -> Iterator[None]:
    ending = threading.Event()
    thread = threading.Thread(target=write, args=(server, options, ending))
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@contextmanager
def running(server: PostgresServer, folder: Path, format: str, freshness: str) -> Iterator[tuple[int, RunFolder]]:
    spec = {
        "source": server.source(),
        "tables": {"include": ["many.*"]},
        "target": {"type": format, "location": f"{folder.as_uri()}/lake"},
        "storage": {"location": f"{folder.as_uri()}/log"},
        "apply": {"freshness": freshness},
    }
    resource = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "many"}, "spec": spec}
    manifest = folder / "replicator.yaml"
    manifest.write_text(Replicator.model_validate(resource).model_dump_json(by_alias=True, exclude_unset=True))
    command = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(manifest), "--run-dir", str(folder / "run")]
    with (folder / "run.log").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ)
    try:
        yield process.pid, RunFolder(folder / "run")
    finally:
        process.terminate()
        process.wait(120)


def parts(pid: int) -> dict[str, float]:
    """CPU seconds of the driver, the JVM, capture, and all others, so far."""
    found = dict.fromkeys(("driver", "JVM", "capture", "workers"), 0.0)
    for process, (own, ended) in cpu_times(pid).items():
        try:
            command = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue  # it has just ended
        of = "capture" if "tailrace.capture" in command else "JVM" if "java" in command.split(" ")[0] else "workers"
        found["driver" if process.pid == pid else of] += own if process.pid == pid else own + ended
    return found


def commits(lake: Path, since: float, to: float) -> int:
    """The number of all tables' commits in that time."""
    numbers: dict[Path, list[int]] = {}
    for path in [*lake.rglob("_delta_log/*.json"), *lake.rglob("metadata/v*.metadata.json")]:
        with suppress(FileNotFoundError):  # versions expire while this looks
            if since <= path.stat().st_mtime <= to:
                numbers.setdefault(path.parent, []).append(int(path.name.lstrip("v").split(".")[0]))
    return sum(max(found) - min(found) + 1 for found in numbers.values())


def all_replicate(folder: RunFolder, tables: int) -> bool:
    try:
        found = DriverClient.of(folder).status().tables
    except NotRunning:
        return False
    return len(found) == tables and all(table.state == "REPLICATING" for table in found)


def lags(lake: Path, since: float, to: float) -> list[float]:
    """Seconds of each change written in that time that has reached a data file, by the earliest file that holds it."""
    earliest: dict[tuple[str, int], float] = {}
    for path in lake.rglob("*.parquet"):
        if "data" not in path.parts or path.stat().st_mtime < since:
            continue
        table = path.relative_to(lake).parts[1]
        rows = pq.ParquetFile(path).read()
        for at in pc.cast(rows.column(2), "int64").to_pylist():
            if since <= at / 1e6 <= to:
                key = table, at
                earliest[key] = min(earliest.get(key, path.stat().st_mtime), path.stat().st_mtime)
    return sorted(written - at / 1e6 for (_, at), written in earliest.items())


def measured(format: str, options: argparse.Namespace) -> str:
    """The name of what is measured: only figures of the same name can be compared."""
    name = f"{format} {options.tables} {options.freshness}"
    name += f" rows={options.rows}" if options.rows != ROWS else ""
    name += f" changing={options.changing}" if options.changing != options.tables else ""
    return name + (f" rate={options.rate}" if (options.rate or options.changing) != options.changing else "")


def tailrace(server: PostgresServer, folder: Path, format: str, options: argparse.Namespace) -> tuple[float, ...]:
    folder.mkdir()
    begun = time.monotonic()
    with running(server, folder, format, options.freshness) as (pid, run):
        until(lambda: all_replicate(run, options.tables), "all tables replicate", 1200, 0.5)
        started, start_cpu = time.monotonic() - begun, cpu_seconds(pid)
        with writing(server, options):
            time.sleep(SETTLED)
            since, before = time.time(), parts(pid)
            with Watch([pid]) as busy:
                time.sleep(options.seconds)
            to, cores, after = time.time(), busy.cpu / busy.wall, parts(pid)
            made = commits(folder / "lake", since, to)
            time.sleep(SETTLED)
        late = lags(folder / "lake", since, to)
        time.sleep(SETTLED)
        with Watch([pid]) as quiet:
            time.sleep(IDLE)
        idle = quiet.cpu / quiet.wall
    expected = options.seconds * (options.rate or options.changing)
    assert len(late) > 0.8 * expected, f"{len(late)} of {expected} changes were found in the lake"
    p50, p95 = late[len(late) // 2], late[len(late) * 95 // 100]
    earlier = json.loads(KEPT.read_text()).get(measured(format, options))
    ratio = f"{cores / earlier[0]:.2f} of {earlier[0]}" if earlier else ""
    shares = ", ".join(f"{after[name] / busy.wall - before[name] / busy.wall:.2f}" for name in after)
    figures = f"{started:.1f} | {start_cpu:.1f} | {cores:.2f} | {shares} | {made / busy.wall:.1f}"
    print(f"| {format} | {figures} | {p50:.1f} | {p95:.1f} | {idle:.3f} | {ratio} |", flush=True)
    return cores, p95, started, start_cpu


def neighbour(server: PostgresServer, options: argparse.Namespace) -> None:
    """PostgreSQL's logical replication into another server."""
    with PostgresServer(server.major) as other:
        other.execute("CREATE SCHEMA many")
        for name in names(options.tables):
            other.execute(f"CREATE TABLE many.{name} (id int PRIMARY KEY, n int, at timestamptz)")
        server.execute("CREATE PUBLICATION neighbour FOR TABLES IN SCHEMA many")
        where = f"host={server.host} port={server.port} user=postgres dbname=postgres"
        begun, before = time.monotonic(), cpu_seconds(other.pid)
        other.execute(f"CREATE SUBSCRIPTION neighbour CONNECTION '{where}' PUBLICATION neighbour")
        query = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        until(lambda: other.execute(query) == [(0,)], "all tables are copied", 600)
        started, start_cpu = time.monotonic() - begun, cpu_seconds(other.pid) - before
        with writing(server, options):
            time.sleep(SETTLED)
            with Watch([other.pid]) as busy:
                time.sleep(options.seconds)
            cores = busy.cpu / busy.wall
        other.execute("DROP SUBSCRIPTION neighbour")
        print(f"| PostgreSQL's own | {started:.1f} | {start_cpu:.1f} | {cores:.2f} | | | | | | |", flush=True)


HEADER = (
    "| target | s until all replicate | CPU s | cores | driver, JVM, capture, workers | commits a second |"
    " lag p50 s | p95 s | idle cores | cores, ratio to earlier |"
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.product", description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--changing", type=int, help="tables that change; default: all")
    parser.add_argument("--rows", type=int, default=ROWS, help="of each table")
    parser.add_argument("--rate", type=int, help="rows a second in all tables together; default: one in each")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--freshness", default="5s")
    parser.add_argument("--formats", default="delta,iceberg")
    options = parser.parse_args(arguments)
    options.changing = options.changing or options.tables
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    of = f", of which {options.changing} change" if options.changing != options.tables else ""
    work = f"{options.rate} rows a second in all" if options.rate else "a row a second in each"
    print(f"{machine()}\n{options.tables} tables{of}, {work}, freshness {options.freshness}\n\n{HEADER}")
    print("|---|" + "---:|" * 9)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as place:
        for format in options.formats.split(","):
            with PostgresServer(18) as server:
                create(server, options.tables, options.rows)
                tailrace(server, Path(place) / format, format, options)
        with PostgresServer(18) as server:
            create(server, options.tables, options.rows)
            neighbour(server, options)


if __name__ == "__main__":
    main()
