import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.capture.protocol import Answer, StateAnswer
from tailrace.changelog.records.terms import Position, RecordNumber


def test_closing_a_client_ends_the_wait_of_another_thread_for_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    errors: list[BaseException] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        silent.listen()
        client = CaptureClient(path)

        def ask() -> None:
            try:
                client.state()
            except CaptureGone as error:
                errors.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1000)
            closing = threading.Thread(target=client.close, daemon=True)
            closing.start()
            closing.join(10)
            assert not closing.is_alive()
            asking.join(10)
    assert len(errors) == 1


def test_a_client_that_never_asked_can_be_closed(tmp_path: Path) -> None:
    client = CaptureClient(tmp_path / "none.sock")
    client.close()
    with pytest.raises(CaptureGone, match="was closed"):
        client.state()
    client.close()


def test_a_closed_client_opens_no_connection_again(tmp_path: Path) -> None:
    """A thread of the pool may be late: nobody would close what it opens."""
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.3)
        client = CaptureClient(path, timeout=0.3)
        client.close()
        with pytest.raises(CaptureGone, match="was closed"):
            client.state()
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_capture_that_was_restarted_is_asked_over_a_new_connection_and_an_idle_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    answer = (
        Answer(state=StateAnswer(record=RecordNumber(9), epoch=1, position=Position(5))).model_dump_json().encode()
        + b"\n"
    )
    accepted: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted.append(connection)
            threading.Thread(target=reply, args=(connection,), daemon=True).start()

    def reply(connection: socket.socket) -> None:
        with suppress(OSError):  # closed at the end, perhaps before this thread has begun
            while connection.recv(10_000):
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with CaptureClient(path, timeout=5.0) as client:
            began = time.monotonic()
            client.state()
            client.state()
            assert (len(accepted), time.monotonic() - began < 4) == (1, True), "a healthy connection is kept"
            accepted[0].shutdown(socket.SHUT_RDWR)
            client.state()
            assert len(accepted) == 2
        for connection in accepted:
            connection.close()
