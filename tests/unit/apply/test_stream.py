"""How the apply stream ends, with a session that knows only its queries."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.apply.stream import ApplyStream
from tailrace.changelog.records import RecordNumber


class Query:
    """Active until somebody stops it."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def stop(self) -> None:
        self.over.set()

    def awaitTermination(self) -> None:
        assert self.over.wait(20)


def stream(tmp_path: Path) -> ApplyStream:
    return ApplyStream(cast(Any, None), tmp_path, interval="1 second", apply=lambda: None)


def test_a_stream_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    stream(tmp_path).stop()


def test_a_record_that_the_stream_was_not_told_of_is_said_and_the_main_loop_applies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Source:
        def addData(self, rows: object) -> None:
            raise OSError("the connection is gone")

    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(PythonUtils=SimpleNamespace(toSeq=list))))
    made = ApplyStream(cast(Any, spark), tmp_path, interval="1 second", apply=lambda: None)
    made.tell(RecordNumber(3))
    assert caplog.text == "", "no query has begun"
    made._source, made._query, made._delivers = Source(), cast(Any, SimpleNamespace(isActive=True)), True
    assert [made.running] == [True]
    made.tell(RecordNumber(4))
    assert [made.running] == [False]
    assert "could not be told about record 4" in caplog.text


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
    assert begun.wait(20)
    stopping = threading.Thread(target=made.stop)
    stopping.start()
    assert made._ending.wait(20)
    go_on.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert query.over.is_set()
