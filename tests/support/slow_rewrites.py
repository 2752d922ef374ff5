"""A service in front of BigQuery's emulator whose first rewrite of a table runs on after its client has lost sight of
it, as BigQuery's may, and ends with the rows that were there when it began."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from typing_extensions import override

REWRITE, CREATION, ALTERATION = "CREATE OR REPLACE TABLE", "CREATE TABLE `", "ALTER TABLE"
TAKEN = "its id is taken"
QUESTIONS = 2
"""Times that the rewrite is still running when it is asked for."""


@dataclass
class SlowRewrites:
    behind: str
    """The emulator's address."""
    loses_answer: bool
    """The answer to the rewrite itself is lost too."""
    begins: bool = True
    """False: the rewrite never reaches the server while its client waits."""
    what: str = REWRITE
    """The statement that is held."""
    endpoint: str = ""
    away: bool = False
    held: str | None = None
    """The id of the rewrite's job."""
    ended: bool = False
    ids: set[str] = field(default_factory=set)
    asked: int = 0
    _rest: str = ""
    _late: dict[str, Any] = field(default_factory=dict)
    _root: str = ""

    def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        if self.away:
            return 503, b"{}"
        if method == "POST" and path.endswith("/jobs"):
            asked = json.loads(body)
            id_ = asked["jobReference"]["jobId"]
            if id_ in self.ids:
                return 409, json.dumps({"error": {"message": "m", "errors": [{"reason": "duplicate"}]}}).encode()
            statement = asked["configuration"].get("query", {}).get("query", "")
            if self.what in statement and self.held is None:
                return self._hold(path, id_, asked, statement)
            self.ids.add(id_)
        if self.held is not None and self.held in path:
            return self._told(path)
        return self._forwarded(method, path, body, headers)

    def _hold(self, path: str, id_: str, asked: dict[str, Any], statement: str) -> tuple[int, bytes]:
        self.held, self._root, self.away = id_, path, True
        if not self.begins:
            self._late = asked
            return 503, b"{}"
        self.ids.add(id_)
        before, _, after = statement.partition(self.what)
        if before:
            self._run(before)
        if self.what == ALTERATION:
            self._rest = self.what + after
            return (503, b"{}") if self.loses_answer else (200, self._job("RUNNING"))
        rewrite, _, rest = after.partition(";\n")
        values, source = rewrite.rsplit(" FROM ", 1)
        own = source.rpartition(".")[0] + f".`seen_{id_[-8:]}`"
        self._run(f"CREATE TABLE {own} AS SELECT * FROM {source}")
        self._rest = f"{REWRITE}{values} FROM {own}" + (f";\n{rest}" if rest else "")
        return (503, b"{}") if self.loses_answer else (200, self._job("RUNNING"))

    def _told(self, path: str) -> tuple[int, bytes]:
        if "/queries/" in path:
            return 200, b"{}"
        self.asked += 1
        if self.asked > QUESTIONS:
            self.end()
        return 200, self._job("DONE" if self.ended else "RUNNING")

    def arrive(self) -> str:
        """The answer to a request that was under way, and arrives now; empty: it has run."""
        return TAKEN if self.held in self.ids else self._fault(self._late["configuration"]["query"]["query"])

    def end(self) -> None:
        if not self.ended and self.begins:
            self.ended = True
            self._run(self._rest)

    def _job(self, state: str) -> bytes:
        job = {"jobReference": {"jobId": self.held}, "configuration": {"query": {}}, "status": {"state": state}}
        return json.dumps(job).encode()

    def _run(self, statement: str) -> None:
        assert not (said := self._fault(statement)), (statement, said)

    def _fault(self, statement: str) -> str:
        """The fault by which a statement fails; empty: by none."""
        body = json.dumps({"configuration": {"query": {"query": statement, "useLegacySql": False}}})
        status, said = self._forwarded("POST", self._root, body.encode(), {"Content-Type": "application/json"})
        return "" if status == 200 and "errorResult" not in json.loads(said)["status"] else said.decode()

    def _forwarded(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        answer = requests.request(method, self.behind + path, data=body, headers=headers, timeout=60)
        return answer.status_code, answer.content


@contextmanager
def slow_rewrites(behind: str, *, loses_answer: bool = False, begins: bool = True) -> Iterator[SlowRewrites]:
    slow = SlowRewrites(behind, loses_answer, begins)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one segment for each answer

        def _answered(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = self.headers.get("Content-Type")
            status, said = slow.answer(self.command, self.path, body, {"Content-Type": kind} if kind else {})
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _answered

        @override
        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    slow.endpoint = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield slow
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
