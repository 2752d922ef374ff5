"""Decides one round for a Replicator. Pure: everything it knows is in the observation."""

from tailrace_operator.decide import children, deletion, summary
from tailrace_operator.decide.model import Decision, Limits, Say, SetFinalizers, Wanted
from tailrace_operator.decide.story import Story, follow
from tailrace_operator.decide.verdict import Judged, judge
from tailrace_operator.decide.wanted import resolve
from tailrace_operator.observe.model import FINALIZER, ReplicatorSeen
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason, Verdict, bounded, conditions
from tailrace_operator.status.models import ReplicatorStatus

IDLE_SECONDS = 300.0
BUSY_SECONDS = 30.0
SOON_SECONDS = 5.0


def decide(seen: ReplicatorSeen, limits: Limits) -> Decision[ReplicatorStatus]:
    if seen.meta.deleting:
        return deletion.decide(seen, resolve(seen, limits), limits)
    if FINALIZER not in seen.meta.finalizers:
        # Before anything is made that would have to be cleaned up.
        return Decision(seen.status, (SetFinalizers((*seen.meta.finalizers, FINALIZER)),), again=SOON_SECONDS)
    wanted = resolve(seen, limits)
    story = follow(seen, wanted, limits)
    state, verdict = judge(seen, wanted, story, limits)
    status = _status(seen, wanted, story, (state, verdict), limits)
    return Decision(
        status=status,
        actions=children.actions(seen, wanted, story),
        says=_says(seen, verdict, story),
        again=_again(seen, story, limits),
        intent=_intent(status) != _intent(seen.status),
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


def _status(seen: ReplicatorSeen, wanted: Wanted, story: Story, judged: Judged, limits: Limits) -> ReplicatorStatus:
    state, verdict = judged
    before, said = seen.status, seen.driver.status
    generation = seen.meta.generation
    claims = [*verdict.claims(), _suspended(wanted)]
    if said is not None and verdict.reason is not Reason.DRIVER_UNREACHABLE:
        claims += summary.claims(said, limits)
    ready = wanted.spec is not None and wanted.template_hash is not None
    update: dict[str, object] = {
        "observed_generation": generation,
        "state": state,
        "message": bounded(verdict.message),
        "conditions": conditions(claims, before.conditions, generation, seen.now),
        "applied_generation": wanted.generation if ready else before.applied_generation,
        "applied_spec_hash": wanted.spec_hash if ready else before.applied_spec_hash,
        "applied_template_hash": wanted.template_hash if ready else before.applied_template_hash,
        "last_handled_reconcile_at": seen.meta.requested_at or before.last_handled_reconcile_at,
        "driver": story.driver,
        "failures": story.failures,
        "halt": story.halt,
        "resync_uid": story.resync_uid,
        "last_error": story.error or before.last_error,
    }
    if wanted.spec is not None:
        source = wanted.spec.source
        update["source"] = f"{source.type}://{source.host}:{source.port}/{source.database}"[:253]
        update["target"] = wanted.spec.target.type
    return before.model_copy(update={**update, **_progress(seen, story)})


def _suspended(wanted: Wanted) -> Claim:
    if wanted.spec is not None and wanted.spec.suspend:
        return Claim("Suspended", "True", Reason.SUSPENDED, "spec.suspend is true.")
    return Claim("Suspended", "False", Reason.NOT_SUSPENDED)


def _progress(seen: ReplicatorSeen, story: Story) -> dict[str, object]:
    """What the driver says. While it is silent the last known numbers stay, without those that would be lies."""
    said = seen.driver.status
    if said is None or story.pod is None or seen.driver.silent_since is not None:
        unknown: dict[str, object] = {"lag_seconds": None, "rows_per_second": 0.0}
        capture, apply = seen.status.capture, seen.status.apply
        return {
            "lag": None,
            "snapshot_summary": None,
            "snapshot": None,
            "capture": capture.model_copy(update={**unknown, "lag_bytes": None}) if capture is not None else None,
            "apply": apply.model_copy(update=unknown) if apply is not None else None,
        }
    snapshots, behind = summary.snapshots(said), summary.lag(said)
    found: dict[str, object] = {
        "capture": summary.capture(said),
        "apply": summary.apply(said),
        "tables": summary.tables(said),
        "made": said.made or seen.status.made,
        "snapshot": snapshots,
        "lag": times.span(behind) if behind is not None else None,
        "tables_summary": f"{said.tables_replicating}/{said.tables_total}",
        "snapshot_summary": None,
    }
    if snapshots is not None:
        found["snapshot_summary"] = summary.percentage(snapshots.rows_done, snapshots.rows_estimated, False)
    if said.fault is not None:
        found["last_error"] = summary.fault(said.fault)
    return found


def _says(seen: ReplicatorSeen, verdict: Verdict, story: Story) -> tuple[Say, ...]:
    """An event when the reason of Ready changes, and one for each end of the driver."""
    before = next((c for c in seen.status.conditions if c.type == "Ready"), None)
    said = []
    if story.ended and story.pod is not None and story.pod.ended is not None:
        error = story.error
        why = f"{error.name}: {error.message}" if error is not None else f"exit code {story.pod.ended.code}"
        said.append(Say("Warning", "DriverEnded", bounded(f"pod {story.pod.name}: {why}")))
    if before is None or before.reason != verdict.reason.value:
        bad = verdict.stuck or (verdict.ready != "True" and not verdict.progress) or verdict.ready == "Unknown"
        text = verdict.message or f"the Replicator is {verdict.reason.value}."
        said.append(Say("Warning" if bad else "Normal", verdict.reason.value, bounded(text)))
    return tuple(said)


def _again(seen: ReplicatorSeen, story: Story, limits: Limits) -> float:
    if seen.refusal is not None:
        return BUSY_SECONDS  # it is sent again once the refusal is old: quotas and admission rules change
    if story.pod is None:
        return IDLE_SECONDS
    if story.pod.running_since is None:
        return BUSY_SECONDS
    starting = seen.driver.status is None or seen.driver.silent_since is not None
    return min(SOON_SECONDS, limits.poll_seconds) if starting else limits.poll_seconds
