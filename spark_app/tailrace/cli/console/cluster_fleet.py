"""The Replicators of a cluster: read from the API server, with live details from drivers that answer.

Shown to a caller are those of the namespaces whose Replicators its token may list.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from tailrace.cli.console import cluster_actions, resource_status, summary
from tailrace.cli.console.cluster_api import TOKEN_FIX, ClusterApi, Document, Right
from tailrace.cli.console.pod_commands import refusal_of
from tailrace.cli.console.refusal import ApiRefusal
from tailrace.cli.console.watched import Described, Plan, Watched
from tailrace.contract.console import (
    ActionBody,
    ConsoleAssessment,
    FleetEntry,
    Realm,
    RefusedAction,
    ReportedEvent,
    SetupBody,
    SetupReport,
)
from tailrace.contract.driver import CUTS, HISTORY, STATUS, TABLES, CutList, CutReport
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import NotRunning

REPLICATORS, REQUESTS = "replicators", "snapshotrequests"
LOOK_SECONDS = 2.0
"""The age at which the resources are listed again."""
ASK_SECONDS = 20.0
"""The age at which the drivers' numbers of the last hour are asked for again, if somebody looks at the fleet."""
SILENT_SECONDS = 20.0
"""The time for which a driver that did not answer is not asked again."""
STATUS_SECONDS = 1.0
AT_ONCE = 16
"""Drivers that are asked, and rights that are reviewed, at the same time."""
AT_ONCE_IN_NAMESPACE = 4
"""Drivers of one namespace that are asked at the same time; all may be silent."""
MOST_STATUSES, MOST_HOURS = 8, 1000
"""Answers that are kept: a status of 5,000 tables takes 12 MiB."""
MOST_HOUR_BYTES = 256 << 10
Answer = TypeVar("Answer")
Kept = TypeVar("Kept")
UNDER_WAY = ("Pending", "Running", "Paused")


@dataclass(frozen=True)
class Listed:
    """The resources at one time."""

    at: float
    replicators: Mapping[str, Document]
    requests: Mapping[str, Sequence[Document]]
    """Name of the Replicator -> its requests."""
    changes: int
    """The changes that the console had made before."""


class DriverMemory:
    """The last answers of the drivers, and those of them that are silent."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._statuses: dict[str, tuple[float, Status]] = {}
        self._hours: dict[str, tuple[float, LastHour]] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        self._asking: set[str] = set()
        self._due: dict[str, deque[Document]] = {}
        """The Replicators to be asked, by namespace."""
        self._askers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="drivers")

    def status(self, item: Document) -> Status:
        name, now = resource_status.name_of(item), self._clock()
        at, known = self._statuses.get(name, (0.0, None))
        if known is None or now - at >= STATUS_SECONDS:
            known = self._ask(item, lambda space, own: self._api.driver(space, own, STATUS, Status))
            self._keep(self._statuses, name, (now, known), MOST_STATUSES)
        return known

    def hour(self, item: Document) -> LastHour:
        name, now = resource_status.name_of(item), self._clock()
        at, known = self._hours.get(name, (0.0, None))
        if known is None or now - at >= ASK_SECONDS:
            known = self._ask(
                item, lambda space, own: self._api.driver(space, own, HISTORY, LastHour, most=MOST_HOUR_BYTES)
            )
            self._keep(self._hours, name, (now, known), MOST_HOURS)
        return known

    def table(self, item: Document, table: str) -> TableView:
        path = f"{TABLES}/{quote(table, safe='')}"
        return self._ask(item, lambda space, own: self._api.driver(space, own, path, TableView), whole=False)

    def cuts(self, item: Document) -> tuple[CutReport, ...]:
        return self._ask(item, lambda space, own: self._api.driver(space, own, CUTS, CutList), whole=False).cuts

    def lags(self, item: Document) -> tuple[float | None, ...]:
        """Those that are known; they are asked for again meanwhile, so that nobody waits for a driver."""
        name, now = resource_status.name_of(item), self._clock()
        at, known = self._hours.get(name, (now - ASK_SECONDS, None))
        ready = resource_status.part(resource_status.status_of(item), "driver").get("ready") is True
        if ready and now - at >= ASK_SECONDS and name not in self._asking and not self._is_silent(name):
            self._asking.add(name)
            self._enqueue(item)
        return summary.lags(known)

    def _enqueue(self, item: Document) -> None:
        namespace = item["metadata"]["namespace"]
        with self._lock:
            self._due.setdefault(namespace, deque()).append(item)
            another = self._askers[namespace] < AT_ONCE_IN_NAMESPACE
            self._askers[namespace] += another
        if another:
            self._pool.submit(self._ask_next, namespace)

    def _ask_next(self, namespace: str) -> None:
        """Asks one driver of the namespace; then it is the next namespace's turn."""
        with self._lock:
            if not (due := self._due[namespace]):
                self._askers[namespace] -= 1
                if not self._askers[namespace]:
                    del self._due[namespace], self._askers[namespace]
                return
            item = due.popleft()
        try:
            self._look(item)
        finally:
            with suppress(RuntimeError):  # the console ends
                self._pool.submit(self._ask_next, namespace)

    def _look(self, item: Document) -> None:
        try:
            self.hour(item)
        except (NotRunning, ApiRefusal):  # it is remembered as silent, or is older
            pass
        finally:
            self._asking.discard(resource_status.name_of(item))

    def _is_silent(self, name: str) -> bool:
        at, _ = self._silent.get(name, (self._clock() - SILENT_SECONDS, ""))
        return self._clock() - at < SILENT_SECONDS

    def _ask(self, item: Document, ask: Callable[[str, str], Answer], *, whole: bool = True) -> Answer:
        """`whole`: the answer is about all of the Replicator; a bad one about a part leaves the driver in use."""
        name, metadata = resource_status.name_of(item), item["metadata"]
        if self._is_silent(name):
            raise NotRunning(self._silent[name][1], "It is asked again after 20 seconds.")
        try:
            answer = ask(metadata["namespace"], metadata["name"])
        except NotRunning as error:
            if whole:
                self._keep(self._silent, name, (self._clock(), error.message), MOST_HOURS)
            raise
        self._silent.pop(name, None)
        return answer

    def _keep(self, answers: dict[str, Kept], name: str, answer: Kept, most: int) -> None:
        """The newest answers stay: Replicators come and go."""
        with self._lock:
            answers.pop(name, None)
            answers[name] = answer
            while len(answers) > most:
                answers.pop(next(iter(answers)), None)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class ClusterReplicator:
    """A Replicator of the cluster."""

    api: ClusterApi
    drivers: DriverMemory
    item: Document
    requests: Sequence[Document]

    @property
    def name(self) -> str:
        return resource_status.name_of(self.item)

    @property
    def namespace(self) -> str:
        return str(self.item["metadata"]["namespace"])

    @property
    def own(self) -> str:
        """Its name in its namespace."""
        return str(self.item["metadata"]["name"])

    def described(self) -> Described:
        return resource_status.described(self.item)

    def entry(self) -> FleetEntry:
        running = sum(resource_status.status_of(r).get("state", "Pending") in UNDER_WAY for r in self.requests)
        return resource_status.entry(self.item, self.drivers.lags(self.item), running)

    def live(self) -> bool:
        try:
            self.drivers.status(self.item)
        except NotRunning:
            return False
        return True

    def status(self) -> Status:
        try:
            return self.drivers.status(self.item)
        except NotRunning:
            return resource_status.status(self.item, self.requests, time.time())

    def conditions(self, status: Status) -> tuple[str, ...]:
        return (*resource_status.conditions(self.item), *summary.conditions(status))

    def history(self) -> LastHour:
        return self.drivers.hour(self.item)

    def table(self, name: str) -> TableView:
        return self.drivers.table(self.item, name)

    def cuts(self) -> tuple[CutReport, ...]:
        return self.drivers.cuts(self.item)

    def events(self, caller: str) -> tuple[ReportedEvent, ...]:
        right = Right("list", "events", self.namespace, "")
        if not self.api.may(caller, right):
            raise ApiRefusal(403, "Forbidden", f"{self.api.user(caller)} may not {right}", "Ask for the role `view`.")
        found = self.api.events(self.namespace, "Replicator", self.own)
        for request in self.requests[-5:]:
            found += self.api.events(self.namespace, "SnapshotRequest", request["metadata"]["name"])
        return tuple(sorted(map(resource_status.event, found), key=lambda e: -(e.at or 0.0))[:200])

    def assessment(self, caller: str) -> ConsoleAssessment:
        """Doctor's report, from the driver's pod: this one reads no Secrets, and connects to no database."""
        cluster_actions.may_execute(self, caller)
        ended = cluster_actions.in_driver(self, caller, "doctor", "--json")
        if ended.code != 0 and not ended.output.lstrip().startswith("{"):  # with a report, the code says what is in it
            raise refusal_of(ended)
        include = resource_status.part(resource_status.part(self.item, "spec"), "tables").get("include", ())
        return resource_status.assessment(ended.output, include)

    def refused(self, caller: str) -> tuple[RefusedAction, ...]:
        return cluster_actions.refused(self, caller)

    def plan(self, body: ActionBody, caller: str, now: float) -> Plan:
        return cluster_actions.plan(self, body, caller, now)


class ClusterFleet:
    realm: Realm = "kubernetes"
    token_fix = TOKEN_FIX
    actions_fix = "Set console.allowActions=true in the chart, or use kubectl."

    def __init__(
        self,
        api: ClusterApi,
        namespaces: Sequence[str] = (),
        *,
        allow_actions: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespaces`: those that the console may read; empty: all."""
        self.actions = allow_actions
        self._api, self._namespaces, self._clock = api, tuple(namespaces), clock
        self._drivers = DriverMemory(api, clock)
        self._reviews = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reviews")
        self._lock = threading.Lock()
        self._listed: Listed | None = None

    def admits(self, caller: str) -> bool:
        """True for any text: the API server says whether it is a token, when it is asked for rights."""
        return caller != ""

    def entries(self, caller: str) -> Sequence[FleetEntry]:
        return [one.entry() for one in self.replicators(caller).values()]

    def replicators(self, caller: str) -> Mapping[str, Watched]:
        everywhere = self._api.may(caller, Right("list", REPLICATORS))  # 401 comes before anything is read
        listed = self._look()
        spaces = {item["metadata"]["namespace"] for item in listed.replicators.values()} | set(self._namespaces)
        seen = spaces if everywhere else self._allowed(caller, REPLICATORS, spaces)
        if not seen and not everywhere:
            message = f"{self._api.user(caller)} may list Replicators in none of the namespaces shown here"
            raise ApiRefusal(403, "Forbidden", message, "Ask for the cluster's role `view` in a namespace.")
        everything = self._api.may(caller, Right("list", REQUESTS))
        asked = seen if everything else self._allowed(caller, REQUESTS, seen)
        make = partial(ClusterReplicator, self._api, self._drivers)
        return {
            name: make(item, listed.requests.get(name, ()) if item["metadata"]["namespace"] in asked else ())
            for name, item in listed.replicators.items()
            if item["metadata"]["namespace"] in seen
        }

    def _allowed(self, caller: str, resource: str, spaces: Set[str]) -> set[str]:
        """The namespaces in which the caller may list them."""
        asked = sorted(spaces)
        held = self._reviews.map(lambda space: self._api.may(caller, Right("list", resource, space)), asked)
        return {space for space, allowed in zip(asked, held, strict=True) if allowed}

    def trial(self, body: SetupBody) -> SetupReport:
        message = "the console in a cluster connects to no database"
        raise ApiRefusal(409, "NotShown", message, "Run `tailrace console` where the source can be reached.")

    def _look(self) -> Listed:
        with self._lock:
            old = self._listed
            if old is None or old.changes != self._api.changes or self._clock() - old.at >= LOOK_SECONDS:
                old = self._listed = self._list(self._api.changes)
            return old

    def _list(self, changes: int) -> Listed:
        spaces = self._namespaces or (None,)
        items = [item for space in spaces for item in self._api.listed(REPLICATORS, space)]
        requests: dict[str, list[Document]] = defaultdict(list)
        for request in (r for space in spaces for r in self._api.listed(REQUESTS, space)):
            named = resource_status.part(request, "spec").get("replicator")  # another definition's may name none
            requests[f"{request['metadata']['namespace']}:{named}"].append(request)
        for found in requests.values():
            found.sort(key=lambda r: str(r["metadata"]["creationTimestamp"]))
        return Listed(self._clock(), {resource_status.name_of(item): item for item in items}, requests, changes)

    def close(self) -> None:
        self._drivers.close()
        self._reviews.shutdown(wait=False, cancel_futures=True)
