"""kopf's watch of Replicators and SnapshotRequests, the only one of the two. It feeds the index and does nothing else:
kopf writes no annotations, no finalizers and no status.

kopf runs in a thread with a loop of its own, because when it ends, it ends all tasks of its loop. It ends when a list
is answered with 404, while a definition is away; it is started again as soon as Replicators can be listed. That list
also takes out of the index what was deleted meanwhile, which kopf does not report.

A namespace whose lists or watches are refused, and a missing definition of SnapshotRequests, are waited for beside the
others. kopf tries a refused watch for ever and tells nobody but its log, which is heard here.
"""

import asyncio
import itertools
import logging
import random
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import kopf
from typing_extensions import override

from tailrace.contract.resources import GROUP, VERSION
from tailrace.errors import TailraceError
from tailrace_operator import metrics
from tailrace_operator.handlers.watching import PLURALS, list_all, try_watch
from tailrace_operator.kube import ApiNotFound, ApiRefused, Kube, Where
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.mistakes import passed_over
from tailrace_operator.observe.model import ObjectKey
from tailrace_operator.observe.watch import FIRST_PAUSE, FORBIDDEN, LONGEST_PAUSE, PAGE, SHORT, SILENCE, Document
from tailrace_operator.observe.watch_rights import WatchRights

log = logging.getLogger(__name__)
REPLICATOR = "Replicator"
LOG = logging.getLogger("kopf._cogs.clients.watching")
FORBIDDEN_TO_KOPF = "APIForbiddenError"
"""The word in its lines about a watch or a list that is refused."""
LOOK_SECONDS = 10.0
"""Seconds in which kopf finds the definitions. What it does not find at its start it never watches."""


class KopfWatch:
    def __init__(
        self, kube: Kube, index: Index, namespaces: Sequence[str | None], kubeconfig: str | None, access: WatchRights
    ) -> None:
        """`kubeconfig` None: the pod's service account."""
        self._kube = kube
        self._index = index
        self._namespaces = namespaces
        self._kubeconfig = kubeconfig
        self._access = access
        self._behind = set(itertools.product(PLURALS, namespaces))
        """The lists that are still to be taken into the index."""
        self._refused: set[tuple[str, str | None]] = set()
        """Those of which more than the list may be refused: the watch is tried, too, before they count as watched."""
        self._missing: set[str] = set()
        """Kinds without a definition."""
        self._watched: list[str] = []
        """Kinds that kopf watches."""
        self._stop = threading.Event()
        self.listed = {namespace: asyncio.Event() for namespace in namespaces}
        """Set when what is in the namespace is in the index."""
        access.on_return(self._returned)

    async def run(self) -> None:
        while True:
            await self._list()
            async with asyncio.TaskGroup() as group:
                catching_up = group.create_task(self._catch_up())
                ended = await self._follow()
                catching_up.cancel()
            log.warning("kopf has ended (%r); listing and watching again", ended)
            await asyncio.sleep(SHORT)

    def behind(self, kind: str, namespace: str | None) -> None:
        """Its list is to be taken again, and its watch may be refused."""
        self._behind.add((kind, namespace))
        self._refused.add((kind, namespace))

    # ---- the list ----

    async def _list(self) -> None:
        """Lists all that may be listed, with endless attempts: the definitions may come after the operator."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._watched = [kind for kind in PLURALS if await self._list_kind(kind)]
                if REPLICATOR in self._watched:
                    self._open()
                    return
                why = f"there is no definition of {REPLICATOR}s"
            except TailraceError as error:
                why = error.message
            log.warning("listing: %s; retrying in %.1f s", why, pause)
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _list_kind(self, kind: str) -> bool:
        """False: it has no definition."""
        for namespace in self._namespaces:
            try:
                await self._take(kind, namespace)
            except ApiNotFound:
                self._missing.add(kind)
                self._behind |= {(kind, namespace) for namespace in self._namespaces}
                log.warning("there is no definition of %ss; looking for it", kind)
                return False
        return True

    async def _take(self, kind: str, namespace: str | None) -> None:
        """Takes a list into the index, or remembers that it is refused."""
        metrics.WATCH_STARTS.labels(kind).inc()
        # What comes from kopf while the list is under way is newer than the list.
        before = [key for key in self._index.keys(kind) if namespace in (None, key.namespace)]
        try:
            documents = await list_all(self._kube, kind, namespace)
            if (kind, namespace) in self._refused:
                await try_watch(self._kube, kind, namespace)
        except ApiNotFound:
            self._access.granted(namespace, kind)  # there is nothing to be refused
            raise
        except ApiRefused as error:
            if error.code != FORBIDDEN:
                raise
            self.behind(kind, namespace)
            self._access.refused(namespace, kind, error.message)
            return
        self._put(kind, documents, before)
        self._missing.discard(kind)
        self._refused.discard((kind, namespace))
        self._access.granted(namespace, kind)
        self._behind.discard((kind, namespace))

    def _open(self) -> None:
        """A namespace waits for its Replicators, and for SnapshotRequests if there are such."""
        behind = {(kind, namespace) for kind, namespace in self._behind if kind not in self._missing}
        for namespace, listed in self.listed.items():
            if not any((kind, namespace) in behind for kind in PLURALS):
                listed.set()

    def _put(self, kind: str, documents: list[Document], before: list[ObjectKey]) -> None:
        alive = {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in documents}
        for key in before:
            if (key.namespace, key.name) not in alive:
                with passed_over(kind, {"metadata": {"namespace": key.namespace, "name": key.name}}):
                    self._index.remove(kind, key.namespace, key.name)
        for document in documents:
            with passed_over(kind, document):
                self._index.put(kind, document)

    async def _catch_up(self) -> None:
        """Beside kopf: it reports what rights that came show, and not what was deleted before they came."""
        while True:
            await asyncio.sleep(LONGEST_PAUSE * random.uniform(0.7, 1.3))
            for kind, namespace in list(self._behind):
                try:
                    await self._take(kind, namespace)
                except ApiNotFound:
                    self._missing.add(kind)
                except TailraceError as error:
                    log.info("listing %ss: %s", kind, error.message)
            self._open()
            if not set(PLURALS) - self._missing <= set(self._watched):
                self._stop.set()  # its definition has come

    def _returned(self, namespace: str | None) -> None:
        self._behind |= {(kind, namespace) for kind in PLURALS}

    # ---- kopf ----

    async def _follow(self) -> object:
        """Runs kopf until it ends; returns its error, if it had one."""
        stop, loop = threading.Event(), asyncio.get_running_loop()
        self._stop = stop
        try:
            thread = asyncio.to_thread(asyncio.run, self._kopf(stop, loop))
            return (await asyncio.gather(thread, return_exceptions=True))[0]
        finally:
            stop.set()

    async def _kopf(self, stop: threading.Event, home: asyncio.AbstractEventLoop) -> None:
        """Runs kopf, in a thread of its own. `home`: the loop of everything else."""
        looking = asyncio.create_task(self._look(stop))
        ear = _Ear(lambda line: home.call_soon_threadsafe(self._heard, line))
        LOG.addFilter(ear)
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
            LOG.removeFilter(ear)

    def _heard(self, line: str) -> None:
        """A line of kopf's log about something that is refused to it."""
        for kind, namespace in itertools.product(self._watched, self._namespaces):
            known = self._access.bars(namespace, kind)  # in the API server's words
            if not known and f"{Where(kind, namespace).path}?" in line:
                self.behind(kind, namespace)
                self._access.refused(namespace, kind, f"the API server refuses the watch of {kind}s")

    async def _look(self, stop: threading.Event) -> None:
        """Stops kopf if it does not watch all that it should."""
        while not stop.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            if watches_of_kopf() < len(self._watched) * len(self._namespaces):
                stop.set()

    def _registry(self, home: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        found = kopf.OperatorRegistry()
        for kind in self._watched:
            self._register(found, kind, PLURALS[kind], home)

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
        document = event["object"]
        head = document["metadata"]
        with passed_over(kind, document):
            if event["type"] == "DELETED":
                self._index.remove(kind, head["namespace"], head["name"], head["uid"])
            else:
                self._index.put(kind, document)


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

_AGAIN = re.compile(r"Request attempt #([2-9]|\d\d)")


class _Ear(logging.Filter):
    """Hears what is refused to kopf. Lets a missing right be told in one line, not in one for each attempt."""

    def __init__(self, heard: Callable[[str], object]) -> None:
        super().__init__()
        self._heard = heard

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        if FORBIDDEN_TO_KOPF in line:
            with suppress(RuntimeError):  # the other loop has ended
                self._heard(line)
        return not _AGAIN.match(line)
