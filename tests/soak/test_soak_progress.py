"""Many Replicators in snapshot at once: what their progress costs the API server, and whether all get the same share.

Drivers are stood in for: one server answers on an address of its own for each, and each snapshot makes a percent a
second. The figures go to the output; docs/performance.md quotes them. TAILRACE_SOAK_SNAPSHOTS sets how many.
"""

import asyncio
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes import client, watch

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import OperatorProcess
from support.resources import replicator
from support.waiting import until
from tailrace.contract.status import SnapshotStatus, Status

COUNT = int(os.environ.get("TAILRACE_SOAK_SNAPSHOTS", "500"))
SECONDS = 60.0
WRITES_PER_SECOND = 20
"""The operator's default."""


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


class Drivers:
    """Answers `GET /status` on port 8090 of as many addresses; `begun`: the start of all snapshots."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.70.{n // 250}.{n % 250 + 1}" for n in range(count)]
        self.begun: float | None = None
        self.questions = 0

    def percent(self, now: float) -> int:
        return min(int(now - self.begun), 99) if self.begun is not None else 0

    async def _status(self, request: web.Request) -> web.Response:
        self.questions += 1
        now = time.time()
        reading = () if self.begun is None else (self._snapshot(now),)
        found = Status(
            name="shop",
            state="Running",
            started_at=now,
            updated_at=now,
            tables_total=7,
            tables_replicating=6,
            snapshots=reading,
        )
        return web.Response(text=found.model_dump_json(by_alias=True), content_type="application/json")

    def _snapshot(self, now: float) -> SnapshotStatus:
        done = self.percent(now)
        return SnapshotStatus(id="s", reason="initial", state="Running", rows_done=done, rows_estimated=100)

    async def serve(self, stop: asyncio.Event, ready: threading.Event) -> None:
        app = web.Application()
        app.router.add_get("/status", self._status)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        for address in self.addresses:
            await web.TCPSite(runner, address, 8090).start()
        ready.set()
        await stop.wait()
        await runner.cleanup()


@contextmanager
def drivers(count: int) -> Iterator[Drivers]:
    made, ready, loop = Drivers(count), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(made.serve(stop, ready)), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


class Shown:
    """What a client that watches sees: each new percent of each Replicator, and how late it comes."""

    def __init__(self, kube: KubeApi, namespace: str, made: Drivers) -> None:
        self._kube, self._namespace, self._made = kube, namespace, made
        self.steps: dict[str, list[str]] = defaultdict(list)
        self.late: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Shown":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        with self._kube.client() as api:
            custom: Any = client.CustomObjectsApi(api)
            watcher: Any = watch
            where = ("tailrace.dev", "v1alpha1", self._namespace, "replicators")
            while not self._end.is_set():
                for event in watcher.Watch().stream(custom.list_namespaced_custom_object, *where, timeout_seconds=5):
                    self._note(event["object"])

    def _note(self, document: dict[str, Any]) -> None:
        name, summary = document["metadata"]["name"], document.get("status", {}).get("snapshotSummary")
        if summary is None or summary in self.steps[name]:
            return
        self.steps[name].append(summary)
        if self._made.begun is not None:
            self.late.append(time.time() - self._made.begun - int(summary.rstrip("%")))


def run_pods(place: OperatorNamespace, made: Drivers) -> None:
    for number, address in enumerate(made.addresses):
        name = f"shop{number}"
        until(lambda name=name: place.node.stateful_set(name), f"the StatefulSet of {name}", 600)  # type: ignore[misc]  # a default argument
        place.node.make_pod(name)
        place.node.run_pod(name, address)


def running(place: OperatorNamespace) -> int:
    documents = json.loads(place.kubectl("get", "repl", "-o", "json"))["items"]
    return sum(document.get("status", {}).get("state") == "Running" for document in documents)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", sorted({1, COUNT}))
def test_progress_of_many_snapshots_stays_within_the_budget_and_all_get_the_same_share(
    kube_api: KubeApi, tmp_path: Path, count: int
) -> None:
    with (
        drivers(count) as made,
        operator_namespace(kube_api, f"many-{count}", tmp_path) as place,
        operator(place) as process,
    ):
        for first in range(0, count, 100):
            place.apply(*(replicator(f"shop{n}") for n in range(first, min(first + 100, count))))
        run_pods(place, made)
        until(lambda: running(place) == count, "all drivers answer", 900)
        with Shown(kube_api, place.namespace, made) as shown:
            made.begun = time.time()
            figures = {"replicators": count, **measure(process, made)}
        steps = [len(found) for found in shown.steps.values()]
        late = sorted(shown.late)
        figures |= {"steps_least": min(steps), "steps_most": max(steps)}
        figures |= {"late_median": late[len(late) // 2], "late_most": late[-1]}
        print(json.dumps(figures, indent=1))
        assert len(shown.steps) == count
        assert figures["writes"] <= (SECONDS + 4) * WRITES_PER_SECOND + count
        assert max(steps) - min(steps) <= 2 or count == 1
        assert not [line for line in process.lines() if line["level"] == "error"]


def measure(process: OperatorProcess, made: Drivers) -> dict[str, float]:
    assert process.process is not None
    watched = process.process.family()[0]
    names = ("tailrace_operator_api_requests_total", "tailrace_operator_status_writes_total")
    before, cpu, asked, begun = (
        [process.metric(name) for name in names],
        watched.cpu_times(),
        made.questions,
        time.time(),
    )
    time.sleep(SECONDS)
    seconds, after = time.time() - begun, watched.cpu_times()
    calls, writes = (process.metric(name) - value for name, value in zip(names, before, strict=True))
    return {
        "seconds": seconds,
        "api_requests": calls,
        "writes": writes,
        "questions_to_drivers": made.questions - asked,
        "cpu_cores": (after.user + after.system - cpu.user - cpu.system) / seconds,
    }
