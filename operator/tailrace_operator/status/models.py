"""The status subresources of the two resources; the CRDs' status schemas are generated from these models.

`decide` makes them, `act.status` is the only writer. Times are RFC 3339 in UTC; everything is bounded, so that no
object outgrows what the API server takes.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from tailrace.contract.base import Model
from tailrace.contract.status import TableState
from tailrace.errors import Where

Text = Annotated[str, StringConstraints(max_length=1024)]
ShortText = Annotated[str, StringConstraints(max_length=253)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Time = Annotated[str, StringConstraints(max_length=32), Field(json_schema_extra={"format": "date-time"})]
Hash = Annotated[str, StringConstraints(max_length=64)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=64)]
"""A PascalCase word out of a fixed set."""

MAX_WORST = 20
MAX_CONDITIONS = 20
"""More than there are; a test counts them."""
_BY_TYPE: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

ReplicatorState = Literal[
    "Pending", "Starting", "Running", "Degraded", "Failing", "Suspended", "Stopped", "Succeeded", "Deleting"
]
RequestState = Literal["Pending", "Running", "Paused", "Completed", "Failed", "Cancelled"]
FINAL: tuple[RequestState, ...] = ("Completed", "Failed", "Cancelled")


class Condition(Model):
    """One condition, as Kubernetes' API conventions define it."""

    type: Word
    """Name of the condition."""
    status: Literal["True", "False", "Unknown"]
    """The state of the condition."""
    reason: Word
    """The reason, in one enumerated word."""
    message: Text = ""
    """The reason in words: the value at fault and its fix."""
    last_transition_time: Time
    """The time at which `status` last flipped."""
    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation that this condition was assessed for."""


class FaultStatus(Model):
    """A named error with its fix."""

    name: ShortText
    """Name of the error, see docs/operations.md."""
    message: Text
    """The problem, with the value at fault."""
    fix: Text = ""
    """A step that the reader can take to fix it."""
    where: Where | None = None
    """The part where it happened; `storage`: where the change log is kept."""
    count: Count = 1
    """The number of times in a row that it happened."""
    since: Time | None = None
    """The time at which it first happened."""


class CaptureSummary(Model):
    """Progress from the source's log to the change log."""

    position: ShortText | None = None
    """Position in the source's log up to which everything is durable in the change log."""
    lag_seconds: Annotated[float, Field(ge=0)] | None = None
    """Seconds since the oldest commit that is not in the change log yet; 0: none."""
    lag_bytes: Count | None = None
    """Bytes of source log that are not in the change log yet."""
    retained_bytes: Count | None = None
    """Bytes of log that the source keeps for this Replicator; as of `retainedAt`, if that is present."""
    retained_at: Time | None = None
    """The time at which `retainedBytes` was observed; present while no driver answers. Where none is meant to run, the
    source is asked every 15 minutes. It may keep more by now."""
    log_held_by: Text | None = None
    """An open transaction for which the source keeps much log that is captured already, with its pid and start time."""
    rows_per_second: Annotated[float, Field(ge=0)] = 0.0
    """Row changes captured per second."""
    waiting_for: Text | None = None
    """The obstacle that capture waits for, for example an old transaction with its pid and age; none while no driver
    answers."""


class ApplySummary(Model):
    """Progress from the change log to the target."""

    lag_seconds: Annotated[float, Field(ge=0)] | None = None
    """Seconds since the oldest commit that is captured and not in the target yet; 0: none."""
    record: Count = 0
    """Every running table contains the change log up to this record."""
    rows_per_second: Annotated[float, Field(ge=0)] = 0.0
    """Rows applied per second."""


class TableSummary(Model):
    """One of the worst tables."""

    name: Annotated[str, StringConstraints(max_length=256)]
    """`schema.table` in the source."""
    state: TableState
    """State of the table."""
    lag_seconds: Annotated[float, Field(ge=0)] | None = None
    """Seconds since its oldest commit that is captured and not in the target yet."""
    fault: FaultStatus | None = None
    """The reason why it fails."""


class TableCounts(Model):
    """Tables by state, and the worst of them by name. While no driver answers, only `total`, `stopped` and the stopped
    ones of `worst` are known."""

    total: Count = 0
    """All tables that match the patterns."""
    waiting: Count = 0
    """Known; nothing is applied yet."""
    snapshotting: Count = 0
    """Existing rows are being read."""
    replicating: Count = 0
    """Complete, and following the changes."""
    failing: Count = 0
    """Being retried after an error."""
    stopped: Count = 0
    """Stopped; requires manual action."""
    worst: Annotated[tuple[TableSummary, ...], Field(max_length=MAX_WORST)] = ()
    """Stopped, failing and lagging tables, worst first, at most 20."""
    truncated: bool = False
    """True: more tables fail or are stopped than `worst` lists; the driver's /status has them all."""


class SnapshotProgress(Model):
    """All running snapshots together."""

    running: Count = 0
    """Snapshots that are not finished."""
    tables_done: Count = 0
    """Tables that are read completely."""
    tables_total: Count = 0
    """Tables of these snapshots."""
    rows_done: Count = 0
    """Rows read."""
    rows_estimated: Count = 0
    """Rows that the source's statistics expect."""
    rows_per_second: Annotated[float, Field(ge=0)] = 0.0
    """Rows read per second."""
    seconds_left: Annotated[float, Field(ge=0)] | None = None
    """Estimated seconds left at the current speed; none while unknown."""


class CutsSummary(Model):
    """The cuts that are kept."""

    kept: Count = 0
    """The number of cuts."""
    last: ShortText = ""
    """The name of the newest cut."""
    made_at: Time | None = None
    """The time at which it was made."""
    complete: bool = False
    """True: every table that was captured then is in it."""


class SignalSummary(Model):
    """The last signal of the source's table that was answered."""

    sequence: Count = 0
    """The sequence of its INSERT."""
    id: ShortText = ""
    """The content of its first column."""
    type: ShortText = ""
    """The content of its second column."""
    ignored: bool = False
    """True: nothing of it was carried out."""
    message: Text = ""
    """The reason why it, or a part of it, is ignored, with the fix."""


class ExecutorsSummary(Model):
    """The executors' pods."""

    desired: Count = 0
    """The number that should run now: `executors.min`, more while they have work or shut down, at most
    `executors.max`; 0 while no driver is meant to run."""
    running: Count = 0
    """The number that run."""
    pending: Count = 0
    """Pods that exist and do not run yet."""
    reason: Word | None = None
    """The reason why fewer run than desired; none while enough do."""
    message: Text = ""
    """The reason in words."""


class DriverSummary(Model):
    """The driver's pod."""

    pod: ShortText | None = None
    """Name of the pod."""
    pod_uid: ShortText | None = None
    """UID of the pod; a new one means that the pod was replaced."""
    ready: bool = False
    """The pod is Ready."""
    started_at: Time | None = None
    """Start of the running container."""
    restarts: Count = 0
    """Restarts of the driver's container since this Replicator was created."""
    pod_restarts: Count = 0
    """Restarts of the current pod's container as last observed; `restarts` grows by the difference."""
    has_run: bool = False
    """A container of the driver has started since this Replicator was created."""
    last_exit_code: Annotated[int, Field(ge=-1, le=255)] | None = None
    """Exit code of the last container that ended; see the table of exit codes."""
    last_exit_at: Time | None = None
    """The time at which it ended."""


class Failures(Model):
    """Failures of the driver since it was last healthy for a while."""

    count: Count = 0
    """The number of failures."""
    since: Time | None = None
    """The first of them."""


class Halt(Model):
    """The operator has stopped the driver, because a restart would meet the same fault."""

    reason: Word
    """`ConfigurationRefused`, `AuthenticationFailed`, `PositionLost`, `Fenced`, `RestartLimitExceeded`, …"""
    message: Text
    """The driver's last error, or the number of failures."""
    lifted_by: Hash = ""
    """Hash of what has to change for the driver to be started again: of `restartNonce` (`Fenced`), of `restartNonce`
    and the locations of target and change log (`CutOver`), of the spec (`PositionLost`), of spec, image and Secrets
    (others)."""
    at: Time
    """The time at which it was stopped."""
    retried_at: Time | None = None
    """The time at which the driver was started again after `spec.retry.halted`; none while it is stopped. The halt ends
    when that attempt works."""


class ReplicatorStatus(Model):
    """Written by the operator alone."""

    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation that the rest of this status is about."""
    state: ReplicatorState = "Pending"
    """One word for people; programs read the conditions."""
    message: Text = ""
    """The reason for this state."""
    message_summary: ShortText | None = None
    """The first clause of `message`, for `kubectl get -o wide`."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS, json_schema_extra=_BY_TYPE)] = ()
    """Ready, Reconciling, Stalled, Suspended, ReconciliationPaused, RolloutPending, Assessed, TablesHealthy,
    ValuesCopied, Verified, Converging, ExecutorsReady, InitialSnapshotCompleted, Lagging, SLOMet, SourceLogAtRisk,
    FollowersReading."""
    applied_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation of the spec that runs; behind observedGeneration while the newest spec is invalid."""
    applied_spec_hash: Hash = ""
    """Hash of the spec that runs, written before its objects are touched."""
    applied_template_hash: Hash = ""
    """Hash of the pod template that runs: spec, image, Secrets and ConfigMaps."""
    last_handled_reconcile_at: Annotated[str, StringConstraints(max_length=128)] | None = None
    """Value of the annotation reconcile.fluxcd.io/requestedAt that was last handled."""
    lag: ShortText | None = None
    """Lag of capture and apply together, to be read by people (`1.2s`, `3m`)."""
    tables_summary: ShortText | None = None
    """Number of replicating tables and of all tables (`118/120`); `0/120` while no driver runs, `?/120` while one runs
    that does not answer."""
    snapshot_summary: ShortText | None = None
    """Share of the rows of running snapshots that is read (`63%`); none while no snapshot runs."""
    objective: ShortText | None = None
    """The percentage of changes that were in time, what `spec.objective` asks for, and the share of late ones that
    is left: `99.72% (99% within 10s), 72% left`."""
    executors_summary: ShortText | None = None
    """Number of running executors, and of those that should run now (`1/2`)."""
    source: ShortText | None = None
    """Type, host and database of the source."""
    target: ShortText | None = None
    """Type of the target."""
    made: Annotated[tuple[ShortText, ...], Field(max_length=4)] = ()
    """Objects that Tailrace created in the source, as the driver reports them; dropped with the Replicator."""
    capture: CaptureSummary | None = None
    """Progress from the source's log to the change log."""
    apply: ApplySummary | None = None
    """Progress from the change log to the target."""
    tables: TableCounts | None = None
    """Tables by state."""
    snapshot: SnapshotProgress | None = None
    """Running snapshots."""
    cuts: CutsSummary | None = None
    """The cuts that are kept; none: there is none."""
    cutover: Text | None = None
    """The step of the cutover that the spec asks for, or the obstacle that it waits for, as the driver last said."""
    signal: SignalSummary | None = None
    """The last signal of `source.signalTable`; none: there was none."""
    driver: DriverSummary = DriverSummary()
    """The driver's pod."""
    executors: ExecutorsSummary | None = None
    """The executors' pods."""
    rollout_since: Time | None = None
    """The time at which the operator began to restart the driver for a new default image; present until the driver
    works again or has failed."""
    failures: Failures = Failures()
    """Failures of the driver since it was last healthy."""
    halt: Halt | None = None
    """Present while the operator keeps the driver stopped after an error."""
    recovery_uid: Annotated[str, StringConstraints(max_length=64)] | None = None
    """The last `spec.recover` that the driver was started with, by its nonce."""
    resync_uid: Annotated[str, StringConstraints(max_length=64)] | None = None
    """The last SnapshotRequest that was passed to a driver whose position was lost; each is passed on once."""
    last_error: FaultStatus | None = None
    """The latest fault that the driver reported."""
    deletion_started_at: Time | None = None
    """The time at which the operator started to clean up."""


class RequestTable(Model):
    """Progress of one table of a request."""

    name: Annotated[str, StringConstraints(max_length=256)]
    """`schema.table` in the source."""
    chunks_done: Count = 0
    """Chunks read and recorded."""
    rows_done: Count = 0
    """Rows read."""
    rows_estimated: Count = 0
    """Rows that the source's statistics expect."""
    finished: bool = False
    """Read completely."""
    fault: FaultStatus | None = None
    """The reason why it fails."""


class SnapshotRequestStatus(Model):
    """Written by the operator alone."""

    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation that the rest of this status is about."""
    state: RequestState = "Pending"
    """One word for people; programs read the conditions."""
    message: Text = ""
    """The reason for this state."""
    message_summary: ShortText | None = None
    """The first clause of `message`, for `kubectl get -o wide`."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS, json_schema_extra=_BY_TYPE)] = ()
    """Ready (accepted by the driver), Reconciling, Stalled, Complete, Failed, Suspended."""
    record: Count | None = None
    """Record of the journal that holds the plan; none until the driver has accepted the request."""
    progress: ShortText | None = None
    """Share of the rows that is read (`63%`)."""
    tables_summary: ShortText | None = None
    """Number of finished tables and of all tables (`3/4`)."""
    tables_done: Count = 0
    """Tables that are read completely."""
    tables_total: Count = 0
    """Tables of the request."""
    chunks_done: Count = 0
    """Chunks read and recorded, over all tables."""
    chunks_estimated: Count = 0
    """Total number of chunks, estimated from the rows per chunk so far."""
    rows_done: Count = 0
    """Rows read."""
    rows_estimated: Count = 0
    """Rows that the source's statistics expect."""
    rows_per_second: Annotated[float, Field(ge=0)] = 0.0
    """Rows read per second."""
    differences: Count | None = None
    """Rows that a verification found to differ; none: it is no verification."""
    estimated_end: Time | None = None
    """Estimated end at the current speed."""
    started_at: Time | None = None
    """The time at which the driver accepted it."""
    finished_at: Time | None = None
    """The time at which it was seen to be completed, failed or cancelled."""
    tables: Annotated[tuple[RequestTable, ...], Field(max_length=MAX_WORST)] = ()
    """Failing tables, then running ones, at most 20."""
    truncated: bool = False
    """True: there are more tables than `tables` lists."""
    last_error: FaultStatus | None = None
    """The latest fault."""
    deletion_started_at: Time | None = None
    """The time at which the operator started to cancel it."""
