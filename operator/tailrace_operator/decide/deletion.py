"""Decides one round for a Replicator that is being deleted. Pure.

The driver, which runs and holds the credentials, drops what it made in the source (and the data, with `deletionPolicy:
Delete`; with `Orphan` it drops nothing and releases the change log): its Secret may be deleted together with the
Replicator. Where no driver answers, it ends and a Job of the data plane does the same. All of it has a time limit: an
unreachable source must not hold up a namespace forever. In a namespace that is being deleted nothing can run: the
driver dropped everything when it was ended, and its last words say so. What stays behind is named in an event.
Kubernetes removes the children after the object.
"""

from dataclasses import replace

from tailrace.contract.driver import DropReport
from tailrace.contract.ownership import made_name, owner_of
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import error_line, with_fix
from tailrace_operator.decide import clean_up, executors, progress
from tailrace_operator.decide.driver_history import after_cutover, current_driver, handed_over
from tailrace_operator.decide.model import Decision, Desired, DropSource, EmitEvent, Limits, SetFinalizers
from tailrace_operator.observe.model import FINALIZER, ObservedReplicator
from tailrace_operator.resources import names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Readiness, Reason, bounded, clause, conditions, sentence
from tailrace_operator.status.models import Halt, ReplicatorStatus

SOON = 5.0
ASK_AGAIN = 1.0
"""While the driver drops: it takes a few seconds, and who deletes waits for it."""
DRIVERS_PART = 0.5
"""Share of the whole time; the Job has the rest."""
IN_USE = "the tables stay: since the cutover programs write to them"


def decide(observed: ObservedReplicator, desired: Desired, limits: Limits) -> Decision[ReplicatorStatus]:
    if FINALIZER not in observed.meta.finalizers:
        return Decision(observed.status)
    before = observed.status.halt
    observed = _with_success(observed)
    begun = times.seconds(observed.status.deletion_started_at)
    spent = observed.now - begun if begun is not None else 0.0
    if not observed.status.applied_template_hash:
        return _release(observed, (EmitEvent("Normal", "Deleted", "No driver ever ran; nothing to clean up."),))
    report = _report(observed)
    if report is not None and report.complete:
        return _release(observed, _drop_events(observed, report, desired))
    if desired.spec is None:
        return _release(
            observed, (_left(observed, desired, "its spec is invalid, and no earlier valid spec is known"),)
        )
    asking = _driver_answers(observed, spent, limits)
    left = max(int(limits.cleanup_seconds - spent), 1)
    steps = tuple(clean_up.steps(observed, desired, left, limits))
    observed = clean_up.without_old_job(observed, desired)
    job = clean_up.job_of(observed)
    if job is not None and job.succeeded:  # by an image that leaves no report
        done = _released(observed, desired) if _orphans(desired) else _cleaned(observed, desired)
        return _release(observed, (done,))
    if observed.namespace_ends and not asking:
        why = "its namespace is being deleted, so nothing can run there, and no driver reported a complete clean-up"
        return _release(observed, (_left(observed, desired, why),))
    if job is not None and job.failed and not clean_up.outdated(job, desired):
        return _release(observed, (_left(observed, desired, _why(observed)),))
    hopeless = _hopeless(observed, asking, spent)
    if hopeless:
        return _release(observed, (_left(observed, desired, hopeless),))
    if spent >= limits.cleanup_seconds:
        return _release(observed, (_left(observed, desired, _late(observed, desired, limits)),))
    waits = f"waiting for {_waits(observed, desired, asking)}; {_until(observed, limits)}."
    status = _status(observed, waits, limits)
    actions = (DropSource(desired.spec.deletion_policy),) if asking else steps
    intent = begun is None or observed.status.halt != before
    return Decision(status, actions, again=ASK_AGAIN if asking else SOON, intent=intent)


def _with_success(observed: ObservedReplicator) -> ObservedReplicator:
    """A driver may cut over after the deletion has begun. That is recorded before its pod is gone: programs write to
    the tables from then on. A pod that ends on purpose counts, too: what it says of the copies is true."""
    said = [
        p.ended.fault for p in observed.pods if p.ended is not None and p.ended.fault is not None and handed_over(p)
    ]
    if not said or after_cutover(observed.status.halt):
        return observed
    text = bounded(with_fix(said[0].message, said[0].fix))
    halt = Halt(reason=Reason.CUT_OVER.value, message=text, at=times.text(observed.now))
    return replace(observed, status=observed.status.model_copy(update={"halt": halt}))


def _status(observed: ObservedReplicator, message: str, limits: Limits) -> ReplicatorStatus:
    pod, driver, _ = current_driver(observed)
    there = executors.unwanted(observed)
    readiness = Readiness("False", Reason.DELETING, sentence(message), progress=True)
    return observed.status.model_copy(
        update={
            **progress.progress(observed, progress.recent(observed, limits), pod),
            "observed_generation": observed.meta.generation,
            "state": "Deleting",
            "message": readiness.message,
            "message_summary": clause(readiness.message) or None,
            "conditions": conditions(
                readiness.claims(), observed.status.conditions, observed.meta.generation, observed.now
            ),
            "deletion_started_at": observed.status.deletion_started_at or times.text(observed.now),
            "made": _made(observed),
            "driver": driver,
            "executors": there,
            "executors_summary": f"{there.running}/{there.desired}",
        }
    )


def _driver_answers(observed: ObservedReplicator, spent: float, limits: Limits) -> bool:
    """True if the driver is to be asked (again). A driver that is silent, too old to know the order, or not done in its
    part of the time is stopped, and the Job takes over."""
    alive = any(not pod.deleting and pod.ip and pod.running_since is not None for pod in observed.pods)
    silent = (
        observed.driver.silent_since is not None and observed.now - observed.driver.silent_since > limits.silent_seconds
    )
    dropping = observed.dropping
    refused = dropping is not None and dropping.problem is not None and 400 <= dropping.code < 500
    over = spent >= limits.cleanup_seconds * DRIVERS_PART
    return alive and not (silent or refused or over)


def _report(observed: ObservedReplicator) -> DropReport | None:
    """The report in the driver's answer or in a pod's termination message; of this very Replicator, and a complete one
    if there is one."""
    answered = (
        observed.dropping.answer.report
        if observed.dropping is not None and observed.dropping.answer is not None
        else None
    )
    found = [answered, *observed.reports]
    owner = owner_of(observed.meta.namespace, observed.meta.name, observed.meta.uid)
    of_this = [report for report in found if report is not None and report.owner == owner]
    return max(of_this, key=lambda report: report.complete, default=None)


def _release(observed: ObservedReplicator, events: tuple[EmitEvent, ...]) -> Decision[ReplicatorStatus]:
    rest = tuple(f for f in observed.meta.finalizers if f != FINALIZER)
    parting = tuple(replace(event, parting=True) for event in events)
    return Decision(observed.status, (SetFinalizers(rest),), parting, again=SOON)


# ---- messages and events ----


def _waits(observed: ObservedReplicator, desired: Desired, asking: bool) -> str:
    if asking:
        answer = observed.dropping.answer if observed.dropping is not None else None
        said = f": {answer.message}" if answer and answer.message else ""
        order = "release the change log" if _orphans(desired) else "drop what it created in the source"
        return f"the driver to {order}{said}"
    if observed.pods:
        return "the driver to shut down"
    why = desired.blocker.message if desired.blocker is not None else _hindrance(observed)
    work = "the change log to be released" if _orphans(desired) else "the clean-up of source and storage"
    return work + (f" ({why.rstrip('.')})" if why else "")


def _hindrance(observed: ObservedReplicator) -> str:
    """Why the Job's pod does not run; if it runs, what ended one before it, or the driver: it meets the same source."""
    pod = max(observed.cleaners, key=lambda p: p.created, default=None)
    job = names.drop(observed.meta.name)
    if pod is None and f"Job/{job}" in observed.children:
        refused = observed.refused_pods.get(f"Job/{job}")
        return f"job {job} has no pod yet" if refused is None else f"job {job} cannot create its pod: {refused}"
    if pod is not None and pod.cannot_begin is not None:
        return pod.cannot_begin
    halt = observed.status.halt
    if after_cutover(halt):
        halt = None  # it hinders no clean-up
    return _last_error(observed) or (f"the driver was stopped by {halt.message}" if halt is not None else "")


def _until(observed: ObservedReplicator, limits: Limits) -> str:
    begun = times.seconds(observed.status.deletion_started_at) or observed.now
    end = times.text(begun + limits.cleanup_seconds)
    return f"at {end} at the latest the finalizer is removed, and an event names what is left"


def _drop_events(observed: ObservedReplicator, report: DropReport, desired: Desired) -> tuple[EmitEvent, ...]:
    """One event for what was dropped or released, one for what was kept because nothing proves that it is this
    Replicator's."""
    dropped = ", ".join(report.dropped) or "nothing to drop"
    data = "" if _with_data(desired) else "; the data is kept"
    data = f"; {IN_USE}" if after_cutover(observed.status.halt) else data
    cleaned = EmitEvent("Normal", "CleanedUp", sentence(f"Dropped: {dropped}{data}."))
    events = [_released(observed, desired) if report.released else cleaned]
    if report.kept:
        events.append(EmitEvent("Warning", "Kept", sentence(f"Not dropped: {'; '.join(report.kept)}.")))
    return tuple(events)


def _why(observed: ObservedReplicator) -> str:
    last = _last_error(observed)
    return f"the clean-up failed: {last}" if last else "the clean-up failed"


def _last_error(observed: ObservedReplicator) -> str:
    """The error of the Job's newest pod that ended with one; empty: none did."""
    newest = sorted(observed.cleaners, key=lambda p: p.created, reverse=True)
    faults = (p.ended.fault for p in newest if p.ended is not None and p.ended.fault is not None)
    return next((error_line(fault.name, fault.message, fault.fix) for fault in faults), "")


def _hopeless(observed: ObservedReplicator, asking: bool, spent: float) -> str:
    """The reason for not waiting longer, although there is time. Empty: waiting continues."""
    if clean_up.pointless(observed, spent):
        why = (_hindrance(observed) or "its pod is waiting").rstrip(".: ")
        return f"no driver has ever started, nor can the clean-up ({why})"
    if not clean_up.in_vain(observed, asking, spent):
        return ""
    answer = observed.dropping.answer if asking and observed.dropping is not None else None
    why = answer.message if answer is not None else _hindrance(observed)
    return f"the clean-up fails as the driver did ({why.rstrip('.')})"


def _late(observed: ObservedReplicator, desired: Desired, limits: Limits) -> str:
    why = f"the clean-up did not finish within {times.span(limits.cleanup_seconds)}"
    answer = observed.dropping.answer if observed.dropping is not None else None
    if desired.blocker is not None:
        return f"{why}: {desired.blocker.message.rstrip('.')}"
    last = answer.message if answer is not None and answer.message else _hindrance(observed)
    return f"{why}: {last.rstrip('.')}" if last else why


def _with_data(desired: Desired) -> bool:
    return desired.spec is not None and desired.spec.deletion_policy == "Delete"


def _orphans(desired: Desired) -> bool:
    return desired.spec is not None and desired.spec.deletion_policy == "Orphan"


def _cleaned(observed: ObservedReplicator, desired: Desired) -> EmitEvent:
    data = "tables and change log are deleted" if _with_data(desired) else "the data is kept"
    if after_cutover(observed.status.halt):
        data = f"the change log is deleted; {IN_USE}" if _with_data(desired) else IN_USE
    return EmitEvent("Normal", "CleanedUp", f"Dropped what Tailrace had created in the source; {data}.")


def _released(observed: ObservedReplicator, desired: Desired) -> EmitEvent:
    """Names what fills a disk if no Replicator continues."""
    place = desired.spec.storage.location if desired.spec is not None else "its location"
    text = f"the change log at {place} is released: the same manifest, applied again here or elsewhere, continues"
    made = ", ".join(_made(observed))
    left = f"; until then the source keeps its log for {made}" if made else ""
    return EmitEvent("Normal", "Released", sentence(f"{text}{left}."))


def _made(observed: ObservedReplicator) -> tuple[str, ...]:
    """The objects that the driver created in the source; its last answer stays valid while it is silent."""
    reported = observed.driver.status.made if observed.driver.status is not None else ()
    return reported or observed.status.made


def _left(observed: ObservedReplicator, desired: Desired, why: str) -> EmitEvent:
    """Names what a driver said that it had made. One that never said so may have died in between: what it would have
    made is named as such, and warns of nothing."""
    spec, captured = desired.spec, clean_up.captured(observed)
    if spec is not None and captured and _orphans(desired):
        return _unreleased(observed, spec, why)
    made = list(_made(observed)) or _would_be_made(observed, desired)
    in_use, data = after_cutover(observed.status.halt), []
    if spec is not None and _with_data(desired):
        unless = " (not if programs write to them since a cutover)" if spec.cutover is not None else ""
        tables = [] if in_use else [f"tables at {spec.target.place}{unless}"]
        data = [*tables, f"change log at {spec.storage.location}"]
    source = spec.source.address if spec is not None else observed.status.source
    place, what = source or "its source", ", ".join([*made, *data])
    if not what:
        return EmitEvent("Normal", "NothingLeft", sentence(f"{why}; Tailrace had created nothing at {place}."))
    if captured or spec is None:
        stay = f"; {IN_USE}" if in_use else ""
        text = f"{why}; left behind at {place}: {what}. Drop them by hand{stay}."
        return EmitEvent("Warning", "LeftBehind", sentence(text))
    text = f"{why}; no driver reported that it created anything at {place}. If one did, it is: {what}."
    return EmitEvent("Normal", "NothingKnown", sentence(text))


def _unreleased(observed: ObservedReplicator, spec: ReplicatorSpec, why: str) -> EmitEvent:
    """An event that says what another Replicator needs to continue although the log was not released."""
    owner = owner_of(observed.meta.namespace, observed.meta.name, observed.meta.uid)
    made = ", ".join(_made(observed))
    left = f" Left at {spec.source.address}: {made}." if made else ""
    text = f"{why}. The change log at {spec.storage.location} is not released:"
    text += f" to continue with it, set storage.adopt to {owner!r}.{left}"
    return EmitEvent("Warning", "NotReleased", sentence(text))


def _would_be_made(observed: ObservedReplicator, desired: Desired) -> list[str]:
    """MySQL keeps nothing for its readers."""
    spec, name = desired.spec, made_name(observed.meta.name, observed.meta.uid)
    if spec is not None and spec.source.type == "mysql":
        return []
    slot = [] if spec is not None and spec.source.postgresql.slot is not None else [f"replication slot {name}"]
    return (
        slot if spec is not None and spec.source.postgresql.publication is not None else [*slot, f"publication {name}"]
    )
