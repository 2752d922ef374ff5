"""A reverse proxy between the operator and a real API server that answers wrongly on order: codes, cuts, delays.

Plain HTTP towards the operator, the administrator's certificate towards the API server. Runs in a thread of its own.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import yaml
from aiohttp import web

from support.kube import KubeApi

Result = TypeVar("Result")
KEPT_OUT = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}


@dataclass
class Fault:
    """Answers `code` (0: cuts the connection) to matching requests, `times` times."""

    method: str
    path: str
    """Part of the path and query."""
    code: int
    times: int = 1
    after: bool = False
    """The API server gets the request and does it; only the answer is lost."""
    hits: int = 0


@dataclass
class ApiProxy:
    kube: KubeApi
    folder: Path
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    """`METHOD plural`, without watches."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self._do(self._start())
        self.kubeconfig = self.folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{self.port}")))
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def fault(self, method: str, path: str, code: int, times: int = 1, after: bool = False) -> Fault:
        made = Fault(method, path, code, times, after)
        self.faults.append(made)
        return made

    def cut_everything(self) -> None:
        """End every open connection, watches too."""

        def cut() -> None:
            for transport in list(self._open):
                transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _start(self) -> int:
        context = ssl.create_default_context(cafile=str(self.kube.plane.pki / "ca.crt"))
        context.load_cert_chain(self.kube.plane.pki / "admin.crt", self.kube.plane.pki / "admin.key")
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._client = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        self._open: set[asyncio.Transport] = set()
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        for transport in list(self._open):
            transport.abort()
        await self._runner.cleanup()
        await self._client.close()
        # Handlers of connections that were cut.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open.add(transport)
        try:
            return await self._answer(request, transport)
        except (aiohttp.ClientError, ConnectionError):
            transport.abort()
            return web.Response(status=502)
        finally:
            self._open.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        if "watch=" not in request.path_qs:
            self.calls[f"{request.method} {_plural(request.path)}"] += 1
        fault = next((f for f in self.faults if self._hits(f, request)), None)
        if fault is not None:
            fault.hits += 1
            if not fault.after:
                return _refuse(fault, transport)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in KEPT_OUT}
        url = self.kube.plane.server + request.path_qs
        body = await request.read() or None
        async with self._client.request(
            request.method, url, headers=headers, data=body, timeout=aiohttp.ClientTimeout(None)
        ) as answer:
            if fault is not None:
                await answer.read()
                return _refuse(fault, transport)
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in KEPT_OUT}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    def _hits(self, fault: Fault, request: web.Request) -> bool:
        return fault.hits < fault.times and request.method == fault.method and fault.path in request.path_qs


def _refuse(fault: Fault, transport: asyncio.Transport) -> web.Response:
    if fault.code == 0:
        transport.abort()
        return web.Response(status=500)
    reasons = {403: "Forbidden", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests"}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fault.code,
        "reason": reasons.get(fault.code, "InternalError"),
        "message": f"made to fail with {fault.code}",
    }
    headers = {"Retry-After": "1"} if fault.code == 429 else None
    return web.json_response(body, status=fault.code, headers=headers)


def _plural(path: str) -> str:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return parts[2] if len(parts) > 2 and parts[0] == "namespaces" else (parts or ["?"])[0]


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "proxy", "user": {"token": "none"}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        "current-context": "proxy",
    }
