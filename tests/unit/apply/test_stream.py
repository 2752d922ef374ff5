"""How the apply stream ends, with a session that knows only its queries."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.apply.stream import ApplyStream
from tailrace.changelog.records.terms import RecordNumber


class Query:
    """Active until somebody stops it."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def stop(self) -> None:
        self.over.set()

    def awaitTermination(self) -> None:
        assert self.over.wait(60)


def stream(tmp_path: Path) -> ApplyStream:
    return ApplyStream(lambda: cast(Any, None), tmp_path, apply=lambda: None)


def test_a_stream_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    stream(tmp_path).stop()


def test_a_record_that_the_stream_was_not_told_of_is_said_and_the_main_loop_applies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Source:
        def addData(self, rows: object) -> None:
            raise OSError("the connection is gone")

    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(PythonUtils=SimpleNamespace(toSeq=list))))
    made = ApplyStream(lambda: cast(Any, spark), tmp_path, apply=lambda: None)
    made.notify(RecordNumber(3))
    assert caplog.text == "", "no query has begun"
    made._source, made._query, made._delivers = Source(), cast(Any, SimpleNamespace(isActive=True)), True
    assert [made.running] == [True]
    made.notify(RecordNumber(4))
    assert [made.running] == [False]
    assert "could not be notified of record 4" in caplog.text


def test_a_query_that_begins_while_the_stream_is_stopped_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, query, begun, go_on = stream(tmp_path), Query(), threading.Event(), threading.Event()

    def begin() -> Query:
        begun.set()
        assert go_on.wait(20)
        return query

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    made.follow(True)
    assert begun.wait(20)
    stopping = threading.Thread(target=made.stop)
    stopping.start()
    assert made._ending.wait(20)
    go_on.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert query.over.is_set()


def test_batches_stop_and_come_again_while_the_stream_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, begun = stream(tmp_path), list[Query]()
    more = threading.Semaphore(0)

    def begin() -> Query:
        begun.append(Query())
        made._source = object()
        more.release()
        return begun[-1]

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    assert not more.acquire(timeout=0.2), "nothing comes before it is told to follow"
    made.follow(True)
    assert more.acquire(timeout=60)
    made.follow(True)
    assert not more.acquire(timeout=0.2) and not begun[0].over.is_set()
    made.follow(False)
    assert begun[0].over.wait(60) and not more.acquire(timeout=0.2)
    assert made._source is None, "what it is told would pile up"
    made.follow(True)
    assert more.acquire(timeout=60)
    made.stop()
    assert len(begun) == 2


class Source:
    """Begins a micro-batch whenever it is given data, as Spark does."""

    def __init__(self) -> None:
        self.given = list[list[str]]()
        self.stream: ApplyStream | None = None
        self.batches = list[threading.Thread]()

    def addData(self, rows: list[str]) -> None:
        assert self.stream is not None
        self.given.append(rows)
        self.batches.append(threading.Thread(target=self.stream._batch, args=(self,)))
        self.batches[-1].start()


def open_batches(tmp_path: Path, open_seconds: float) -> tuple[ApplyStream, Source, threading.Semaphore]:
    applied, source = threading.Semaphore(0), Source()
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(PythonUtils=SimpleNamespace(toSeq=list))))
    made = ApplyStream(lambda: cast(Any, spark), tmp_path, apply=applied.release, open_seconds=open_seconds)
    made._source, source.stream = source, made
    return made, source, applied


def test_one_batch_takes_all_notifications_while_it_is_open(tmp_path: Path) -> None:
    made, source, applied = open_batches(tmp_path, 60.0)
    for number in range(1, 5):
        made.notify(RecordNumber(number))
        assert applied.acquire(timeout=20)
    made.notify(RecordNumber(4))
    assert not applied.acquire(timeout=0.2), "nothing is new"
    made.notify(RecordNumber(4), again=True)
    assert applied.acquire(timeout=20)
    assert source.given == [["1"]]
    made.stop()
    source.batches[0].join(20)
    assert not source.batches[0].is_alive() and len(source.batches) == 1


def test_a_batch_gives_way_to_the_next_and_no_notification_is_lost(tmp_path: Path) -> None:
    made, source, applied = open_batches(tmp_path, 0.02)
    for number in range(1, 50):
        made.notify(RecordNumber(number))
        assert applied.acquire(timeout=20)
        while applied.acquire(blocking=False):
            pass
    while len(source.batches) < 5:
        assert applied.acquire(timeout=20), "each begins with a look"
    made.follow(True)
    for batch in source.batches:
        batch.join(20)
        assert not batch.is_alive(), "a query that is given up keeps none open"


def test_a_query_that_began_before_batches_were_stopped_is_not_taken_for_the_one_that_begins_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same interval: nobody would tell it of a record."""
    made, begun = stream(tmp_path), list[Query]()
    go_on, more = threading.Semaphore(0), threading.Semaphore(0)

    def begin() -> Query:
        begun.append(Query())
        made._source = object()
        more.release()
        assert go_on.acquire(timeout=60)
        return begun[-1]

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    made.follow(True)
    assert more.acquire(timeout=60)
    made.follow(False)
    made.follow(True)
    go_on.release()
    assert begun[0].over.wait(60) and more.acquire(timeout=60)
    go_on.release()
    made.stop()
    assert len(begun) == 2 and made._source is not None
