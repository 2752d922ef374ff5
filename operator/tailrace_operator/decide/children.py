"""Which children a Replicator should have, and what of them has to be applied, deleted or reaped. Pure."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide import summary
from tailrace_operator.decide.model import Action, Apply, Cancel, Delete, MakeSecret, Wanted
from tailrace_operator.decide.story import Story
from tailrace_operator.observe.model import Child, PodSeen, ReplicatorSeen
from tailrace_operator.resources import driver, hashing, identity, names, settings

ENDED = ("Succeeded", "Failed")
SKEW_SECONDS = 30.0
"""Clocks of API server and nodes differ by less."""


def actions(seen: ReplicatorSeen, wanted: Wanted, story: Story) -> tuple[Action, ...]:
    return (*_set_up(seen, wanted, story), *_reap(seen, story), *_strays(seen))


def _set_up(seen: ReplicatorSeen, wanted: Wanted, story: Story) -> Iterator[Action]:
    spec, name = wanted.spec, seen.meta.name
    if spec is None:
        return
    for secret in names.secrets(name):
        if f"Secret/{secret}" not in seen.children and not _was_refused(seen, ""):
            yield MakeSecret(secret)
    for document in _plain(seen, spec, story):
        yield from _applied(seen, document)
    # Its template needs the hashes of everything that the pod reads; of what was just made, with the next look.
    made = [f"Secret/{secret}" for secret in names.secrets(name)]
    there = all(place in seen.children and place in seen.data_hashes for place in made)
    template_hash = wanted.template_hash if there else None
    child, count = seen.children.get(f"StatefulSet/{names.driver(name)}"), replicas(wanted, story)
    if template_hash is None and child is not None and count == 0:
        template_hash = child.template_hash  # to stop it nothing has to be known
    if template_hash is not None and not _as_wanted(child, template_hash, count):
        document = driver.stateful_set(name, spec, wanted.image, template_hash, count)
        content = hashing.content_hash(document)
        if not _was_refused(seen, content):
            yield Apply(document, content)


def _plain(seen: ReplicatorSeen, spec: ReplicatorSpec, story: Story) -> Iterator[Mapping[str, Any]]:
    name, namespace = seen.meta.name, seen.meta.namespace
    asked = (r for r in seen.resyncs if r.uid == story.resync_uid)
    resync = next((settings.request(r.name, namespace, r.uid, r.spec) for r in asked), None)
    yield settings.config_map(name, namespace, seen.meta.uid, spec, resync)
    if spec.service_account_name is None:
        yield identity.service_account(name)
        yield identity.role_binding(name, namespace)
    yield driver.service(name)


def replicas(wanted: Wanted, story: Story) -> int:
    return 0 if story.halt is not None or (wanted.spec is not None and wanted.spec.suspend) else 1


def _applied(seen: ReplicatorSeen, document: Mapping[str, Any]) -> Iterator[Action]:
    content = hashing.content_hash(document)
    child = seen.children.get(f"{document['kind']}/{document['metadata']['name']}")
    if (child is None or child.content_hash != content or child.drifted) and not _was_refused(seen, content):
        yield Apply(document, content)


def _as_wanted(child: Child | None, template_hash: str, count: int) -> bool:
    """By what users and data say: what another version of the operator would render restarts nothing."""
    return child is not None and (child.template_hash, child.replicas, child.drifted) == (template_hash, count, False)


def _was_refused(seen: ReplicatorSeen, content: str) -> bool:
    refusal = seen.refusal
    return refusal is not None and refusal.content_hash == content and seen.now < refusal.again_at


def _reap(seen: ReplicatorSeen, story: Story) -> Iterator[Action]:
    """Executors of earlier boots: their owner, the driver's pod, lives on, so nobody else removes them."""
    start = story.pod.running_since if story.pod is not None else None
    if start is None:
        return
    for executor in seen.executors:
        if not executor.deleting and _earlier(executor, start, seen.now):
            yield Delete("Pod", executor.name, executor.uid)


def _earlier(executor: PodSeen, start: float, now: float) -> bool:
    if executor.phase in ENDED:
        return executor.created < start or now - executor.created > 10 * SKEW_SECONDS
    return executor.created < start - SKEW_SECONDS


def _strays(seen: ReplicatorSeen) -> Iterable[Action]:
    """Snapshots of SnapshotRequests that were deleted while no driver could be told. The command line's own have ids
    that are no UUIDs."""
    if seen.driver.status is None or seen.driver.silent_since is not None:
        return
    for snapshot in summary.active_requests(seen.driver.status):
        if snapshot.id not in seen.requests and _is_uuid(snapshot.id):
            yield Cancel(snapshot.id)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
