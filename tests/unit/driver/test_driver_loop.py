"""The driver's main loop turns while the source hangs, and tells capture how long records may take."""

import dataclasses
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from support.apply_loop import table
from support.fake_driver import ready
from support.waiting import until
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.state import LogState
from tailrace.contract.resources import SnapshotRequest
from tailrace.driver import assembly, driver
from tailrace.driver.driver import Driver
from tailrace.errors import Retry


def test_the_main_loop_turns_while_the_source_hangs_over_the_keys_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    spec = {"replicator": made._name, "tables": ["s.t7"], "keys": [["1"]]}
    head = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": {"name": "again"}}
    request = SnapshotRequest.model_validate(head | {"spec": spec})
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, requests=(request,)))
    parts = cast(Any, assembly.parts)()
    parts.journal.state = LogState(number=RecordNumber(3), tables={7: table(7)})
    hangs, asked = threading.Event(), threading.Event()

    def canonical_keys(*_: object) -> tuple[tuple[str], ...]:
        asked.set()
        assert hangs.wait(60)
        return (("1",),)

    def watch() -> None:
        assert asked.wait(20)
        begun = done.count("capture check")
        try:
            until(lambda: done.count("capture check") > begun + 10, "turns", 20, pause=0.01)
        finally:
            made._ending.set()
            hangs.set()

    parts.runner.canonical_keys = canonical_keys
    watching = threading.Thread(target=watch)
    watching.start()
    assert made.run() == 0
    watching.join()


@pytest.mark.parametrize(("once", "late", "wished"), [(False, 1.0, 0.445), (False, 0.0, 0.205), (True, 1.0, 0.0)])
def test_capture_is_told_how_long_records_may_take_while_tables_are_late(
    once: bool, late: float, wished: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = ready(tmp_path, monkeypatch)
    spec = made._spec.model_copy(update={"apply": made._spec.apply.model_copy(update={"freshness": "1s"})})
    monkeypatch.setattr(Driver, "_spec", property(lambda _: spec))
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=once))
    heard = list[float]()

    def await_record(client: object, after: int, patience: float, record_seconds: float) -> RecordNumber:
        heard.append(record_seconds)
        return RecordNumber(3)

    monkeypatch.setattr("tailrace.driver.process.tail.await_record", await_record)
    parts = cast(Any, assembly.parts)()
    parts.applier.late, parts.applier.times.together = late, 10.0
    made._tail(parts)
    assert heard == [pytest.approx(wished)]
    made._folder.release()


def test_the_main_loop_turns_while_the_source_hangs_over_the_position_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=True))
    monkeypatch.setattr(driver, "bound", lambda source, journal: source)
    hangs, calls = threading.Event(), list[int]()

    def position_now(*_: object) -> Position:
        calls.append(done.count("capture check"))
        if len(calls) == 1:
            raise Retry("the source restarts")
        assert hangs.wait(60)
        return Position(1)

    monkeypatch.setattr(driver, "position_at_start", lambda *_: Position(1))
    monkeypatch.setattr(made, "_position_now", position_now)

    def end() -> None:
        try:
            until(lambda: len(calls) == 2, "asked again", 20, pause=0.01)
            until(lambda: done.count("capture check") > calls[1] + 10, "turns", 20, pause=0.01)
        finally:
            made._ending.on_signal(15, None)

    ending = threading.Thread(target=end)
    ending.start()
    assert made.run() == 1
    ending.join()
    hangs.set()
    assert len(calls) == 2, "one question at a time, asked again after a refusal"
    assert done.count("capture check") - calls[1] > 10
