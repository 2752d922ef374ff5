"""Everything that is watched, in memory: fed by the watches, read by `gather`. Used from one event loop only.

Documents are kept trimmed (no managedFields). Contents of Secrets are never here, only their versions; hashes of the
few that are referenced are computed by `gather` and kept beside them. Each change passes to `on_change` the Replicator
or SnapshotRequest that it concerns.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tailrace.contract.driver import DropReport
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import Eviction, ObjectKey, RefusedPod
from tailrace_operator.resources import names

Document = dict[str, Any]
RESOURCES = ("Replicator", "SnapshotRequest")
DATA = ("Secret", "ConfigMap")
Address = tuple[str, str]
"""Namespace and name."""


class Index:
    def __init__(self, on_change: Callable[[ObjectKey], None]) -> None:
        self._on_change = on_change
        self._objects: dict[str, dict[Address, Document]] = {kind: {} for kind in RESOURCES}
        self._owned: dict[Address, dict[tuple[str, str], Document]] = defaultdict(dict)
        self._data: dict[tuple[str, str, str], str] = {}
        self._users: dict[tuple[str, str, str], set[ObjectKey]] = defaultdict(set)
        self._uses: dict[ObjectKey, set[tuple[str, str]]] = {}
        self._requests: dict[Address, set[Address]] = defaultdict(set)
        self._reports: dict[Address, DropReport] = {}
        self._evicted: dict[Address, Eviction] = {}
        self._refused: dict[Address, dict[str, RefusedPod]] = {}
        """Refused pods by Replicator, then by the uid of the StatefulSet or Job that cannot create them."""

    # ---- our resources ----

    def put(self, kind: str, document: Mapping[str, Any]) -> None:
        """A Replicator or SnapshotRequest as it is now; an older version than the known one is passed over."""
        head = document["metadata"]
        address = (head["namespace"], head["name"])
        known = self._objects[kind].get(address)
        if known is not None and _older(document, known):
            return
        self._objects[kind][address] = trimmed(document)
        if kind == "SnapshotRequest":
            self._link(address, document)
        if known is None or _intent(known) != _intent(document):
            self._on_change(ObjectKey(kind, *address))
            if kind == "SnapshotRequest":  # it may be what brings a stopped Replicator back
                self._on_change(
                    ObjectKey("Replicator", address[0], str(document.get("spec", {}).get("replicator", "")))
                )
        if kind == "Replicator" and (known is None or known.get("status") != document.get("status")):
            self._tell_requests(address)

    def remove(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        known = self._objects[kind].get((namespace, name))
        if known is None or (uid is not None and known["metadata"]["uid"] != uid):
            return
        del self._objects[kind][namespace, name]
        self._on_change(ObjectKey(kind, namespace, name))
        if kind == "Replicator":
            self._reports.pop((namespace, name), None)
            self._refused.pop((namespace, name), None)
            self._evicted.pop((namespace, name), None)
            self._tell_requests((namespace, name))
            self.use_data(ObjectKey(kind, namespace, name), set())
        else:
            replicator = (namespace, str(known.get("spec", {}).get("replicator", "")))
            _discard(self._requests, replicator, (namespace, name))
            self._on_change(ObjectKey("Replicator", *replicator))

    def get(self, key: ObjectKey) -> Document | None:
        return self._objects[key.kind].get((key.namespace, key.name))

    def keys(self, kind: str) -> list[ObjectKey]:
        return [ObjectKey(kind, *address) for address in self._objects[kind]]

    def count(self, kind: str) -> int:
        return len(self._objects[kind])

    def requests(self, namespace: str, replicator: str) -> list[Document]:
        """SnapshotRequests that name the Replicator."""
        found = self._objects["SnapshotRequest"]
        return [found[a] for a in self._requests.get((namespace, replicator), ()) if a in found]

    def _link(self, address: Address, document: Mapping[str, Any]) -> None:
        name = str(document.get("spec", {}).get("replicator", ""))
        self._requests[address[0], name].add(address)

    def _tell_requests(self, replicator: Address) -> None:
        for request in self._requests.get(replicator, ()):
            self._on_change(ObjectKey("SnapshotRequest", *request))

    # ---- what Replicators own ----

    def put_owned(self, kind: str, document: Mapping[str, Any]) -> None:
        head = document["metadata"]
        replicator = head.get("labels", {}).get(names.REPLICATOR_LABEL)
        if replicator is None:
            return
        owned = self._owned[head["namespace"], replicator]
        known = owned.get((kind, head["name"]))
        if known is None or not _older(document, known):
            owned[kind, head["name"]] = trimmed(document)
            if kind == "Pod" and known is None:
                self._pod_made(head, replicator)
            self._on_change(ObjectKey("Replicator", head["namespace"], replicator))

    def remove_owned(self, kind: str, document: Mapping[str, Any]) -> None:
        head = document["metadata"]
        replicator = head.get("labels", {}).get(names.REPLICATOR_LABEL)
        if replicator is None:
            return
        owned = self._owned[head["namespace"], replicator]
        known = owned.get((kind, head["name"]))
        report = parse.report(document) if kind == "Pod" else None
        if report is not None and (head["namespace"], replicator) in self._objects["Replicator"]:
            self._reports[head["namespace"], replicator] = report
        if known is not None and known["metadata"]["uid"] == head["uid"]:
            del owned[kind, head["name"]]
        if not owned:
            del self._owned[head["namespace"], replicator]
        self._on_change(ObjectKey("Replicator", head["namespace"], replicator))

    def _pod_made(self, head: Mapping[str, Any], replicator: str) -> None:
        """Its owner was refused a pod before; that has ended."""
        refused = self._refused.get((head["namespace"], replicator), {})
        for owner in head.get("ownerReferences", ()):
            refused.pop(owner["uid"], None)

    def put_refused(self, event: Mapping[str, Any]) -> None:
        """An event that says why a pod could not be made. The names show which belong to Tailrace: events have no
        labels."""
        about = event.get("involvedObject", {})
        replicator = names.replicator_of(about.get("kind", ""), about.get("name", ""))
        address = (event["metadata"]["namespace"], replicator or "")
        if replicator is None or address not in self._objects["Replicator"]:
            return
        self._refused.setdefault(address, {})[about.get("uid", "")] = parse.refused_pod(event)
        self._on_change(ObjectKey("Replicator", *address))

    def forget_refused(self, namespace: str | None) -> None:
        """All of a namespace, before they are listed again."""
        for address in [a for a in self._refused if namespace in (None, a[0])]:
            del self._refused[address]

    def refused(self, namespace: str, replicator: str) -> Mapping[str, RefusedPod]:
        """Refused pods by the uid of the object that cannot create them."""
        return self._refused.get((namespace, replicator), {})

    def put_evicted(self, event: Mapping[str, Any]) -> None:
        """An event that says that a pod was evicted."""
        name = str(event.get("involvedObject", {}).get("name", ""))
        replicator = names.replicator_of("StatefulSet", name.removesuffix("-0")) if name.endswith("-0") else None
        address = (event["metadata"]["namespace"], replicator or "")
        if address not in self._objects["Replicator"]:
            return
        found, known = parse.eviction(event), self._evicted.get(address)
        if known is None or known.at <= found.at:
            self._evicted[address] = found
            self._on_change(ObjectKey("Replicator", *address))

    def evicted(self, namespace: str, replicator: str) -> Eviction | None:
        """The newest of its drivers."""
        return self._evicted.get((namespace, replicator))

    def report(self, namespace: str, replicator: str) -> DropReport | None:
        """The report of the newest of its pods that is gone and left one."""
        return self._reports.get((namespace, replicator))

    def owned(self, namespace: str, replicator: str) -> Mapping[tuple[str, str], Document]:
        """The owned objects by kind and name."""
        return self._owned.get((namespace, replicator), {})

    def all_owned(self, kind: str) -> list[Document]:
        return [d for owned in self._owned.values() for (k, _), d in owned.items() if k == kind]

    # ---- Secrets and ConfigMaps that specs name ----

    def put_data(self, kind: str, namespace: str, name: str, version: str | None, wake: bool = True) -> None:
        """`version` None: it is gone. `wake`: notify those that use it."""
        place = (kind, namespace, name)
        if version is None:
            self._data.pop(place, None)
        else:
            self._data[place] = version
        for user in self._users.get(place, ()) if wake else ():
            self._on_change(user)

    def data_version(self, kind: str, namespace: str, name: str) -> str | None:
        return self._data.get((kind, namespace, name))

    def data_places(self, kind: str) -> list[Address]:
        return [(namespace, name) for k, namespace, name in self._data if k == kind]

    def use_data(self, key: ObjectKey, places: set[tuple[str, str]]) -> None:
        """Remember which Secrets and ConfigMaps (kind, name) the object uses, so that their changes wake it."""
        before = self._uses.pop(key, set())
        for kind, name in before - places:
            _discard(self._users, (kind, key.namespace, name), key)
        for kind, name in places:
            self._users[kind, key.namespace, name].add(key)
        if places:
            self._uses[key] = places


Place = TypeVar("Place")
Member = TypeVar("Member")


def _discard(sets: dict[Place, set[Member]], place: Place, member: Member) -> None:
    """Without leaving an empty set behind: names come and go forever."""
    sets[place].discard(member)
    if not sets[place]:
        del sets[place]


def trimmed(document: Mapping[str, Any]) -> Document:
    """Without what is never read: for thousands of objects it is most of the memory."""
    head = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
    return {**document, "metadata": head}


def _intent(document: Mapping[str, Any]) -> tuple[object, ...]:
    """The part of a document that others change: a write of the operator's own status triggers nothing."""
    head = document["metadata"]
    names_of_interest = ("uid", "generation", "annotations", "labels", "finalizers", "deletionTimestamp")
    return tuple(head.get(name) for name in names_of_interest)


def _older(document: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """True if the version is lower, for one uid. Kubernetes orders them since 1.35 by contract, before that in fact."""
    new, old = document["metadata"], known["metadata"]
    try:
        return bool(new["uid"] == old["uid"] and int(new["resourceVersion"]) < int(old["resourceVersion"]))
    except (KeyError, ValueError):
        return False
