"""A verification beside a snapshot of the same table: rows a second and CPU of the product, and of the source.

    PYTHONPATH=tools python -m bench.verified [--rows 2000000] [--formats delta,iceberg]

The product runs as a user runs it. The table is started over (`resync`: all rows are read and written), then verified
(all rows are read and compared), each in turns, so that the JVM is as warm for one as for the other. CPU is of all of
the product's processes (driver, JVM, workers, capture).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from demo.postgres_server import PostgresServer
from tailrace.cli.client import DriverClient
from tailrace.cli.main import main as tailrace
from tailrace.driver.process.run_dir import RunFolder

from .measure import Result, Watch, machine, table, until
from .product import all_replicate, running

TABLE = "many.large"


def fill(server: PostgresServer, rows: int) -> None:
    server.execute(f"CREATE SCHEMA many; CREATE TABLE {TABLE} (id int PRIMARY KEY, v bigint, name text)")
    server.execute(f"INSERT INTO {TABLE} SELECT n, n::bigint * 7919, md5(n::text) FROM generate_series(1, {rows}) n")
    server.execute(f"ANALYZE {TABLE}")


def _reaches(run: RunFolder, request: str) -> Callable[[], bool]:
    """A look that finds out if the request has ended."""

    def look() -> bool:
        found = [one for one in DriverClient.of(run).status().snapshots if one.name == request]
        if any(one.state in ("Failed", "Stopped") for one in found):
            raise RuntimeError(f"{request} has failed: {found}")
        return bool(found) and found[0].state == "Completed"

    return look


def measured(server: PostgresServer, folder: Path, format: str, rows: int, turns: int = 3) -> list[Result]:
    folder.mkdir()
    results: list[Result] = []
    with running(server, folder, format, "5s") as (pid, run):
        until(lambda: all_replicate(run, 1), "the table replicates", 1800, 0.5)
        for turn in range(turns):
            for what in ("resync", "verify"):
                time.sleep(5)
                request = f"{what}-{turn}"
                given = [what, "-f", str(folder / "replicator.yaml"), "--run-dir", str(folder / "run")]
                with Watch([pid], server.pid) as watch:
                    code = tailrace([*given, "--tables", TABLE, "--id", request])
                    if code != 0:
                        raise RuntimeError(f"{what} ended with {code}")
                    until(_reaches(run, request), f"{request} ends", 1800, 0.1)
                results.append(watch.result(f"verify, {format}, turn {turn + 1}", what, "tailrace", rows))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.verified", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--formats", default="delta,iceberg")
    options = parser.parse_args(arguments)
    begun = machine()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        for format in options.formats.split(","):
            with PostgresServer(18) as server:
                fill(server, options.rows)
                results += measured(server, Path(folder) / format, format, options.rows, options.turns)
    print(table(results))
    print(f"\n{begun} at the beginning; {machine()} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
