"""`make demo`: a real PostgreSQL or MySQL with a shop, replicated to a lake or a database under load, and a verdict.

Starts the embedded servers and the load, runs the same `tailrace run` that users run, adds a table and asks for a
snapshot in the middle, then stops the load, waits until everything is applied and compares every table row by row and
column by column through a reader that is not ours. Exit code 0 only when nothing differs.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa
import yaml
from rich.console import Console

from demo import shop, targets
from demo.targets import Target
from demo.view import Watch
from tailrace.cli.client import DriverClient, DriverSilent
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import NotRunning, RunFolder

DEADLINE = 280.0
"""Seconds from the start of replication after which the demo gives up."""
SOURCES = {"postgresql": "postgres_shop.PostgresShop", "mysql": "mysql_shop.MysqlShop"}
"""Modules that only their own demo imports: set-up installs no other client."""
MARK = ".tailrace-demo"
"""Says that the folder may be emptied."""
WIDTH = 132
"""Columns where the output is not a terminal."""


class Source(Protocol):
    """A database with the shop, from its start to its end."""

    title: str
    faults: tuple[type[Exception], ...]
    """The exceptions of its client."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    @property
    def port(self) -> int: ...

    def spec(self) -> dict[str, object]:
        """`spec.source` of a Replicator."""

    def fill(self, scale: float) -> int:
        """Make and fill the shop; how many rows it has."""

    def add_reviews(self, count: int) -> None:
        """One more table with so many rows."""

    def load(self, scale: float) -> shop.Load:
        """The shop's customers."""

    def log_end(self) -> int:
        """The present end of the log, as `number` counts."""

    def number(self, position: str) -> int:
        """A position as the status writes it, to be compared."""

    def count(self, table: str) -> int:
        """Rows of a table of the shop."""

    def differences(self, tables: Sequence[str], read: Callable[[str], pa.Table]) -> list[str]:
        """Between source and target, which `read` reads, each as a sentence; none: equal."""


class Demo:
    """One run: folders, server, load and the `tailrace run` process."""

    def __init__(self, folder: Path, scale: float, target: Target, console: Console) -> None:
        self.folder = folder
        self.scale = scale
        self.target = target
        self.console = console
        self.manifest = folder / "replicator.yaml"
        self.state = folder / "run"

    def say(self, text: str) -> None:
        self.console.print(f"[bold cyan]demo[/] {text}")

    def write_manifest(self, source: Source) -> None:
        spec = {
            "source": source.spec(),
            "tables": {"include": ["shop.*"]},
            "target": self.target.spec(),
            "storage": {"location": (self.folder / "log").as_uri()},
            "driver": {"cores": 2, "memory": "2Gi"},
            "apply": {"freshness": "500ms"},
        }
        document = {
            "apiVersion": "tailrace.dev/v1alpha1",
            "kind": "Replicator",
            "metadata": {"name": "shop"},
            "spec": spec,
        }
        self.manifest.write_text(yaml.safe_dump(document, sort_keys=False))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tailrace.cli.main", *arguments, "--run-dir", str(self.state)]

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "tailrace.log").open("wb") as log:
            return subprocess.Popen(
                self.command("run", "-f", str(self.manifest)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def status(self) -> Status | None:
        """The running process's status, as `tailrace status` shows it; None while it does not answer yet."""
        try:
            return DriverClient.of(RunFolder(self.state)).status()
        except (NotRunning, DriverSilent):
            return None

    def ask_for_snapshot(self) -> None:
        """An ad-hoc snapshot of part of one table, while everything runs."""
        command = self.command(
            "snapshot", "-f", str(self.manifest), "--tables", "shop.orders", "--where", "region = 'eu'"
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the snapshot was refused: {done.stderr.strip()}")

    def run(self, source: Source) -> int:
        with source, self.target:
            self.say(
                f"{source.title} runs on port {source.port}; filling the shop; copies go to {self.target.place()} …"
            )
            rows = source.fill(self.scale)
            self.say(
                f"{rows:,} rows in {len(shop.TABLES)} tables; starting the load and `tailrace run -f {self.manifest}`"
            )
            self.write_manifest(source)
            load = source.load(self.scale)
            load.start()
            process = self.start()
            try:
                return self.drive(source, load, process)
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()

    def drive(self, source: Source, load: shop.Load, process: subprocess.Popen[bytes]) -> int:
        watch = Watch(self, process, time.monotonic() + DEADLINE)
        watch.until(lambda s: sum(t.counters.snapshot_rows for t in s.tables) > 0, "first snapshot rows in the target")
        source.add_reviews(int(20_000 * self.scale))
        self.say("new table shop.reviews appears in the source; asking for a snapshot of the orders of region eu")
        self.ask_for_snapshot()
        watch.until(lambda s: _settled(s, len(shop.TABLES) + 1), "all snapshots done")
        watch.measure(15.0)
        load.stop()
        end = source.log_end()
        self.say(f"load stopped after {load.transactions:,} transactions; waiting until everything is applied")
        caught_up = watch.until(lambda s: _caught_up(s, source, end), "the target to catch up")
        tables = (*shop.TABLES, "reviews")
        self.say(f"comparing source and target, row by row, column by column, read by {self.target.reader}")
        found = []
        for table in tables:
            self.say(f"comparing shop.{table} …")
            found += source.differences((table,), self.target.read)
        for line in found:
            self.console.print(f"  [red]{line}[/]")
        watch.report(caught_up)
        self.console.print(f"  rows: {', '.join(f'shop.{table} {source.count(table):,}' for table in tables)}")
        verdict = "[bold green]EQUAL[/]: every row and column" if not found else "[bold red]DIFFERENT[/]"
        self.console.print(f"[bold]verdict[/] {verdict}; {self.target.end()}")
        return 1 if found else 0


def _settled(status: Status, tables: int) -> bool:
    done = status.tables_replicating >= tables and len(status.snapshots) > 1
    return done and all(s.state == "Completed" for s in status.snapshots)


def _caught_up(status: Status, source: Source, end: int) -> bool:
    position = status.capture.position
    applied = all(t.applied_record >= status.capture.record for t in status.tables if t.lag_seconds)
    there = position is not None and source.number(position) >= end
    return there and applied and not any(t.lag_seconds for t in status.tables)


def empty(folder: Path) -> bool:
    """Make the folder, or empty that of an earlier demo, which its mark tells; False: it is somebody else's."""
    if folder.exists() and not (folder.is_dir() and ((folder / MARK).exists() or not any(folder.iterdir()))):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=Path("demo-data"), help="an earlier demo's is emptied")
    parser.add_argument("--scale", type=float, default=1.0, help="1: 1.3 million rows")
    parser.add_argument("--target", choices=targets.TYPES, default="delta")
    parser.add_argument("--source", choices=SOURCES, default="postgresql")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not empty(folder):
        print(f"demo: {folder} holds something that no demo has made; give another --folder.", file=sys.stderr)
        return 2
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    module, _, name = SOURCES[arguments.source].partition(".")
    source: Source = getattr(import_module(f"demo.{module}"), name)()
    try:
        return Demo(folder, arguments.scale, targets.of_type(arguments.target, folder), console).run(source)
    except (*source.faults, *targets.FAULTS) as fault:
        Console(stderr=True).print(f"demo: an embedded server answered: {fault}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
