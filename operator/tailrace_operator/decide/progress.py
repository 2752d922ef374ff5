"""The progress of all parts: what the driver reports, and what stays true while none reports. Pure.

What the change log holds stays: positions, records, the number of tables, tables that are stopped. What only a running
driver knows is unknown without one: lag, rates, what capture waits for, snapshots, and which tables replicate.
"""

from tailrace.contract.status import Status
from tailrace_operator.decide import signals, source_log, summary
from tailrace_operator.decide.model import Limits
from tailrace_operator.observe.model import ObservedPod, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.models import ApplySummary, CaptureSummary, TableCounts


def recent(observed: ObservedReplicator, limits: Limits) -> Status | None:
    """The driver's status; None: it has reported none, or has been silent for so long that its last status may be
    outdated, whatever else is wrong."""
    driver = observed.driver
    late = driver.silent_since is not None and driver.answered_at is not None
    silent = late and observed.now - (driver.answered_at or 0.0) >= limits.silent_seconds
    return None if silent else driver.status


def progress(observed: ObservedReplicator, recent: Status | None, pod: ObservedPod | None) -> dict[str, object]:
    """Fields of the status. `recent`: by the driver, not too long ago. `pod`: the driver's that counts."""
    reported = observed.driver.status
    if reported is None or pod is None or observed.driver.silent_since is not None:
        capture, apply = observed.status.capture, observed.status.apply
        tables = {} if recent is not None and pod is not None else _tables_unreported(observed.status.tables, pod)
        return {
            "lag": None,
            "snapshot_summary": None,
            "snapshot": None,
            "capture": _capture_unreported(observed, capture) if capture is not None else None,
            "apply": _apply_unreported(apply) if apply is not None else None,
            **tables,
        }
    snapshots, behind = summary.snapshots(reported), summary.lag(reported)
    found: dict[str, object] = {
        "capture": summary.capture(reported),
        "apply": summary.apply(reported),
        "made": reported.made or observed.status.made,
        "snapshot": snapshots,
        "cuts": summary.cuts(reported),
        "cutover": summary.cutover(reported),
        "signal": signals.last(reported) or observed.status.signal,
        "lag": times.span(behind) if behind is not None else None,
        "snapshot_summary": None,
        **_tables(observed, reported, pod),
    }
    if snapshots is not None:
        found["snapshot_summary"] = summary.percentage(snapshots.rows_done, snapshots.rows_estimated, False)
    if reported.fault is not None:
        found["last_error"] = summary.fault(reported.fault)
    return found


def _tables(observed: ObservedReplicator, reported: Status, pod: ObservedPod) -> dict[str, object]:
    """One that starts, or fails before it has read its change log, knows of no table yet: that is no news."""
    if reported.state in ("Starting", "Failing", "Stopped") and not reported.tables_total:
        return _tables_unreported(observed.status.tables, None)
    return {
        "objective": None if reported.objective is None else summary.objective(reported.objective),
        "tables": summary.tables(reported),
        "tables_summary": f"{reported.tables_replicating}/{reported.tables_total}",
    }


def _tables_unreported(before: TableCounts | None, pod: ObservedPod | None) -> dict[str, object]:
    """Without a driver none replicates; beside one that does not answer the number is unknown."""
    if before is None:
        return {"tables_summary": None}
    stopped = tuple(t for t in before.worst if t.state == "STOPPED")
    runs = pod is not None and pod.running_since is not None
    return {
        "tables": TableCounts(
            total=before.total,
            stopped=before.stopped,
            worst=stopped,
            truncated=before.stopped > len(stopped),
        ),
        "tables_summary": f"{'?' if runs else 0}/{before.total}",
    }


def _capture_unreported(observed: ObservedReplicator, capture: CaptureSummary) -> CaptureSummary:
    unknown: dict[str, object] = {
        "lag_seconds": None,
        "rows_per_second": 0.0,
        "lag_bytes": None,
        "log_held_by": None,
        "waiting_for": None,
    }
    return source_log.observed_last(observed, capture).model_copy(update=unknown)


def _apply_unreported(apply: ApplySummary) -> ApplySummary:
    return apply.model_copy(update={"lag_seconds": None, "rows_per_second": 0.0})
