"""What capture's socket says of the journal's end."""

from pathlib import Path

from tailrace.capture.client import CaptureClient
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.server import CaptureServer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.driver.process.tail import newest_record


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
