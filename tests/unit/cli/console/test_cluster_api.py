"""What the console asks of drivers, each of which is a tenant's pod: it holds nobody up, and its words are not told."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tailrace.cli.console import cluster_api
from tailrace.cli.console.cluster_api import ClusterApi
from tailrace.contract.history import LastHour
from tailrace.driver.process.run_dir import NotRunning


@contextmanager
def answering(pieces: list[bytes], pause: float) -> Iterator[str]:
    """A server that sends these pieces with pauses, and the last one for ever."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    for piece in pieces:
                        connection.sendall(piece)
                    while not ended.wait(pause):
                        connection.sendall(pieces[-1])

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()


@pytest.fixture
def no_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server is not asked here, and its certificate not needed."""
    monkeypatch.setattr(ClusterApi, "_trusted", lambda _: (b"", None))
    monkeypatch.setattr(cluster_api, "DRIVER_SECONDS", 0.3)


def asked(address: str) -> str:
    api = ClusterApi("https://127.0.0.1:1", driver_url=lambda *_: address)
    with pytest.raises(NotRunning) as refused:
        api.driver("shop", "orders", "/history", LastHour)
    return refused.value.message


@pytest.mark.usefixtures("no_authority")
@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", b"x"],
    ],
    ids=["headers", "continue", "body"],
)
def test_an_answer_without_end_is_cut(pieces: list[bytes]) -> None:
    with answering(pieces, 0.05) as address:
        assert asked(address).endswith("the answer takes more than 0.3 s")


@pytest.mark.usefixtures("no_authority")
def test_an_answer_that_is_cut_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed with the refusal, not when its memory is next collected."""
    made: list[socket.socket] = []

    def reached(host: str, port: int, seconds: float) -> socket.socket:
        made.append(socket.create_connection((host, port), seconds))
        return made[-1]

    monkeypatch.setattr(cluster_api, "_reached", reached)
    with answering([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10], 0.05) as address:
        api = ClusterApi("https://127.0.0.1:1", driver_url=lambda *_: address)
        with pytest.raises(NotRunning, match="more than 5 bytes") as refused:
            api.driver("shop", "orders", "/history", LastHour, most=5)
        assert [connection.fileno() for connection in made] == [-1], refused.value


@pytest.mark.usefixtures("no_authority")
def test_what_another_service_says_is_not_told() -> None:
    with answering([b"SECRET of another service\r\n"], 0.05) as address:
        assert asked(address) == "the driver of shop/orders does not answer the console: BadStatusLine"


@pytest.mark.usefixtures("no_authority")
def test_many_addresses_of_one_driver_have_its_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of its Service are those of a tenant's pods; none of these answers."""
    tried: list[float] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0].startswith("192.0.2."):  # a thread that another test has left may ask for its own
            tried.append(timeout)
        threading.Event().wait(timeout)
        raise TimeoutError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", 8090)) for n in range(1, 50)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", connect)
    assert asked("http://orders-driver.shop.svc:8090").endswith("TimeoutError")
    assert 0 < sum(tried) < 0.5
