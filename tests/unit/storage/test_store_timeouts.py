"""How long a request to an object store may take: an upload by its size, an answer for as long as it moves."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from tailrace.contract.resources import Credentials, StorageLocation
from tailrace.errors import Retry
from tailrace.storage import store
from tailrace.storage.store import Storage

SIZE = 3 << 20
SECONDS = 1.5
"""That an object of this size takes each way."""


class Slow(BaseHTTPRequestHandler):
    """Takes and gives objects slowly, but without a pause."""

    protocol_version = "HTTP/1.1"
    stands_still = False
    given_up = threading.Event()

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, SIZE // 30)))
            time.sleep(SECONDS / 30)
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        for _ in range(1 if self.stands_still else 30):
            self.wfile.write(b"x" * (SIZE // 30))
            time.sleep(SECONDS / 30)
        self.wfile.write(b"x" * (0 if self.stands_still else SIZE % 30))
        if self.stands_still:
            self.given_up.wait(60)
            self.close_connection = True

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    monkeypatch.setattr(store, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(store, "SLOWEST", SIZE // 10)
    monkeypatch.setattr(Slow, "stands_still", False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    keys = tmp_path / "keys"
    keys.write_text("accessKeyId=a\nsecretAccessKey=b\n")
    config = StorageLocation(
        location="s3://bucket/log",
        endpoint=f"http://127.0.0.1:{server.server_address[1]}",
        region="us-east-1",
        path_style=True,
        credentials=Credentials(file=str(keys)),
    )
    yield Storage.open(config, {}, retry_seconds=0.5)
    server.shutdown()
    server.server_close()


def test_a_large_object_on_a_slow_line_is_written_and_read(storage: Storage) -> None:
    """Each request had a minute, whatever its size: a large one never succeeded, however often it was tried."""
    storage.create("journal/1.json", b"x" * SIZE)
    assert len(storage.get("journal/1.json")) == SIZE


def test_an_answer_that_stands_still_is_given_up(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "stands_still", True)
    begun = time.monotonic()
    with pytest.raises(Retry):
        storage.get("journal/1.json")
    assert time.monotonic() - begun < 30
    Slow.given_up.set()
