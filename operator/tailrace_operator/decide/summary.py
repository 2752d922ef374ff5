"""The driver's status document in the bounded form of the Replicator's status. Pure."""

from collections import Counter
from collections.abc import Iterable

from tailrace.contract.status import Fault, ObjectiveStatus, SnapshotStatus, Status, TableStatus
from tailrace.errors import error_line
from tailrace_operator.observe.model import ObservedDriver
from tailrace_operator.status import times
from tailrace_operator.status.conditions import bounded, short
from tailrace_operator.status.models import (
    MAX_WORST,
    ApplySummary,
    CaptureSummary,
    CutsSummary,
    FaultStatus,
    SnapshotProgress,
    TableCounts,
    TableSummary,
)
from tailrace_operator.status.numbers import amount, count, left, rate

UNDER_WAY = ("Pending", "Running", "Paused")
BAD = ("FAILING", "STOPPED")
WORKING = ("SNAPSHOTTING", "REPLICATING")
"""States in which changes arrive. A table that only waits is not among them: it is unknown yet if anything will
arrive."""


MOVING_SECONDS, STEADY_SECONDS = 1.0, 2.0
"""Seconds until a driver is asked again, while snapshots run or tables start, and while it only follows changes. With
many drivers it takes longer (`handlers.reconcile`)."""
MOVING_TABLES, STEADY_TABLES = 1000.0, 200.0
"""Tables for each second of it: an answer has a line for each."""


def moves(status: Status) -> bool:
    """True if its progress can be seen to move: a snapshot runs, or a table is on its way to replicating."""
    under_way = not status.apply.suspended and any(t.state in ("WAITING", "SNAPSHOTTING") for t in status.tables)
    return under_way or any(s.state == "Running" for s in status.snapshots)


def pause(driver: ObservedDriver, moves: bool) -> float:
    """Seconds until it is worth asking again."""
    count = driver.status.tables_total if driver.status is not None else 0
    return max(MOVING_SECONDS, count / MOVING_TABLES) if moves else max(STEADY_SECONDS, count / STEADY_TABLES)


def capture(status: Status) -> CaptureSummary:
    observed = status.capture
    return CaptureSummary(
        position=short(observed.position) if observed.position is not None else None,
        lag_seconds=amount(observed.lag_seconds),
        lag_bytes=count(observed.lag_bytes) if observed.lag_bytes is not None else None,
        retained_bytes=count(observed.retained_bytes) if observed.retained_bytes is not None else None,
        log_held_by=bounded(observed.log_held_by) if observed.log_held_by else None,
        rows_per_second=rate(observed.rows_per_second),
        waiting_for=bounded(observed.waiting_for) if observed.waiting_for else None,
    )


def apply(status: Status) -> ApplySummary:
    observed = status.apply
    return ApplySummary(
        lag_seconds=amount(observed.lag_seconds),
        record=count(observed.record),
        rows_per_second=rate(observed.rows_per_second),
    )


def tables(status: Status) -> TableCounts:
    by_state = Counter(t.state for t in status.tables)
    bad = [t for t in status.tables if t.state in BAD]
    late = [t for t in status.tables if t.state not in BAD and (t.lag_seconds or 0) > 60]
    worst = sorted(bad, key=lambda t: (t.state != "STOPPED", t.name))
    worst += sorted(late, key=lambda t: (-(t.lag_seconds or 0), t.name))
    return TableCounts(
        total=count(status.tables_total),
        waiting=by_state["WAITING"],
        snapshotting=by_state["SNAPSHOTTING"],
        replicating=by_state["REPLICATING"],
        failing=by_state["FAILING"],
        stopped=by_state["STOPPED"],
        worst=tuple(_table(t) for t in worst[:MAX_WORST]),
        truncated=len(worst) > MAX_WORST,
    )


def by_name(found: Iterable[TableStatus]) -> list[TableSummary]:
    return [_table(table) for table in sorted(found, key=lambda table: table.name)]


def _table(table: TableStatus) -> TableSummary:
    return TableSummary(
        name=table.name[:256],
        state=table.state,
        lag_seconds=amount(table.lag_seconds),
        fault=fault(table.fault),
    )


def cuts(status: Status) -> CutsSummary | None:
    found = status.cuts
    if found is None:
        return None
    return CutsSummary(
        kept=count(found.kept), last=short(found.last), made_at=times.text(found.made), complete=found.complete
    )


def cutover(status: Status) -> str | None:
    found = status.cutover
    if found is None:
        return None
    fault = found.fault
    return bounded(found.message if fault is None else error_line(fault.name, fault.message, fault.fix))


def fault(found: Fault | None) -> FaultStatus | None:
    if found is None:
        return None
    return FaultStatus(
        name=short(found.name),
        message=bounded(found.message),
        fix=bounded(found.fix),
        where=found.where,
        count=count(found.count),
        since=times.text(found.since) if found.since > 0 else None,
    )


def snapshots(status: Status) -> SnapshotProgress | None:
    """None: no snapshot is under way."""
    active = [s for s in status.snapshots if s.state in UNDER_WAY]
    if not active:
        return None
    ends = [left(s.seconds_left) for s in active if s.state == "Running"]
    known = [value for value in ends if value is not None]
    return SnapshotProgress(
        running=len(active),
        tables_done=count(sum(s.tables_done for s in active)),
        tables_total=count(sum(s.tables_total for s in active)),
        rows_done=count(sum(s.rows_done for s in active)),
        rows_estimated=count(sum(s.rows_estimated for s in active)),
        rows_per_second=max((rate(s.rows_per_second) for s in active), default=0.0),
        seconds_left=max(known) if known and len(known) == len(ends) else None,
    )


def percentage(done: int, estimated: int, finished: bool) -> str:
    """Below 100 % until it is finished: estimates are estimates."""
    if finished:
        return "100%"
    return f"{min(100 * count(done) // max(estimated, 1), 99)}%"


def lag(status: Status) -> float | None:
    """Seconds from a commit at the source to the target; None: not known. Where no table works nothing arrives at the
    target, however quick capture is."""
    captured, applied = amount(status.capture.lag_seconds), amount(status.apply.lag_seconds)
    if captured is None or (status.tables and not any(t.state in WORKING for t in status.tables)):
        return None
    return captured + (applied or 0.0)


def objective(found: ObjectiveStatus) -> str | None:
    """`99.72% (99% within 10s), 72% left`."""
    if found.met_percent is None or found.remaining is None:
        return None
    asked = f"{found.percent:g}% within {times.span(found.within_seconds)}"
    return f"{found.met_percent:.2f}% ({asked}), {100 * max(found.remaining, 0):.0f}% left"


def active_requests(status: Status) -> list[SnapshotStatus]:
    """Ad-hoc snapshots that are not finished."""
    return [s for s in status.snapshots if s.reason == "request" and s.state in UNDER_WAY]


def lacks_spec(driver: ObservedDriver, generation: int) -> bool:
    """It answers, and works by another generation. (A driver without one is of an older version.)"""
    status = driver.status if driver.silent_since is None else None
    return status is not None and status.generation not in (None, generation)
