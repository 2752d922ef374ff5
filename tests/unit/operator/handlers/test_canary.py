"""Lease and canary with an API in memory: one holder at a time, and watches that went deaf are noticed and healed."""

import asyncio
import time
from typing import Any, cast

import pytest
from typing_extensions import override

from tailrace_operator import settings
from tailrace_operator.act import lease as leases
from tailrace_operator.act.lease import Lease, LeaseLost
from tailrace_operator.handlers.canary import Canary
from tailrace_operator.kube import ApiConflict, ApiNotFound, ApiRefused, ApiUnavailable, Document, Kube, Where
from tailrace_operator.observe import watch
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import ObjectKey
from tailrace_operator.observe.watch import Watch, WatchSink
from tailrace_operator.observe.watch_rights import WatchRights


class EmptyStream:
    """A watch that the server ends at once."""

    def __init__(self) -> None:
        self.content = self

    async def readline(self, **given: Any) -> bytes:
        return b""

    def close(self) -> None:
        pass


class MemoryApi:
    """Objects by path, with resourceVersions that conflict."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self.version = 0
        self.down = False

    async def call(self, method: str, where: Where, **given: Any) -> Document:
        if self.down:
            raise ApiUnavailable("down")
        match method:
            case "GET" if where.name is None:
                found = [d for path, d in self.objects.items() if path.startswith(where.path + "/")]
                return {"metadata": {}, "items": found}
            case "GET":
                if where.path not in self.objects:
                    raise ApiNotFound(404, "NotFound", where.path)
                return cast(Document, _copy(self.objects[where.path]))
            case "POST":
                return self._store(f"{where.path}/{given['body']['metadata']['name']}", given["body"], create=True)
            case _:
                return self._store(where.path, given["body"], create=False)

    async def open(self, method: str, where: Where, **given: Any) -> EmptyStream:
        return EmptyStream()

    def _store(self, path: str, body: Document, create: bool) -> Document:
        known = self.objects.get(path)
        version = body["metadata"].get("resourceVersion")
        if (create and known) or (known and version not in (None, known["metadata"]["resourceVersion"])):
            raise ApiConflict(409, "Conflict", path)
        self.version += 1
        self.objects[path] = _copy(body)
        self.objects[path]["metadata"]["resourceVersion"] = str(self.version)
        return cast(Document, _copy(self.objects[path]))


def _copy(document: Any) -> Any:
    return {k: _copy(v) for k, v in document.items()} if isinstance(document, dict) else document


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lease(api: MemoryApi, identity: str, clock: Clock) -> Lease:
    return Lease(cast(Kube, api), "ops", "tailrace-operator", identity, clock=clock, monotonic=clock)


async def acquires(one: Lease) -> bool:
    try:
        await asyncio.wait_for(one.acquire(), 0.05)
    except TimeoutError:
        return False
    return True


def test_one_holds_the_lease_and_the_other_gets_it_when_it_is_let_go() -> None:
    async def history() -> None:
        api, clock = MemoryApi(), Clock()
        first, second = lease(api, "a", clock), lease(api, "b", clock)
        assert await acquires(first)
        assert not await acquires(second)
        await first.release()
        assert await acquires(second)

    asyncio.run(history())


def test_a_dead_holders_lease_is_taken_after_its_whole_duration_by_the_takers_own_clock() -> None:
    async def history() -> None:
        api, clock = MemoryApi(), Clock()
        first, second = lease(api, "a", clock), lease(api, "b", clock)
        assert await acquires(first)
        clock.now += 3600  # however old it looks: this process has not watched it
        assert not await acquires(second)
        clock.now += leases.DURATION - 1
        assert not await acquires(second)
        clock.now += 2
        assert await acquires(second)

    asyncio.run(history())


def test_a_holder_that_cannot_renew_ends_before_anybody_can_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_EVERY", 0.01)
    assert leases.GIVE_UP_AFTER < leases.DURATION

    async def history() -> None:
        api, clock = MemoryApi(), Clock()
        one = lease(api, "a", clock)
        assert await acquires(one)
        task = asyncio.create_task(one.keep())
        await asyncio.sleep(0.05)
        assert not task.done()
        api.down = True
        clock.now += leases.GIVE_UP_AFTER + 1
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(task, 5)

    asyncio.run(history())


@pytest.mark.parametrize("begun", [False, True])
def test_a_right_that_is_missing_for_a_while_ends_no_operator(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    """Each end would be followed by a longer pause of the kubelet, in which nobody watches."""
    monkeypatch.setattr(leases, "RENEW_EVERY", 0.01)

    class Rightless(MemoryApi):
        refused = not begun

        @override
        async def call(self, method: str, where: Where, **given: Any) -> Document:
            if self.refused:
                raise ApiRefused(403, "Forbidden", "leases is forbidden")
            return await super().call(method, where, **given)

    async def history() -> None:
        api, clock = Rightless(), Clock()
        one = lease(api, "a", clock)
        first = asyncio.create_task(one.acquire())
        await asyncio.sleep(0.05)
        assert first.done() == begun
        api.refused = False
        await asyncio.wait_for(first, 5)
        api.refused = True
        kept = asyncio.create_task(one.keep())
        await asyncio.sleep(0.05)
        assert not kept.done()
        clock.now += leases.GIVE_UP_AFTER + 1
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(kept, 5)

    asyncio.run(history())


def test_a_holder_counts_from_before_its_renewal_and_ends_in_time_even_when_answers_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others count from the moment at which the renewal was stored; its answer may take long after that."""
    for name, seconds in (("GIVE_UP_AFTER", 1.0), ("ANSWER_SECONDS", 0.6), ("RENEW_EVERY", 0.2)):
        monkeypatch.setattr(leases, name, seconds)

    class Slow(MemoryApi):
        stored_at = 0.0
        slow = False

        @override
        async def call(self, method: str, where: Where, **given: Any) -> Document:
            if method == "PUT" and self.slow and self.stored_at:
                await asyncio.sleep(3600)
            found = await super().call(method, where, **given)
            if method == "PUT" and self.slow:
                self.stored_at = time.monotonic()
                await asyncio.sleep(0.5)
            return found

    async def history() -> float:
        api = Slow()
        one = Lease(cast(Kube, api), "ops", "tailrace-operator", "a")
        await one.acquire()
        api.slow = True
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(one.keep(), 10)
        return time.monotonic() - api.stored_at

    assert asyncio.run(history()) < 1.6, "GIVE_UP_AFTER, and what a busy machine adds"


def test_operators_with_leases_of_other_names_do_not_wait_for_each_other() -> None:
    environment = {"TAILRACE_SPARK_IMAGE": "image", "POD_NAMESPACE": "ops", "KUBECONFIG": "none"}
    assert settings.parse([], environment).lease == "tailrace-operator"
    assert settings.parse(["--lease", "second-tailrace-operator"], environment).lease == "second-tailrace-operator"

    async def history() -> None:
        api, clock = MemoryApi(), Clock()
        first = Lease(cast(Kube, api), "ops", "a-lease", "a", clock=clock, monotonic=clock)
        second = Lease(cast(Kube, api), "ops", "b-lease", "b", clock=clock, monotonic=clock)
        assert await acquires(first) and await acquires(second)

    asyncio.run(history())


def test_a_holder_whose_lease_was_taken_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_EVERY", 0.01)

    async def history() -> None:
        api, clock = MemoryApi(), Clock()
        one = lease(api, "a", clock)
        assert await acquires(one)
        path = next(iter(api.objects))
        api.objects[path]["spec"]["holderIdentity"] = "thief"
        api.objects[path]["metadata"]["resourceVersion"] = "999"
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(one.keep(), 5)

    asyncio.run(history())


def replicator(name: str, version: str) -> Document:
    return {"metadata": {"namespace": "team", "name": name, "uid": name, "resourceVersion": version, "generation": 1}}


def test_watches_that_miss_changes_are_healed_and_make_the_probe_fail() -> None:
    async def history() -> None:
        api, index = MemoryApi(), Index(lambda key: None)
        canary = Canary(cast(Kube, api), index, WatchRights(["team"]), lambda kind, namespace: None)
        index.put("Replicator", replicator("a", "1"))
        index.put("Replicator", replicator("gone", "1"))
        for number in range(2, 6):
            api.objects[Where("Replicator", "team", "a").path] = replicator("a", str(number))
            await canary.look()
            assert not canary.stale
            await canary.look()
        assert index.get(ObjectKey("Replicator", "team", "gone")) is None
        found = index.get(ObjectKey("Replicator", "team", "a"))
        assert found is not None and found["metadata"]["resourceVersion"] == "5"

    asyncio.run(history())


def test_watches_that_stay_deaf_are_told_by_the_probe() -> None:
    async def history() -> None:
        api, index = MemoryApi(), Index(lambda key: None)
        canary = Canary(cast(Kube, api), index, WatchRights(["team"]), lambda kind, namespace: None)
        for number in range(5):
            # Healing one, another is missed: every round finds something that was missing the round before.
            for name in (f"n{number}", f"n{number + 1}"):
                api.objects[Where("Replicator", "team", name).path] = replicator(name, "1")
            await canary.look()
        assert canary.stale

    asyncio.run(history())


def test_a_namespace_that_may_be_listed_but_not_watched_does_not_make_the_probe_fail() -> None:
    """Nobody brings its changes; a restart of the operator would not either, and would stop all the others."""

    class Blind(MemoryApi):
        @override
        async def open(self, method: str, where: Where, **given: Any) -> EmptyStream:
            if where.namespace == "blind":
                raise ApiRefused(403, "Forbidden", "cannot watch")
            return await super().open(method, where, **given)

    async def history() -> None:
        api, index, access = Blind(), Index(lambda key: None), WatchRights(["team", "blind"])
        behind: list[tuple[str, str | None]] = []
        canary = Canary(cast(Kube, api), index, access, lambda kind, space: behind.append((kind, space)))
        for number in range(5):
            for name in (f"n{number}", f"n{number + 1}"):
                document = replicator(name, "1")
                document["metadata"]["namespace"] = "blind"
                api.objects[Where("Replicator", "blind", name).path] = document
            await canary.look()
        assert not canary.stale and set(behind) == {("Replicator", "blind")}
        told = len(behind)
        access.refused("blind", "Replicator", "cannot watch")
        await canary.look()
        assert len(behind) == told, "it is known"

    asyncio.run(history())


def test_a_server_that_ends_every_watch_at_once_is_not_stormed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(MemoryApi):
        opened = 0

        @override
        async def call(self, method: str, where: Where, **given: Any) -> Document:
            return {"metadata": {"resourceVersion": "1"}, "items": None}

        @override
        async def open(self, method: str, where: Where, **given: Any) -> EmptyStream:
            self.opened += 1
            return EmptyStream()

    monkeypatch.setattr(watch, "SHORT", 0.2)

    async def history() -> None:
        api, lists = Ending(), 0

        def listed(documents: list[Document]) -> None:
            nonlocal lists
            lists += 1

        sink = WatchSink(listed, lambda document: None, lambda document: None)
        task = asyncio.create_task(Watch(cast(Kube, api), "Pod", "team", sink).run())
        await asyncio.sleep(0.4)
        task.cancel()
        assert (lists, 1 <= api.opened <= 3) == (1, True), api.opened

    asyncio.run(history())
