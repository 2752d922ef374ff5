"""The lease is renewed while the process's own loop is busy."""

import asyncio
import time
from typing import cast

import pytest

from tailrace.errors import TailraceError
from tailrace_operator.act import lease as leases
from tailrace_operator.act.lease import Lease
from tailrace_operator.handlers.apart import apart
from tailrace_operator.kube import ApiNotFound, Document, Kube, Where


class OneLease:
    """An API server with a lease; it counts how often that is written."""

    def __init__(self) -> None:
        self.stored: Document | None = None
        self.written = 0

    async def call(self, method: str, where: Where, body: Document | None = None) -> Document:
        if method == "GET":
            if self.stored is None:
                raise ApiNotFound(404, "NotFound", where.path)
            return {**self.stored, "metadata": {**self.stored["metadata"], "resourceVersion": "1"}}
        assert body is not None
        self.stored = body
        self.written += 1
        return body


def test_a_busy_loop_does_not_lose_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("RENEW_EVERY", 0.05), ("GIVE_UP_AFTER", 0.4), ("ANSWER_SECONDS", 0.2)):
        monkeypatch.setattr(leases, name, seconds)

    async def history() -> None:
        api = OneLease()
        lease = Lease(cast(Kube, api), "ops", "tailrace-operator", "a")
        await lease.acquire()
        task = asyncio.create_task(apart(lambda: lease.keep(cast(Kube, api))))
        while api.written < 2:
            await asyncio.sleep(0.01)
        before = api.written
        time.sleep(0.9)  # a list of thousands of objects, say
        assert api.written > before + 2 and lease.held
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        ended = api.written
        await asyncio.sleep(0.2)
        assert api.written == ended, "nobody renews it"

    asyncio.run(history())


def test_a_lease_that_is_not_renewed_is_held_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    async def history() -> None:
        nonlocal now
        lease = Lease(cast(Kube, OneLease()), "ops", "tailrace-operator", "a", monotonic=lambda: now)
        seen = [lease.held]
        await lease.acquire()
        for seconds in (leases.GIVE_UP_AFTER - 1, 2):
            now += seconds
            seen.append(lease.held)
        assert seen == [False, True, False]

    asyncio.run(history())


def test_an_error_of_the_work_is_the_callers() -> None:
    class Lost(TailraceError):
        """An error."""

    async def work() -> None:
        raise Lost("it is gone")

    with pytest.raises(Lost, match="it is gone"):
        asyncio.run(apart(work))


def test_what_is_cancelled_before_it_began_ends() -> None:
    async def forever() -> None:
        await asyncio.sleep(3600)

    async def history() -> None:
        task = asyncio.create_task(apart(forever))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(history())
