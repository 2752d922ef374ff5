"""The documents of the console's REST API, version 1. The paths are in `tailrace.cli.console.endpoints`.

The OpenAPI document (docs/console-api.json) is made from these models and those of the driver's interface.
"""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, StringConstraints

from tailrace.contract.base import Model
from tailrace.contract.driver import Problem
from tailrace.contract.snapshot_request import CUT
from tailrace.contract.status import Fault, Many, ObjectiveStatus, State, Status, TableStatus

Realm = Literal["tailrace", "kubernetes"]
FleetState = Literal[State, "NotRunning", "Pending", "Degraded", "Succeeded", "Deleting"]
SPARK_POINTS = 60
Verb = Literal[
    "snapshot",
    "verify",
    "repair",
    "resync",
    "pause",
    "resume",
    "stop",
    "cut",
    "dropCut",
    "suspend",
    "unsuspend",
    "shutDown",
    "startUp",
]


class FleetEntry(Model):
    """One Replicator in a line."""

    name: str
    """Its name; in Kubernetes `namespace:name`."""
    state: FleetState
    """`NotRunning`: no driver answers. In Kubernetes the state that the operator reports."""
    message: str = ""
    """The reason for the state, in words."""
    trouble: int = 0
    """The urgency: the fleet is sorted by it, the largest first. 0: nothing is wrong."""
    problem: Problem | None = None
    """The reason why the driver's status is missing."""
    fault: Fault | None = None
    updated_at: float | None = None
    """The time of the status, in seconds since 1970."""
    lag_seconds: float | None = None
    """The age of the oldest change that is in the source and not in the target."""
    lag_history: Many[float | None] = ()
    """It over the last hour, at most 60 values, the oldest first."""
    rows_per_second: float = 0.0
    """Rows that are written to the target."""
    retained_bytes: int | None = None
    """Log that the source keeps for this Replicator."""
    tables_total: int = 0
    tables_failing: int = 0
    snapshots_running: int = 0
    objective: ObjectiveStatus | None = None
    """None: the Replicator has no objective."""
    freshness_missed: str | None = None
    """The changes that are later than `apply.freshness` promises, and why."""


class ConsoleFleet(Model):
    """All Replicators that the console shows to the caller, those with problems first."""

    version: str
    """The console's version of Tailrace."""
    actions: bool
    """The console carries out actions (`--allow-actions`); in Kubernetes those that the rights of the token allow."""
    realm: Realm = "tailrace"
    """The kind of token: the console's own, or one of Kubernetes, which the page keeps in memory only."""
    at: float
    replicators: Many[FleetEntry]


class RefusedAction(Model):
    verb: Verb
    why: str
    """The reason why the caller may not do it, or why it is impossible here."""


class ConsoleReplicator(Model):
    """One Replicator."""

    summary: FleetEntry
    source: str
    """Product, server and database."""
    target: str
    """Format and location."""
    storage: str
    """The location of the change log."""
    status: Status | None
    """The driver's status, without its tables: `tables` of the API has them. None: no driver answers. In Kubernetes,
    while no driver answers, the part of it that the resources report."""
    conditions: Many[str] = ()
    """The state of its parts in words, the most urgent first."""
    live: bool = True
    """False: the status is that of the resources, as no driver answers the console."""
    refused: Many[RefusedAction] = ()
    """The actions that the caller may not carry out, each with the reason."""


class TablePage(Model):
    """Some of a Replicator's tables, those with problems first, then by name."""

    total: int
    matching: int
    """The number of tables that the search and the filter leave."""
    offset: int
    tables: Many[TableStatus]


class ActionBody(Model):
    """An action and its subject."""

    verb: Verb
    """`snapshot`, `verify`, `repair`, `resync` concern `tables`; `pause`, `resume`, `stop` one `snapshot`; `cut` and
    `dropCut` one `cut`; `suspend` and `unsuspend` the writing to the target; `shutDown` and `startUp` the whole
    driver, in Kubernetes only."""
    tables: Many[str] = Field(default=(), max_length=1000)
    """Patterns of tables."""
    snapshot: str | None = None
    """Its id."""
    cut: Annotated[str, StringConstraints(pattern=CUT, max_length=63)] | None = None
    """The name of the cut."""
    preview: bool = False
    """Do nothing: only answer with the command and the manifest."""


class ActionAnswer(Model):
    done: bool
    message: str
    """The outcome, or what it would do."""
    command: str
    """The command that does the same."""
    manifest: str | None = None
    """The manifest that does the same, in YAML; None: there is none."""
    refused: str | None = None
    """The reason why the caller may not do it; None: it is allowed."""


class ReportedEvent(Model):
    """An event of Kubernetes about a Replicator or one of its SnapshotRequests."""

    at: float | None
    """The last time that it was reported, in seconds since 1970."""
    about: str
    """`Replicator shop`."""
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    count: int = 1


class EventList(Model):
    """The newest events first."""

    events: Many[ReportedEvent]


class SetupBody(Model):
    """A source that no manifest names yet, and where its copy would be."""

    name: str
    """Name of the Replicator."""
    type: Literal["postgresql", "mysql"]
    host: str
    port: int | None = None
    database: str | None = None
    username: str
    password: SecretStr | None = None
    """The password, which is stored nowhere; None: none is sent."""
    tls: Literal["disable", "prefer", "require", "verify-full"] = "prefer"
    tables: Many[str] = Field(max_length=1000)
    """Patterns of tables."""
    target: Literal["delta", "iceberg"] = "delta"
    target_location: str
    storage_location: str
    """The location of the change log."""


class AssessedColumn(Model):
    column: str
    source_type: str | None
    becomes: str | None
    """Its type in the target; None: it is not copied."""
    support: str
    """`YES`: exactly; `PARTIAL`: in another form; `NO`: not at all."""
    reason: str
    suggestion: str


class AssessedTable(Model):
    table: str
    copied: bool
    key: Many[str]
    rows: int | None
    """The number by the source's statistics."""
    bytes: int | None
    columns: Many[AssessedColumn]


class AssessedLine(Model):
    level: Literal["ok", "warn", "fail"]
    subject: str
    message: str
    fix: str


class ConsoleAssessment(Model):
    """The report of `tailrace doctor` on the manifest as its file is now."""

    ready: bool
    lines: Many[AssessedLine]
    tables: Many[AssessedTable]
    seconds: float
    """The estimated seconds of the first snapshot."""
    include: Many[str]
    """`spec.tables.include` of the manifest."""


class SetupReport(Model):
    assessment: ConsoleAssessment
    manifest: str
    """The manifest without `spec.tables`, which is its end, in YAML. The password is that of a file."""
