"""Which children a Replicator should have, and what of them has to be applied, deleted or reaped. Pure."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide import summary
from tailrace_operator.decide.driver_history import DriverHistory
from tailrace_operator.decide.model import Action, ApplyChild, Cancel, Delete, Desired, MakeSecret
from tailrace_operator.observe.model import Child, ObservedPod, ObservedReplicator
from tailrace_operator.resources import driver, hashing, identity, names, settings

ENDED = ("Succeeded", "Failed")
SKEW_SECONDS = 30.0
"""Clocks of API server and nodes differ by less."""


def actions(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> tuple[Action, ...]:
    return (*_set_up(observed, desired, history), *_reap(observed, history), *_strays(observed))


def _set_up(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Iterator[Action]:
    spec, name = desired.spec, observed.meta.name
    if spec is None:
        return
    for secret in names.secrets(name):
        if f"Secret/{secret}" not in observed.children and not _was_refused(observed, ""):
            yield MakeSecret(secret)
    for document in _plain(observed, spec, history):
        yield from _applied(observed, document)
    # Its template needs the hashes of everything that the pod reads; of what was just made, with the next look.
    made = [f"Secret/{secret}" for secret in names.secrets(name)]
    there = all(place in observed.children and place in observed.data_hashes for place in made)
    template_hash = desired.template_hash if there else None
    child, count = observed.children.get(f"StatefulSet/{names.driver(name)}"), replicas(desired, history)
    if template_hash is None and child is not None and count == 0:
        template_hash = child.template_hash  # to stop it nothing has to be known
    if template_hash is not None and not _as_desired(child, template_hash, count):
        document = driver.stateful_set(name, spec, desired.image, template_hash, count)
        content = hashing.content_hash(document)
        if not _was_refused(observed, content):
            yield ApplyChild(document, content)


def _plain(observed: ObservedReplicator, spec: ReplicatorSpec, history: DriverHistory) -> Iterator[Mapping[str, Any]]:
    name, namespace = observed.meta.name, observed.meta.namespace
    asked = (r for r in observed.resyncs if r.uid == history.resync_uid)
    resync = next((settings.request(r.name, namespace, r.uid, r.spec) for r in asked), None)
    yield settings.config_map(name, namespace, observed.meta.uid, spec, resync)
    if spec.service_account_name is None:
        yield identity.service_account(name)
        yield identity.role_binding(name, namespace)
    yield driver.service(name)


def replicas(desired: Desired, history: DriverHistory) -> int:
    return 0 if history.halt is not None or (desired.spec is not None and desired.spec.suspend) else 1


def _applied(observed: ObservedReplicator, document: Mapping[str, Any]) -> Iterator[Action]:
    content = hashing.content_hash(document)
    child = observed.children.get(f"{document['kind']}/{document['metadata']['name']}")
    if (child is None or child.content_hash != content or child.drifted) and not _was_refused(observed, content):
        yield ApplyChild(document, content)


def _as_desired(child: Child | None, template_hash: str, count: int) -> bool:
    """By what users and data say: what another version of the operator would render restarts nothing."""
    return child is not None and (child.template_hash, child.replicas, child.drifted) == (template_hash, count, False)


def _was_refused(observed: ObservedReplicator, content: str) -> bool:
    refusal = observed.refusal
    return refusal is not None and refusal.content_hash == content and observed.now < refusal.again_at


def _reap(observed: ObservedReplicator, history: DriverHistory) -> Iterator[Action]:
    """Executors of earlier boots: their owner, the driver's pod, lives on, so nobody else removes them."""
    start = history.pod.running_since if history.pod is not None else None
    if start is None:
        return
    for executor in observed.executors:
        if not executor.deleting and _earlier(executor, start, observed.now):
            yield Delete("Pod", executor.name, executor.uid)


def _earlier(executor: ObservedPod, start: float, now: float) -> bool:
    if executor.phase in ENDED:
        return executor.created < start or now - executor.created > 10 * SKEW_SECONDS
    return executor.created < start - SKEW_SECONDS


def _strays(observed: ObservedReplicator) -> Iterable[Action]:
    """Snapshots of SnapshotRequests that were deleted while no driver could be told. The command line's own have ids
    that are no UUIDs."""
    if observed.driver.status is None or observed.driver.silent_since is not None:
        return
    for snapshot in summary.active_requests(observed.driver.status):
        if snapshot.id not in observed.requests and _is_uuid(snapshot.id):
            yield Cancel(snapshot.id)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
