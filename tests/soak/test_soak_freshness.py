"""The ages that a driver reports, over an outage of the source, a suspension and a restart, beside what somebody
sees who reads the tables all the time. (All of Tailrace in one process: `tests/proof/test_freshness.py`.)

TAILRACE_SOAK_FRESHNESS_SECONDS: how long each part lasts.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from demo.compare import READERS
from support.database_copies import place_of
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.seen import PERCENTS, TABLE, Pause, Reader, Seen, Writer, create
from tailrace.apply.freshness import Freshness
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

SECONDS = float(os.environ.get("TAILRACE_SOAK_FRESHNESS_SECONDS", "20"))

SETTLED = 4.0
"""Seconds after which changes are recorded."""


@pytest.fixture
def copy() -> Iterator[PostgresServer]:
    """Another server: it can be read while the source is down."""
    with PostgresServer(18) as made:
        made.execute("CREATE DATABASE copy")
        yield made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", ["delta", "iceberg", "postgresql"])
def test_the_ages_that_a_driver_reports_are_those_that_a_reader_of_the_tables_sees(
    postgres: PostgresServer, copy: PostgresServer, tmp_path: Path, target: str
) -> None:
    create(postgres.connect())
    spec: dict[str, object] = {"apply": {"freshness": "2s"}, "objective": {"within": "3s", "percent": 90}}
    spec |= {"target": place_of(copy)} if target == "postgresql" else {}
    deployment = Deployment(tmp_path / "seen", postgres.source(), "delta" if spec.get("target") else target, spec)
    writer, reader = Writer(postgres.connect, 0.05), Reader(looks(copy, deployment, target), 0.1)
    try:
        run = deployment.start()
        run.until(lambda: replicating(deployment), 240, "the table is read")
        writer.start()
        reader.start()
        time.sleep(SECONDS)
        away(postgres, writer)
        time.sleep(SECONDS)
        pauses = [suspended(deployment, writer)]
        time.sleep(SECONDS)
        run, pause = restarted(deployment, run, writer)
        pauses.append(pause)
        time.sleep(SECONDS)
        writer.stop()
        run.until(lambda: reader.newest == len(writer.commits), 120, "every change is seen")
        reader.stop()
        told = status(deployment)
        assert run.stop() == 0, run.tail()
    finally:
        deployment.close()
    seen = Seen.of(writer, reader, pauses)
    now = time.time()
    reported = Freshness(Storage.open(StorageLocation(location=deployment.log.as_uri())), now).ages(86_400, now)
    print(f"{target}: {len(seen.least)} changes, {seen.paused} of pauses")
    for percent in PERCENTS:
        print(f"  p{percent}: {reported.percentile(percent):.2f} s, seen {seen.percentile(percent)}")
    assert not seen.differences(reported), "\n".join(seen.differences(reported))
    assert told is not None
    met, in_time = told["objective"]["metPercent"], seen.share(3.0)
    assert in_time[0] - 2 <= met <= in_time[1] + 2, (met, in_time)


def looks(server: PostgresServer, deployment: Deployment, target: str) -> Callable[[], int]:
    """The largest id in the copy."""

    def in_database() -> int:
        return int(server.execute(f"SELECT coalesce(max(id), 0) FROM {TABLE}", dbname="copy")[0][0])

    def in_lake() -> int:
        ids = READERS[target](deployment.lake / TABLE.replace(".", "/"))["id"]
        return int(pc.max(ids).as_py() or 0)

    return in_database if target == "postgresql" else in_lake


def replicating(deployment: Deployment) -> bool:
    found = status(deployment)
    return found is not None and [table["state"] for table in found["tables"]] == ["REPLICATING"]


def away(server: PostgresServer, writer: Writer) -> None:
    """The source is down. What it committed right before is recorded by then: else one record has changes of before
    and after, which are taken to be spread over the outage, too, and count as older than they were (docs/trust.md)."""
    with writer.held():
        time.sleep(SETTLED)
        server.stop()
    time.sleep(SECONDS / 2)
    server.start()


def reload(deployment: Deployment, **apply: Any) -> None:
    deployment.spec["apply"] = {"freshness": "2s", **apply}
    deployment.write_manifest()
    here = ("-f", str(deployment.manifest), "--run-dir", str(deployment.state))
    done = deployment.command("reload", *here, timeout=180)
    assert done.returncode == 0, done.stderr


def suspended(deployment: Deployment, writer: Writer) -> Pause:
    with writer.held():
        first = time.time()
        reload(deployment, suspend=True)
        begun = first, time.time()
    time.sleep(SECONDS)
    with writer.held():
        last = time.time()
        reload(deployment)
        ended = last, time.time()
    return Pause(begun, ended)


def restarted(deployment: Deployment, run: Program, writer: Writer) -> tuple[Program, Pause]:
    with writer.held():
        first = time.time()
        assert run.stop() == 0, run.tail()
        begun = first, time.time()
    time.sleep(SECONDS)
    with writer.held():
        last = time.time()
        again = deployment.start()
        again.until(lambda: replicating(deployment), 240, "it continues")
        ended = last, time.time()
    return again, Pause(begun, ended)
