"""A driver around parts that do nothing, or fail."""

import dataclasses
import json
import math
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.resources import replicator
from tailrace.apply.commit_times import CommitTimes
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.contract.manifest import parse
from tailrace.contract.resources import StorageLocation
from tailrace.contract.status import Status
from tailrace.driver import assembly, driver, launch
from tailrace.driver.assembly import DriverParts
from tailrace.driver.driver import Driver
from tailrace.driver.launch import DriverSettings
from tailrace.driver.process.run_dir import RunFolder
from tailrace.driver.telling import display
from tailrace.spark import executors_wanted, session
from tailrace.storage.store import Storage

AWAIT_JOURNAL = Driver._await_journal


class FakePart:
    """Stands for every part; remembers what was done to it in `done`, and raises what it is told to."""

    def __init__(self, name: str, done: list[str], faults: dict[str, Exception]) -> None:
        self.name, self.done, self.faults = name, done, faults
        self.fault = self.pid = None
        self.state = LogState(number=RecordNumber(3))
        self.running, self.through, self.last_step_at = True, 3, 0.0
        self.runs: dict[Any, Any] = {}
        self.waiting_for = None
        self.pause = self.late = 0.0
        self.times = CommitTimes(threads=1)

    def _do(self, what: str) -> None:
        self.done.append(f"{self.name} {what}")
        if f"{self.name} {what}" in self.faults:
            raise self.faults[f"{self.name} {what}"]

    def stop(self) -> None:
        self._do("stop")

    def started(self, seconds: float = 0.0) -> None: ...
    def begin(self) -> None: ...
    def launch(self) -> None: ...
    def abandon(self, keep: int | None) -> None: ...
    def let_go(self, keep: int | None) -> None: ...

    def close(self) -> None:
        self._do("close")

    def start(self) -> None:
        self._do("start")

    def check(self) -> None:
        self._do("check")

    def show(self, status: Status | None = None, last: bool = False) -> None:
        self._do("show last" if last else "show")

    def step(self) -> None: ...
    def works(self, position: int) -> None: ...
    def offer(self, through: int) -> None: ...
    def may_leave(self, number: int) -> bool:
        return False

    def due_in(self, number: int) -> float:
        return math.inf

    def notify(self, number: int, *, again: bool = False) -> None: ...
    def follow(self, interval: float | None) -> None:
        self._do(f"follow {interval}")

    waits_for: str | None = None
    late = 0.0

    def hold(self) -> bool:
        self._do("hold")
        return True

    def release(self) -> None:
        self._do("release")

    def start_again(self) -> None:
        self._do("start again")

    def refresh(self, newest: RecordNumber | None = None) -> LogState:
        return self.state


def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **faults: Exception) -> tuple[Driver, list[str]]:
    """A driver over fakes; `capture_check` names what `capture check` raises."""
    done: list[str] = []
    told = {name.replace("_", " ", 1).replace("_", " "): fault for name, fault in faults.items()}

    def fake(name: str) -> Callable[..., Any]:
        made = FakePart(name, done, told)
        return lambda *arguments, **more: made

    monkeypatch.setattr(driver, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(launch, "server", fake("server"))
    monkeypatch.setattr(launch, "capture_process", fake("capture"))
    monkeypatch.setattr(display, "choose", fake("view"))
    monkeypatch.setattr(session, "launch", lambda *arguments: SimpleNamespace(process=None))
    monkeypatch.setattr(session, "start_in", fake("spark"))
    monkeypatch.setattr(session, "check", lambda spark, log_file: None)
    monkeypatch.setattr(session, "end", lambda process: None)
    monkeypatch.setattr(executors_wanted, "of", lambda spark: lambda: None)
    monkeypatch.setattr(session, "stop", lambda spark: spark.stop())
    names = ("applier", "runner", "stream", "journal", "dropped", "cuts", "rewinds")
    parts = DriverParts(*(cast(Any, fake(name)()) for name in names))
    monkeypatch.setattr(assembly, "parts", lambda *arguments, **more: parts)

    def no_wait(made: Driver) -> Generator[None, None, SharedJournal]:
        yield
        return parts.journal

    monkeypatch.setattr(Driver, "_await_journal", no_wait)
    cast(Any, parts.journal).storage = Storage.open(
        StorageLocation.model_validate({"location": f"file://{tmp_path}/log"})
    )
    folder = RunFolder(tmp_path)
    folder.take()
    document = parse(json.dumps(replicator()), "m")
    made = Driver(DriverSettings(document.replicator(), (), folder, secrets=tmp_path))
    made._capture = fake("capture")()
    monkeypatch.setattr(made._ending, "listen", lambda: None)  # the test run's own handlers stay
    return made, done


def awaited(made: Driver, view: FakePart) -> SharedJournal | None:
    """The change log that the driver's start waits for; None: something ended the wait."""
    made._capture, made._spark = (cast(Any, FakePart(name, [], {})) for name in ("capture", "spark"))
    made._view = cast(Any, view)
    state = AWAIT_JOURNAL(made)
    while not made._ending.is_set():
        try:
            next(state)
        except StopIteration as ended:
            return cast(SharedJournal, ended.value)
    return None


def log_in(folder: Path, made: Driver) -> None:
    """The change log is there."""
    storage = StorageLocation.model_validate({"location": f"file://{folder}/log"})
    spec = made._spec.model_copy(update={"storage": storage})
    made._places = dataclasses.replace(made._places, spec=spec)
