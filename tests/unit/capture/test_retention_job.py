"""Retention inside capture: what ends it, what it only tells, and that deleting does not hold it up."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.origins import origin
from support.transactions import numbered
from tailrace.capture import retention_job
from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import ChunkRequests
from tailrace.capture.retention_job import LogCleaner, RetentionJob
from tailrace.changelog.records.terms import Position, Seq
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import ReplicatorSpec, StorageLocation
from tailrace.errors import OutcomeUnknown, Retry
from tailrace.storage.access import StorageRefused
from tailrace.storage.store import Storage

ORIGIN = origin()


def retention_of(journal: JournalWriter) -> RetentionJob:
    spec = SimpleNamespace(retention=SimpleNamespace(time="1h"), retry=SimpleNamespace(time="1h"))
    requests = SimpleNamespace(point_now=lambda: 2, floors=dict, cut_off=frozenset(), retention_ran=False)
    return RetentionJob(
        cast(ReplicatorSpec, spec),
        cast(Recorder, SimpleNamespace(journal=journal)),
        cast(ChunkRequests, requests),
        lambda: Position(6),
    )


def test_a_record_whose_outcome_is_unknown_ends_capture_as_a_passing_fault(tmp_path: Path) -> None:
    """Gone on with, the next record would say that another writer had fenced this one, and nobody would restart it."""
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))
    journal = JournalWriter.create(storage, ORIGIN, Position(5), "a", patience=-1.0)
    journal.append(Position(6), Seq(1), transactions=numbered((7,), (1,)), commit_time=(1, 1))

    def broken(path: str, data: bytes) -> None:
        raise OutcomeUnknown(f"{path}: timed out")

    storage.create = broken  # type: ignore[method-assign]  # the fault of this test
    with pytest.raises(Retry, match="timed out"):
        retention_of(journal).run()


def test_old_records_go_hourly_and_lost_segments_daily_and_again_where_the_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))
    done: list[str] = []
    faults = ["passing"]

    def old_records(*_: object) -> int:
        done.append("records")
        if faults:
            raise Retry(faults.pop())
        return 1

    monkeypatch.setattr(retention_job, "trim_journal", old_records)

    def sweep(*_: object) -> list[str]:
        done.append("sweep")
        return []

    monkeypatch.setattr(retention_job, "sweep", sweep)
    retention = retention_of(JournalWriter.create(storage, ORIGIN, Position(5), "a"))
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    expected = []
    for hours, more in ((0, ["records", "sweep"]), (0.1, ["records"]), (0.2, []), (1.2, ["records"])):
        now[0] = 1000.0 + hours * retention_job.HOUR
        retention.run()
        done_by(retention._cleaner)
        expected += more
        assert done == expected
    now[0] = 1000.0 + 25 * retention_job.HOUR
    retention.run()
    done_by(retention._cleaner)
    assert done[-2:] == ["records", "sweep"]


def done_by(cleaner: LogCleaner, *work: Callable[[], Any]) -> None:
    done = threading.Event()
    for one in (*work, done.set):
        cleaner.put(one)
    assert done.wait(10)


def test_deleting_happens_beside_the_loop_in_order(tmp_path: Path) -> None:
    cleaner, may_go, order = LogCleaner(), threading.Event(), list[int]()

    def first() -> None:
        assert may_go.wait(10)
        order.append(1)

    cleaner.put(first)
    cleaner.put(lambda: order.append(2))
    assert order == []
    may_go.set()
    done_by(cleaner)
    assert order == [1, 2]


def test_a_passing_fault_of_deleting_is_told_and_a_refusal_is_raised_at_the_next_run() -> None:
    def fails(error: Exception) -> Callable[[], None]:
        def work() -> None:
            raise error

        return work

    cleaner = LogCleaner()
    done_by(cleaner, fails(Retry("timed out")))
    cleaner.put(fails(StorageRefused("no right to delete")))
    with pytest.raises(StorageRefused, match="no right"):
        for _ in range(1000):
            cleaner.put(lambda: time.sleep(0.01))
            time.sleep(0.01)
