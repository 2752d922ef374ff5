"""Asks drivers for their status and remembers what they said. `gather` calls it for the objects that are due.

A question has little time: a driver that hangs must show within 30 s, and must not hold up others. Nor must one that
answers too much: the answer is bounded, and read on a thread of its own, since the loop also renews the lease. A driver
is a tenant's pod: it may neither send the operator elsewhere nor have it inflate an answer.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import aiohttp

from tailrace.contract.base import Model
from tailrace.contract.driver import STATUS
from tailrace.contract.status import Status
from tailrace_operator.observe.model import ObservedDriver, ObservedPod
from tailrace_operator.resources.names import HTTP_PORT

ANSWER_SECONDS = 5.0
MAX_BYTES = 8 << 20
"""Two thousand tables that all fail, in two snapshots, take 4 MiB; ten thousand that work, in one snapshot, take 5."""
MAX_OBJECTS = 50_000
"""JSON objects, as counted by their braces: those two thousand tables have 14,000. However short one is written, it
takes a thousand bytes of memory."""
Answer = TypeVar("Answer", bound=Model)


class AnswerTooLarge(ValueError):
    """The driver answered more than the operator reads."""


class AnswerRefused(ValueError):
    """The driver answered what no driver of Tailrace does."""


def address(ip: str) -> str:
    """The driver's URL; IPv6 addresses in brackets."""
    return f"http://[{ip}]:{HTTP_PORT}" if ":" in ip else f"http://{ip}:{HTTP_PORT}"


class Drivers:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._observed: dict[tuple[str, str], tuple[str, ObservedDriver]] = {}
        self._answered_at: dict[tuple[str, str], float] = {}
        # One: reading holds the interpreter, and between two answers the loop gets its turn.
        self._reader = ThreadPoolExecutor(1, "answers")

    def forget(self, namespace: str, replicator: str, *, gone: bool = False) -> None:
        """It has no container; `gone`: nor is there a Replicator."""
        self._observed.pop((namespace, replicator), None)
        if gone:
            self._answered_at.pop((namespace, replicator), None)

    def answered_at(self, namespace: str, replicator: str) -> float | None:
        """The time of the last answer of any driver of it."""
        return self._answered_at.get((namespace, replicator))

    async def fresh(self, namespace: str, replicator: str, pod: ObservedPod, now: float, age: float) -> ObservedDriver:
        """The last answer of this container if it is no older than `age`, else a new one."""
        life, last = self._observed.get((namespace, replicator), ("", ObservedDriver()))
        young = last.answered_at is not None and 0 <= now - last.answered_at < age
        if life == _life(pod) and last.silent_since is None and young:
            return last
        return await self.ask(namespace, replicator, pod, now)

    async def ask(self, namespace: str, replicator: str, pod: ObservedPod, now: float) -> ObservedDriver:
        """The driver's answer, or the last one of this container with the seconds that it has been silent since."""
        life = _life(pod)
        last_life, last = self._observed.get((namespace, replicator), ("", ObservedDriver()))
        before = last if last_life == life else ObservedDriver()
        try:
            observed = ObservedDriver(await self._get(pod.ip or ""), now)
            self._answered_at[namespace, replicator] = now
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            since = before.silent_since if before.silent_since is not None else now
            observed = replace(before, silent_since=since, error=silence(error, ANSWER_SECONDS))
        self._observed[namespace, replicator] = (life, observed)
        return observed

    async def _get(self, ip: str) -> Status:
        code, raw = await exchange(self._session, "GET", address(ip) + STATUS, seconds=ANSWER_SECONDS, limit=MAX_BYTES)
        if code != 200:
            raise AnswerRefused(f"the driver answered {code}")
        return await asyncio.get_running_loop().run_in_executor(self._reader, read, Status, raw)


def read(kind: type[Answer], raw: bytes) -> Answer:
    """A driver's answer without fields that this version does not know: its image may be newer than the operator.
    Raises `ValueError` for anything else."""
    if raw.count(b"{") > MAX_OBJECTS:
        raise AnswerTooLarge(f"the answer has more than {MAX_OBJECTS} objects")
    return kind.model_validate_json(raw, extra="ignore")


async def exchange(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    seconds: float,
    limit: int,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Code and body, at most `limit` bytes. A redirect is an answer like any other: who follows it calls, from within
    the operator's network, whatever a tenant names."""
    async with session.request(
        method,
        url,
        data=body,
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=seconds),
        allow_redirects=False,
        auto_decompress=False,
    ) as response:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise AnswerRefused(f"the answer is compressed ({encoding[:20]})")
        return response.status, await _whole(response, limit)


async def _whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body to its end; raises `AnswerTooLarge` beyond `limit`. (`read(n)` of a stream gives what came so far.)"""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > limit:
            raise AnswerTooLarge(f"the answer has more than {limit} bytes")
    return bytes(found)


def silence(error: Exception, seconds: float) -> str:
    """The reason why there is no answer. A timeout has no text."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    return f"{type(error).__name__}: {error}"[:300]


def _life(pod: ObservedPod) -> str:
    """One container's life: what an earlier one said is not true of this one."""
    return f"{pod.uid}/{pod.running_since}"
