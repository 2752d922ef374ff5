"""kopf's watch of Replicators and SnapshotRequests, the only one of the two. It feeds the index and does nothing else:
kopf writes no annotations, no finalizers and no status.

kopf runs in a thread with a loop of its own, because when it ends, it ends all tasks of its loop. It ends when a list
is answered with 404, while a definition is away; it is started again as soon as both resources can be listed. That list
also takes out of the index what was deleted meanwhile, which kopf does not report.
"""

import asyncio
import itertools
import logging
import random
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import kopf
from typing_extensions import override

from tailrace.contract.resources import GROUP, VERSION
from tailrace.errors import TailraceError
from tailrace_operator import metrics
from tailrace_operator.handlers.watching import PLURALS, list_all
from tailrace_operator.kube import Kube
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.watch import FIRST_PAUSE, LONGEST_PAUSE, PAGE, SHORT, SILENCE, Document

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0
"""Seconds in which kopf finds the definitions. What it does not find at its start it never watches."""


class KopfWatch:
    def __init__(self, kube: Kube, index: Index, namespaces: Sequence[str | None], kubeconfig: str | None) -> None:
        """`kubeconfig` None: the pod's service account."""
        self._kube = kube
        self._index = index
        self._namespaces = namespaces
        self._kubeconfig = kubeconfig
        self.synced = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self._list()
            self.synced.set()
            log.warning("kopf has ended (%r); listing and watching again", await self._follow())
            await asyncio.sleep(SHORT)

    # ---- the list ----

    async def _list(self) -> None:
        """Lists both resources into the index, with endless attempts: the definitions may come after the operator."""
        pause = FIRST_PAUSE
        while True:
            try:
                for kind, namespace in itertools.product(PLURALS, self._namespaces):
                    metrics.WATCH_STARTS.labels(kind).inc()
                    self._listed(kind, namespace, await list_all(self._kube, kind, namespace))
            except TailraceError as error:
                log.warning("listing %ss: %s; retrying in %.1f s", kind, error.message, pause)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    def _listed(self, kind: str, namespace: str | None, documents: list[Document]) -> None:
        alive = {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in documents}
        for key in self._index.keys(kind):
            if namespace in (None, key.namespace) and (key.namespace, key.name) not in alive:
                self._index.remove(kind, key.namespace, key.name)
        for document in documents:
            self._index.put(kind, document)

    # ---- kopf ----

    async def _follow(self) -> object:
        """Runs kopf until it ends; returns its error, if it had one."""
        stop, loop = threading.Event(), asyncio.get_running_loop()
        try:
            thread = asyncio.to_thread(asyncio.run, self._kopf(stop, loop))
            return (await asyncio.gather(thread, return_exceptions=True))[0]
        finally:
            stop.set()

    async def _kopf(self, stop: threading.Event, home: asyncio.AbstractEventLoop) -> None:
        """Runs kopf, in a thread of its own. `home`: the loop of everything else."""
        looking = asyncio.create_task(self._look(stop))
        others = asyncio.all_tasks()
        named = [namespace for namespace in self._namespaces if namespace is not None]
        tasks = await kopf.spawn_tasks(
            registry=self._registry(home),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not named,
            namespaces=named,
            stop_flag=stop,
        )
        for task in tasks:
            # kopf ends with the first of them, and waits 5 s for the one that waits for the flag.
            task.add_done_callback(lambda _: stop.set())
        try:
            await kopf.run_tasks(tasks, ignored=others)
        finally:
            stop.set()  # kopf waits for it in a thread of this loop, which does not end before
            looking.cancel()

    async def _look(self, stop: threading.Event) -> None:
        """Stops kopf if it does not watch all that it should."""
        while not stop.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            if watches_of_kopf() < len(PLURALS) * len(self._namespaces):
                stop.set()

    def _registry(self, home: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        found = kopf.OperatorRegistry()
        for kind, plural in PLURALS.items():
            self._register(found, kind, plural, home)

        @kopf.on.login(registry=found)
        def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
            if self._kubeconfig is None:
                return kopf.login_with_service_account(**kwargs)
            return kopf.login_with_kubeconfig(**kwargs)

        return found

    def _register(self, found: kopf.OperatorRegistry, kind: str, plural: str, home: asyncio.AbstractEventLoop) -> None:
        async def on_event(**kwargs: Any) -> None:
            home.call_soon_threadsafe(self._event, kind, kwargs["event"])

        kopf.on.event(GROUP, VERSION, plural, registry=found, id=f"index-{plural}")(on_event)

    def _event(self, kind: str, event: Document) -> None:
        head = event["object"]["metadata"]
        if event["type"] == "DELETED":
            self._index.remove(kind, head["namespace"], head["name"], head["uid"])
        else:
            self._index.put(kind, event["object"])


def watches_of_kopf() -> int:
    """The number of kopf's watches that run in this loop, by the names of their tasks: kopf has no function for it."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return sum(name.startswith("watcher for ") and f".{GROUP}@" in name for name in names)


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/kopf-unused"
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _Backoffs()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 360
    settings.watching.inactivity_timeout = SILENCE
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = PAGE
    settings.queueing.exit_timeout = 0.1
    return settings


class _Backoffs(Iterable[int]):
    """Endless: an API server that is away for an hour comes back to an operator that still watches, and a right that
    comes back is noticed within seconds."""

    @override
    def __iter__(self) -> Any:
        yield from (1, 1, 2, 3, 5)
        while True:
            yield 6


logging.getLogger("kopf.objects").setLevel(logging.WARNING)
# They tell each time that kopf gets no signals in a thread, and that it is stopped; and with three tracebacks that it
# ends, which `run` tells in a line.
for _name in ("running", "orchestration"):
    logging.getLogger(f"kopf._core.reactor.{_name}").setLevel(logging.CRITICAL)
