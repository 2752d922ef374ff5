"""Makes the frozen observation of one object: from the index, from the driver, and, when the version of a referenced
Secret or ConfigMap moved, from one read of it. Called at the start of each round.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tailrace.contract.driver import DropReport
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.kube import ApiNotFound, Kube, Where
from tailrace_operator.observe import parse
from tailrace_operator.observe.drivers import Drivers
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import (
    Child,
    LogCheck,
    Meta,
    ObjectKey,
    ObservedDriver,
    ObservedPod,
    ObservedReplicator,
    ObservedRequest,
)
from tailrace_operator.resources import hashing, names, references, settings
from tailrace_operator.status.load import load
from tailrace_operator.status.models import FINAL, ReplicatorStatus, SnapshotRequestStatus

Document = dict[str, Any]
REFUSED_SECONDS = 1800.0
"""Kubernetes tries to make a pod again at least every 17 minutes; what was refused longer ago has ended."""
FRESH_SECONDS = 0.5
"""An answer of the driver this young is good enough: a Replicator and its SnapshotRequests share it."""


class Gatherer:
    def __init__(self, index: Index, kube: Kube, drivers: Drivers, memory: Memory, clock: Callable[[], float]) -> None:
        self._index = index
        self._kube = kube
        self._drivers = drivers
        self._memory = memory
        self._clock = clock

    # ---- Replicator ----

    async def replicator(self, key: ObjectKey) -> ObservedReplicator | None:
        """None: it is gone."""
        document = self._index.get(key)
        if document is None:
            self._drivers.forget(key.namespace, key.name, gone=True)
            return None
        meta = parse.meta(document)
        owned = self._index.owned(key.namespace, key.name)
        pods = self._pods(key)
        main = max((p for p in pods["driver"] if not p.deleting), key=lambda p: p.created, default=None)
        running = settings.spec_of(owned.get(("ConfigMap", names.driver(key.name)), {}).get("data"))
        spec = document.get("spec", {})
        requests = sorted(self._index.requests(key.namespace, key.name), key=_age)
        return ObservedReplicator(
            now=self._clock(),
            meta=meta,
            spec=spec,
            status=load(ReplicatorStatus, document.get("status")),
            running_spec=running,
            data_hashes=await self._data(key, [s for s in (spec, running) if s is not None]),
            children=self._children(meta, owned),
            pods=pods["driver"],
            executors=pods["executor"],
            cleaners=pods["drop"],
            log_check=self._log_check(key),
            driver=await self._ask(key, main),
            driver_answered_at=self._drivers.answered_at(key.namespace, key.name),
            requests=tuple(r["metadata"]["uid"] for r in requests),
            resyncs=tuple(found for r in requests if (found := parse.resync(r)) is not None),
            recovery=parse.recovery(key.name, meta.uid, spec),
            dropping=self._memory.drops.get(meta.uid),
            reports=self._reports(key),
            spec_answer=self._memory.answers.get(meta.uid),
            refusal=self._memory.refusal(key),
            refused_pods=self._refused_pods(key, owned),
            evicted=self._index.evicted(key.namespace, key.name),
            namespace_ends=meta.uid in self._memory.ending,
        )

    def _pods(self, key: ObjectKey) -> dict[str, tuple[ObservedPod, ...]]:
        found: dict[str, list[ObservedPod]] = {"driver": [], "executor": [], "drop": []}
        for (kind, _), document in self._index.owned(key.namespace, key.name).items():
            component = parse.component(document)
            if kind == "Pod" and component in found:
                found[component].append(parse.pod(document))
        return {component: tuple(sorted(pods, key=lambda p: p.name)) for component, pods in found.items()}

    def _reports(self, key: ObjectKey) -> tuple[DropReport, ...]:
        owned = self._index.owned(key.namespace, key.name)
        found = [parse.report(document) for (kind, _), document in owned.items() if kind == "Pod"]
        return tuple(r for r in (*found, self._index.report(key.namespace, key.name)) if r is not None)

    def _log_check(self, key: ObjectKey) -> LogCheck | None:
        owned = self._index.owned(key.namespace, key.name)
        ours = [d for (kind, _), d in owned.items() if kind == "Pod" and parse.component(d) == names.LOG_CHECK]
        found = (parse.log_check(document) for document in ours)
        return max((check for check in found if check is not None), key=lambda check: check.at, default=None)

    def _refused_pods(self, key: ObjectKey, owned: Mapping[tuple[str, str], Document]) -> dict[str, str]:
        refused, now = self._index.refused(key.namespace, key.name), self._clock()
        places = {f"{kind}/{name}": refused.get(d["metadata"]["uid"]) for (kind, name), d in owned.items()}
        return {p: r.message for p, r in places.items() if r is not None and now - r.at < REFUSED_SECONDS}

    def _children(self, meta: Meta, owned: Any) -> dict[str, Child]:
        """Only those of this very Replicator: one of the same name may have left some that are on their way out."""
        found = {}
        for (kind, name), document in owned.items():
            head = document["metadata"]
            if kind == "Pod" or all(o["uid"] != meta.uid for o in head.get("ownerReferences", ())):
                continue
            child = parse.child(kind, document)
            ours = self._memory.applied.get((kind, meta.namespace, name))
            drifted = ours is not None and ours[0] == child.content_hash and ours[1] != child.version
            found[f"{kind}/{name}"] = replace(child, drifted=drifted)
        return found

    async def _ask(self, key: ObjectKey, pod: ObservedPod | None) -> ObservedDriver:
        if pod is None or pod.running_since is None or pod.ip is None:
            self._drivers.forget(key.namespace, key.name)
            return ObservedDriver()
        return await self._drivers.fresh(key.namespace, key.name, pod, self._clock(), FRESH_SECONDS)

    # ---- Secrets and ConfigMaps ----

    async def _data(self, key: ObjectKey, specs: list[Any]) -> dict[str, str]:
        places = {("Secret", name) for name in names.secrets(key.name)}
        for spec in specs:
            places |= {tuple(place.split("/", 1)) for place in _references(spec)}  # type: ignore[misc]  # two parts, because of the limit
        self._index.use_data(key, places)
        found = {}
        for kind, name in sorted(places):
            value = await self._hash(kind, key.namespace, name)
            if value is not None:
                found[f"{kind}/{name}"] = value
        return found

    async def _hash(self, kind: str, namespace: str, name: str) -> str | None:
        version = self._index.data_version(kind, namespace, name)
        if version is None:
            return None
        known = self._memory.hashes.get((kind, namespace, name))
        if known is not None and known[0] == version:
            return known[1]
        try:
            document = await self._kube.call("GET", Where(kind, namespace, name))
        except ApiNotFound:
            return None
        value = hashing.data_hash(document)
        self._memory.hashes[kind, namespace, name] = (document["metadata"]["resourceVersion"], value)
        self._index.put_data(kind, namespace, name, document["metadata"]["resourceVersion"], wake=False)
        return value

    async def token(self, namespace: str, replicator: str) -> str | None:
        """The driver's bearer token; read when a verb needs it, kept nowhere."""
        try:
            document = await self._kube.call("GET", Where("Secret", namespace, names.driver(replicator)))
        except ApiNotFound:
            return None
        raw = base64.b64decode(document.get("data", {}).get(names.TOKEN_KEY, ""))
        return raw.decode(errors="replace").strip() or None

    # ---- SnapshotRequest ----

    async def request(self, key: ObjectKey) -> ObservedRequest | None:
        """None: it is gone."""
        document = self._index.get(key)
        if document is None:
            return None
        meta = parse.meta(document)
        spec = document.get("spec", {})
        name = str(spec.get("replicator", ""))
        parent = self._index.get(ObjectKey("Replicator", key.namespace, name))
        status = load(SnapshotRequestStatus, document.get("status"))
        if parent is not None and spec.get("mode") == "Rewind" and status.state not in FINAL:
            parent = await self._as_it_is(key.namespace, name)
        alive = parent is not None and "deletionTimestamp" not in parent["metadata"]
        driver = await self._ask_for(key.namespace, name) if alive else ObservedDriver()
        entries = driver.status.snapshots if driver.status is not None else ()
        return ObservedRequest(
            now=self._clock(),
            meta=meta,
            spec=spec,
            status=status,
            replicator=alive,
            replicator_idle=_idle(parent) if parent is not None else None,
            replicator_cut_over=parent is not None and parse.cut_over(parent),
            target_suspended=parent is not None and parent.get("spec", {}).get("apply", {}).get("suspend") is True,
            replicator_generation=parse.meta(parent).generation if parent is not None else 0,
            executors_missing=_executors_missing(parent) if parent is not None else "",
            driver=driver,
            snapshot=next((s for s in entries if s.id == meta.uid), None),
            answer=self._memory.answers.get(meta.uid),
        )

    async def _as_it_is(self, namespace: str, name: str) -> Document | None:
        """The Replicator by a read of its own; None: it is gone."""
        try:
            return await self._kube.call("GET", Where("Replicator", namespace, name))
        except ApiNotFound:
            return None

    async def _ask_for(self, namespace: str, replicator: str) -> ObservedDriver:
        pods = self._pods(ObjectKey("Replicator", namespace, replicator))["driver"]
        main = max((p for p in pods if not p.deleting), key=lambda p: p.created, default=None)
        return await self._ask(ObjectKey("Replicator", namespace, replicator), main)

    def pod(self, namespace: str, replicator: str) -> ObservedPod | None:
        """The driver's pod that runs."""
        pods = self._pods(ObjectKey("Replicator", namespace, replicator))["driver"]
        return max((p for p in pods if not p.deleting and p.ip), key=lambda p: p.created, default=None)


def _age(document: Document) -> tuple[str, str]:
    """Sorts by age; of one second's by name."""
    head = document["metadata"]
    return head.get("creationTimestamp", ""), head["name"]


def _references(spec: Any) -> tuple[str, ...]:
    try:
        return references.data(ReplicatorSpec.model_validate(spec))
    except ValidationError:
        return ()


def _idle(parent: Document) -> str | None:
    if parent.get("spec", {}).get("suspend") is True:
        return "it is suspended."
    halt = parent.get("status", {}).get("halt")
    return f"{halt.get('reason')}: {halt.get('message')}" if halt else None


def _executors_missing(parent: Document) -> str:
    executors = parent.get("status", {}).get("executors", {})
    return "" if executors.get("running") else str(executors.get("message", ""))
