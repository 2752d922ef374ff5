"""The Replicators that the console shows: those of manifests, by way of the drivers that run on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tailrace.cli.client import DriverClient
from tailrace.contract.console import ConsoleAssessment
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


class Watched(Protocol):
    """One Replicator. Each method may raise a `TailraceError`: `NotRunning` if no driver answers."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> ReplicatorSpec: ...
    @property
    def options(self) -> tuple[str, ...]:
        """The options by which commands find it."""
        ...

    def status(self) -> Status: ...
    def history(self) -> LastHour: ...
    def table(self, name: str) -> TableView: ...
    def cuts(self) -> tuple[CutReport, ...]: ...
    def assessment(self) -> ConsoleAssessment: ...
    def driver(self) -> DriverClient:
        """A client for actions."""
        ...

    def running_spec(self) -> ReplicatorSpec:
        """The spec that the driver uses."""
        ...


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

    @property
    def name(self) -> str:
        return self.replicator.metadata.name

    @property
    def spec(self) -> ReplicatorSpec:
        return self.replicator.spec

    @property
    def options(self) -> tuple[str, ...]:
        one = ("--name", self.name) if self.several else ()
        place = ("--run-dir", str(self.run_dir)) if self.run_dir is not None else ()
        return ("-f", str(self.path), *one, *place)

    @property
    def _folder(self) -> RunFolder:
        return RunFolder.of(self.name, self.run_dir)

    def _client(self, timeout: float) -> DriverClient:
        return DriverClient(*self._folder.server(self.spec.storage.location), timeout)

    def driver(self) -> DriverClient:
        return DriverClient.of(self._folder, self.spec.storage.location)

    def status(self) -> Status:
        return self._client(ANSWER_SECONDS).status()

    def history(self) -> LastHour:
        now = self.clock()
        if self._history is None or now - self._history[0] > HISTORY_SECONDS:
            self._history = now, self._client(ANSWER_SECONDS).history()
        return self._history[1]

    def table(self, name: str) -> TableView:
        return self._client(ANSWER_SECONDS).table(name)

    def cuts(self) -> tuple[CutReport, ...]:
        return self._client(ANSWER_SECONDS).cuts()

    def running_spec(self) -> ReplicatorSpec:
        from tailrace.driver.asking import live_spec

        return live_spec.kept(self._folder.path).spec

    def assessment(self) -> ConsoleAssessment:
        from tailrace.cli.console.assessed import assess  # brings the database client

        return assess(load(self.path).replicator(self.name))
