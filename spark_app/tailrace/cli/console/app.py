"""The console's answers, and the web application around them. Every request but the page's own files needs the token.

Cookies are not used, so no other page can send a request in the user's name; the page may load nothing from elsewhere.
"""

import asyncio
import hmac
import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tailrace import __version__
from tailrace.cli.client import DriverRefused
from tailrace.cli.console import actions, openapi, summary
from tailrace.cli.console.endpoints import API, ENDPOINTS, MOST_TABLES, OPENAPI, Endpoint
from tailrace.cli.console.watched import Watched
from tailrace.cli.snapshot_choice import WrongSnapshot
from tailrace.contract.console import (
    ActionAnswer,
    ActionBody,
    ConsoleAssessment,
    ConsoleFleet,
    ConsoleReplicator,
    FleetEntry,
    TablePage,
)
from tailrace.contract.driver import CutList, Problem
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.manifest import invalid
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import NotRunning
from tailrace.errors import InvalidManifest, Retry, TailraceError

log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MOST_BODY = 1 << 20
LOOK_SECONDS = 2.0
"""The age at which the drivers are asked again for the fleet."""
STATUS_SECONDS = 1.0
AT_ONCE = 16
"""Drivers that are asked at the same time."""
MOST_ANSWERS = 40
"""Answers under way at the same time."""
Json = dict[str, Any]


class ApiRefusal(Exception):
    """An answer other than 200."""

    def __init__(self, code: int, name: str, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.code, self.problem = code, Problem(name=name, message=message, fix=fix)


class ConsoleApp:
    """The answers of the API; a method for each of `endpoints.ENDPOINTS`. They may block: each runs on a thread."""

    def __init__(
        self, watched: Sequence[Watched], *, allow_actions: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._watched = {one.name: one for one in watched}
        self._allow_actions = allow_actions
        self._clock = clock
        self._lock = threading.Lock()
        self._fleet: tuple[float, ConsoleFleet] | None = None
        self._statuses: dict[str, tuple[float, Status]] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fleet")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fleet(self) -> ConsoleFleet:
        with self._lock:
            now = self._clock()
            if self._fleet is None or not 0 <= now - self._fleet[0] < LOOK_SECONDS:
                entries = sorted(
                    self._pool.map(self._entry, self._watched.values()), key=lambda e: (-e.trouble, e.name)
                )
                made = ConsoleFleet(
                    version=__version__, actions=self._allow_actions, at=now, replicators=tuple(entries)
                )
                self._fleet = self._clock(), made
            return self._fleet[1]

    def replicator(self, name: str) -> ConsoleReplicator:
        one = self._one(name)
        spec = one.spec
        found = self._entry(one)
        status = self._status(one) if found.problem is None else None
        source = spec.source
        return ConsoleReplicator(
            summary=found,
            source=f"{source.type} {source.host}{f'/{source.database}' if source.database else ''}",
            target=f"{spec.target.type} {spec.target.location or getattr(spec.target, 'host', None) or ''}".strip(),
            storage=spec.storage.location,
            status=None if status is None else status.model_copy(update={"tables": ()}),
            conditions=(found.message,) if status is None else summary.conditions(status),
        )

    def history(self, name: str) -> LastHour:
        return self._one(name).history()

    def tables(self, name: str, query: Json) -> TablePage:
        limit = min(_number(query, "limit", 100), MOST_TABLES)
        states = [state for state in query.get("state", "").split(",") if state]
        status = self._status(self._one(name))
        return summary.page(status.tables, query.get("search", ""), states, _number(query, "offset", 0), limit)

    def table(self, name: str, table: str) -> TableView:
        return self._one(name).table(table)

    def cuts(self, name: str) -> CutList:
        return CutList(cuts=self._one(name).cuts())

    def assessment(self, name: str) -> ConsoleAssessment:
        return self._one(name).assessment()

    def act(self, name: str, body: ActionBody) -> ActionAnswer:
        one = self._one(name)
        answer, carry_out = actions.plan(one, body, self._clock())
        if body.preview:
            return answer
        if not self._allow_actions:
            fix = "Start it with --allow-actions, or use the command."
            raise ApiRefusal(403, "ReadOnly", "the console only shows", fix)
        message = carry_out()
        log.info("%s: %s", name, answer.command)
        return answer.model_copy(update={"done": True, "message": message})

    def _entry(self, one: Watched) -> FleetEntry:
        try:
            status = self._status(one)
        except TailraceError as error:
            return summary.missing(one.name, _problem(error))
        try:
            history = one.history()
        except TailraceError:  # the driver is older, or has just ended
            history = None
        return summary.entry(one.name, status, history)

    def _status(self, one: Watched) -> Status:
        """The driver's, no older than a second: a view asks for several parts of it, of which one may be 5,000
        tables."""
        now = self._clock()
        at, status = self._statuses.get(one.name, (0.0, None))
        if status is None or not 0 <= now - at < STATUS_SECONDS:
            status = one.status()
            self._statuses[one.name] = (now, status)
        return status

    def _one(self, name: str) -> Watched:
        if name not in self._watched:
            known = ", ".join(sorted(self._watched)) or "none"
            message = f"there is no Replicator {name[:200]!r} (found: {known})"
            raise ApiRefusal(404, "NotFound", message, "Correct the name.")
        return self._watched[name]


def _number(query: Json, name: str, default: int) -> int:
    text = str(query.get(name, default))
    if not text.isascii() or not text.isdigit():
        raise ApiRefusal(422, "InvalidManifest", f"{name} is {text[:50]!r}", "Give a number from 0.")
    return int(text)


def _problem(error: TailraceError) -> Problem:
    return Problem(name=error.name, message=error.message, fix=error.fix)


def application(console: ConsoleApp, token: str) -> Starlette:
    places = asyncio.Semaphore(MOST_ANSWERS)
    routes: list[BaseRoute] = [_route(console, endpoint, places) for endpoint in ENDPOINTS]
    routes += [Route(OPENAPI, lambda _: JSONResponse(openapi.document()))]
    routes += [Route(f"{API}/{{path:path}}", _unknown, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])]
    routes += [Mount("/", StaticFiles(directory=PAGE, html=True))]
    app = Starlette(routes=routes)
    app.add_middleware(Guard, token=token)
    return app


def _unknown(request: Request) -> Response:
    return _refused(404, Problem(name="NotFound", message=f"no such path: {request.url.path[:200]}"))


def _route(console: ConsoleApp, endpoint: Endpoint, places: asyncio.Semaphore) -> Route:
    async def answer(request: Request) -> Response:
        try:
            arguments: list[Any] = list(request.path_params.values())
            if endpoint.queries:
                arguments.append(dict(request.query_params))
            if endpoint.body is not None:
                arguments.append(await _body(request, endpoint.body))
            async with places:
                document = await _on_thread(getattr(console, endpoint.act), *arguments)
            return Response(document.model_dump_json(by_alias=True), media_type="application/json")
        except ApiRefusal as refusal:
            return _refused(refusal.code, refusal.problem)
        except TailraceError as error:
            return _refused(_code(error), _problem(error))

    # Names of tables may have slashes.
    return Route(endpoint.path.replace("{table}", "{table:path}"), answer, methods=[endpoint.method])


async def _on_thread(act: Callable[..., BaseModel], *arguments: object) -> BaseModel:
    """On a thread that the end of the process does not wait for: a driver, or a source, may hold it up for minutes."""
    made: Future[BaseModel] = Future()
    made.set_running_or_notify_cancel()

    def run() -> None:
        try:
            made.set_result(act(*arguments))
        except BaseException as error:  # raised to the request that waits
            made.set_exception(error)

    threading.Thread(target=run, name="answer", daemon=True).start()
    return await asyncio.wrap_future(made)


async def _body(request: Request, model: type[BaseModel]) -> BaseModel:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise ApiRefusal(415, "InvalidManifest", f"the body's type is {kind[:50]!r}", "Send application/json.")
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > MOST_BODY:
            raise ApiRefusal(413, "InvalidManifest", "the body is too long", f"Send at most {MOST_BODY} bytes.")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise invalid(error, "body", model) from error


def _code(error: TailraceError) -> int:
    """The driver's refusals have the name of its own error in front."""
    if isinstance(error, InvalidManifest):
        return 422
    if isinstance(error, NotRunning | WrongSnapshot):
        return 409
    if isinstance(error, Retry):
        return 503
    if isinstance(error, DriverRefused):
        first = error.message.partition(":")[0]
        return {"Unknown": 404, "NotFound": 404, "Conflict": 409, "Retry": 503}.get(first, 502)
    return 500


def _refused(code: int, problem: Problem) -> Response:
    return Response(problem.model_dump_json(by_alias=True), code, media_type="application/json")


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """Lets nobody at the API without the token, and gives every answer its headers."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        if scope["path"].startswith(f"{API}/") and not self._admits(scope):
            problem = Problem(name="Unauthorized", message="the token is missing or wrong", fix=TOKEN_FIX)
            await _refused(401, problem)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _admits(self, scope: Scope) -> bool:
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(sent, f"Bearer {self._token}".encode())


TOKEN_FIX = "Open the address that `tailrace console` printed, or enter the token of --token-file."
