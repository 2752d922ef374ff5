"""The ages of changes that Tailrace reports are those that somebody sees who reads the target all the time.

All of Tailrace in the test's process, over an outage of capture, a suspension and a restart, as the driver reports
them. With whole drivers, and into lakes: `tests/soak/test_soak_freshness.py`.
"""

import time
from pathlib import Path

from support.database_copies import settle
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.seen import TABLE, Pause, Reader, Seen, Writer, create
from support.verified_copy import document, opened
from tailrace.apply.freshness import Freshness

BATCHES = 0.25
"""Seconds between two."""


def work(pipeline: Pipeline, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pipeline.turn()
        time.sleep(BATCHES)


def outage(pipeline: Pipeline, seconds: float) -> None:
    """Capture is away, and comes back to one record."""
    assert pipeline.capture is not None
    pipeline.capture.stop()
    time.sleep(seconds)
    pipeline.capture = pipeline.begin_capture()


def suspended(pipeline: Pipeline, seconds: float) -> Pause:
    """`apply.suspend` is true meanwhile."""
    begin = time.time()
    assert pipeline.measured is not None
    pipeline.measured.pause(True, begin)
    time.sleep(seconds)
    end = time.time()
    pipeline.measured.pause(False, end)
    return Pause((begin, begin), (end, end))


def restarted(pipeline: Pipeline, seconds: float) -> Pause:
    """By Ctrl-C, and again."""
    pipeline.stop()
    begin = time.time()
    assert pipeline.measured is not None
    pipeline.measured.store(begin, stopped=True)
    time.sleep(seconds)
    end = time.time()
    pipeline.measured = Freshness(pipeline.storage, end)
    pipeline.start()
    return Pause((begin, begin), (end, end))


def test_the_ages_that_are_reported_are_those_that_a_reader_of_the_target_sees(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    create(postgres.connect())
    postgres.execute("CREATE DATABASE copy")
    pipeline = opened(document(postgres, postgres, tmp_path), tmp_path)
    pipeline.measured = Freshness(pipeline.storage, time.time())
    copy = postgres.connect(dbname="copy")

    def look() -> int:
        return int((copy.execute(f"SELECT coalesce(max(id), 0) FROM {TABLE}".encode()).fetchone() or (0,))[0])

    writer, reader = Writer(postgres.connect), Reader(look)
    with copy, pipeline.running():
        settle(pipeline)
        writer.start()
        reader.start()
        work(pipeline, 2)
        outage(pipeline, 2)
        work(pipeline, 2)
        pauses = [suspended(pipeline, 1)]
        work(pipeline, 1)
        pauses.append(restarted(pipeline, 1))
        work(pipeline, 2)
        writer.stop()
        pipeline.until(lambda _: reader.newest == len(writer.commits), work=True)
        reader.stop()
    seen = Seen.of(writer, reader, pauses)
    assert seen.paused > 20 and len(seen.least) > 100
    reported = pipeline.measured.ages(86_400, time.time())
    assert not seen.differences(reported), "\n".join(seen.differences(reported))
