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

    def begin(interval: float) -> Query:
        begun.set()
        assert go_on.wait(20)
        return query

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    made.follow(1.0)
    assert begun.wait(20)
    stopping = threading.Thread(target=made.stop)
    stopping.start()
    assert made._ending.wait(20)
    go_on.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert query.over.is_set()


def test_the_interval_changes_and_batches_stop_and_come_again_while_the_stream_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, begun = stream(tmp_path), list[tuple[float, Query]]()
    more = threading.Semaphore(0)

    def begin(interval: float) -> Query:
        begun.append((interval, Query()))
        made._source = object()
        more.release()
        return begun[-1][1]

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    assert not more.acquire(timeout=0.2), "nothing comes before it is told to follow"
    made.follow(1.0)
    assert more.acquire(timeout=60)
    made.follow(1.0)
    made.follow(2.0)
    assert more.acquire(timeout=60)
    assert [interval for interval, _ in begun] == [1.0, 2.0] and begun[0][1].over.is_set()
    made.follow(None)
    assert begun[1][1].over.wait(60) and not more.acquire(timeout=0.2)
    assert made._source is None, "what it is told would pile up"
    made.follow(2.0)
    assert more.acquire(timeout=60)
    made.stop()
    assert [interval for interval, _ in begun] == [1.0, 2.0, 2.0]


def test_a_query_that_began_before_batches_were_stopped_is_not_taken_for_the_one_that_begins_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same interval: nobody would tell it of a record."""
    made, begun = stream(tmp_path), list[Query]()
    go_on, more = threading.Semaphore(0), threading.Semaphore(0)

    def begin(interval: float) -> Query:
        begun.append(Query())
        made._source = object()
        more.release()
        assert go_on.acquire(timeout=60)
        return begun[-1]

    monkeypatch.setattr(made, "_begin", begin)
    made.start()
    made.follow(1.0)
    assert more.acquire(timeout=60)
    made.follow(None)
    made.follow(1.0)
    go_on.release()
    assert begun[0].over.wait(60) and more.acquire(timeout=60)
    go_on.release()
    made.stop()
    assert len(begun) == 2 and made._source is not None
