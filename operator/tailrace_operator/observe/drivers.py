"""Asks drivers for their status and remembers what they said. `gather` calls it for the objects that are due.

A question has little time: a driver that hangs must show within 30 s, and must not hold up others.
"""

import json
from dataclasses import replace

import aiohttp
from pydantic import ValidationError

from tailrace.contract.driver import STATUS
from tailrace.contract.status import Status
from tailrace_operator.observe.model import ObservedDriver, ObservedPod
from tailrace_operator.resources.names import HTTP_PORT
from tailrace_operator.status.load import known

ANSWER_SECONDS = 5.0
MAX_BYTES = 32 << 20
"""Ten thousand tables with their counters take 5 MB."""


def address(ip: str) -> str:
    """The driver's URL; IPv6 addresses in brackets."""
    return f"http://[{ip}]:{HTTP_PORT}" if ":" in ip else f"http://{ip}:{HTTP_PORT}"


class Drivers:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._observed: dict[tuple[str, str], tuple[str, ObservedDriver]] = {}

    def forget(self, namespace: str, replicator: str) -> None:
        self._observed.pop((namespace, replicator), None)

    async def fresh(self, namespace: str, replicator: str, pod: ObservedPod, now: float, age: float) -> ObservedDriver:
        """The last answer of this container if it is no older than `age`, else a new one."""
        life, last = self._observed.get((namespace, replicator), ("", ObservedDriver()))
        young = last.answered_at is not None and 0 <= now - last.answered_at < age
        if life == _life(pod) and last.silent_since is None and young:
            return last
        return await self.ask(namespace, replicator, pod, now)

    async def ask(self, namespace: str, replicator: str, pod: ObservedPod, now: float) -> ObservedDriver:
        """What it says now, or the last answer of this container with how long it has been silent since."""
        life = _life(pod)
        last_life, last = self._observed.get((namespace, replicator), ("", ObservedDriver()))
        before = last if last_life == life else ObservedDriver()
        try:
            observed = ObservedDriver(await self._get(pod.ip or ""), now)
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError, ValueError) as error:
            since = before.silent_since if before.silent_since is not None else now
            observed = replace(before, silent_since=since, error=f"{type(error).__name__}: {error}"[:300])
        self._observed[namespace, replicator] = (life, observed)
        return observed

    async def _get(self, ip: str) -> Status:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with self._session.get(address(ip) + STATUS, timeout=timeout) as response:
            response.raise_for_status()
            # Its image may be newer than the operator.
            return known(Status, json.loads(await whole(response, MAX_BYTES)))


async def whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body to its end; raises `ValueError` beyond `limit`. (`read(n)` of a stream gives what has come so far.)"""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > limit:
            raise ValueError(f"the answer has more than {limit} bytes")
    return bytes(found)


def _life(pod: ObservedPod) -> str:
    """One container's life: what an earlier one said is not true of this one."""
    return f"{pod.uid}/{pod.running_since}"
