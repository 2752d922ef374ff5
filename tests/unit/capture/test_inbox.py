"""What capture says of itself while its loop stands still."""

import threading

import pytest

from tailrace.capture.inbox import ASKED_SECONDS, OLD, Board, Call, Gone, Inbox
from tailrace.capture.process import end_when_stuck
from tailrace.capture.protocol import GetState, StateAnswer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.errors import Retry


def test_a_measurement_that_is_not_repeated_grows_old() -> None:
    now = [100.0]
    board = Board(lambda: now[0])
    assert board.state().waiting_for == "capture starts"
    board.show(
        StateAnswer(record=RecordNumber(4), epoch=1, position=Position(7), lag_seconds=0.25), lambda: RecordNumber(5)
    )
    now[0] += OLD - 1
    assert (board.state().record, board.state().lag_seconds, board.state().waiting_for) == (5, 0.25, None)
    board.beat()
    now[0] += 76
    assert board.state().lag_seconds == 85.25
    assert board.state().waiting_for == "the source, silent for 76 s"
    board.beat()
    assert (board.state().lag_seconds, board.state().waiting_for) == (85.25, None), "one large transaction"
    board.rest()
    now[0] += 1000
    assert (board.still(), board.state().waiting_for) == (0.0, None), "a segment that is being written"


def test_a_wish_for_longer_records_holds_until_the_next_and_not_after_its_driver() -> None:
    now = [100.0]
    board = Board(lambda: now[0])
    assert board.record_seconds == 0.0
    board.ask(0.8)
    now[0] += ASKED_SECONDS
    assert board.record_seconds == 0.8
    now[0] += 0.1
    assert board.record_seconds == 0.0, "the driver is gone, or hangs"
    board.ask(1.0)
    board.ask(0.0)
    assert board.record_seconds == 0.0, "its tables keep up again"


def test_a_source_that_hangs_while_capture_begins_is_told() -> None:
    now = [100.0]
    board = Board(lambda: now[0])
    board.waiting_for(None)
    board.beat()
    now[0] += OLD + 1
    assert board.state().waiting_for == "the source, silent for 11 s"
    assert board.state().lag_seconds is None


def test_a_loop_that_stands_still_for_long_is_ended_and_one_that_has_not_begun_is_not() -> None:
    board, ended = Board(), threading.Event()
    stopping = threading.Event()
    watch = threading.Thread(target=end_when_stuck, args=(board, stopping, ended.set, 0.05, 0.01))
    watch.start()
    assert not ended.wait(0.2)
    board.beat()
    assert ended.wait(10)
    watch.join()


def test_who_asks_a_capture_that_ends_is_refused_and_so_is_who_asks_later() -> None:
    inbox, before, after = Inbox(), Call(GetState(), 1), Call(GetState(), 2)
    inbox.put(before)
    inbox.put(Gone(1))
    inbox.end(Retry("capture is shutting down"))
    inbox.put(after)
    for call in (before, after):
        with pytest.raises(Retry, match="shutting down"):
            call.reply.result(timeout=10)
    assert inbox.take() == []
