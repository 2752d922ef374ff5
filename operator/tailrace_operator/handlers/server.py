"""`/healthz`, `/readyz` and `/metrics` of the operator. Health means that work gets done, not that a port answers.

Readiness says more: what another start would not mend.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tailrace_operator import metrics

STUCK_SECONDS = 180.0
"""Without progress for longer: rounds end in much less, whatever the API server does."""


class ProbeServer:
    """`health_problem`: why the process should be restarted, None: it is well. `readiness`: code and text if so."""

    def __init__(
        self,
        health_problem: Callable[[], str | None],
        readiness: Callable[[], tuple[int, str]],
        before_scrape: Callable[[], None],
    ) -> None:
        self._ailment = health_problem
        self._readiness = readiness
        self._before_scrape = before_scrape
        app = web.Application()
        app.add_routes(
            [web.get("/healthz", self._health), web.get("/readyz", self._ready), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        health_problem = self._ailment()
        return web.Response(status=200 if health_problem is None else 503, text=health_problem or "ok")

    async def _ready(self, request: web.Request) -> web.Response:
        if self._ailment() is not None:
            return await self._health(request)
        status, text = self._readiness()
        return web.Response(status=status, text=text)

    async def _metrics(self, request: web.Request) -> web.Response:
        self._before_scrape()
        return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
