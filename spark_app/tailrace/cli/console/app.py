"""The console's answers, and the web application around them. Every request but the page's own files needs the token.

Cookies are not used, so no other page can send a request in the user's name; the page may load nothing from elsewhere.
What is shown, and to whom, is a `watched.Fleet`'s: of manifests and this machine (`local`), or of a cluster
(`kubernetes`).
"""

import asyncio
import base64
import hashlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tailrace import __version__
from tailrace.cli.client import DriverRefused
from tailrace.cli.console import openapi, summary
from tailrace.cli.console.endpoints import API, ENDPOINTS, MOST_TABLES, OPENAPI, Endpoint
from tailrace.cli.console.places import AnswerPlaces
from tailrace.cli.console.refusal import ApiRefusal
from tailrace.cli.console.watched import Fleet, Watched, problem_of
from tailrace.cli.snapshot_choice import WrongSnapshot
from tailrace.contract.console import (
    ActionAnswer,
    ActionBody,
    ConsoleAssessment,
    ConsoleFleet,
    ConsoleReplicator,
    EventList,
    SetupBody,
    SetupReport,
    TablePage,
    Verb,
)
from tailrace.contract.driver import CutList, Problem
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.manifest import invalid
from tailrace.driver.process.run_dir import NotRunning
from tailrace.errors import InvalidManifest, Retry, TailraceError

log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
STYLE = (PAGE / "style.css").read_text()
STYLED = (PAGE / "index.html").read_text().replace(
    '<link rel="stylesheet" href="style.css">', f"<style>{STYLE}</style>"
)  # fmt: skip
"""The page with its style in it: what is drawn first waits for one answer instead of two."""
DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{DIGEST}'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MOST_BODY = 1 << 20
HEALTH = "/healthz"
REFUSED_FIX = "Ask for the right, or have someone who has it run the command."
MOST_DIGITS = 9
"""The limit for a number in a query."""
COMMANDS: tuple[Verb, ...] = ("cut", "dropCut")
"""The actions that may take as long as a command does; they are commands in a cluster."""
Json = dict[str, Any]


class ConsoleApp:
    """The answers of the API; a method for each of `endpoints.ENDPOINTS`. They may block: each runs on a thread.
    `caller`: the token of the request."""

    def __init__(self, shown: Fleet, *, clock: Callable[[], float] = time.time) -> None:
        self.shown = shown
        self._clock = clock

    def close(self) -> None:
        self.shown.close()

    def fleet(self, caller: str) -> ConsoleFleet:
        entries = sorted(self.shown.entries(caller), key=lambda e: (-e.trouble, e.name))
        return ConsoleFleet(
            version=__version__,
            actions=self.shown.actions,
            realm=self.shown.realm,
            at=self._clock(),
            replicators=tuple(entries),
        )

    def replicator(self, caller: str, name: str) -> ConsoleReplicator:
        one = self._one(caller, name)
        found, about = one.entry(), one.described()
        status = one.status() if found.problem is None else None
        return ConsoleReplicator(
            summary=found,
            source=about.source,
            target=about.target,
            storage=about.storage,
            status=None if status is None else status.model_copy(update={"tables": ()}),
            conditions=(found.message,) if status is None else one.conditions(status),
            live=status is not None and one.live(),
            refused=one.refused(caller),
        )

    def history(self, caller: str, name: str) -> LastHour:
        return self._one(caller, name).history()

    def tables(self, caller: str, name: str, query: Json) -> TablePage:
        limit = min(_number(query, "limit", 100), MOST_TABLES)
        states = [state for state in query.get("state", "").split(",") if state]
        status = self._one(caller, name).status()
        return summary.page(status.tables, query.get("search", ""), states, _number(query, "offset", 0), limit)

    def table(self, caller: str, name: str, table: str) -> TableView:
        return self._one(caller, name).table(table)

    def cuts(self, caller: str, name: str) -> CutList:
        return CutList(cuts=self._one(caller, name).cuts())

    def events(self, caller: str, name: str) -> EventList:
        return EventList(events=self._one(caller, name).events(caller))

    def assessment(self, caller: str, name: str) -> ConsoleAssessment:
        return self._one(caller, name).assessment(caller)

    def trial(self, caller: str, body: SetupBody) -> SetupReport:
        return self.shown.trial(body)

    def act(self, caller: str, name: str, body: ActionBody) -> ActionAnswer:
        one = self._one(caller, name)
        answer, carry_out = one.plan(body, caller, self._clock())
        if body.preview:
            return answer
        if not self.shown.actions:
            raise ApiRefusal(403, "ReadOnly", "the console only shows", self.shown.actions_fix)
        if answer.refused is not None:
            raise ApiRefusal(403, "Forbidden", answer.refused, REFUSED_FIX)
        message = carry_out()
        log.info("%s: %s", name, answer.command)
        return answer.model_copy(update={"done": True, "message": message})

    def _one(self, caller: str, name: str) -> Watched:
        known = self.shown.replicators(caller)
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            message = f"there is no Replicator {name[:200]!r} (found: {names[:1000]})"
            raise ApiRefusal(404, "NotFound", message, "Correct the name.")
        return known[name]


def _number(query: Json, name: str, default: int) -> int:
    text = str(query.get(name, default))
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        shown = f"{text[:50]!r}{' …' if len(text) > 50 else ''}"
        raise ApiRefusal(422, "InvalidManifest", f"{name} is {shown}", "Give a number from 0 to 999999999.")
    return int(text)


def application(console: ConsoleApp) -> Starlette:
    places = AnswerPlaces()
    routes: list[BaseRoute] = [_route(console, endpoint, places) for endpoint in ENDPOINTS]
    routes += [Route(OPENAPI, lambda _: JSONResponse(openapi.document()))]
    routes += [Route(HEALTH, lambda _: Response("ok", media_type="text/plain"))]
    routes += [Route(f"{API}/{{path:path}}", _unknown, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])]
    routes += [Route("/", lambda _: HTMLResponse(STYLED)), Mount("/", StaticFiles(directory=PAGE))]
    app = Starlette(routes=routes)
    app.add_middleware(Guard, shown=console.shown)
    return app


def _unknown(request: Request) -> Response:
    return _refused(404, Problem(name="NotFound", message=f"no such path: {request.url.path[:200]}"))


def _route(console: ConsoleApp, endpoint: Endpoint, places: AnswerPlaces) -> Route:
    async def answer(request: Request) -> Response:
        try:
            arguments: list[Any] = [bearer(request.scope), *request.path_params.values()]
            if endpoint.queries:
                arguments.append(dict(request.query_params))
            body = await _body(request, endpoint.body) if endpoint.body is not None else None
            if body is not None:
                arguments.append(body)
            async with places.of(request.path_params.get("replicator"), command=_is_command(endpoint, body)):
                document = await _on_thread(getattr(console, endpoint.act), *arguments)
            return Response(document.model_dump_json(by_alias=True), media_type="application/json")
        except ApiRefusal as refusal:
            return _refused(refusal.code, refusal.problem, _challenge(console.shown, refusal.code))
        except TailraceError as error:
            return _refused(_code(error), problem_of(error))

    # Names of tables may have slashes.
    return Route(endpoint.path.replace("{table}", "{table:path}"), answer, methods=[endpoint.method])


def _is_command(endpoint: Endpoint, body: BaseModel | None) -> bool:
    return endpoint.command or (isinstance(body, ActionBody) and body.verb in COMMANDS and not body.preview)


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


def _refused(code: int, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    return Response(problem.model_dump_json(by_alias=True), code, headers, media_type="application/json")


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """Lets nobody at the API without the token, and gives every answer its headers."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], shown: Fleet) -> None:
        self._app, self._shown = app, shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        if scope["path"].startswith(f"{API}/") and not self._shown.admits(bearer(scope)):
            problem = Problem(name="Unauthorized", message="the token is missing or wrong", fix=self._shown.token_fix)
            await _refused(401, problem, _challenge(self._shown, 401))(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _challenge(shown: Fleet, code: int) -> dict[str, str]:
    """Tells the page which kind of token is wanted."""
    return {"WWW-Authenticate": f'Bearer realm="{shown.realm}"'} if code == 401 else {}


def bearer(scope: Scope) -> str:
    """The token of the request; empty: it has none."""
    sent: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    kind, _, token = sent.decode("latin-1").partition(" ")
    return token.strip() if kind == "Bearer" else ""
