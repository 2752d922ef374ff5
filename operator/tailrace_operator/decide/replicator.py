"""Decides one round for a Replicator. Pure: everything it knows is in the observation."""

from tailrace_operator.decide import children, deletion, summary
from tailrace_operator.decide.desired import resolve
from tailrace_operator.decide.driver_history import DriverHistory, follow
from tailrace_operator.decide.model import Decision, Desired, EmitEvent, Limits, SetFinalizers
from tailrace_operator.decide.readiness import Assessed, assess
from tailrace_operator.observe.model import FINALIZER, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Readiness, Reason, conditions, sentence
from tailrace_operator.status.models import ReplicatorStatus

IDLE_SECONDS = 300.0
BUSY_SECONDS = 30.0
SOON_SECONDS = 5.0


def decide(observed: ObservedReplicator, limits: Limits) -> Decision[ReplicatorStatus]:
    if observed.meta.deleting:
        return deletion.decide(observed, resolve(observed, limits), limits)
    if FINALIZER not in observed.meta.finalizers:
        # Before anything is made that would have to be cleaned up.
        return Decision(observed.status, (SetFinalizers((*observed.meta.finalizers, FINALIZER)),), again=SOON_SECONDS)
    desired = resolve(observed, limits)
    history = follow(observed, desired, limits)
    state, readiness = assess(observed, desired, history, limits)
    status = _status(observed, desired, history, (state, readiness), limits)
    return Decision(
        status=status,
        actions=children.actions(observed, desired, history),
        events=_events(observed, readiness, history),
        again=_again(observed, history, limits),
        intent=_intent(status) != _intent(observed.status),
    )


def _intent(status: ReplicatorStatus) -> tuple[object, ...]:
    """What actions rely on: it stands in the status before any of them."""
    return (
        status.applied_generation,
        status.applied_spec_hash,
        status.applied_template_hash,
        status.halt,
        status.resync_uid,
        status.driver.pod_uid,
        status.driver.pod_restarts,
        status.last_handled_reconcile_at,
    )


def _status(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, assessed: Assessed, limits: Limits
) -> ReplicatorStatus:
    state, readiness = assessed
    before, reported = observed.status, observed.driver.status
    generation = observed.meta.generation
    claims = [*readiness.claims(), _suspended(desired)]
    if reported is not None and readiness.reason is not Reason.DRIVER_UNREACHABLE:
        claims += summary.claims(reported, limits)
    ready = desired.spec is not None and desired.template_hash is not None
    update: dict[str, object] = {
        "observed_generation": generation,
        "state": state,
        "message": sentence(readiness.message),
        "conditions": conditions(claims, before.conditions, generation, observed.now),
        "applied_generation": desired.generation if ready else before.applied_generation,
        "applied_spec_hash": desired.spec_hash if ready else before.applied_spec_hash,
        "applied_template_hash": desired.template_hash if ready else before.applied_template_hash,
        "last_handled_reconcile_at": observed.meta.requested_at or before.last_handled_reconcile_at,
        "driver": history.driver,
        "failures": history.failures,
        "halt": history.halt,
        "resync_uid": history.resync_uid,
        "last_error": history.error or before.last_error,
    }
    if desired.spec is not None:
        source = desired.spec.source
        update["source"] = f"{source.type}://{source.address}"[:253]
        update["target"] = desired.spec.target.type
    return before.model_copy(update={**update, **_progress(observed, history)})


def _suspended(desired: Desired) -> Claim:
    if desired.spec is not None and desired.spec.suspend:
        return Claim("Suspended", "True", Reason.SUSPENDED, "spec.suspend is true.")
    return Claim("Suspended", "False", Reason.NOT_SUSPENDED)


def _progress(observed: ObservedReplicator, history: DriverHistory) -> dict[str, object]:
    """What the driver says. While it is silent the last known numbers stay, without those that would be lies."""
    reported = observed.driver.status
    if reported is None or history.pod is None or observed.driver.silent_since is not None:
        unknown: dict[str, object] = {"lag_seconds": None, "rows_per_second": 0.0}
        capture, apply = observed.status.capture, observed.status.apply
        return {
            "lag": None,
            "snapshot_summary": None,
            "snapshot": None,
            "capture": capture.model_copy(update={**unknown, "lag_bytes": None}) if capture is not None else None,
            "apply": apply.model_copy(update=unknown) if apply is not None else None,
        }
    snapshots, behind = summary.snapshots(reported), summary.lag(reported)
    found: dict[str, object] = {
        "capture": summary.capture(reported),
        "apply": summary.apply(reported),
        "tables": summary.tables(reported),
        "made": reported.made or observed.status.made,
        "snapshot": snapshots,
        "lag": times.span(behind) if behind is not None else None,
        "tables_summary": f"{reported.tables_replicating}/{reported.tables_total}",
        "snapshot_summary": None,
    }
    if snapshots is not None:
        found["snapshot_summary"] = summary.percentage(snapshots.rows_done, snapshots.rows_estimated, False)
    if reported.fault is not None:
        found["last_error"] = summary.fault(reported.fault)
    return found


def _events(observed: ObservedReplicator, readiness: Readiness, history: DriverHistory) -> tuple[EmitEvent, ...]:
    """An event when the reason of Ready changes, and one for each end of the driver."""
    before = next((c for c in observed.status.conditions if c.type == "Ready"), None)
    events = []
    if history.ended and history.pod is not None and history.pod.ended is not None:
        error = history.error
        why = f"{error.name}: {error.message}" if error is not None else f"exit code {history.pod.ended.code}"
        events.append(EmitEvent("Warning", "DriverEnded", sentence(f"pod {history.pod.name}: {why}")))
    if before is None or before.reason != readiness.reason.value:
        bad = readiness.stuck or (readiness.ready != "True" and not readiness.progress) or readiness.ready == "Unknown"
        text = readiness.message or f"the Replicator is {readiness.reason.value}."
        events.append(EmitEvent("Warning" if bad else "Normal", readiness.reason.value, sentence(text)))
    return tuple(events)


def _again(observed: ObservedReplicator, history: DriverHistory, limits: Limits) -> float:
    if observed.refusal is not None:
        return BUSY_SECONDS  # it is sent again once the refusal is old: quotas and admission rules change
    if history.pod is None:
        return IDLE_SECONDS
    if history.pod.running_since is None:
        return BUSY_SECONDS
    starting = observed.driver.status is None or observed.driver.silent_since is not None
    return min(SOON_SECONDS, limits.poll_seconds) if starting else limits.poll_seconds
