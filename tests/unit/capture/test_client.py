import socket
import threading
from pathlib import Path

import pytest

from tailrace.capture.client import CaptureClient, CaptureGone


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
