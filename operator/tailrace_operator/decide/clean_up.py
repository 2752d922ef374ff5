"""The Job that cleans up after a deleted Replicator: when it is made, replaced, or has tried for long enough. Pure."""

import re
from collections.abc import Iterator
from dataclasses import replace

from tailrace_operator.decide.driver_history import has_run
from tailrace_operator.decide.model import Action, ApplyChild, Delete, Desired, Limits
from tailrace_operator.observe.model import Child, ObservedReplicator
from tailrace_operator.resources import drop, hashing, identity, names, settings
from tailrace_operator.status.conditions import Reason

TRY_SECONDS = 60.0
"""Seconds that a clean-up is tried if no driver ever reported that it created anything: for the Job's pod to start if
no driver did, and for attempts that meet the same obstacle as the driver. More time would not help; the Replicator can
be edited meanwhile."""
INVALID = 2
"""Exit code of an invalid manifest: only another spec or Secret changes it."""
REFUSED = {Reason.INVALID_MANIFEST.value, Reason.CONFIGURATION_REFUSED.value, Reason.AUTHENTICATION_FAILED.value}
_ERROR = re.compile(r"[A-Z][A-Za-z]+: ")
"""The beginning of the driver's report on its attempts once one has failed."""


def job_of(observed: ObservedReplicator) -> Child | None:
    return observed.children.get(f"Job/{names.drop(observed.meta.name)}")


def captured(observed: ObservedReplicator) -> bool:
    """True if a driver ever reported that it created something in the source, or had tables."""
    status, reported = observed.status, observed.driver.status
    if reported is not None and (reported.made or reported.tables_total):
        return True
    return bool(status.made) or (status.tables is not None and status.tables.total > 0)


def steps(observed: ObservedReplicator, desired: Desired, seconds: int, limits: Limits) -> Iterator[Action]:
    """A Job that runs by an earlier spec, or with what a Secret held before, is replaced: its pod's fields cannot be
    changed, and what is new may be just what it lacks."""
    name, spec = observed.meta.name, desired.spec
    assert spec is not None
    child, job = observed.children.get(f"StatefulSet/{names.driver(name)}"), job_of(observed)
    if child is not None:
        yield Delete("StatefulSet", child.name, child.uid)
    if observed.pods or child is not None:
        return  # the slot is in use until the driver has ended
    if job is not None:
        if outdated(job, desired):
            yield Delete("Job", job.name, job.uid)
        return
    if observed.cleaners:
        return  # of the Job that was replaced: what they say must not count as what the new one says
    uid, namespace = observed.meta.uid, observed.meta.namespace
    needed = [
        settings.config_map(name, namespace, uid, spec, generation=desired.generation, defaults=limits.pods),
        *([identity.service_account(name)] if spec.service_account_name is None else []),
        drop.job(name, spec, desired.image, by=_made_by(desired), seconds=seconds, defaults=limits.pods),
    ]
    for document in needed:
        yield ApplyChild(document, hashing.content_hash(document))


def outdated(job: Child, desired: Desired) -> bool:
    """Not while something that the new one needs does not exist: Secrets are often deleted with the Replicator."""
    return desired.data_hash is not None and job.template_hash != _made_by(desired)


def _made_by(desired: Desired) -> str:
    policy = desired.spec.deletion_policy if desired.spec is not None else ""
    return hashing.digest([desired.spec_hash, policy, desired.image, desired.data_hash])


def pointless(observed: ObservedReplicator, spent: float) -> bool:
    """True if the obstacle that kept the driver from starting at all (its image, a quota, a volume) keeps the Job's pod
    from starting as well. Should it start after all, it has its whole time: a driver may have run while no operator
    looked."""
    started = any(p.running_since is not None or p.ended is not None for p in observed.cleaners)
    fresh = any(observed.now - p.created < TRY_SECONDS / 2 for p in observed.cleaners)
    return job_of(observed) is not None and spent >= TRY_SECONDS and not (started or fresh or has_run(observed))


def in_vain(observed: ObservedReplicator, asking: bool, spent: float) -> bool:
    """True if the clean-up has met the driver's own obstacle (refused, or no way to the source) for a while, and no
    driver ever reported that it created anything."""
    if captured(observed):
        return False
    if asking:
        answer = observed.dropping.answer if observed.dropping is not None else None
        return spent >= TRY_SECONDS and answer is not None and _ERROR.match(answer.message) is not None
    begun = [p.running_since or p.created for p in observed.cleaners if p.running_since is not None or p.ended]
    halt = observed.status.halt
    refused = halt is not None and halt.reason in REFUSED
    refused = refused or any(p.ended is not None and p.ended.code == INVALID for p in observed.cleaners)
    return refused and bool(begun) and observed.now - min(begun) >= TRY_SECONDS


def without_old_job(observed: ObservedReplicator, desired: Desired) -> ObservedReplicator:
    """That an outdated Job failed, or tried in vain, says nothing of the spec that is there now."""
    job = job_of(observed)
    return replace(observed, cleaners=()) if job is None or outdated(job, desired) else observed
