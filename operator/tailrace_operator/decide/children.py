"""The children that a Replicator should have, and the steps to get there: apply, delete, reap. Pure."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide import executors, lost_nodes, source_log, summary
from tailrace_operator.decide.driver_history import DriverHistory, replicas
from tailrace_operator.decide.model import (
    Action,
    ApplyChild,
    Cancel,
    ChangeSpec,
    Delete,
    Desired,
    Limits,
    MakeSecret,
    TryPod,
)
from tailrace_operator.observe.model import Child, ObservedPod, ObservedReplicator
from tailrace_operator.resources import driver, hashing, identity, log_check, names, network, settings

ENDED = ("Succeeded", "Failed")
TRY_SECONDS = 60.0
"""Between two attempts to make a pod that a quota or an admission rule refuses."""


def actions(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits
) -> tuple[Action, ...]:
    return (
        *_shielded(observed, desired, limits),
        *_set_up(observed, desired, history, limits),
        *_changed_spec(observed, desired, history),
        *_lost(observed),
        *_refused(observed, desired, history),
        *_log_check(observed, desired, history, limits),
        *_reap(observed, history),
        *_strays(observed),
    )


def _set_up(observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits) -> Iterator[Action]:
    spec, name = desired.spec, observed.meta.name
    if spec is None:
        return
    for secret in names.secrets(name):
        if f"Secret/{secret}" not in observed.children and not _was_refused(observed, ""):
            yield MakeSecret(secret)
    for document in _plain(observed, spec, desired.generation, history, limits):
        yield from _applied(observed, document)
    # Its template needs the hashes of everything that the pod reads; of what was just made, with the next look.
    made = [f"Secret/{secret}" for secret in names.secrets(name)]
    there = all(place in observed.children and place in observed.data_hashes for place in made)
    template_hash = desired.template_hash if there else None
    child, count = observed.children.get(f"StatefulSet/{names.driver(name)}"), replicas(desired, history)
    if template_hash is None and child is not None and count == 0:
        template_hash = child.template_hash  # to stop it nothing has to be known
    if template_hash is not None and not _as_desired(child, template_hash, count):
        document = driver.stateful_set(name, spec, desired.image, template_hash, count, defaults=limits.pods)
        content = hashing.content_hash(document)
        if not _was_refused(observed, content):
            yield ApplyChild(document, content)


def _plain(
    observed: ObservedReplicator, spec: ReplicatorSpec, generation: int, history: DriverHistory, limits: Limits
) -> Iterator[Mapping[str, Any]]:
    name, namespace = observed.meta.name, observed.meta.namespace
    wanted = (observed.recovery, *observed.resyncs)
    asked = (r for r in wanted if r is not None and r.uid == history.resync_uid)
    resync = next((settings.request(r.name, namespace, r.uid, r.spec) for r in asked), None)
    yield settings.config_map(
        name,
        namespace,
        observed.meta.uid,
        spec,
        generation=generation,
        owners=observed.meta.owners,
        resync=resync,
        defaults=limits.pods,
    )
    if spec.service_account_name is None:
        yield identity.service_account(name)
        yield identity.role_binding(name, namespace)
    yield driver.service(name)


def _shielded(observed: ObservedReplicator, desired: Desired, limits: Limits) -> Iterator[Action]:
    """Before the pods: a policy that came after them would leave them open for a moment."""
    if limits.driver_peers is None:
        ours = (
            observed.children.get(f"NetworkPolicy/{of(observed.meta.name)}") for of in (names.driver, names.executors)
        )
        yield from (Delete(child.kind, child.name, child.uid) for child in ours if child is not None)
    elif desired.spec is not None:
        for policy in network.policies(observed.meta.name, limits.driver_peers):
            yield from _applied(observed, policy)


def _changed_spec(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Iterator[Action]:
    """A pod of another template is replaced, and reads its spec at its start."""
    pod = history.pod
    if desired.spec is None or pod is None or pod.template_hash != desired.template_hash:
        return
    if summary.lacks_spec(observed.driver, desired.generation):
        yield ChangeSpec(desired.generation, settings.for_driver(desired.spec))


def _applied(observed: ObservedReplicator, document: Mapping[str, Any]) -> Iterator[Action]:
    content = hashing.content_hash(document)
    child = observed.children.get(f"{document['kind']}/{document['metadata']['name']}")
    if (child is None or child.content_hash != content or child.drifted) and not _was_refused(observed, content):
        yield ApplyChild(document, content)


def _as_desired(child: Child | None, template_hash: str, count: int) -> bool:
    """True if the child has what users and data ask for: what another version of the operator would render differently
    restarts nothing."""
    return child is not None and (child.template_hash, child.replicas, child.drifted) == (template_hash, count, False)


def _was_refused(observed: ObservedReplicator, content: str) -> bool:
    refusal = observed.refusal
    return refusal is not None and refusal.content_hash == content and observed.now < refusal.again_at


def _lost(observed: ObservedReplicator) -> Iterator[Action]:
    """A StatefulSet never replaces a pod whose node may still run it. Here two drivers do no harm: the newer one has
    the higher epoch, and the older one stops before its next commit."""
    for pod in observed.pods:
        due = lost_nodes.forced_at(pod)
        if due is not None and observed.now >= due:
            yield Delete("Pod", pod.name, pod.uid, force=True)


def _refused(observed: ObservedReplicator, desired: Desired, history: DriverHistory) -> Iterator[Action]:
    """The StatefulSet's controller waits twice as long after each refusal, up to 17 minutes: for so long a quota that
    has room again would go unnoticed."""
    place = f"StatefulSet/{names.driver(observed.meta.name)}"
    child = observed.children.get(place)
    if child is None or place not in observed.refused_pods or observed.pods or not replicas(desired, history):
        return
    if observed.now - (child.tried_at or 0.0) >= TRY_SECONDS:
        yield TryPod(child.name)


def _log_check(
    observed: ObservedReplicator, desired: Desired, history: DriverHistory, limits: Limits
) -> Iterator[Action]:
    """There while no driver is meant to run, and then only."""
    there = observed.children.get(f"CronJob/{names.log_check(observed.meta.name)}")
    if desired.spec is not None and source_log.asks(observed, desired, replicas(desired, history)):
        yield from _applied(
            observed, log_check.cron_job(observed.meta.name, desired.spec, desired.image, defaults=limits.pods)
        )
    elif there is not None:
        yield Delete(there.kind, there.name, there.uid)


def _reap(observed: ObservedReplicator, history: DriverHistory) -> Iterator[Action]:
    """Executors of earlier boots: their owner, the driver's pod, lives on, so nothing else removes them."""
    start = history.pod.running_since if history.pod is not None else None
    if start is None:
        return
    for executor in observed.executors:
        if not executor.deleting and _earlier(executor, start, observed.now):
            yield Delete("Pod", executor.name, executor.uid)


def _earlier(executor: ObservedPod, start: float, now: float) -> bool:
    if executor.phase in ENDED:
        return executor.created < start or now - executor.created > 10 * executors.SKEW_SECONDS
    return not executors.of_boot(executor, start)


def _strays(observed: ObservedReplicator) -> Iterable[Action]:
    """Snapshots of SnapshotRequests that were deleted while no driver could be notified. The command line's own have
    ids that are no UUIDs."""
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
