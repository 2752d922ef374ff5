"""The operator's own watches, of what belongs to its two resources. They feed the index and do nothing else. The two
resources themselves are kopf's to watch (`handlers.kopf_watch`).
"""

from collections.abc import Callable
from functools import partial

from tailrace.contract.resources import GROUP
from tailrace_operator.kube import TIMEOUT, Kube, Where
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.mistakes import passed_over
from tailrace_operator.observe.watch import PAGE, Document, Watch, WatchSink
from tailrace_operator.observe.watch_rights import WatchRights
from tailrace_operator.resources.names import SELECTOR

PLURALS = {"Replicator": "replicators", "SnapshotRequest": "snapshotrequests"}
OWNED = (
    "ConfigMap",
    "ServiceAccount",
    "RoleBinding",
    "Service",
    "NetworkPolicy",
    "StatefulSet",
    "Pod",
    "Job",
    "CronJob",
)


def watches(kube: Kube, namespace: str | None, index: Index, access: WatchRights) -> list[Watch]:
    """Watches of everything that Replicators own there, of all Secrets and ConfigMaps that their specs may name, and of
    events about pods that could not be created, or were evicted."""
    watch = partial(Watch, kube, access=access)
    found = [watch(kind, namespace, _owned(index, kind, namespace), selector=SELECTOR) for kind in OWNED]
    # The drivers' own Secrets are ours and among all Secrets: one watch feeds both.
    both = _both(_data(index, "Secret", namespace), _owned(index, "Secret", namespace))
    found.append(watch("Secret", namespace, both, metadata_only=True))
    found.append(watch("ConfigMap", namespace, _data(index, "ConfigMap", namespace), metadata_only=True))
    # Of a pod that its StatefulSet or Job cannot make (a quota, an admission rule) nothing else tells why.
    found.append(watch("Event", namespace, _refusals(index, namespace), fields="reason=FailedCreate"))
    # A driver that ends in time leaves a pod that succeeded: only this says that its node took it away.
    put = _safe("Event", index.put_evicted)
    found.append(
        watch("Event", namespace, WatchSink(partial(_each, put), put, lambda _: None), fields="reason=Evicted")
    )
    return found


def _safe(kind: str, take: Callable[[Document], None]) -> Callable[[Document], None]:
    def taken(document: Document) -> None:
        with passed_over(kind, document):
            take(document)

    return taken


def _owned(index: Index, kind: str, namespace: str | None) -> WatchSink:
    put = _safe(kind, partial(index.put_owned, kind))
    gone = _safe(kind, partial(index.remove_owned, kind))

    def listed(documents: list[Document]) -> None:
        alive = {d["metadata"]["uid"] for d in documents}
        for known in index.all_owned(kind):
            head = known["metadata"]
            if namespace in (None, head["namespace"]) and head["uid"] not in alive:
                gone(known)
        _each(put, documents)

    return WatchSink(listed, put, gone)


def _data(index: Index, kind: str, namespace: str | None) -> WatchSink:
    def put(document: Document) -> None:
        head = document["metadata"]
        index.put_data(kind, head["namespace"], head["name"], head["resourceVersion"])

    def gone(document: Document) -> None:
        head = document["metadata"]
        index.put_data(kind, head["namespace"], head["name"], None)

    def listed(documents: list[Document]) -> None:
        alive = {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in documents}
        for place in index.data_places(kind):
            if namespace in (None, place[0]) and place not in alive:
                index.put_data(kind, *place, None)
        for document in documents:
            put(document)

    return WatchSink(listed, put, gone)


def _refusals(index: Index, namespace: str | None) -> WatchSink:
    put = _safe("Event", index.put_refused)

    def listed(documents: list[Document]) -> None:
        index.forget_refused(namespace)
        _each(put, documents)

    return WatchSink(listed, put, lambda _: None)


def _each(put: Callable[[Document], None], documents: list[Document]) -> None:
    for document in documents:
        put(document)


def _both(first: WatchSink, second: WatchSink) -> WatchSink:
    def listed(documents: list[Document]) -> None:
        first.listed(documents)
        second.listed(documents)

    def changed(document: Document) -> None:
        first.changed(document)
        second.changed(document)

    def removed(document: Document) -> None:
        first.removed(document)
        second.removed(document)

    return WatchSink(listed, changed, removed)


async def try_watch(kube: Kube, kind: str, namespace: str | None) -> None:
    """Begins a watch of nothing. Raises `ApiRefused`: a right to list need not come with one to watch."""
    query: dict[str, str | int] = {"watch": "1", "timeoutSeconds": 1, "labelSelector": f"{GROUP}/none"}
    (await kube.open("GET", Where(kind, namespace), query=query, timeout=TIMEOUT)).close()


async def list_all(kube: Kube, kind: str, namespace: str | None, *, metadata_only: bool = False) -> list[Document]:
    """All objects of one of our kinds."""
    found: list[Document] = []
    query: dict[str, str | int] = {"limit": PAGE}
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" if metadata_only else "application/json"
    while True:
        page = await kube.call("GET", Where(kind, namespace), query=query, accept=accept)
        found += page.get("items") or []
        if not page["metadata"].get("continue"):
            return found
        query["continue"] = page["metadata"]["continue"]
