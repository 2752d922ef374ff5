"""The status document: what the driver's `GET /status` answers, `tailrace status` prints and the operator copies.

Times are seconds since the Unix epoch, lags seconds or bytes; None means not known yet.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import FailFast

from tailrace.contract.base import Model
from tailrace.errors import Where

State = Literal["Starting", "Running", "Suspended", "Failing", "Stopped"]
TableState = Literal["WAITING", "SNAPSHOTTING", "REPLICATING", "FAILING", "STOPPED"]
SnapshotState = Literal["Pending", "Running", "Paused", "Completed", "Failed", "Stopped"]
Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], FailFast()]
"""Read from a process that others run: a million wrong items are one error, not a million."""


class Fault(Model):
    """A named error with its fix."""

    name: str
    message: str
    fix: str = ""
    where: Where | None = None
    """The part that met it: `storage` is the change log's place. None: it is not known."""
    since: float = 0.0
    count: int = 1


class CaptureStatus(Model):
    """The progress of capture."""

    alive: bool = False
    position: str | None = None
    """Everything up to here is durable in the change log (`16/B374D848`)."""
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    """Source log written and not yet durable in the change log."""
    retained_bytes: int | None = None
    """Source log that the source keeps for this Replicator."""
    log_held_by: str | None = None
    """The open transaction for which much captured log is kept, with its pid and start time."""
    record: int = 0
    rows_per_second: float = 0.0
    waiting_for: str | None = None
    """The obstacle that capture or a snapshot's start waits for: an old transaction with its pid and age."""


class TableCounters(Model):
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    schema_changes: int = 0
    snapshot_rows: int = 0

    @property
    def rows(self) -> int:
        """Written to the target in all."""
        return self.inserts + self.updates + self.deletes + self.snapshot_rows


class NulledColumn(Model):
    column: str
    values: int
    """Since the table was captured or resynced, by changes and by snapshots; one that is read twice counts twice."""


class DifferingColumn(Model):
    column: str
    rows: int


class ComparedRows(Model):
    """The result of comparing a table's rows with its source's."""

    rows: int
    """Rows of the source that were compared."""
    missing: int = 0
    """Rows that the target lacks."""
    extra: int = 0
    """Rows of the target that the source does not have, or that the target has more than once."""
    different: int = 0
    undecided: int = 0
    """Rows that were changed at the same time in a way that the log does not show whole, or that the target
    withholds."""
    columns: Many[DifferingColumn] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different


class Verification(Model):
    """The last verification of a whole table."""

    snapshot: str
    at: float
    """The time of its end."""
    position: str | None = None
    """The source's position then."""
    record: int
    """The journal's record at which the last rows were compared."""
    compared: ComparedRows


class TableStatus(Model):
    name: str
    state: TableState
    read: bool | None = None
    """Its existing rows have been read completely, or were never asked for. None: the driver is older and does not
    say."""
    applied_sequence: int = 0
    applied_record: int = 0
    lag_seconds: float | None = None
    """Age of the oldest commit that is captured and not applied, or of `converging_since`; 0: none."""
    converging_since: float | None = None
    """The commit of the oldest change of another table that has reached rows of this one through foreign keys, below
    the source's log, where these were not read again yet: the copy may have rows that are gone, or old values. None:
    there is none."""
    replacing: bool = False
    """The table is being read again into a new copy, of which the numbers here are. Readers see it as it was before,
    until the new copy is complete."""
    rows_per_second: float = 0.0
    holes: int = 0
    nulled: Many[NulledColumn] = ()
    """Columns with values that their type cannot hold and that became NULL (`onUnsupported: SetNull`)."""
    counters: TableCounters = TableCounters()
    verified: Verification | None = None
    fault: Fault | None = None


class SnapshotTableProgress(Model):
    name: str
    chunks_done: int = 0
    rows_done: int = 0
    rows_estimated: int = 0
    running: Many[str] = ()
    """Ranges being read now, `(lower, upper]`."""
    finished: bool = False
    compared: ComparedRows | None = None
    """The result of a verification so far."""
    fault: Fault | None = None


class RewindStatus(Model):
    """The moment that the tables go back to."""

    cut: str
    record: int


class SnapshotStatus(Model):
    id: str
    name: str | None = None
    reason: str
    verify: bool = False
    """Its rows are compared with the target, not applied."""
    sample: float | None = None
    """The share of each table that is compared; None: all of it, or some keys."""
    rewind: RewindStatus | None = None
    """Set in a rewind, which reads no rows."""
    state: SnapshotState
    tables_done: int = 0
    tables_total: int = 0
    rows_done: int = 0
    rows_estimated: int = 0
    rows_per_second: float = 0.0
    seconds_left: float | None = None
    tables: Many[SnapshotTableProgress] = ()
    fault: Fault | None = None


class DroppedCopy(Model):
    """A copy of a table that was dropped in the source (`onTableDrop: Drop`), about to be deleted."""

    name: str
    fault: Fault | None = None
    """The error of the last attempt; it is retried."""


class ApplyStatus(Model):
    lag_seconds: float | None = None
    record: int = 0
    """Every running table has applied up to this record."""
    rows_per_second: float = 0.0
    suspended: bool = False
    freshness_missed: str | None = None
    """The changes that are later than `apply.freshness` promises, and why, once that has lasted for a minute."""


class AgeCount(Model):
    seconds: float
    changes: int
    """The number of changes that were not older."""


class FreshnessStatus(Model):
    """How old changes were when they became visible in the target: from their commit in the source to the commit in the
    target. Rows of snapshots do not count."""

    window_seconds: float
    """The time that is looked back, in whole hours."""
    changes: int
    p50: float | None = None
    """Half of the changes were at most so old, in seconds; None: there was none."""
    p95: float | None = None
    p99: float | None = None
    since_start: int = 0
    """Changes since the driver's start."""
    by_age: Many[AgeCount] = ()
    """They, by age."""
    paused: int = 0
    """Changes that are not counted: they were committed while the Replicator was shut down or `apply.suspend` was
    set."""


class ObjectiveStatus(Model):
    """How far `spec.objective` is met."""

    within_seconds: float
    percent: float
    """The percentage that is asked for."""
    met_percent: float | None = None
    """The percentage of the window's changes that were in time; None: there was none."""
    remaining: float | None = None
    """The share of the changes that may still be late which is left; below 0: the objective is missed."""
    late: int = 0
    """Changes since the driver's start that were late."""


class LineageStatus(Model):
    """Lineage events since the driver's start."""

    sent: int = 0
    dropped: int = 0
    """Events that were refused, or for which the queue had no room."""
    waiting: int = 0
    fault: str | None = None
    """The reason why they are not delivered; None: they are."""


class Assessment(Model):
    """The report on the tables before the first start."""

    at: float
    tables: int
    """The number of tables that the patterns select."""
    copied: int
    """The number of tables that can be copied."""
    refused: Many[str] = ()
    """The first of the tables that cannot be copied, with reason and fix."""
    inexact_columns: int = 0
    """The number of columns of copied tables that are copied in another form, or not at all."""
    rows: int = 0
    """The number of rows that the first snapshot has to read, by the source's statistics."""
    seconds: float = 0.0
    """The estimated seconds of the first snapshot."""


class CutsStatus(Model):
    """The cuts that are kept."""

    kept: int
    last: str
    """The name of the newest."""
    made: float
    """The time at which it was made, in seconds since 1970."""
    complete: bool
    """Every table that was captured then is in it."""


class CutoverStatus(Model):
    """The cutover that `spec.cutover` asks for."""

    message: str = ""
    """The step of the attempt that is under way, or was last; empty: none has begun."""
    fault: Fault | None = None
    """The obstacle that refused the last attempt; another one follows."""


class SignalReport(Model):
    """A row of the source's signal table."""

    sequence: int
    """The sequence of its INSERT."""
    id: str | None = None
    type: str | None = None
    received: float
    """The time at which it was read, in seconds since 1970."""
    state: Literal["Open", "Done", "Ignored"]
    message: str = ""
    """The reason why it, or a part of it, is ignored, with the fix."""


FOLLOWER_DAYS = 7
"""Days for which a change log is kept for a follower that does not read it (`changelog.followers`)."""


def moment(seconds: float) -> str:
    """A time for people; what no calendar has becomes its first or last day."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), 253_402_300_799.0), UTC):%Y-%m-%d %H:%M:%S}Z"


class FollowerReport(Model):
    """A Replicator whose `follow` is this one's change log."""

    name: str
    """The owner of its change log."""
    record: int | None
    """The last record of this change log that it has taken over; None: its lease cannot be read."""
    renewed: float
    """The time at which it last said so, in seconds since 1970."""
    held: bool
    """The change log is kept for it; false: it has said nothing for seven days, and no longer counts."""
    silent: bool = False
    """It has said nothing for five minutes, and the change log is kept for it."""

    @property
    def said(self) -> str | None:
        """The text about one that no longer counts, or for which the log is kept while it does not read it."""
        who = self.name if self.record is None else f"follower {self.name}"
        if not self.held:
            ended = f"{who} has not read the change log for seven days, which is no longer kept for it"
            again = (
                "run `tailrace resync --all` (in Kubernetes, a SnapshotRequest with resync: true and tables: ['*.*'])"
            )
            return f"{ended}; start it and {again}, or delete its file in followers/"
        if self.record is None:
            unknown = f"{who} has a place in the change log that is not known, so nothing is removed"
            return f"{unknown}; if there is no such follower, delete that file"
        if self.silent:
            since = f"{who} has not read the change log since {moment(self.renewed)}"
            until = moment(self.renewed + FOLLOWER_DAYS * 86_400)
            return f"{since}, and what comes after record {self.record} is kept for it until {until}"
        return None


class NotificationsStatus(Model):
    """Since the driver's start."""

    sent: int = 0
    failed: int = 0
    """Attempts that failed."""
    dropped: int = 0
    """Events that will not be sent: all attempts failed."""
    lost: int = 0
    """Records of the change log whose events can no longer be told: too much happened before they could be sent."""
    waiting: int = 0


class Status(Model):
    name: str
    state: State
    message: str = ""
    started_at: float
    updated_at: float
    log_id: str | None = None
    made: Many[str] = ()
    """Objects that the change log created in the source (`replication slot x`, `publication x`): dropped with the
    Replicator."""
    epoch: int = 0
    generation: int | None = None
    """The generation of the Replicator's spec that the driver uses; None: the manifest has none, as outside
    Kubernetes."""
    capture: CaptureStatus = CaptureStatus()
    apply: ApplyStatus = ApplyStatus()
    freshness: FreshnessStatus | None = None
    """None: nothing is measured, as with `--once`."""
    objective: ObjectiveStatus | None = None
    """None: `spec.objective` is not set."""
    tables_total: int = 0
    tables_replicating: int = 0
    tables_failing: int = 0
    tables: Many[TableStatus] = ()
    snapshots: Many[SnapshotStatus] = ()
    dropping: Many[DroppedCopy] = ()
    assessment: Assessment | None = None
    """Reported by the driver that was started first, as long as it runs."""
    cuts: CutsStatus | None = None
    """None: there is no cut."""
    cutover: CutoverStatus | None = None
    """None: the manifest asks for none."""
    notifications: NotificationsStatus | None = None
    """None: `spec.notifications` is not set."""
    signals: Many[SignalReport] = ()
    """The newest signals of the source's table, newest last."""
    lineage: LineageStatus | None = None
    """None: `spec.lineage` is not set."""
    followers: Many[FollowerReport] = ()
    executors_wanted: int | None = None
    """The number of executors that running and waiting tasks fill, however many there may be; at least 1 while large
    batches do without. None: an older driver, whose executors always run."""
    fault: Fault | None = None
