"""A namespace with an operator that watches it: what the tests of the operator against a real API server share."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from support.kube import KubeApi
from support.kube_objects import KubeObjects
from support.operator_process import ROOT, DriverDouble, Node, OperatorProcess
from support.waiting import until

CRDS = ROOT / "crds"


def install_crds(kube: KubeApi, folder: Path = CRDS) -> None:
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    # kubectl asks no definition for a condition that has none yet: it ends.
    kube.kubectl("wait", "--for=jsonpath={.status.conditions}", "crd", "--all", "--timeout=60s")
    kube.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


class OperatorNamespace:
    """A namespace of the test's own, with an operator that watches it."""

    def __init__(self, kube: KubeApi, namespace: str, folder: Path) -> None:
        self.kube, self.namespace, self.folder = kube, namespace, folder
        self.node, self.objects = Node(kube, namespace), KubeObjects(kube.kubeconfig)
        kube.kubectl("create", "namespace", namespace)
        self.secret("shop-db", "first")

    def secret(self, name: str, password: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"password": password},
        }
        self.apply(document)

    def apply(self, *documents: Any) -> None:
        placed = [{**d, "metadata": {**d["metadata"], "namespace": self.namespace}} for d in documents]
        self.kube.apply(*placed)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.kube.kubectl("-n", self.namespace, *arguments, check=check)

    def get(self, what: str) -> Any:
        """The object; None: there is none."""
        kind, _, name = what.partition("/")
        return self.objects.get(self.namespace, kind, name)

    def condition(self, what: str, kind: str) -> Any:
        found = (self.get(what) or {}).get("status", {}).get("conditions", ())
        return next((c for c in found if c["type"] == kind), None)

    def until_reason(self, what: str, reason: str, seconds: float = 60.0) -> Any:
        def look() -> Any:
            ready = self.condition(what, "Ready")
            return ready if ready is not None and ready["reason"] == reason else None

        return until(look, f"{what} is {reason}", seconds)

    def driver(self, name: str, ip: str) -> DriverDouble:
        """Its pod runs and answers."""
        until(lambda: self.node.stateful_set(name), "the StatefulSet")
        double = DriverDouble(name, ip, self.node.token(name))
        self.node.make_pod(name)
        self.node.run_pod(name, ip)
        return double


@contextmanager
def operator_namespace(kube: KubeApi, name: str, folder: Path) -> Iterator[OperatorNamespace]:
    made = OperatorNamespace(kube, name, folder)
    with closing(made.objects):
        yield made
        made.node.close()


def operator(
    place: OperatorNamespace,
    *flags: str,
    seams: str = "",
    tree: Path = ROOT,
    timers: Mapping[str, float] = MappingProxyType({}),
) -> OperatorProcess:
    made = OperatorProcess(place.kube.kubeconfig, place.folder, place.namespace, *flags, seams=seams)
    made.tree, made.timers = tree, dict(timers)
    return made
