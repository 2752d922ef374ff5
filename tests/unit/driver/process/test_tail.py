"""What capture's socket says of the journal's end."""

import threading
from pathlib import Path

from tailrace.capture.client import CaptureClient
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.server import CaptureServer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.driver.process.tail import await_record, newest_record


def test_the_newest_record_is_that_of_the_moment_and_unknown_without_an_open_journal(tmp_path: Path) -> None:
    board, records = Board(), [41]
    server = CaptureServer(tmp_path / "c.sock", Inbox(), board)
    with CaptureClient(tmp_path / "c.sock") as client:
        assert newest_record(client) is None, "nobody listens"
        server.start()
        try:
            assert newest_record(client) is None, "the journal is not open"
            board.show(
                StateAnswer(record=RecordNumber(41), epoch=0, position=Position(7)), lambda: RecordNumber(records[-1])
            )
            assert newest_record(client) == 41
            records.append(42)  # the board is written once a second, records more often
            assert newest_record(client) == 42
        finally:
            server.stop()


def test_whoever_waits_for_a_record_hears_of_it_when_it_is_durable(tmp_path: Path) -> None:
    board, records, path = Board(), [41], tmp_path / "c.sock"
    board.show(StateAnswer(record=RecordNumber(41), epoch=0, position=Position(7)), lambda: RecordNumber(records[-1]))
    server, answered, heard = CaptureServer(path, Inbox(), board), threading.Event(), list[RecordNumber | None]()

    def wait() -> None:
        with CaptureClient(path) as waiting:
            heard.append(await_record(waiting, RecordNumber(41), 60.0))
        answered.set()

    with CaptureClient(path) as client:
        assert await_record(client, RecordNumber(41), 60.0) is None, "nobody listens: there is nothing to wait for"
        server.start()
        try:
            assert await_record(client, RecordNumber(40), 60.0) == 41, "the record is there already"
            assert await_record(client, RecordNumber(41), 0.01) == 41, "none came in time, which capture has said"
            thread = threading.Thread(target=wait)
            thread.start()
            assert not answered.wait(0.2)
            board.tell()
            assert not answered.wait(0.2), "no record came"
            records.append(42)
            board.beat()
            assert answered.wait(10)
            thread.join()
        finally:
            server.stop()
    assert heard == [42]
