"""A round of the loop, the queue's health and the connections, with an API in memory: many objects, slow drivers."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from support.observed import LIMITS, NOW, meta, running
from tailrace_operator.act.lease import Lease
from tailrace_operator.act.perform import Performer
from tailrace_operator.decide.model import ApplyChild, MakeSecret, SetFinalizers
from tailrace_operator.decide.replicator import decide
from tailrace_operator.handlers import watching
from tailrace_operator.handlers.reconcile import UNWATCHED_SECONDS, Reconciler, ReconcilerParts, pace
from tailrace_operator.handlers.scheduler import WORKERS, Scheduler
from tailrace_operator.handlers.server import STUCK_SECONDS
from tailrace_operator.handlers.turns import Turns
from tailrace_operator.kube import CALLS, ApiConflict, ApiNotFound, Document, Kube, Where
from tailrace_operator.observe.drivers import ANSWER_SECONDS
from tailrace_operator.observe.gather import Gatherer
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import Child, ObjectKey, ObservedReplicator
from tailrace_operator.observe.watch_rights import WatchRights
from tailrace_operator.resources import names
from tailrace_operator.resources.driver import service

KEY = ObjectKey("Replicator", "team", "shop")


def settled() -> ObservedReplicator:
    """Everything is made, the driver answers, the status says so."""
    base = running()
    children = dict(base.children)
    for action in decide(base, LIMITS).actions:
        assert isinstance(action, ApplyChild)
        kind, name = action.document["kind"], action.document["metadata"]["name"]
        children[f"{kind}/{name}"] = Child(kind, name, "u", "1", action.content_hash)
    base = replace(base, children=children)
    return replace(base, status=decide(base, LIMITS).status)


@pytest.mark.parametrize(("count", "seconds"), [(100, 10), (1000, 20), (5000, 25)])
def test_many_drivers_are_asked_less_often_each_but_within_half_a_minute(count: int, seconds: float) -> None:
    async def observe(key: ObjectKey) -> ObservedReplicator:
        return settled()

    async def write(*given: Any) -> None:
        return None

    parts = SimpleNamespace(
        gatherer=SimpleNamespace(replicator=observe),
        limits=LIMITS,
        turns=Turns(Index(lambda key: None), 5),
        index=SimpleNamespace(count=lambda kind: count),
        writer=SimpleNamespace(write=write, wait=lambda *given: None),
        watched=lambda key: True,
    )
    assert asyncio.run(Reconciler(cast(ReconcilerParts, parts)).round(KEY)) == seconds


def test_what_is_not_watched_any_longer_is_neither_written_nor_carried_out() -> None:
    """The watch may end between any two steps of a round."""
    done: list[str] = []

    async def observe(key: ObjectKey) -> ObservedReplicator:
        done.append("observe")
        return running()  # its children are still to be made

    async def write(*given: Any) -> None:
        done.append("write")

    async def perform(*given: Any) -> None:
        done.append("perform")

    def watched(key: ObjectKey) -> bool:
        return len(done) < limit

    parts = SimpleNamespace(
        gatherer=SimpleNamespace(replicator=observe),
        limits=LIMITS,
        turns=Turns(Index(lambda key: None), 5),
        index=SimpleNamespace(count=lambda kind: 1),
        writer=SimpleNamespace(write=write, wait=lambda *given: None),
        performer=SimpleNamespace(perform=perform),
        watched=watched,
    )
    steps = ["observe", "write", "perform", "perform"]
    for limit in range(len(steps) + 1):
        done.clear()
        assert asyncio.run(Reconciler(cast(ReconcilerParts, parts)).round(KEY)) == UNWATCHED_SECONDS
        assert done == steps[:limit]


def test_those_that_move_share_questions_of_their_own_and_few_that_do_not_are_asked_often() -> None:
    assert pace(1.0, "moving", count=5000, moving=3) == 1.0
    assert pace(1.0, "moving", count=500, moving=500) == 10.0
    assert [pace(2.0, "steady", count=n, moving=0) for n in (1, 20, 50, 100, 500, 1000, 5000)] == [
        2,
        2,
        5,
        10,
        10,
        20,
        25,
    ]
    assert pace(300.0, "steady", count=5000, moving=0) == 300.0, "without a driver"
    assert pace(1.0, "given", count=10, moving=500) == 1.0, "a driver that drops its objects"


def test_an_object_that_cannot_be_judged_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assessed: list[str] = []

    async def observe(key: ObjectKey) -> ObservedReplicator:
        return replace(settled(), meta=meta(name=key.name))

    def odd(observed: ObservedReplicator, limits: Any) -> Any:
        assessed.append(observed.meta.name)
        raise ValueError("of a field that nobody thought of")

    monkeypatch.setattr("tailrace_operator.handlers.reconcile.replicator.decide", odd)
    parts = SimpleNamespace(
        gatherer=SimpleNamespace(replicator=observe),
        limits=LIMITS,
        turns=Turns(Index(lambda key: None), 5),
        watched=lambda key: True,
    )
    scheduler = Scheduler()

    async def history() -> None:
        for name in ("a", "b"):
            scheduler.wake(ObjectKey("Replicator", "team", name), 0)
        task = asyncio.create_task(scheduler.run(Reconciler(cast(ReconcilerParts, parts)).round, 1))
        await asyncio.sleep(0.2)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(history())
    assert assessed == ["a", "b"]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 and errors[0].exc_info is not None and "team/a" in errors[0].getMessage()


def test_an_object_that_went_with_its_last_finalizer_does_not_come_back_into_the_index() -> None:
    """The news of its end may come before the answer to the request that ended it."""
    index = Index(lambda key: None)
    head = {"namespace": "team", "name": "shop", "uid": meta().uid, "resourceVersion": "7", "deletionTimestamp": "x"}
    index.put("Replicator", {"metadata": {**head, "finalizers": ["tailrace.dev/finalizer"]}})

    class Api:
        async def call(self, method: str, where: Where, **given: Any) -> Document:
            index.remove("Replicator", "team", "shop", head["uid"])
            return {"metadata": {**head, "resourceVersion": "8"}}

    performer = Performer(
        cast(Kube, Api()), cast(aiohttp.ClientSession, None), index, cast(Gatherer, None), Memory(lambda: NOW)
    )
    asyncio.run(performer.perform(KEY, meta(), "shop", SetFinalizers(())))
    assert index.get(KEY) is None


class Holding:
    """An API that holds one object, or none, and counts what is written."""

    def __init__(self, held: Document | None) -> None:
        self.held, self.written = held, 0

    async def call(self, method: str, where: Where, **given: Any) -> Document:
        if method == "GET":
            if self.held is None:
                raise ApiNotFound(404, "NotFound", where.path)
            return self.held
        if method == "POST" and self.held is not None:
            raise ApiConflict(409, "AlreadyExists", where.path)
        self.written += 1
        body: Document = given["body"]
        return body | {"metadata": body["metadata"] | {"uid": "new", "resourceVersion": "2"}}


def held(**labels: str) -> Document:
    head = {"namespace": "team", "name": "shop-driver", "uid": "x", "resourceVersion": "1"}
    return {"metadata": head | {"labels": labels}}


@pytest.mark.parametrize(
    ("there", "written"), [(None, 1), (held(**names.labels("shop", "driver")), 1), (held(app="shop"), 0), (held(), 0)]
)
@pytest.mark.parametrize(
    "action", [ApplyChild(service("shop"), "hash"), MakeSecret("shop-driver")], ids=["apply", "token"]
)
def test_an_object_of_somebody_else_is_not_taken_over(
    action: ApplyChild | MakeSecret, there: Document | None, written: int
) -> None:
    """What is taken over would be overwritten, and deleted with the Replicator."""
    api, memory = Holding(there), Memory(lambda: NOW)
    index = Index(lambda key: None)
    performer = Performer(cast(Kube, api), cast(aiohttp.ClientSession, None), index, cast(Gatherer, None), memory)
    asyncio.run(performer.perform(KEY, meta(), "shop", action))
    assert api.written == (written if isinstance(action, ApplyChild) or there is None else 0)
    refusal = memory.refusal(KEY)
    assert (refusal is not None) == (written == 0)
    assert refusal is None or "does not belong to this Replicator" in refusal.message


# ---- health ----


def test_a_long_queue_that_moves_is_not_stuck_and_one_that_does_not_is() -> None:
    now, done = 0.0, 0
    scheduler = Scheduler(lambda: now)

    async def work(key: ObjectKey) -> float | None:
        nonlocal now, done
        now += 10
        done += 1
        if done == 50:
            await asyncio.sleep(3600)
        return None

    async def history() -> None:
        nonlocal now
        for number in range(60):
            scheduler.wake(ObjectKey("Replicator", "team", str(number)), 0)
        task = asyncio.create_task(scheduler.run(work, 1))
        await asyncio.sleep(0.1)
        assert done == 50
        assert scheduler.overdue() > STUCK_SECONDS, "slow, and said so by a metric"
        assert scheduler.stuck() <= 10, "a restart would only make it slower"
        now += STUCK_SECONDS + 1
        assert scheduler.stuck() > STUCK_SECONDS
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(history())


def test_work_that_nobody_begins_is_stuck() -> None:
    now = 0.0
    scheduler = Scheduler(lambda: now)
    now = 1000.0
    assert scheduler.stuck() == 0, "nothing is due"
    scheduler.wake(KEY, 0)
    now = 1000.0 + STUCK_SECONDS + 1
    assert scheduler.stuck() > STUCK_SECONDS


def test_silent_drivers_by_the_hundred_are_told_within_half_a_minute() -> None:
    assert 300 * ANSWER_SECONDS / WORKERS < 30


# ---- connections ----


def test_many_rounds_do_not_storm_the_api_server_and_the_lease_goes_past_them(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    async def hang(self: Kube, method: str, where: Where, **given: Any) -> Any:
        opened.append(where.kind)
        await asyncio.sleep(3600)

    async def history() -> None:
        monkeypatch.setattr(Kube, "open", hang)
        kube = Kube(cast(Any, None))
        rounds = [asyncio.create_task(kube.call("GET", Where("Secret", "team", "x"))) for _ in range(WORKERS)]
        await asyncio.sleep(0)
        lease = asyncio.create_task(Lease(kube, "ops", "lease", "me").acquire())
        await asyncio.sleep(0.05)
        for task in (*rounds, lease):
            task.cancel()
        await asyncio.gather(*rounds, lease, return_exceptions=True)

    asyncio.run(history())
    assert (opened.count("Secret"), opened.count("Lease")) == (CALLS, 1)


def test_watches_of_many_namespaces_leave_connections_for_everything_else(tmp_path: Path) -> None:
    held = 20 * len(watching.watches(cast(Kube, None), "team", Index(lambda key: None), WatchRights(["team"])))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{}")
        with suppress(ConnectionError):
            await writer.drain()
            if b"watch=1" in line:
                await reader.read()
            writer.close()
            await writer.wait_closed()

    async def history() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        kube = await Kube.connect(str(tmp_path / "config"))
        async with server:
            opened = [await kube.open("GET", Where("Pod", None), query={"watch": "1"}, timeout=60) for _ in range(held)]
            found = await asyncio.wait_for(kube.call("GET", Where("Lease", "ops", "x")), 5)
            for response in opened:
                response.close()
            await kube.close()
            await asyncio.sleep(0.1)
        assert found == {}

    asyncio.run(history())
