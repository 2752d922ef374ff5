"""The whole process: probes, lease, then watches, queue, canary and lease side by side until one ends."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal

import aiohttp
from typing_extensions import override

from tailrace.errors import TailraceError
from tailrace_operator import metrics
from tailrace_operator.act.events import Events
from tailrace_operator.act.lease import Lease
from tailrace_operator.act.perform import Performer
from tailrace_operator.act.status import StatusWriter
from tailrace_operator.decide.model import EmitEvent
from tailrace_operator.handlers import watching
from tailrace_operator.handlers.apart import apart
from tailrace_operator.handlers.canary import Canary
from tailrace_operator.handlers.gauges import Gauges
from tailrace_operator.handlers.kopf_watch import KopfWatch
from tailrace_operator.handlers.reconcile import Reconciler, ReconcilerParts
from tailrace_operator.handlers.scheduler import WORKERS, Scheduler
from tailrace_operator.handlers.server import STUCK_SECONDS, ProbeServer
from tailrace_operator.handlers.turns import Turns
from tailrace_operator.kube import Kube, Where
from tailrace_operator.observe.drivers import Drivers
from tailrace_operator.observe.gather import Gatherer
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import ObjectKey
from tailrace_operator.observe.watch_rights import WatchRights
from tailrace_operator.settings import OperatorSettings

log = logging.getLogger(__name__)
LEASE_STUCK_SECONDS = 60.0


class TaskEnded(TailraceError):
    """A part that should run forever has ended."""


async def serve(settings: OperatorSettings) -> None:
    """Until SIGTERM or SIGINT; raises what ended it otherwise."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kube = await Kube.connect(settings.kubeconfig)
    async with _Closing(kube), _session() as session:
        process = _Process(settings, kube, session)
        await process.probes.start(settings.host, settings.port)
        try:
            await _first([stop.wait(), process.run()], stop)
        finally:
            await process.close()


class _Process:
    def __init__(self, settings: OperatorSettings, kube: Kube, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._kube = kube
        self.scheduler = Scheduler()
        self.index = Index(self._wake)
        self.lease = Lease(kube, settings.lease_namespace, settings.lease, settings.identity)
        self.access = WatchRights(settings.namespaces)
        self.access.on_return(self._wake_all)
        # Ours first: of what belongs to them only what names one that is known is kept.
        self.ours = KopfWatch(kube, self.index, settings.namespaces, settings.kubeconfig, self.access)
        self.canary = Canary(kube, self.index, self.access, self.ours.behind)
        self.events = Events(kube, settings.identity, Where("Lease", settings.lease_namespace, settings.lease))
        self._known: set[str | None] = set()
        """Namespaces of which everything is in the index."""
        memory = Memory(time.time)
        gatherer = Gatherer(self.index, kube, Drivers(session), memory, time.time)
        self.reconciler = Reconciler(
            ReconcilerParts(
                kube=kube,
                index=self.index,
                gatherer=gatherer,
                writer=StatusWriter(kube, settings.status_writes),
                performer=Performer(kube, session, self.index, gatherer, memory),
                events=self.events,
                memory=memory,
                limits=settings.limits,
                turns=Turns(self.index, settings.limits.rollout, self._watched),
                watched=lambda key: self._watched(key) and self.lease.held,
            )
        )
        metrics.REGISTRY.register(Gauges(self.index, self._watched))
        self.probes = ProbeServer(self.health_problem, self.readiness, self.measure)
        self._leads = self._working = False

    async def run(self) -> None:
        await self.lease.acquire()
        self._leads = True
        async with asyncio.TaskGroup() as group:
            group.create_task(_endless("the lease", apart(self._keep_lease)))
            group.create_task(_endless("kopf", self.ours.run()))
            for namespace in self._settings.namespaces:
                group.create_task(self._know(group, namespace))
            group.create_task(_endless("what is refused", self._tell()))
            group.create_task(_endless("the canary", self.canary.run()))
            group.create_task(_endless("the queue", self.scheduler.run(self.reconciler.round)))
            self._working = True

    async def _keep_lease(self) -> None:
        """Runs in a loop of another thread, to which it needs a connection."""
        kube = await Kube.connect(self._settings.kubeconfig)
        async with _Closing(kube):
            await self.lease.keep(kube)

    async def _know(self, group: asyncio.TaskGroup, namespace: str | None) -> None:
        """Nothing there is decided before everything is known: a child that is not listed yet would be made again. One
        namespace does not wait for another."""
        await self.ours.listed[namespace].wait()
        watches = watching.watches(self._kube, namespace, self.index, self.access)
        for watch in watches:
            group.create_task(_endless("a watch", watch.run()))
        for watch in watches:
            await watch.synced.wait()
        self._known.add(namespace)
        self._wake_all(namespace)
        where = namespace or "all namespaces"
        log.info("listed %d Replicators in %s", self.index.count("Replicator"), where)

    def _watched(self, key: ObjectKey) -> bool:
        known = None in self._known or key.namespace in self._known
        return known and not self.access.blind(key.namespace)

    def _wake(self, key: ObjectKey) -> None:
        if self._watched(key):
            self.scheduler.wake(key)

    def _wake_all(self, namespace: str | None) -> None:
        """Also those that went while nobody watched: they are still to be forgotten."""
        known = (key for kind in watching.PLURALS for key in self.index.keys(kind))
        for key in {*known, *self.reconciler.keys()}:
            if namespace in (None, key.namespace):
                self._wake(key)

    async def _tell(self) -> None:
        """Events of namespaces that lose their rights, or get them."""
        while True:
            turned = await self.access.turned.get()
            lost = bool(turned.refusal)
            level: Literal["Warning", "Normal"] = "Warning" if lost else "Normal"
            event = EmitEvent(level, "NamespaceRefused" if lost else "NamespaceWatched", turned.text)
            await self.events.report(event, time.time())

    async def close(self) -> None:
        if self._leads:
            await self.lease.release()
        await self.probes.close()

    def health_problem(self) -> str | None:
        if time.monotonic() - self.lease.last_step_at > LEASE_STUCK_SECONDS:
            return "the lease is not looked after"
        if self._working and self.scheduler.stuck() > STUCK_SECONDS:
            return f"no round has ended for {self.scheduler.stuck():.0f} s"
        if self.canary.stale:
            return "the watches miss changes"
        return None

    def readiness(self) -> tuple[int, str]:
        """Not ready is who may look after nothing. One namespace of several is named only: a roll-out that waits for
        readiness would otherwise wait for all of them."""
        problem = self.access.problem()
        return (503 if problem and self.access.everywhere else 200, f"ok, but {problem}" if problem else "ok")

    def measure(self) -> None:
        metrics.QUEUE.set(self.scheduler.length())
        metrics.OVERDUE.set(self.scheduler.overdue())


async def _endless(name: str, work: Coroutine[Any, Any, None]) -> None:
    await work
    raise TaskEnded(f"{name} has ended")


async def _first(works: list[Coroutine[Any, Any, Any]], stop: asyncio.Event) -> None:
    """Until the first ends; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    done = [t for t in tasks if t.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        error = task.exception()
        if error is not None and not stop.is_set():
            raise error


class _Closing(contextlib.AbstractAsyncContextManager["_Closing"]):
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    @override
    async def __aexit__(self, *_: object) -> None:
        await self._kube.close()


@contextlib.asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    """The HTTP session for the drivers; no proxy: their addresses are pods. A connection per question: the pod's
    address may be another pod's by the next one."""
    connector = aiohttp.TCPConnector(limit=WORKERS, force_close=True)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        yield session
