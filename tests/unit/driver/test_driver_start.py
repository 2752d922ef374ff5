"""A driver's start waits for capture and its change log: what it asks and shows meanwhile, and how it ends."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override

from support.fake_driver import AWAIT_JOURNAL, FakePart, awaited, log_in, ready
from support.origins import origin
from support.waiting import until
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.renewal import Renewal
from tailrace.capture.server import CaptureServer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.writer import JournalWriter
from tailrace.driver import assembly, driver
from tailrace.driver.driver import Driver
from tailrace.driver.process.journal_start import JournalStart
from tailrace.driver.telling import display
from tailrace.storage.store import Storage


@pytest.mark.parametrize("hanging", ["source", "storage", "target"])
def test_a_signal_ends_a_start_whose_source_storage_or_target_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    hangs, asked = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> bool:
        asked.set()
        return hangs.wait(60)

    def end() -> None:
        until(lambda: asked.is_set() and "view show" in done, "shown while it hangs", 20, pause=0.01)
        made._ending.on_signal(15, None)

    if hanging == "source":
        monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=True))
        monkeypatch.setattr(driver, "position_at_start", hang)
    elif hanging == "target":
        monkeypatch.setattr(assembly, "parts", hang)
    else:
        log_in(tmp_path, made)
        monkeypatch.setattr(Driver, "_await_journal", AWAIT_JOURNAL)
        monkeypatch.setattr(JournalStart, "look", hang)
    threading.Thread(target=end).start()
    begun = time.monotonic()
    assert made.run() == (1 if hanging == "source" else 0)
    assert time.monotonic() - begun < 20
    hangs.set()
    assert done.count("view show") >= 1
    assert ("spark stop" in done) == (hanging != "source")


def test_a_start_that_waits_shows_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = ready(tmp_path, monkeypatch)
    monkeypatch.setattr(Driver, "_await_journal", AWAIT_JOURNAL)
    log_in(tmp_path, made)
    shown: list[str] = []
    view = FakePart("view", done, {})
    monkeypatch.setattr(view, "show", lambda status, last=False: shown.append(status.message))
    monkeypatch.setattr(display, "choose", lambda *arguments: view)
    answer = StateAnswer(
        record=RecordNumber(-1), epoch=-1, position=Position(0), waiting_for="the slot waits for transaction 7"
    )
    monkeypatch.setattr(made._control, "watch", cast(Any, SimpleNamespace(state=lambda: answer)))
    threading.Timer(0.2, made._ending.set).start()
    assert made.run() == 0
    assert set(shown) == {"the slot waits for transaction 7"}


def test_a_start_waits_for_capture_to_begin_the_stream_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the journal's origin may name another server, and what is read from this one would be refused."""
    made, done = ready(tmp_path, monkeypatch)
    log_in(tmp_path, made)
    storage = made._places.storage
    JournalWriter.create(storage, origin(), Position(1), "capture")
    Renewal(id="again", request="again").write(storage)
    board = Board()
    server = CaptureServer(made._folder.socket, Inbox(), board)
    server.start()
    begun = StateAnswer(record=RecordNumber(0), epoch=1, position=Position(1))

    def begin() -> None:
        done.append("begun")
        board.show(begun, lambda: RecordNumber(0))

    threading.Timer(0.1, begin).start()
    try:
        found = awaited(made, FakePart("view", done, {}))
    finally:
        assert made._control.watch is not None
        made._control.watch.close()
        server.stop()
        made._folder.release()
    assert found is not None and "begun" in done


@pytest.mark.parametrize("written", [0, 40])
def test_a_start_that_waits_asks_the_storage_for_the_next_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """However long it waits, and however long the journal is."""
    made, done = ready(tmp_path, monkeypatch)
    log_in(tmp_path, made)
    asked: list[str] = []

    class Counting(Storage):
        @override
        @contextmanager
        def errors(self, path: str, writing: bool = False) -> Iterator[None]:
            asked.append(path)
            with super().errors(path, writing):
                yield

    storage = made._places.storage
    if written:
        journal = JournalWriter.create(storage, origin(), Position(1), "capture")
        for number in range(written):
            journal.append(Position(2 + number))
        Renewal(id="again", request="again").write(storage)
    monkeypatch.setattr(made, "_places", SimpleNamespace(storage=Counting(storage.access)))
    monkeypatch.setattr(driver, "STEP_SECONDS", 0.0)
    by_turn: list[int] = []

    def show() -> None:
        by_turn.append(len(asked))
        if len(by_turn) == 20:
            made._ending.set()

    view = FakePart("view", done, {})
    monkeypatch.setattr(view, "show", show)
    assert awaited(made, view) is None
    made._folder.release()
    assert by_turn[-1] - by_turn[0] == 19, asked[by_turn[0] :][:10]
