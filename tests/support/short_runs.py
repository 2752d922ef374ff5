"""Runs as `--once` makes them, without Spark and source: a writer claims, adds a few records, trims, and ends.

The clock goes on by ten minutes from run to run. What is measured of each run: how many objects the log has, how many
records each of two starts (capture's and the driver's) reads, and how long that takes.
"""

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from typing_extensions import override

from support.journals import table_schema
from support.origins import origin
from support.states import segment
from support.transactions import numbered
from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import ChunkRequests
from tailrace.capture.retention_job import RetentionJob
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import segment_path
from tailrace.changelog.records.tables import Applied, TableAdded
from tailrace.changelog.records.terms import Position, Seq
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import ReplicatorSpec
from tailrace.storage.store import NotFound, Storage

ORIGIN = origin()
EVERY = 600.0
"""Seconds between runs."""
TABLES = (1, 2)
RECORDS = 3
"""With changes, in each run."""


@dataclass
class Measured:
    objects: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    """Records that a start reads."""
    seconds: list[float] = field(default_factory=list)


class Counting(Storage):
    """Counts the records that are read."""

    records = 0

    @override
    def get(self, path: str) -> bytes:
        data = super().get(path)
        self.records += path.startswith("journal/0")
        return data


def run(storage: Storage, count: int) -> Measured:
    measured, now = Measured(), [1_700_000_000.0]
    for number in range(count):
        now[0] += EVERY
        counting = Counting(storage.access)
        begun = time.perf_counter()
        journal = _start(counting, f"n{number}", now)
        measured.read.append(counting.records)
        driver = Counting(storage.access)
        JournalReader.open(driver)
        measured.seconds.append(time.perf_counter() - begun)
        assert driver.records <= counting.records + 2
        for _ in range(RECORDS):
            _change(journal, int(now[0] * 1e6))
        state = journal.state
        applied = (Applied(table_id=i, applied_seq=state.last_seq, applied_record=state.number) for i in TABLES)
        journal.append(state.position, events=tuple(applied))
        _retention(journal, now).finish()
        measured.objects.append(sum(1 for _ in storage.list("")))
    return measured


def _start(storage: Storage, nonce: str, now: list[float]) -> JournalWriter:
    try:
        return JournalWriter.claim(storage, nonce, clock=lambda: now[0])
    except NotFound:
        journal = JournalWriter.create(storage, ORIGIN, Position(5), nonce, clock=lambda: now[0])
        journal.append(Position(5), events=tuple(TableAdded(table=table_schema(i), edge="1") for i in TABLES))
        return journal


def _change(journal: JournalWriter, at: int) -> None:
    first = journal.state.last_seq + 1
    seqs = tuple(range(first, first + len(TABLES)))
    segments = []
    for table_id, seq in zip(TABLES, seqs, strict=True):
        path = segment_path(table_schema(table_id), Seq(seq), Seq(seq), f"{seq * 40503:016x}")
        journal.storage.put(path, b"rows")
        segments.append(segment(table_id, seq, path=path, size=4))
    transactions = numbered(seqs, seqs)
    position = journal.state.position + 1
    journal.append(
        Position(position), Seq(seqs[-1]), transactions=transactions, segments=tuple(segments), commit_time=(at, at)
    )


def _retention(journal: JournalWriter, now: list[float]) -> RetentionJob:
    spec = SimpleNamespace(retention=SimpleNamespace(time="1h"), retry=SimpleNamespace(time="1h"))
    requests = SimpleNamespace(
        point_now=lambda: journal.state.last_seq + 1, floors=dict, cut_off=frozenset(), retention_ran=False
    )
    return RetentionJob(
        cast(ReplicatorSpec, spec),
        cast(Recorder, SimpleNamespace(journal=journal)),
        cast(ChunkRequests, requests),
        lambda: journal.state.position,
        clock=lambda: now[0],
    )
