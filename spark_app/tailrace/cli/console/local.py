"""The Replicators of manifests, by way of the drivers that run on this machine."""

import hmac
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tailrace.cli.client import DriverClient
from tailrace.cli.console import actions, summary
from tailrace.cli.console.watched import Described, Plan, Watched, entry_of
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
from tailrace.contract.driver import CutReport
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.manifest import load
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import RunFolder

ANSWER_SECONDS = 5.0
"""Seconds that a driver has for an answer that the page waits for."""
HISTORY_SECONDS = 20.0
"""The age at which the numbers of the last hour are asked for again."""
STATUS_SECONDS = 1.0
"""The age at which a status is asked for again: a view wants several parts of one, of which one may be 5,000 tables."""
LOOK_SECONDS = 2.0
"""The age at which the drivers are asked again for the fleet."""
AT_ONCE = 16
"""Drivers that are asked at the same time."""


@dataclass
class LocalReplicator:
    """A Replicator of a manifest file, whose driver runs on this machine or does not run."""

    replicator: Replicator
    path: Path
    run_dir: Path | None = None
    clock: Callable[[], float] = time.monotonic
    several: bool = False
    """The file holds more than this one."""
    _history: tuple[float, LastHour] | None = None
    _status: tuple[float, Status] | None = None

    @property
    def name(self) -> str:
        return self.replicator.metadata.name

    @property
    def spec(self) -> ReplicatorSpec:
        return self.replicator.spec

    @property
    def options(self) -> tuple[str, ...]:
        """The options by which commands find it."""
        one = ("--name", self.name) if self.several else ()
        place = ("--run-dir", str(self.run_dir)) if self.run_dir is not None else ()
        return ("-f", str(self.path), *one, *place)

    @property
    def _folder(self) -> RunFolder:
        return RunFolder.of(self.name, self.run_dir)

    def _client(self, timeout: float) -> DriverClient:
        return DriverClient(*self._folder.server(self.spec.storage.location), timeout)

    def driver(self) -> DriverClient:
        """A client for actions."""
        return DriverClient.of(self._folder, self.spec.storage.location)

    def described(self) -> Described:
        return described(self.spec)

    def entry(self) -> FleetEntry:
        return entry_of(self)

    def live(self) -> bool:
        return True

    def status(self) -> Status:
        now = self.clock()
        if self._status is None or now - self._status[0] >= STATUS_SECONDS:
            self._status = now, self._client(ANSWER_SECONDS).status()
        return self._status[1]

    def conditions(self, status: Status) -> tuple[str, ...]:
        return summary.conditions(status)

    def history(self) -> LastHour:
        now = self.clock()
        if self._history is None or now - self._history[0] > HISTORY_SECONDS:
            self._history = now, self._client(ANSWER_SECONDS).history()
        return self._history[1]

    def table(self, name: str) -> TableView:
        return self._client(ANSWER_SECONDS).table(name)

    def cuts(self) -> tuple[CutReport, ...]:
        return self._client(ANSWER_SECONDS).cuts()

    def events(self, caller: str) -> tuple[ReportedEvent, ...]:
        return ()

    def refused(self, caller: str) -> tuple[RefusedAction, ...]:
        return actions.IMPOSSIBLE

    def plan(self, body: ActionBody, caller: str, now: float) -> Plan:
        return actions.plan(self, body, now)

    def running_spec(self) -> ReplicatorSpec:
        """The spec that the driver uses."""
        from tailrace.driver.asking import live_spec

        return live_spec.kept(self._folder.path).spec

    def assessment(self, caller: str) -> ConsoleAssessment:
        from tailrace.cli.console.assessed import assess  # brings the database client

        return assess(load(self.path).replicator(self.name))


def described(spec: ReplicatorSpec) -> Described:
    source, target = spec.source, spec.target
    return Described(
        source=f"{source.type} {source.host}{f'/{source.database}' if source.database else ''}",
        target=f"{target.type} {target.location or getattr(target, 'host', None) or ''}".strip(),
        storage=spec.storage.location,
    )


class LocalFleet:
    realm: Realm = "tailrace"
    actions_fix = "Start it with --allow-actions, or use the command."
    token_fix = "Open the address that `tailrace console` printed, or enter the token of --token-file."

    def __init__(
        self,
        watched: Sequence[Watched],
        token: str,
        *,
        allow_actions: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.actions = allow_actions
        self._watched = {one.name: one for one in watched}
        self._token = token
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: tuple[float, Sequence[FleetEntry]] | None = None
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fleet")

    def admits(self, caller: str) -> bool:
        return hmac.compare_digest(caller.encode(), self._token.encode())

    def entries(self, caller: str) -> Sequence[FleetEntry]:
        with self._lock:
            if self._entries is None or self._clock() - self._entries[0] >= LOOK_SECONDS:
                found = list(self._pool.map(lambda one: one.entry(), self._watched.values()))
                self._entries = self._clock(), found
            return self._entries[1]

    def replicators(self, caller: str) -> Mapping[str, Watched]:
        return self._watched

    def trial(self, body: SetupBody) -> SetupReport:
        from tailrace.cli.console.trial import tried  # brings the database client

        return tried(body)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
