"""A fault of one namespace, one definition or one object stops the operator nowhere else: a real API server with its
access rules."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube import KubeApi
from support.operator_namespace import CRDS, OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import OperatorProcess
from support.resources import SOURCE, replicator, request
from support.waiting import until
from tailrace.contract.resources import API_VERSION

Json = dict[str, Any]
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
METRIC = "tailrace_operator_refused_namespaces"


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> Iterator[None]:
    install_crds(kube_api)
    yield
    install_crds(kube_api)


def lacking(name: str, namespace: str) -> Json:
    """A Replicator that waits for its Secret: it is deleted without a clean-up."""
    document = replicator(name, source={**SOURCE, "credentials": {"secretName": "never"}})
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


class Rights:
    """An operator's ServiceAccount, and the namespaces in which it may do anything."""

    def __init__(self, place: OperatorNamespace) -> None:
        self._kube = place.kube
        self._account = f"system:serviceaccount:{place.namespace}:operator"
        place.kubectl("create", "serviceaccount", "operator")
        token = place.kubectl("create", "token", "operator").strip()
        config = yaml.safe_load(place.kube.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig = place.folder / "operator.conf"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def give(self, namespace: str) -> None:
        head = {"name": "operator", "namespace": namespace}
        group = "rbac.authorization.k8s.io"
        base: Json = {"apiVersion": f"{group}/v1", "metadata": head}
        role = {**base, "kind": "Role", "rules": [EVERYTHING]}
        subject = {"kind": "User", "name": self._account, "apiGroup": group}
        to = {"apiGroup": group, "kind": "Role", "name": "operator"}
        binding = {**base, "kind": "RoleBinding", "roleRef": to, "subjects": [subject]}
        self._kube.apply(role, binding)

    def take(self, namespace: str) -> None:
        self._kube.kubectl("-n", namespace, "delete", "rolebinding", "operator")


def taken_up(place: OperatorNamespace, name: str, namespace: str) -> bool:
    found = place.objects.get(namespace, "repl", name)
    return bool(found is not None and found["metadata"].get("finalizers"))


def test_a_namespace_without_rights_stops_no_other_and_is_watched_when_they_come(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    """One has no RoleBinding, one does not exist yet; later one loses its rights while the operator is away."""
    with operator_namespace(kube_api, "works", tmp_path) as place:
        rights = Rights(place)
        rights.give("works")
        kube_api.kubectl("create", "namespace", "lacks")
        kube_api.apply(lacking("one", "works"), lacking("one", "lacks"))
        flags = ("--namespace", "lacks", "--namespace", "comes")
        with OperatorProcess(rights.kubeconfig, place.folder, "works", *flags) as process:
            until(lambda: taken_up(place, "one", "works"), "the namespace with rights is looked after")
            until(lambda: process.metric(METRIC) == 2, "both are told")
            code, said = process.get("/readyz")
            assert code == 200 and "lacks" in said and "comes" in said and "forbidden" in said
            assert process.get("/healthz") == (200, "ok")
            until(lambda: len(told(place, "NamespaceRefused")) == 2, "events on the lease")
            assert not taken_up(place, "one", "lacks")

            rights.give("lacks")
            kube_api.kubectl("create", "namespace", "comes")
            rights.give("comes")
            kube_api.apply(lacking("one", "comes"))
            for namespace in ("lacks", "comes"):
                until(lambda n=namespace: taken_up(place, "one", n), namespace)  # type: ignore[misc]  # a default argument
            until(lambda: process.get("/readyz") == (200, "ok"), "all are watched")
            assert process.metric(METRIC) == 0
            until(lambda: len(told(place, "NamespaceWatched")) == 2, "events on the lease")

            assert process.stop() == 0
            rights.take("comes")
            kube_api.apply(lacking("two", "works"), lacking("two", "comes"))
            process.start()
            until(lambda: taken_up(place, "two", "works"), "the others are looked after")
            until(lambda: process.metric(METRIC) == 1, "it is told")
            rights.give("comes")
            until(lambda: taken_up(place, "two", "comes"), "it is looked after again")
            clear(kube_api, "works", "lacks", "comes")


def test_without_any_rights_it_is_not_ready(kube_api: KubeApi, tmp_path: Path) -> None:
    with operator_namespace(kube_api, "home", tmp_path) as place:
        rights = Rights(place)
        rights.give("home")
        kube_api.kubectl("create", "namespace", "barred")
        process = OperatorProcess(rights.kubeconfig, place.folder, "barred")
        process.home = "home"
        with process:
            until(lambda: process.get("/readyz")[0] == 503, "it is not ready")
            assert "barred" in process.get("/readyz")[1]
            assert process.get("/healthz") == (200, "ok"), "another start would not help"
            rights.give("barred")
            until(lambda: process.get("/readyz") == (200, "ok"), "the rights came")


def told(place: OperatorNamespace, reason: str) -> list[Json]:
    found = json.loads(place.kubectl("get", "events", "-o", "json", f"--field-selector=reason={reason}"))["items"]
    return [e for e in found if e["involvedObject"]["kind"] == "Lease"]


def clear(kube: KubeApi, *namespaces: str) -> None:
    for namespace in namespaces:
        kube.kubectl("-n", namespace, "delete", "repl", "--all", "--timeout=60s")


def test_an_object_that_nobody_can_read_stops_no_other(kube_api: KubeApi, tmp_path: Path) -> None:
    """It was created while the definition said less: the API server serves it as it is."""
    with operator_namespace(kube_api, "strange", tmp_path) as place:
        for file in sorted(CRDS.glob("*.yaml")):
            crd = yaml.safe_load(file.read_text())
            free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = free
            kube_api.apply(crd)
        head = {"namespace": "strange"}
        base: Json = {"apiVersion": API_VERSION}
        forms: dict[str, Json] = {"text": {"spec": "text"}, "list": {"spec": {"apply": ["x"]}, "status": [1]}}
        strange: list[Json] = [
            {**base, "kind": kind, "metadata": {**head, "name": f"{form}-{kind.lower()}"}, **content}
            for kind in ("Replicator", "SnapshotRequest")
            for form, content in forms.items()
        ]
        until(lambda: "validate" not in create(kube_api, strange), "they are stored")
        install_crds(kube_api)
        with operator(place) as process:
            place.apply(lacking("one", "strange"), request("again", replicator="later"))
            place.until_reason("repl/one", "SecretNotFound")
            until(lambda: place.condition("snapreq/again", "Ready"), "the SnapshotRequest")
            # The same from the watch.
            kube_api.kubectl("-n", "strange", "annotate", "repl,snapreq", "--all", "seen=again", check=False)
            place.apply(lacking("two", "strange"))
            place.until_reason("repl/two", "SecretNotFound")
            assert process.get("/healthz") == (200, "ok")


def create(kube: KubeApi, found: list[Json]) -> str:
    return kube.kubectl("apply", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(found), check=False)


def test_a_namespace_that_is_being_deleted_stops_no_other_and_its_replicators_go(
    kube_api: KubeApi, tmp_path: Path
) -> None:
    """Nothing can be created in it any longer: neither a driver, nor the Job that would clean up."""
    with (
        operator_namespace(kube_api, "ending", tmp_path) as place,
        operator_namespace(kube_api, "staying", tmp_path) as other,
        OperatorProcess(kube_api.kubeconfig, tmp_path, "staying", "--namespace", "ending") as process,
    ):
        place.apply(lacking("known", "ending"))
        place.until_reason("repl/known", "SecretNotFound")
        place.apply(replicator("late"))
        kube_api.kubectl("delete", "namespace", "ending", "--wait=false")
        other.apply(replicator("shop"))
        until(lambda: other.get("statefulset/shop-driver"), "the other is looked after")
        place.kubectl("delete", "repl", "--all", "--timeout=60s")
        assert place.get("repl/late") is None and process.get("/healthz") == (200, "ok")
        assert not [line for line in process.lines() if line["level"] == "error"]
