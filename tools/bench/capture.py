"""Capture from a prepared slot, against draining the same stream without looking at it.

The slot is made by a first run of capture, which also tells what starting costs (subtracted). Then rows are written,
then capture runs until its journal holds them. A second slot, made at the same place, is drained for the ceiling.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg import pq

from demo.postgres_server import PostgresServer
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.contract.resources import Replicator

from . import source
from .measure import Result, Watch, cpu_seconds, until

Write = Callable[[PostgresServer, str, int, int], None]


class Capture:
    """The real capture process of a Replicator over one table, started and stopped at will."""

    def __init__(self, replicator: Replicator, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._manifest = folder / "replicator.yaml"
        self._manifest.write_text(replicator.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True))

    def start(self) -> None:
        command = [sys.executable, "-m", "tailrace.capture.process", "--manifest", str(self._manifest)]
        command += ["--run-dir", str(self._folder / "run"), "--socket", str(self._folder / "c.sock")]
        with (self._folder / "capture.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=os.environ)
        self._client = CaptureClient(self._folder / "c.sock", timeout=60)  # one that was closed stays closed

    def holds(self, position: int) -> bool:
        """True if the journal holds everything below this position of the source's log."""
        if self.process.poll() is not None:
            raise RuntimeError((self._folder / "capture.log").read_text()[-2000:])
        try:
            state = self._client.state()
        except CaptureGone:
            return False
        return state.record >= 0 and state.position >= position

    def stop(self) -> None:
        self._client.close()
        self.process.terminate()
        self.process.wait(60)


def position(server: PostgresServer) -> int:
    """The end of the source's log, with a commit behind it that capture will meet."""
    (row,) = server.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    server.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
    return int(row[0])


def drain(server: PostgresServer, slot: str, publication: str, rows: int) -> float:
    """Take the stream's messages and drop them, until `rows` of them have passed; CPU seconds of this process."""
    # closing, not psycopg's own `with`: in mid-stream there is nothing to commit.
    with closing(psycopg.connect(server.dsn(replication="database"), autocommit=True)) as connection:
        pgconn = connection.pgconn
        options = f"proto_version '2', streaming 'on', messages 'true', publication_names '\"{publication}\"'"
        result = pgconn.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise RuntimeError(pgconn.get_error_message())
        begun, seen, get = time.process_time(), 0, pgconn.get_copy_data
        while seen < rows:
            length, data = get(1)
            if length > 0:
                seen += data[0] == 119 and data[25] in b"IUD"
            elif length == 0:
                select.select([pgconn.socket], [], [], 10)
                pgconn.consume_input()
            else:
                raise RuntimeError(pgconn.get_error_message())
        return time.process_time() - begun


def case(server: PostgresServer, folder: Path, name: str, rows: int, write: Write, *, filled: int = 0) -> list[Result]:
    """One kind of writing: capture and its ceiling."""
    table = f"public.c_{name}"
    source.create(server, table)
    if filled:
        source.insert(server, table, 1, filled)
    capture = Capture(source.replicator(server, (folder / name).as_uri(), table), folder / name)
    capture.start()
    until(lambda: capture.holds(0), "capture answers")
    start_up = cpu_seconds(capture.process.pid)
    capture.stop()
    (slot, publication) = server.execute(
        "SELECT slot_name, (SELECT pubname FROM pg_publication LIMIT 1) FROM pg_replication_slots"
    )[0]
    server.execute("SELECT pg_copy_logical_replication_slot(%s, 'bench_drain')", (slot,))
    write(server, table, 1, rows)
    high = position(server)
    with Watch([os.getpid()], server.pid) as watch:
        spent = drain(server, "bench_drain", publication, rows)
    ceiling = Result(f"capture, {name}", "drain the stream", "ceiling", rows, watch.wall, spent, watch.source_cpu)
    with Watch([], server.pid) as watch:
        capture.start()
        until(lambda: capture.holds(high), "capture has it all", pause=0.2)
        spent = cpu_seconds(capture.process.pid) - start_up
    capture.stop()
    server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.execute(f'DROP PUBLICATION "{publication}"; DROP TABLE {table}')
    ours = Result(f"capture, {name}", "capture to segments", "tailrace", rows, watch.wall, spent, watch.source_cpu)
    return [ours, ceiling]


def many(server: PostgresServer, folder: Path, tables: int, seconds: int) -> Result:
    """One changed row a second in each table, each in a transaction of its own; notes what that leaves in the log."""
    name = f"tables_{tables}"
    server.execute(f"CREATE SCHEMA {name}")
    for number in range(tables):
        source.create(server, f"{name}.t{number}")
    capture = Capture(source.replicator(server, (folder / name).as_uri(), f"{name}.*"), folder / name)
    capture.start()
    until(lambda: capture.holds(position(server)), "capture knows the tables", pause=2)
    log = folder / name / "log"
    before = {file for file in log.rglob("*") if file.is_file()}
    loop = f"FOR g IN 1..{seconds} LOOP FOR t IN 0..{tables - 1} LOOP EXECUTE format($i$INSERT INTO {name}.t%s SELECT "
    loop += f"{source.ROW.replace(' % ', ' %% ')} FROM (SELECT %s::bigint AS g) s$i$, t, g); COMMIT; "
    loop += f"PERFORM pg_sleep({0.97 / tables}); END LOOP; END LOOP"
    with Watch([capture.process.pid], server.pid) as watch:
        server.execute(f"DO $$ BEGIN {loop}; END $$")
        high = position(server)
        until(lambda: capture.holds(high), "capture has it all", pause=0.2)
    capture.stop()
    new = [file for file in log.rglob("*") if file.is_file() and file not in before]
    records = sum(file.parent == log / "journal" for file in new)
    segments = [file.stat().st_size for file in new if file.is_relative_to(log / "segments")]
    server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.execute(f"DROP SCHEMA {name} CASCADE")
    note = f"{records} records, {len(segments)} objects with {sum(segments):,} bytes of rows"
    return watch.result(
        f"capture, {tables} tables x 1 row/s", "capture to segments", "tailrace", tables * seconds, note
    )


def run(server: PostgresServer, folder: Path, scale: float) -> list[Result]:
    rows, small = int(1_000_000 * scale), int(200_000 * scale)
    return [
        *case(server, folder, "inserts_in_one_transaction", rows, source.insert),
        *case(server, folder, "updates_in_one_transaction", rows, source.update, filled=rows),
        *case(server, folder, "single_row_transactions", small, source.insert_one_by_one),
        *(many(server, folder, tables, max(5, int(60 * scale))) for tables in (50, 200)),
    ]
