"""The seam below the console: a fleet of Replicators, each with its answers. `local` and `kubernetes` implement it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.cli.console import summary
from tailrace.contract.console import (
    ActionAnswer,
    ActionBody,
    ConsoleAssessment,
    FleetEntry,
    Realm,
    RefusedAction,
    ReportedEvent,
    SetupBody,
    SetupReport,
)
from tailrace.contract.driver import CutReport, Problem
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.status import Status
from tailrace.errors import TailraceError

Plan = tuple[ActionAnswer, Callable[[], str]]
"""The answer of a preview, and what carries the action out and says what happened."""


@dataclass(frozen=True)
class Described:
    """Source, target and change log in words."""

    source: str
    target: str
    storage: str


class Watched(Protocol):
    """One Replicator. Each method may raise a `TailraceError`: `NotRunning` if no driver answers."""

    @property
    def name(self) -> str: ...
    def described(self) -> Described: ...
    def entry(self) -> FleetEntry: ...
    def live(self) -> bool:
        """True: `status` is the driver's."""
        ...

    def status(self) -> Status: ...
    def conditions(self, status: Status) -> tuple[str, ...]: ...
    def history(self) -> LastHour: ...
    def table(self, name: str) -> TableView: ...
    def cuts(self) -> tuple[CutReport, ...]: ...
    def events(self, caller: str) -> tuple[ReportedEvent, ...]: ...
    def assessment(self, caller: str) -> ConsoleAssessment: ...
    def refused(self, caller: str) -> tuple[RefusedAction, ...]:
        """The actions that the caller may not carry out."""
        ...

    def plan(self, body: ActionBody, caller: str, now: float) -> Plan: ...


class Fleet(Protocol):
    """All that a console shows. `caller`: the token of a request."""

    actions: bool
    """Actions are carried out."""
    actions_fix: str
    """The way to have them carried out."""
    realm: Realm
    """The kind of token; the page keeps one of `kubernetes` in memory only."""
    token_fix: str
    """The place where the token is found."""

    def admits(self, caller: str) -> bool:
        """False: the answer is 401. It may not block."""
        ...

    def entries(self, caller: str) -> Sequence[FleetEntry]: ...
    def replicators(self, caller: str) -> Mapping[str, Watched]: ...
    def trial(self, body: SetupBody) -> SetupReport: ...
    def close(self) -> None: ...


class Asked(Protocol):
    """The answers of a driver from which a line of the fleet is made."""

    @property
    def name(self) -> str: ...
    def status(self) -> Status: ...
    def history(self) -> LastHour: ...


def entry_of(one: Asked) -> FleetEntry:
    """The line of a Replicator by its driver's answers."""
    try:
        status = one.status()
    except TailraceError as error:
        return summary.missing(one.name, problem_of(error))
    try:
        history = one.history()
    except TailraceError:  # the driver is older, or has just ended
        history = None
    return summary.entry(one.name, status, history)


def problem_of(error: TailraceError) -> Problem:
    return Problem(name=error.name, message=error.message, fix=error.fix)
