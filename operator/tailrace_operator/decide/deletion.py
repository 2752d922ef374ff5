"""Decides one round for a Replicator that is being deleted. Pure.

The driver, which runs and holds the credentials, drops what it made in the source (and the data, with `deletionPolicy:
Delete`): its Secret may be deleted together with the Replicator. Where no driver answers, it ends and a Job of the data
plane does the same. All of it has a time limit: an unreachable source must not hold up a namespace for ever.
In a namespace that is being deleted nothing can run: the driver dropped everything when it was ended, and its last
words say so. What stays behind is named in an event. Kubernetes removes the children after the object.
"""

from collections.abc import Iterator

from tailrace.contract.driver import DropReport
from tailrace.contract.ownership import made_name, owner_of
from tailrace_operator.decide.model import (
    Action,
    Apply,
    Decision,
    Delete,
    DropSource,
    Limits,
    Say,
    SetFinalizers,
    Wanted,
)
from tailrace_operator.observe.model import FINALIZER, ReplicatorSeen
from tailrace_operator.resources import drop, hashing, identity, names, settings
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason, Verdict, bounded, conditions
from tailrace_operator.status.models import ReplicatorStatus

SOON = 5.0
ASK_AGAIN = 1.0
"""While the driver drops: it takes a few seconds, and who deletes waits for it."""
DRIVERS_PART = 0.5
"""Of the whole time; then the Job has the rest."""


def decide(seen: ReplicatorSeen, wanted: Wanted, limits: Limits) -> Decision[ReplicatorStatus]:
    if FINALIZER not in seen.meta.finalizers:
        return Decision(seen.status)
    begun = times.seconds(seen.status.deletion_started_at)
    spent = seen.now - begun if begun is not None else 0.0
    if not seen.status.applied_template_hash:
        return _release(seen, (Say("Normal", "Deleted", "no driver ever ran; nothing to clean up."),))
    report = _report(seen)
    if report is not None and report.complete:
        return _release(seen, _told(report, wanted))
    if wanted.spec is None:
        return _release(seen, (_left(seen, wanted, "no spec of it is valid any more, and none is known that was"),))
    asking = _driver_answers(seen, spent, limits)
    job = seen.children.get(f"Job/{names.drop(seen.meta.name)}")
    if job is not None and job.succeeded:  # by an image that leaves no report
        return _release(seen, (Say("Normal", "CleanedUp", _cleaned(wanted)),))
    if seen.namespace_ends and not asking:
        why = "its namespace is being deleted, nothing can run there, and no driver said that it has dropped everything"
        return _release(seen, (_left(seen, wanted, why),))
    if job is not None and job.failed:
        return _release(seen, (_left(seen, wanted, _why(seen)),))
    if spent >= limits.cleanup_seconds:
        return _release(seen, (_left(seen, wanted, _late(seen, wanted, limits)),))
    verdict = Verdict(
        "False",
        Reason.DELETING,
        bounded(f"waits for {_waits(seen, wanted, asking)}; {_until(seen, limits)}."),
        progress=True,
    )
    status = seen.status.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "state": "Deleting",
            "message": verdict.message,
            "conditions": conditions(verdict.claims(), seen.status.conditions, seen.meta.generation, seen.now),
            "deletion_started_at": seen.status.deletion_started_at or times.text(seen.now),
            "made": _made(seen),
        }
    )
    left = max(int(limits.cleanup_seconds - spent), 1)
    actions = (DropSource(_with_data(wanted)),) if asking else tuple(_steps(seen, wanted, left))
    return Decision(status, actions, again=ASK_AGAIN if asking else SOON, intent=begun is None)


def _driver_answers(seen: ReplicatorSeen, spent: float, limits: Limits) -> bool:
    """Whether to ask the driver (again). One that is silent, too old to know the order, or not done in its part of the
    time is ended, and the Job takes over."""
    alive = any(not pod.deleting and pod.ip and pod.running_since is not None for pod in seen.pods)
    silent = seen.driver.silent_since is not None and seen.now - seen.driver.silent_since > limits.silent_seconds
    told = seen.dropping
    refused = told is not None and told.problem is not None and 400 <= told.code < 500
    over = spent >= limits.cleanup_seconds * DRIVERS_PART
    return alive and not (silent or refused or over)


def _report(seen: ReplicatorSeen) -> DropReport | None:
    """From the driver's answer or a pod's last words; of this very Replicator, and complete if there is such a one."""
    told = seen.dropping.answer.report if seen.dropping is not None and seen.dropping.answer is not None else None
    found = [told, *(DropReport.of_message(words) for words in seen.last_words)]
    owner = owner_of(seen.meta.namespace, seen.meta.name, seen.meta.uid)
    of_this = [report for report in found if report is not None and report.owner == owner]
    return max(of_this, key=lambda report: report.complete, default=None)


def _steps(seen: ReplicatorSeen, wanted: Wanted, seconds: int) -> Iterator[Action]:
    name, spec = seen.meta.name, wanted.spec
    assert spec is not None
    child = seen.children.get(f"StatefulSet/{names.driver(name)}")
    if child is not None:
        yield Delete("StatefulSet", child.name, child.uid)
    if seen.pods or child is not None:
        return  # the slot is in use until the driver has ended
    if f"Job/{names.drop(name)}" in seen.children:
        return
    needed = [settings.config_map(name, seen.meta.namespace, seen.meta.uid, spec)]
    needed += [identity.service_account(name)] if spec.service_account_name is None else []
    for document in [*needed, drop.job(name, spec, wanted.image, seconds=seconds)]:
        yield Apply(document, hashing.content_hash(document))


def _release(seen: ReplicatorSeen, says: tuple[Say, ...]) -> Decision[ReplicatorStatus]:
    rest = tuple(f for f in seen.meta.finalizers if f != FINALIZER)
    return Decision(seen.status, (SetFinalizers(rest),), says, again=SOON)


# ---- what is said ----


def _waits(seen: ReplicatorSeen, wanted: Wanted, asking: bool) -> str:
    if asking:
        answer = seen.dropping.answer if seen.dropping is not None else None
        return "the driver to drop what it made" + (f": {answer.message}" if answer and answer.message else "")
    if seen.pods:
        return "the driver to end"
    why = wanted.trouble.message if wanted.trouble is not None else _hindrance(seen)
    return "the clean-up of source and storage" + (f" ({why.rstrip('.')})" if why else "")


def _hindrance(seen: ReplicatorSeen) -> str:
    """Why the Job's pod does not run; if it runs, what ended one before it, or the driver: it meets the same source."""
    pod = max(seen.cleaners, key=lambda p: p.created, default=None)
    job = names.drop(seen.meta.name)
    if pod is None and f"Job/{job}" in seen.children:
        return f"job {job} has no pod; a quota or an admission rule that refuses one is among its events"
    if pod is not None and pod.running_since is None:
        if pod.unscheduled is not None:
            return f"pod {pod.name} cannot be scheduled: {pod.unscheduled}"
        if pod.waiting is not None and pod.waiting != "ContainerCreating":
            return f"pod {pod.name}: {pod.waiting}: {pod.waiting_message}"
    halt = seen.status.halt
    return _last_line(seen) or (f"the driver was stopped by {halt.message}" if halt is not None else "")


def _until(seen: ReplicatorSeen, limits: Limits) -> str:
    begun = times.seconds(seen.status.deletion_started_at) or seen.now
    return f"at {times.text(begun + limits.cleanup_seconds)} it is released all the same, and what stays is named"


def _told(report: DropReport, wanted: Wanted) -> tuple[Say, ...]:
    """One event for what was dropped, one for what was kept because nothing proves that it is this Replicator's."""
    dropped = ", ".join(report.dropped) or "nothing was there"
    data = "" if wanted.spec is not None and _with_data(wanted) else "; the data stays"
    says = [Say("Normal", "CleanedUp", bounded(f"dropped: {dropped}{data}."))]
    if report.kept:
        says.append(Say("Warning", "Kept", bounded(f"not dropped: {'; '.join(report.kept)}.")))
    return tuple(says)


def _why(seen: ReplicatorSeen) -> str:
    last = _last_line(seen)
    return f"the clean-up failed: {last}" if last else "the clean-up failed"


def _last_line(seen: ReplicatorSeen) -> str:
    """Of the Job's newest pod that ended and said why; empty: none did."""
    ends = [p.ended.message.strip() for p in seen.cleaners if p.ended is not None]
    return next((text.splitlines()[-1] for text in reversed(ends) if text), "")


def _late(seen: ReplicatorSeen, wanted: Wanted, limits: Limits) -> str:
    why = f"it did not end within {times.span(limits.cleanup_seconds)}"
    answer = seen.dropping.answer if seen.dropping is not None else None
    if wanted.trouble is not None:
        return f"{why}: {wanted.trouble.message.rstrip('.')}"
    last = answer.message if answer is not None and answer.message else _hindrance(seen)
    return f"{why}: {last.rstrip('.')}" if last else why


def _with_data(wanted: Wanted) -> bool:
    return wanted.spec is not None and wanted.spec.deletion_policy == "Delete"


def _cleaned(wanted: Wanted) -> str:
    data = "tables and change log are deleted" if _with_data(wanted) else "the data stays"
    return f"slot and publication that Tailrace made are dropped; {data}."


def _made(seen: ReplicatorSeen) -> tuple[str, ...]:
    """As the driver says; what it said before stays known when it is silent."""
    said = seen.driver.status.made if seen.driver.status is not None else ()
    return said or seen.status.made


def _left(seen: ReplicatorSeen, wanted: Wanted, why: str) -> Say:
    """Names what a driver said that it had made. One that never said so may have died in between: what it would have
    made is named as such, and warns of nothing."""
    spec = wanted.spec
    tables = seen.status.tables
    captured = bool(_made(seen)) or (tables is not None and tables.total > 0)
    made = list(_made(seen)) or _would_be_made(seen, wanted)
    data = []
    if spec is not None and _with_data(wanted):
        data = [f"tables at {spec.target.location}", f"change log at {spec.storage.location}"]
    source = f"{spec.source.host}:{spec.source.port}/{spec.source.database}" if spec is not None else seen.status.source
    place, what = source or "its source", ", ".join([*made, *data]) or "nothing"
    if captured or spec is None:
        return Say("Warning", "LeftBehind", bounded(f"{why}; left behind at {place}: {what}. Drop them by hand."))
    text = f"{why}; no driver of it said that it had made anything at {place}. Had one done so, it would be: {what}."
    return Say("Normal", "NothingKnown", bounded(text))


def _would_be_made(seen: ReplicatorSeen, wanted: Wanted) -> list[str]:
    spec, name = wanted.spec, made_name(seen.meta.name, seen.meta.uid)
    slot = [] if spec is not None and spec.source.slot is not None else [f"replication slot {name}"]
    return slot if spec is not None and spec.source.publication is not None else [*slot, f"publication {name}"]
