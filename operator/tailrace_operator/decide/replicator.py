"""Decides one round for a Replicator. Pure: everything it knows is in the observation."""

from collections.abc import Iterator
from dataclasses import replace

from tailrace_operator.decide import (
    children,
    claims,
    deletion,
    executors,
    lost_nodes,
    progress,
    rollout,
    signals,
    source_log,
    summary,
)
from tailrace_operator.decide.desired import resolve
from tailrace_operator.decide.driver_history import DriverHistory, follow, handed_over, retry_at
from tailrace_operator.decide.model import Asks, Decision, Desired, EmitEvent, Limits, SetFinalizers
from tailrace_operator.decide.readiness import Assessed, assess
from tailrace_operator.observe.model import FINALIZER, PAUSED, ObservedReplicator
from tailrace_operator.resources import names
from tailrace_operator.status.conditions import Claim, Readiness, Reason, clause, conditions, sentence
from tailrace_operator.status.models import ReplicatorStatus

IDLE_SECONDS = 300.0
BUSY_SECONDS = 30.0
SOON_SECONDS = 5.0
STARTING_SECONDS = 2.0
"""A driver that has not answered yet."""
WARNINGS = {
    Reason.DRIVER_CRASH_LOOP,
    Reason.POD_PENDING,
    Reason.NODE_LOST,
    Reason.IMAGE_PULL_FAILED,
    Reason.SECRET_NOT_FOUND,
    Reason.CONFIG_MAP_NOT_FOUND,
    Reason.DEGRADED,
}
"""Reasons that need attention, though the Replicator is Ready or may recover without action."""


def decide(observed: ObservedReplicator, limits: Limits) -> Decision[ReplicatorStatus]:
    if observed.meta.deleting:
        return deletion.decide(observed, resolve(observed, limits), limits)
    if observed.meta.paused:
        return _paused(observed, limits)
    if FINALIZER not in observed.meta.finalizers:
        # Before anything is made that would have to be cleaned up.
        return Decision(observed.status, (SetFinalizers((*observed.meta.finalizers, FINALIZER)),), again=SOON_SECONDS)
    desired = rollout.hold(observed, resolve(observed, limits))
    history = follow(observed, desired, limits)
    state, readiness = assess(observed, desired, history, limits)
    status = _status(observed, desired, history, (state, readiness), limits)
    changed = tuple(_changed_by_others(observed))
    return Decision(
        status=status,
        actions=children.actions(observed, desired, history, limits),
        events=(*_events(observed, status, readiness, history), *changed),
        again=_again(observed, desired, history, limits),
        asks=_asks(observed, history),
        intent=bool(changed) or _intent(status) != _intent(observed.status),
    )


def _paused(observed: ObservedReplicator, limits: Limits) -> Decision[ReplicatorStatus]:
    """A decision that reports as usual and does nothing; what the status records of actions stays unchanged."""
    before = observed.status
    newest = resolve(observed, limits)
    was = any(c.type == "Suspended" and c.status == "True" for c in before.conditions)
    runs = replace(
        newest,
        spec=newest.spec.model_copy(update={"suspend": was}) if newest.spec is not None else None,
        generation=before.applied_generation,
        spec_hash=before.applied_spec_hash,
        template_hash=before.applied_template_hash or None,
    )
    history = follow(observed, runs, limits)
    halt = history.halt if history.cut_over else before.halt  # a success is told, and restarts nothing later
    history = replace(history, halt=halt, resync_uid=before.resync_uid)
    state, readiness = assess(observed, runs, history, limits)
    if before.applied_generation != observed.meta.generation:
        text = f"generation {observed.meta.generation} is not applied while annotation {PAUSED} is true."
        readiness = Readiness("False", Reason.RECONCILIATION_PAUSED, text)
        state = before.state if history.pod is None else state
    status = _status(observed, runs, history, (state, readiness), limits)
    status = status.model_copy(update={"last_handled_reconcile_at": before.last_handled_reconcile_at})
    events = _events(observed, status, readiness, history)
    again = _again(observed, runs, history, limits)
    asks, intent = _asks(observed, history), _intent(status) != _intent(before)
    return Decision(status=status, events=events, again=again, asks=asks, intent=intent)


def _intent(status: ReplicatorStatus) -> tuple[object, ...]:
    """The part of a status that actions rely on: it is written before any of them."""
    return (
        status.applied_generation,
        status.applied_spec_hash,
        status.applied_template_hash,
        status.halt,
        status.resync_uid,
        status.recovery_uid,
        status.rollout_since,
        status.driver.pod_uid,
        status.driver.pod_restarts,
        status.last_handled_reconcile_at,
    )


def _status(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, assessed: Assessed, limits: Limits
) -> ReplicatorStatus:
    state, readiness = assessed
    before, generation = observed.status, observed.meta.generation
    recent = progress.recent(observed, limits)
    pods = executors.summary(observed, desired, history, recent, limits)
    made = [*readiness.claims(), *_switches(observed, desired), *rollout.claims(desired, limits)]
    made += executors.claims(pods, desired, history, recent)
    made += claims.claims(recent, before.conditions, limits) if recent is not None else ()
    others = (*claims.carried(before.conditions), *source_log.without_driver(observed, desired, history, limits))
    made += [claim for claim in others if claim.type not in {c.type for c in made}]
    ready = desired.spec is not None and desired.template_hash is not None
    update: dict[str, object] = {
        "observed_generation": generation,
        "state": state,
        "message": sentence(readiness.message or pods.message),
        "message_summary": clause(readiness.message or pods.message) or None,
        "conditions": conditions(made, before.conditions, generation, observed.now),
        "applied_generation": desired.generation if ready else before.applied_generation,
        "applied_spec_hash": desired.spec_hash if ready else before.applied_spec_hash,
        "applied_template_hash": desired.template_hash if ready else before.applied_template_hash,
        "last_handled_reconcile_at": observed.meta.requested_at or before.last_handled_reconcile_at,
        "driver": history.driver,
        "executors": pods,
        "executors_summary": f"{pods.running}/{pods.desired}",
        "rollout_since": rollout.since(observed, desired, readiness),
        "failures": history.failures,
        "halt": history.halt,
        "resync_uid": history.resync_uid,
        "recovery_uid": _recovery(observed, history),
        "last_error": history.error or before.last_error,
    }
    if desired.spec is not None:
        source = desired.spec.source
        update["source"] = f"{source.type}://{source.address}"[:253]
        update["target"] = desired.spec.target.type
    told = progress.progress(observed, recent, history.pod)
    if history.halt is not None and history.cut_over:  # the last words of the driver were of what it waited for
        told |= {"cutover": sentence(history.halt.message), "last_error": None}
    return before.model_copy(update={**update, **told})


def _changed_by_others(observed: ObservedReplicator) -> Iterator[EmitEvent]:
    """Events about the object whose change restarts the driver: Kubernetes has acted on it by now."""
    child = observed.children.get(f"StatefulSet/{names.driver(observed.meta.name)}")
    if child is not None and child.drifted:
        text = f"StatefulSet {child.name} was changed by another client, which may have restarted the driver. The "
        text += "operator's own fields are set again. To set something that stays, edit the Replicator; to keep the "
        text += f"operator from it, set the annotation {PAUSED}=true first."
        yield EmitEvent("Warning", "ChangedByOthers", text)


def _recovery(observed: ObservedReplicator, history: DriverHistory) -> str | None:
    used = observed.recovery is not None and history.resync_uid == observed.recovery.uid
    return history.resync_uid if used else observed.status.recovery_uid


def _switches(observed: ObservedReplicator, desired: Desired) -> Iterator[Claim]:
    """Claims about what the user has switched off."""
    if desired.suspended:
        yield Claim("Suspended", "True", Reason.SUSPENDED, "spec.suspend is true.")
    else:
        yield Claim("Suspended", "False", Reason.NOT_SUSPENDED)
    if observed.meta.paused:
        text = f"annotation {PAUSED} is true: nothing is changed."
        yield Claim("ReconciliationPaused", "True", Reason.RECONCILIATION_PAUSED, text)


def _events(
    observed: ObservedReplicator, status: ReplicatorStatus, readiness: Readiness, history: DriverHistory
) -> tuple[EmitEvent, ...]:
    """An event when the reason of Ready changes, or further tables stop, one for each end of the driver, and those of
    executors."""
    before = next((c for c in observed.status.conditions if c.type == "Ready"), None)
    events = []
    pod = history.pod
    failed = history.ended and not history.cut_over
    if failed and pod is not None and pod.ended is not None and not handed_over(pod):
        error = history.error
        why = f"{error.name}: {error.message}" if error is not None else f"exit code {pod.ended.code}"
        events.append(EmitEvent("Warning", "DriverEnded", sentence(f"pod {pod.name}: {why}")))
    if history.evicted and history.error is not None:
        events.append(EmitEvent("Warning", history.error.name, sentence(history.error.message)))
    if before is None or before.reason != readiness.reason.value:
        bad = readiness.stuck or readiness.ready == "Unknown" or readiness.reason in WARNINGS
        bad = bad or (readiness.ready != "True" and not readiness.progress)
        text = readiness.message or f"the Replicator is {readiness.reason.value}."
        events.append(EmitEvent("Warning" if bad else "Normal", readiness.reason.value, sentence(text)))
    else:
        events.extend(claims.stopped(observed.status.tables, status.tables, observed.driver.status))
    both = observed.status.conditions, status.conditions
    told = signals.events(observed.status.signal, status.signal, observed.driver.status)
    return (*events, *claims.events(*both), *executors.events(*both), *told)


def _again(observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits) -> float:
    if observed.refusal is not None:
        return BUSY_SECONDS  # it is sent again once the refusal is old: quotas and admission rules change
    if desired.waits_for is not None:
        return limits.poll_seconds
    wait = lost_nodes.wait(observed)
    if wait is not None:
        return wait
    if history.pod is None and observed.refused_pods:
        return BUSY_SECONDS  # it is tried again: quotas and admission rules change
    if history.pod is None:
        due = retry_at(history.halt, desired) if history.halt is not None else None
        return IDLE_SECONDS if due is None else min(max(due - observed.now, 1.0), IDLE_SECONDS)
    if history.pod.running_since is None:
        return BUSY_SECONDS
    asks = _asks(observed, history)
    if observed.driver.status is None or observed.driver.silent_since is not None:
        return min(STARTING_SECONDS, limits.poll_seconds)
    return min(summary.pause(observed.driver, asks == "moving"), limits.poll_seconds)


def _asks(observed: ObservedReplicator, history: DriverHistory) -> Asks:
    if history.pod is None or history.pod.running_since is None:
        return "given"
    status = observed.driver.status
    if status is None or observed.driver.silent_since is not None:
        return "moving"
    return "moving" if summary.moves(status) else "steady"
