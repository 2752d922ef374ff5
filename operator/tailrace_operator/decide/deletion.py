"""Decides one round for a Replicator that is being deleted. Pure.

The driver ends first, then a Job of the data plane drops the slot and publication that Tailrace made (and the data,
with `deletionPolicy: Delete`). All of it has a time limit: an unreachable source must not hold up a namespace for ever.
What stays behind is named in an event. Kubernetes removes the children after the object.
"""

from collections.abc import Iterator

from tailrace_operator.decide.model import Action, Apply, Decision, Delete, Limits, Say, SetFinalizers, Wanted
from tailrace_operator.observe.model import FINALIZER, ReplicatorSeen
from tailrace_operator.resources import drop, hashing, identity, names, settings
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason, Verdict, bounded, conditions
from tailrace_operator.status.models import ReplicatorStatus

SOON = 5.0


def decide(seen: ReplicatorSeen, wanted: Wanted, limits: Limits) -> Decision[ReplicatorStatus]:
    if FINALIZER not in seen.meta.finalizers:
        return Decision(seen.status)
    begun = times.seconds(seen.status.deletion_started_at)
    spent = seen.now - begun if begun is not None else 0.0
    if not seen.status.applied_template_hash:
        return _release(seen, (Say("Normal", "Deleted", "no driver ever ran; nothing to clean up."),))
    if wanted.spec is None:
        return _release(seen, (_left(seen, wanted, "no spec of it is valid any more, and none is known that was"),))
    job = seen.children.get(f"Job/{names.drop(seen.meta.name)}")
    if job is not None and job.succeeded:
        return _release(seen, (Say("Normal", "CleanedUp", _cleaned(wanted)),))
    if seen.namespace_ends:
        return _release(seen, (_left(seen, wanted, "its namespace is being deleted, nothing can run there"),))
    if job is not None and job.failed:
        return _release(seen, (_left(seen, wanted, _why(seen)),))
    if spent >= limits.cleanup_seconds:
        return _release(seen, (_left(seen, wanted, f"it did not end within {times.span(limits.cleanup_seconds)}"),))
    waits = "the driver to end" if seen.pods else "the clean-up of source and storage"
    verdict = Verdict("False", Reason.DELETING, f"waits for {waits}.", progress=True)
    status = seen.status.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "state": "Deleting",
            "message": verdict.message,
            "conditions": conditions(verdict.claims(), seen.status.conditions, seen.meta.generation, seen.now),
            "deletion_started_at": seen.status.deletion_started_at or times.text(seen.now),
        }
    )
    actions = tuple(_steps(seen, wanted, max(int(limits.cleanup_seconds - spent), 1)))
    return Decision(status, actions, again=SOON, intent=begun is None)


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
    needed = [settings.config_map(name, seen.meta.namespace, spec)]
    needed += [identity.service_account(name)] if spec.service_account_name is None else []
    for document in [*needed, drop.job(name, spec, wanted.image, seconds=seconds)]:
        yield Apply(document, hashing.content_hash(document))


def _release(seen: ReplicatorSeen, says: tuple[Say, ...]) -> Decision[ReplicatorStatus]:
    rest = tuple(f for f in seen.meta.finalizers if f != FINALIZER)
    return Decision(seen.status, (SetFinalizers(rest),), says, again=SOON)


def _why(seen: ReplicatorSeen) -> str:
    ended = [p.ended for p in seen.cleaners if p.ended is not None and p.ended.message]
    return f"the clean-up failed: {ended[-1].message.strip().splitlines()[-1]}" if ended else "the clean-up failed"


def _cleaned(wanted: Wanted) -> str:
    assert wanted.spec is not None
    data = "tables and change log are deleted" if wanted.spec.deletion_policy == "Delete" else "the data stays"
    return f"slot and publication that Tailrace made are dropped; {data}."


def _left(seen: ReplicatorSeen, wanted: Wanted, why: str) -> Say:
    spec = wanted.spec
    made = "tailrace_" + "".join(c if c.isalnum() else "_" for c in seen.meta.name)
    parts = [] if spec is not None and spec.source.slot is not None else [f"replication slot {made[:63]}"]
    parts += [] if spec is not None and spec.source.publication is not None else [f"publication {made[:63]}"]
    if spec is not None and spec.deletion_policy == "Delete":
        parts += [f"tables at {spec.target.location}", f"change log at {spec.storage.location}"]
    source = f"{spec.source.host}:{spec.source.port}/{spec.source.database}" if spec is not None else seen.status.source
    place, what = source or "its source", ", ".join(parts) or "nothing"
    return Say("Warning", "LeftBehind", bounded(f"{why}; left behind at {place}: {what}. Drop them by hand."))
