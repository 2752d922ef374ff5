"""A driver is a tenant's pod. It may neither send the operator to another address nor have it inflate an answer."""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from support.observed import NOW, pod, reported
from tailrace_operator.act import snapshots
from tailrace_operator.act.snapshots import DriverVerbs
from tailrace_operator.observe import drivers
from tailrace_operator.observe.drivers import Drivers
from tailrace_operator.observe.model import DriverAnswer, ObservedDriver

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
STATUS = reported().model_dump_json(by_alias=True).encode()


class Servers:
    """HTTP servers on the loopback interface; `asked` has what each of them was asked."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []
        self.asked: list[str] = []

    async def start(self, name: str, answer: Answer) -> str:
        async def noted(request: web.Request) -> web.StreamResponse:
            self.asked.append(f"{name}: {request.method} {request.path}")
            return await answer(request)

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", noted)
        runner = web.AppRunner(application)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()


async def status_of(_: web.Request) -> web.Response:
    return web.Response(body=STATUS, content_type="application/json")


async def ask(monkeypatch: pytest.MonkeyPatch, url: str) -> tuple[ObservedDriver, DriverAnswer]:
    """A question and a verb."""
    for module in (drivers, snapshots):
        monkeypatch.setattr(module, "address", lambda ip: url)
    async with aiohttp.ClientSession() as session:
        observed = await Drivers(session).ask("team", "shop", pod(), NOW)
        return observed, await DriverVerbs(session, "", "secret").cancel("x")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_driver_that_redirects_does_not_send_the_operator_elsewhere(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[list[str], ObservedDriver, DriverAnswer]:
        servers = Servers()
        try:
            elsewhere = await servers.start("elsewhere", status_of)

            async def redirect(request: web.Request) -> web.Response:
                return web.Response(status=code, headers={"Location": f"{elsewhere}{request.path}"})

            found = await ask(monkeypatch, await servers.start("driver", redirect))
            return servers.asked, *found
        finally:
            await servers.stop()

    asked, observed, answer = asyncio.run(run())
    assert asked == ["driver: GET /status", "driver: DELETE /snapshots/x"]
    assert observed.status is None and observed.error == f"AnswerRefused: the driver answered {code}"
    assert not answer.accepted and answer.code == code


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_answer_is_refused_and_not_inflated(
    encoding: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of zeros is a kilobyte; what is refused by its header costs nothing at all."""

    async def run() -> tuple[list[str], ObservedDriver, DriverAnswer]:
        servers, packed = Servers(), pack(STATUS)
        accepted: list[str] = []

        async def compressed(request: web.Request) -> web.Response:
            accepted.append(request.headers.get("Accept-Encoding", ""))
            return web.Response(body=packed, headers={"Content-Encoding": encoding})

        try:
            return accepted, *await ask(monkeypatch, await servers.start("driver", compressed))
        finally:
            await servers.stop()

    accepted, observed, answer = asyncio.run(run())
    assert accepted == ["identity"] * 2, "no driver is asked to compress"
    assert observed.status is None and observed.error == f"AnswerRefused: the answer is compressed ({encoding})"
    assert not answer.accepted and answer.problem is not None and "compressed" in answer.problem.message


def test_a_plain_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> ObservedDriver:
        servers = Servers()
        try:
            return (await ask(monkeypatch, await servers.start("driver", status_of)))[0]
        finally:
            await servers.stop()

    assert asyncio.run(run()).status is not None


def test_a_driver_that_stands_still_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.Response()

    async def run() -> tuple[ObservedDriver, DriverAnswer]:
        servers = Servers()
        try:
            return await ask(monkeypatch, await servers.start("driver", never))
        finally:
            await servers.stop()

    monkeypatch.setattr(drivers, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(snapshots, "SECONDS", 0.1)
    observed, answer = asyncio.run(run())
    assert observed.error == "no answer within 0.1 s"
    assert answer.problem is not None
    assert answer.problem.message == "the driver does not answer: no answer within 0.1 s"
