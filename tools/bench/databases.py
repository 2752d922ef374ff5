"""A PostgreSQL database as the target, beside PostgreSQL's own logical replication of the same table, in one run.

    PYTHONPATH=tools python -m bench.databases [--rows N] [--transactions N] [--large N] [--seconds 30]
        [--freshness 200ms]

`--only debezium` measures Debezium's engine with its JDBC sink in the same way (`bench.debezium`), which needs Maven.

One table of ten columns. Measured are its first copy, a backlog of single-row transactions that were made while nobody
read, another of transactions of 1,000 rows, and 1,000 single-row transactions a second; what has a number of 0 is left
out. CPU is counted for Tailrace's processes (for PostgreSQL's replication
there are none), for the source's server and for the target's. The start of Tailrace's processes is counted, too; it is
printed apart.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from demo.postgres_server import PostgresServer

from . import debezium
from .measure import Times, cpu_times, family, machine, spent_between, until

COLUMNS = (
    "id bigint PRIMARY KEY, a int, b int, c bigint, d numeric(12,2), e text, f text, g timestamptz, h date, i float8"
)
PROBES = 100
"""Rows that every tenth transaction changes one after the other: a reader of all of them misses no change of a second,
while of one row it would see only the newest, and call a batch as young as that."""
SEEN = b"SELECT g, extract(epoch FROM clock_timestamp() - g) FROM public.t WHERE id <= %s AND g > %s"
TARGET = "copy"
"""The database of the target: the two servers come from one template, and are the same to whoever asks."""
RATE = 1000
"""Transactions a second of the steady stream."""
LARGE = 1000
"""Rows of a large transaction."""
MOVE = "UPDATE public.t SET a = a + 1, e = '{mark}' || {n}, g = clock_timestamp()"
WHERE = "WHERE id = {n} * 7 % {rows} + 1"


def fill(server: PostgresServer, rows: int) -> None:
    server.execute(f"CREATE TABLE public.t ({COLUMNS})")
    server.execute(
        "INSERT INTO public.t SELECT g, g % 1000, g % 7, g * 31, g / 7.0, 'name ' || g, md5(g::text),"
        f" now() - g * '1 s'::interval, '2020-01-01'::date + (g % 3000)::int, g / 3.0 FROM generate_series(1, {rows}) g"
    )
    alone(server, "VACUUM ANALYZE public.t", "CHECKPOINT")


def alone(server: PostgresServer, *statements: str, dbname: str = "postgres") -> None:
    """Each statement outside of a transaction."""
    with server.connect(dbname) as connection:
        connection.autocommit = True
        for statement in statements:
            connection.execute(statement.encode())


@dataclass
class Pair:
    """A source and a target, and the processes that copy between them."""

    source: PostgresServer
    target: PostgresServer
    options: argparse.Namespace
    process: int | None = None
    made: int = 0
    """Transactions of the steady stream: a machine with other work may not manage all."""

    def cpu(self) -> list[Times]:
        pids = [self.process, self.source.pid, self.target.pid]
        return [{} if pid is None else cpu_times(pid) for pid in pids]

    def begun(self) -> bool:
        """A row can be seen."""
        if self.target.execute("SELECT to_regclass('public.t') IS NULL", dbname=TARGET) == [(True,)]:
            return False
        return bool(self.target.execute("SELECT 1 FROM public.t LIMIT 1", dbname=TARGET))

    def written(self) -> bool:
        """True when the copy is nearly as large as the table, and has its key: counting again and again would cost more
        than the copy.

        The server's statistics are up to ten seconds late for a connection that stays open.
        """
        size, keys = "SELECT pg_relation_size('public.t')", "FROM pg_index WHERE indrelid = 'public.t'::regclass"
        ((source,),) = self.source.execute(size)
        ((copy, keyed),) = self.target.execute(f"{size}, (SELECT count(*) {keys})", dbname=TARGET)
        return bool(keyed and copy >= source * 0.98)

    def rows(self) -> int:
        ((count,),) = self.target.execute("SELECT count(*) FROM public.t", dbname=TARGET)
        return int(count)

    def level(self, mark: str, last: int) -> bool:
        """The last change of the backlog is there: transactions come in their order. To read both tables for each look
        would cost the servers as much as the changes."""
        found = f"SELECT e FROM public.t {WHERE.format(n=last, rows=self.options.rows)}"
        return self.target.execute(found, dbname=TARGET) == [(f"{mark}{last}",)]

    def equal(self) -> bool:
        pair = (self.source, "postgres"), (self.target, TARGET)
        sums = [server.execute("SELECT sum(a), count(*) FROM public.t", dbname=name) for server, name in pair]
        return sums[0] == sums[1]

    def tidy(self) -> None:
        """Do now what each server would do by itself within a minute after so many rows, in whatever then runs. Not
        while the copier is halted: the source would take it for dead after half a minute."""
        alone(self.source, "CHECKPOINT")
        alone(self.target, "VACUUM ANALYZE public.t", "CHECKPOINT", dbname=TARGET)

    def backlog(self, mark: str, transactions: int, rows: int) -> None:
        """So many transactions that each change so many rows, by one statement."""
        n = "n" if rows == 1 else "k"
        move, where = MOVE.format(mark=mark, n=n), WHERE.format(n=n, rows=self.options.rows)
        series = "" if rows == 1 else f"FROM generate_series((n - 1) * {rows} + 1, n * {rows}) k"
        move = f"{move} {series} {where}"
        loop = f"FOR n IN 1..{transactions} LOOP {move}; COMMIT; END LOOP"
        alone(self.source, "SET synchronous_commit = off", f"DO $$ BEGIN {loop}; END $$")

    def steady(self) -> list[float]:
        """Seconds that changes took until a reader of the target saw them."""
        ending, late = threading.Event(), list[float]()
        writer = threading.Thread(target=self._write, args=(ending,))
        writer.start()
        try:
            with self.target.connect(TARGET) as connection:
                connection.autocommit = True
                newest = b"SELECT max(g) FROM public.t WHERE id <= %s"
                row = connection.execute(newest, [PROBES]).fetchone()
                last, to = row[0] if row else None, time.monotonic() + self.options.seconds
                while time.monotonic() < to:
                    found = connection.execute(SEEN, [PROBES, last]).fetchall()
                    if found:
                        last = max(at for at, _ in found)
                        late.extend(float(age) for _, age in found)
                    time.sleep(0.005)
        finally:
            ending.set()
            writer.join()
        return sorted(late)

    def _write(self, ending: threading.Event) -> None:
        """Every tenth transaction changes one of the rows that the reader looks at."""
        begun, number = time.monotonic(), 0
        with self.source.connect() as connection:
            connection.autocommit = True
            while not ending.is_set():
                for _ in range(max(0, int((time.monotonic() - begun) * RATE) - number)):
                    self.made = number = number + 1
                    probe = number % 10 == 0
                    row = 1 + number // 10 % PROBES if probe else number * 7 % self.options.rows + 1
                    connection.execute(
                        b"UPDATE public.t SET a = a + 1, g = clock_timestamp() WHERE id = %s", [row], prepare=True
                    )
                time.sleep(0.001)


def timed(pair: Pair, what: str, work: Callable[[], str]) -> None:
    before, begun = pair.cpu(), time.monotonic()
    note = work()
    wall = time.monotonic() - begun
    spent = [spent_between(was, now) for was, now in zip(before, pair.cpu(), strict=True)]
    cells = [f"{seconds:.1f}" for seconds in (wall, *spent)]
    print(f"| {what} | {' | '.join(cells)} | {note} |", flush=True)


def measured(pair: Pair, whose: str, start: Callable[[], None], halted: Callable[[bool], None]) -> None:
    options = pair.options

    def copy() -> str:
        begun = time.monotonic()
        start()
        until(pair.begun, "first rows", 900, 0.05)
        first = time.monotonic() - begun
        until(lambda: pair.written() and pair.rows() == options.rows, "first copy", 900, 0.2)
        wall = time.monotonic() - begun
        return f"{options.rows / wall / 1000:.0f} k rows/s; first rows after {first:.1f} s"

    def apply(mark: str, changes: int, what: str) -> str:
        begun = time.monotonic()
        halted(False)
        until(lambda: pair.level(mark, changes), "backlog", 900, 0.1)
        return f"{changes / (time.monotonic() - begun) / 1000:.0f} k {what}/s"

    def stream() -> str:
        late = pair.steady()
        found = f"lag p50 {late[len(late) // 2]:.2f} s, p95 {late[len(late) * 95 // 100]:.2f} s"
        return f"{found}, {pair.made / options.seconds:.0f} transactions/s made"

    timed(pair, f"{whose}: first copy", copy)
    small, large = (options.transactions, 1, "transactions"), (options.large, LARGE, "rows in transactions of 1,000")
    for mark, (transactions, rows, name) in {"x": small, "y": large}.items():
        if not transactions:
            continue
        time.sleep(5)
        pair.tidy()
        halted(True)
        pair.backlog(mark, transactions, rows)
        alone(pair.source, "CHECKPOINT")
        timed(pair, f"{whose}: backlog of {name}", partial(apply, mark, transactions * rows, name.split()[0]))
        if not pair.equal():
            raise SystemExit(f"{whose}: the copy differs")
        pair.tidy()
    time.sleep(5)
    if options.seconds:
        timed(pair, f"{whose}: {RATE} transactions/s", stream)


def neighbour(pair: Pair) -> None:
    pair.target.execute(f"CREATE TABLE public.t ({COLUMNS})", dbname=TARGET)
    pair.source.execute("CREATE PUBLICATION neighbour FOR TABLE public.t")
    where = f"host={pair.source.host} port={pair.source.port} user=postgres dbname=postgres"

    def start() -> None:
        pair.target.execute(f"CREATE SUBSCRIPTION neighbour CONNECTION '{where}' PUBLICATION neighbour", dbname=TARGET)

    def halted(halt: bool) -> None:
        pair.target.execute(f"ALTER SUBSCRIPTION neighbour {'DISABLE' if halt else 'ENABLE'}", dbname=TARGET)

    measured(pair, "PostgreSQL's own", start, halted)
    pair.target.execute("DROP SUBSCRIPTION neighbour", dbname=TARGET)


def tailrace(pair: Pair, folder: Path) -> None:
    server = {"type": "postgresql", "username": "postgres", "database": "postgres"}
    spec = {
        "source": {**server, "host": pair.source.host, "port": pair.source.port},
        "target": {**server, "host": pair.target.host, "port": pair.target.port, "database": TARGET},
        "tables": {"include": ["public.*"]},
        "storage": {"location": f"{folder.as_uri()}/log"},
        "apply": {"freshness": pair.options.freshness},
    }
    manifest = folder / "replicator.json"
    resource = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "copy"}, "spec": spec}
    manifest.write_text(json.dumps(resource))
    command = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(manifest), "--run-dir", str(folder / "run")]
    with running(command, folder) as start:

        def begin() -> None:
            pair.process = start()

        measured(pair, "Tailrace", begin, lambda halt: halted(pair.process, halt))


def debezium_s(pair: Pair, folder: Path) -> None:
    pair.target.execute(f"CREATE TABLE public.t ({COLUMNS})", dbname=TARGET)
    source, target = (pair.source.host, pair.source.port, "postgres"), (pair.target.host, pair.target.port, TARGET)
    settings = folder / "debezium.properties"
    given = debezium.properties(source, target).items()
    settings.write_text("".join(f"{name}={value}\n" for name, value in given))
    with running([*debezium.prepared(), str(settings)], folder) as start:

        def begin() -> None:
            pair.process = start()

        measured(pair, "Debezium's", begin, lambda halt: halted(pair.process, halt))


def halted(process: int | None, halt: bool) -> None:
    assert process is not None
    for one in family(process):
        (psutil.Process.suspend if halt else psutil.Process.resume)(one)


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[Callable[[], int]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        with (folder / "run.log").open("wb") as output:
            started.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ)
            )
        return started[0].pid

    try:
        yield start
    finally:
        for process in started:
            if process.poll() is not None:
                print((folder / "run.log").read_text(), file=sys.stderr)
                continue
            halted(process.pid, False)
            process.terminate()
            process.wait(120)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.databases", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--freshness", default="200ms")
    parser.add_argument("--only", choices=("tailrace", "neighbour", "debezium"))
    options = parser.parse_args(arguments)
    sizes = f"{options.rows} rows, {options.transactions} small and {options.large} large transactions"
    print(f"{machine()}\n{sizes}, freshness {options.freshness}\n")
    print("| what | wall s | the copier's CPU s | source's | target's | |\n|---|---:|---:|---:|---:|---|")
    for who in ("neighbour", "tailrace") if options.only is None else (options.only,):
        with (
            tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder,
            PostgresServer(18) as source,
            PostgresServer(18) as target,
        ):
            fill(source, options.rows)
            alone(target, f"CREATE DATABASE {TARGET}")
            pair = Pair(source, target, options)
            if who == "neighbour":
                neighbour(pair)
            else:
                (tailrace if who == "tailrace" else debezium_s)(pair, Path(folder))


if __name__ == "__main__":
    main()
