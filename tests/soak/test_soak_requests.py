"""Requests of a busy Replicator to an object store, for each commit of a table and for each record, with their price.

`TAILRACE_SOAK_TABLES` tables with a changed row a second in each, for `TAILRACE_SOAK_SECONDS`, 30 ms for each request.
Printed: the requests by what they are for.
"""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from support.postgres import PostgresServer
from support.proof.on_s3 import OnS3
from support.proof.process import Deployment, status
from support.s3 import S3Server
from support.s3_requests import Bill

TABLES = int(os.environ.get("TAILRACE_SOAK_TABLES", "50"))
SECONDS = float(os.environ.get("TAILRACE_SOAK_SECONDS", "120"))
LATENCY = 0.03
FRESHNESS = os.environ.get("TAILRACE_SOAK_FRESHNESS", "5s")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_commit_and_a_record_are_few_requests(
    format: str, s3: S3Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    with slow(s3) as port:
        _measure(format, OnS3(s3, tmp_path / "s3-keys"), port, postgres, tmp_path)


def _measure(format: str, on_s3: OnS3, port: int, postgres: PostgresServer, tmp_path: Path) -> None:
    s3, place = on_s3.s3, {"endpoint": f"http://127.0.0.1:{port}"}
    on_s3.write_keys()
    with postgres.connect() as connection:
        connection.execute("CREATE SCHEMA shop")
        for number in range(TABLES):
            connection.execute(f"CREATE TABLE shop.t{number} (id int PRIMARY KEY, v int)".encode())
            connection.execute(f"INSERT INTO shop.t{number} SELECT i, 0 FROM generate_series(1, 1000) i".encode())
    target = {"type": format, **on_s3.place("lake"), **place}
    if format == "iceberg":
        login = tmp_path / "login"
        login.write_text("username=postgres\npassword=none\n")
        uri = f"jdbc:postgresql://{postgres.host}:{postgres.port}/postgres"
        target["catalog"] = {"type": "jdbc", "uri": uri, "credentials": {"file": str(login)}}
    spec = {"tables": {"include": ["shop.*"]}, "storage": on_s3.place("log") | place, "target": target}
    deployment = Deployment(tmp_path / "soak", postgres.source(), format, spec | {"apply": {"freshness": FRESHNESS}})
    run = deployment.start()
    try:
        run.until(lambda: _replicating(deployment) == TABLES, 600, "all tables replicate", pause=1)
        _write(postgres, 15)
        before, begun = len(s3.requests()), time.monotonic()
        _write(postgres, SECONDS)
        bill = Bill(s3.requests()[before:], time.monotonic() - begun)
        print(f"\n{format}, {TABLES} tables, {bill.seconds:.0f} s, {bill.commits / bill.seconds:.1f} commits a second")
        print(bill)
        writes, most = {"delta": (2.1, 4.6), "iceberg": (6.2, 9)}[format]
        assert bill.of_tables(writes=True) <= writes * bill.commits
        compacted = 2 * bill.kinds["GET", "data file"]  # each is asked for its size first
        assert bill.of_tables() - compacted <= most * bill.commits
        assert bill.of_log(writes=True) <= 2 * bill.records
        assert bill.of_log() <= 5 * bill.records
    finally:
        deployment.close()


def _replicating(deployment: Deployment) -> int:
    document = status(deployment)
    return 0 if document is None else sum(table["state"] == "REPLICATING" for table in document["tables"])


def _write(server: PostgresServer, seconds: float) -> None:
    """A row of each table every second, each in a transaction."""
    end, random = time.monotonic() + seconds, Random(1)
    with server.connect() as connection:
        while time.monotonic() < end:
            until = time.monotonic() + 1
            for number in range(TABLES):
                connection.execute(f"UPDATE shop.t{number} SET v = v + 1 WHERE id = {random.randint(1, 1000)}".encode())
            time.sleep(max(0.0, until - time.monotonic()))


@contextmanager
def slow(s3: S3Server) -> Iterator[int]:
    """A port by which the server answers as late as a store in the same region does."""
    loop, port = asyncio.new_event_loop(), int(s3.endpoint.rpartition(":")[2])

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await asyncio.sleep(seconds)
                sink.write(data)
        sink.close()

    async def meet(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            answers, questions = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pass_on(source, questions, LATENCY), pass_on(answers, sink, 0))

    server = loop.run_until_complete(asyncio.start_server(meet, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
