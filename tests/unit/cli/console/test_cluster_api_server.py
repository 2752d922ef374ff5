"""What the console asks of the API server, over one of the test: its authority changes, its lists have pages that end
before they are read. The real one is asked in integration/operator/test_cluster_console.py."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typing_extensions import override

from cluster.pki import Authority
from tailrace.cli.console.cluster_api import ClusterApi, Right
from tailrace.errors import Retry


class ApiServer:
    """Answers by path with the documents that a test gives, over TLS with a certificate that the test may change."""

    def __init__(self, authority: Path) -> None:
        self.asked: list[str] = []
        self.gone = 0
        """The number of further pages that are answered with 410."""
        shown = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shown.asked.append(self.path)
                query = parse_qs(urlsplit(self.path).query)
                at = int(query.get("continue", ["0"])[0])
                if at and shown.gone:
                    shown.gone -= 1
                    self._say(410, {"message": "the page is gone"})
                    return
                item = {"metadata": {"name": f"r{at}", "managedFields": [{"manager": "x"}]}}
                more = {"continue": str(at + 1)} if at < 2 else {}
                self._say(200, {"metadata": more, "items": [item]})

            def do_POST(self) -> None:
                shown.asked.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self._say(201, {"status": {"allowed": False, "userInfo": {"username": "anna"}}})

            def _say(self, code: int, document: dict[str, Any]) -> None:
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            @override
            def log_message(self, format: str, *args: object) -> None: ...

        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.serve_with(authority)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = self._context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def serve_with(self, authority: Path) -> None:
        self._context.load_cert_chain(authority / "api.crt", authority / "api.key")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def authority(folder: Path) -> Path:
    Authority(folder).server("api", "api", ["IP:127.0.0.1"])
    return folder


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("old"))


@pytest.fixture
def server(old: Path) -> Iterator[ApiServer]:
    made = ApiServer(old)
    yield made
    made.close()


@pytest.fixture
def api(server: ApiServer, old: Path, tmp_path: Path) -> ClusterApi:
    (tmp_path / "ca.crt").write_bytes((old / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("the console's\n")
    return ClusterApi(server.url, tmp_path)


def test_a_new_authority_of_the_cluster_is_trusted_without_a_restart(
    server: ApiServer, api: ClusterApi, tmp_path: Path
) -> None:
    right = Right("list", "replicators")
    assert api.may("a caller", right) is False
    new = authority(tmp_path / "new")
    server.serve_with(new)
    with pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"):
        api.may("a caller", right, fresh=True)
    for half in (b"half a fi", b""):  # it is being replaced
        (tmp_path / "ca.crt").write_bytes(half)
        with pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"):
            api.may("a caller", right, fresh=True)
        assert len(api._context().get_ca_certs()) == 1
    (tmp_path / "ca.crt").write_bytes("# Autorité\n".encode() + (new / "ca.crt").read_bytes())
    assert api.may("a caller", right, fresh=True) is False


def test_lists_are_read_by_pages_and_begin_again_if_one_is_gone(server: ApiServer, api: ClusterApi) -> None:
    names = ["r0", "r1", "r2"]
    found = api.listed("replicators", None)
    assert [item["metadata"] for item in found] == [{"name": name} for name in names]
    assert len(server.asked) == 3 and all("limit=" in path for path in server.asked)
    server.gone = 1
    assert [item["metadata"]["name"] for item in api.listed("replicators", "shop")] == names
    server.gone = 2
    with pytest.raises(Retry, match="change faster"):
        api.listed("replicators", "shop")


def test_who_a_caller_is_is_asked_once_for_all_actions_that_are_refused(server: ApiServer, api: ClusterApi) -> None:
    assert {api.user("a caller") for _ in range(11)} == {"anna"}
    assert len(server.asked) == 1
    api.user("another")
    assert len(server.asked) == 2
