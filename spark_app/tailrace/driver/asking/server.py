"""The driver's HTTP server for `tailrace.contract.driver`: status, metrics, health and the verbs.

Threads of the standard library's server call the `Control` that the driver gives; the verbs that change something need
the bearer token. Bodies are bounded, so that no client can fill the driver's memory.
"""

import hmac
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Protocol
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError
from typing_extensions import override

from tailrace.contract.driver import (
    CUTS,
    DROP,
    HEALTH,
    HISTORY,
    METRICS,
    SNAPSHOTS,
    SPEC,
    STATUS,
    TABLES,
    CutBody,
    CutList,
    CutReport,
    DropAnswer,
    DropBody,
    Problem,
    SnapshotAnswer,
    SnapshotBody,
    SpecAnswer,
    SpecBody,
    SuspendBody,
    VerificationReport,
)
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.manifest import invalid
from tailrace.contract.resources import DeletionPolicy
from tailrace.contract.status import Status
from tailrace.driver.telling import metrics
from tailrace.errors import InvalidManifest, Retry, RewindRefused, TailraceError

MAX_BODY = 4 << 20
"""Bytes; ten thousand keys of a SnapshotRequest fit."""
TIMEOUT = 30.0
"""Seconds a client may take to send its request."""


class Conflict(TailraceError):
    """The id holds another body, or the name is taken."""


class Unknown(TailraceError):
    """No snapshot has this id, or no cut or table this name."""


class Control(Protocol):
    """The driver's operations for the server. Methods may block until the journal holds what was asked."""

    def status(self) -> Status: ...
    def history(self) -> LastHour: ...
    def table(self, name: str) -> TableView: ...
    def unhealthy(self) -> str | None:
        """The reason; None: healthy."""
        ...

    def request(self, snapshot_id: str, body: SnapshotBody) -> SnapshotAnswer: ...
    def report(self, snapshot_id: str) -> VerificationReport: ...
    def cuts(self) -> CutList: ...
    def make_cut(self, name: str) -> CutReport: ...
    def drop_cut(self, name: str) -> None: ...
    def stop_snapshot(self, snapshot_id: str) -> None: ...
    def suspend_snapshot(self, snapshot_id: str, suspend: bool) -> None: ...
    def change_spec(self, body: SpecBody) -> SpecAnswer: ...
    def drop(self, policy: DeletionPolicy) -> DropAnswer:
        """Answers at once, however far it is."""
        ...


class StatusServer:
    """Listens from `start` to `close`; `url` has the port that was really taken."""

    def __init__(self, control: Control, host: str, port: int, token: str) -> None:
        handler = type("Handler", (_Handler,), {"control": control, "token": token})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        # It looks as often whether it shall end: `close` waits for that.
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="status-server", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    control: Control
    token: str
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT

    def do_GET(self) -> None:
        if self.path == STATUS:
            self._send(200, self.control.status())
        elif self.path == HISTORY:
            self._send(200, self.control.history())
        elif self._path_below(TABLES) or self.path == CUTS:
            self._answered(self._get)
        elif self.path == METRICS:
            self._reply(200, metrics.render(self.control.status()), "text/plain; version=0.0.4; charset=utf-8")
        elif self.path == HEALTH:
            reason = self.control.unhealthy()
            self._reply(200 if reason is None else 503, (reason or "ok").encode(), "text/plain; charset=utf-8")
        elif self._path_below(SNAPSHOTS):
            self._guarded(self._get)
        else:
            self._problem(404, "NotFound", f"no such path: {self.path[:200]}")

    def _get(self) -> None:
        if self.path == CUTS:
            self._send(200, self.control.cuts())
            return
        if named := self._path_below(TABLES):
            self._send(200, self.control.table("/".join(named)))
            return
        match self._path_below(SNAPSHOTS):
            case [snapshot_id, "report"]:
                self._send(200, self.control.report(snapshot_id))
            case _:
                self._problem(404, "NotFound", f"no such path: {self.path[:200]}")

    def do_PUT(self) -> None:
        self._guarded(self._put)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def do_DELETE(self) -> None:
        self._guarded(self._delete)

    def _put(self) -> None:
        body = self._body()
        if self.path == SPEC:
            self._send(200, self.control.change_spec(SpecBody.model_validate_json(body)))
            return
        if name := self._cut_path():
            CutBody.model_validate_json(body)
            self._send(200, self.control.make_cut(name))
            return
        match self._path_below(SNAPSHOTS):
            case [snapshot_id]:
                self._send(200, self.control.request(snapshot_id, SnapshotBody.model_validate_json(body)))
            case [snapshot_id, "suspend"]:
                self.control.suspend_snapshot(snapshot_id, SuspendBody.model_validate_json(body).suspend)
                self._reply(200, b"{}", "application/json")
            case _:
                self._problem(404, "NotFound", f"no such path: {self.path[:200]}")

    def _post(self) -> None:
        body = self._body()
        if self.path == DROP:
            self._send(200, self.control.drop(DropBody.model_validate_json(body).policy))
        else:
            self._problem(404, "NotFound", f"no such path: {self.path[:200]}")

    def _delete(self) -> None:
        if name := self._cut_path():
            self.control.drop_cut(name)
            self._reply(200, b"{}", "application/json")
            return
        match self._path_below(SNAPSHOTS):
            case [snapshot_id]:
                self.control.stop_snapshot(snapshot_id)
                self._reply(200, b"{}", "application/json")
            case _:
                self._problem(404, "NotFound", f"no such path: {self.path[:200]}")

    def _cut_path(self) -> str | None:
        parts = self._path_below(CUTS)
        return parts[0] if len(parts) == 1 else None

    def _path_below(self, folder: str) -> list[str]:
        prefix = folder + "/"
        return [unquote(p) for p in self.path.removeprefix(prefix).split("/")] if self.path.startswith(prefix) else []

    def _guarded(self, act: Callable[[], None]) -> None:
        sent = self.headers.get("Authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self.token}".encode()):
            self.close_connection = True  # the body was not read
            self._problem(401, "Unauthorized", "the bearer token is missing or wrong")
            return
        self._answered(act)

    def _answered(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ValidationError as error:
            self._fault(422, invalid(error, "body"))
        except (InvalidManifest, RewindRefused) as error:
            self._fault(422, error)
        except Conflict as error:
            self._fault(409, error)
        except Unknown as error:
            self._fault(404, error)
        except Retry as error:
            self._fault(503, error)
        except TailraceError as error:
            self._fault(500, error)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            raise InvalidManifest(f"the body's length is {length or 'not given'}", f"Send at most {MAX_BODY} bytes.")
        return self.rfile.read(int(length))

    def _fault(self, code: int, error: TailraceError) -> None:
        self._problem(code, error.name, error.message, error.fix)

    def _problem(self, code: int, name: str, message: str, fix: str = "") -> None:
        self._send(code, Problem(name=name, message=message, fix=fix))

    def _send(self, code: int, document: BaseModel) -> None:
        self._reply(code, document.model_dump_json(by_alias=True).encode(), "application/json")

    def _reply(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: probes and scrapes would bury everything else."""
