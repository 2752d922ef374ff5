"""The CRDs in a real API server: what it fills in, what it drops, what it refuses and in which words.

Manifests and refusals are those of support/resources.py, so that API server and models are held to the same.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError

import make_crds
from support.kube import KubeApi
from support.resources import RIGHT, SOURCE, SPEC, UNKNOWN, WRONG, Json, Refused, examples, replicator, request
from support.waiting import until
from tailrace.contract.resources import Replicator, SnapshotRequest

MODELS: dict[str, type[Replicator] | type[SnapshotRequest]] = {
    "Replicator": Replicator,
    "SnapshotRequest": SnapshotRequest,
}


class Resources:
    """The two resources in a namespace of the tests' own."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._dynamic = DynamicClient(client)  # type: ignore[no-untyped-call]  # untyped in kubernetes
        self.namespace = namespace

    def _api(self, document: Json) -> Any:
        return self._dynamic.resources.get(api_version=document["apiVersion"], kind=document["kind"])

    def create(self, document: Json, **query: str) -> Json:
        """As the API server stores it. Raises AssertionError with its words where it refuses."""
        parameters = [("fieldValidation", query.get("field_validation", "Strict"))]
        with _words():
            made = self._api(document).create(document, self.namespace, query_params=parameters)
        return dict(made.to_dict())

    def change(self, document: Json, spec: Json) -> Json:
        """Replace parts of the stored spec; None removes one."""
        with _words():
            made = self._api(document).patch(
                {"spec": spec},
                document["metadata"]["name"],
                self.namespace,
                content_type="application/merge-patch+json",
            )
        return dict(made.to_dict())

    def delete(self, document: Json) -> None:
        self._api(document).delete(document["metadata"]["name"], self.namespace)


class _words:
    """Turns an API error into an AssertionError with the message that a user sees."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DynamicApiError):
            raise AssertionError(json.loads(error.body or "{}")["message"]) from error


@pytest.fixture(scope="module")
def resources(kube_api: KubeApi) -> Iterator[Resources]:
    kube_api.apply(*make_crds.definitions().values())
    for plural in ("replicators", "snapshotrequests"):
        kube_api.kubectl("wait", "--for=condition=Established", f"crd/{plural}.tailrace.dev", "--timeout=30s")
    namespace = "crds"
    with kube_api.client() as client:
        kube_api.kubectl("create", "namespace", namespace)
        yield Resources(client, namespace)


@pytest.mark.parametrize("document", RIGHT, ids=lambda document: document["metadata"]["name"])
def test_what_is_right_is_taken_and_means_the_same_with_the_servers_defaults(
    resources: Resources, document: Json
) -> None:
    stored = resources.create(document)
    model = MODELS[document["kind"]]
    # The API server's defaults are the models' own: with and without them the manifest is the same.
    assert model.model_validate({k: v for k, v in stored.items() if k != "status"}).spec == (
        model.model_validate(document).spec
    )
    resources.delete(document)


@pytest.mark.parametrize("document", examples("Replicator", "SnapshotRequest"), ids=lambda d: d["metadata"]["name"])
def test_the_examples_are_taken(resources: Resources, document: Json) -> None:
    resources.create(document)
    resources.delete(document)


@pytest.mark.parametrize("case", [*WRONG, *UNKNOWN], ids=lambda case: case.name)
def test_what_is_wrong_is_refused_in_words_that_name_it(resources: Resources, case: Refused) -> None:
    with pytest.raises(AssertionError) as caught:
        resources.create(case.document)
    assert case.from_server in str(caught.value)


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case.name)
def test_an_unknown_field_is_dropped_where_the_client_does_not_ask_for_strictness(
    resources: Resources, case: Refused
) -> None:
    stored = resources.create(case.document, field_validation="Ignore")
    assert {"tabels", "chunks"}.isdisjoint(stored["spec"])
    resources.delete(case.document)


@pytest.mark.parametrize("name", ["1shop", "a.b", "x" * 46])
def test_a_name_that_cannot_be_a_host_name_is_refused(resources: Resources, name: str) -> None:
    with pytest.raises(AssertionError, match="becomes part of host names: at most 45"):
        resources.create(replicator(name))


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("source.database", {"source": {"database": "other"}}),
        ("source.postgresql.slot", {"source": {"postgresql": {"slot": "mine"}}}),
        ("source.postgresql.publication", {"source": {"postgresql": {"publication": "mine"}}}),
        ("target.type", {"target": {"type": "iceberg", "location": "file:///x"}}),
        ("storage.location", {"storage": {"location": "s3://lake/other"}}),
        ("follow.location", {"follow": {"location": "s3://lake/other"}}),
    ],
)
def test_what_a_change_log_depends_on_cannot_be_changed(resources: Resources, field: str, spec: Json) -> None:
    document = replicator("fixed")
    resources.create(document)
    try:
        with pytest.raises(AssertionError, match=f"{field} is immutable: create another Replicator"):
            resources.change(document, spec)
    finally:
        resources.delete(document)


def test_who_follows_does_so_for_good(resources: Resources) -> None:
    document = replicator("follower", follow={"location": "s3://lake/other"})
    resources.create(document)
    for change in ({"location": "s3://lake/third"}, None):
        with pytest.raises(AssertionError, match=r"follow\.location is immutable"):
            resources.change(document, {"follow": change})
    resources.delete(document)


def test_a_given_slot_can_be_neither_changed_nor_taken_away(resources: Resources) -> None:
    document = replicator("given", source=SOURCE | {"postgresql": {"slot": "mine", "publication": "mine"}})
    resources.create(document)
    for change in ({"slot": "other"}, {"slot": None}, {"publication": "other"}, {"publication": None}, None):
        with pytest.raises(AssertionError, match="is immutable"):
            resources.change(document, {"source": {"postgresql": change}})
    resources.delete(document)


def test_everything_else_can_be_changed(resources: Resources) -> None:
    document = replicator("moved")
    resources.create(document)
    change: Json = {
        "source": {"host": "new-db", "port": 5433, "credentials": {"secretName": "other"}},
        "target": {"location": "s3://lake/elsewhere"},
        "tables": {"include": ["a.*", "b.*"]},
        "suspend": True,
        "restartNonce": 1,
        "executors": {"max": 5},
    }
    stored = resources.change(document, change)["spec"]
    assert (stored["source"]["host"], stored["executors"]["max"], stored["suspend"]) == ("new-db", 5, True)
    assert stored["target"]["location"] == "s3://lake/elsewhere"
    resources.delete(document)


@pytest.mark.parametrize(
    "change",
    [
        {"replicator": "other"},
        {"tables": ["public.b"]},
        {"where": "false"},
        {"where": None},
        {"chunkRows": 5},
        {"chunkRows": None},
        {"parallelism": 2},
    ],
    ids=lambda change: "-".join(f"{k}-{'removed' if v is None else 'changed'}" for k, v in change.items()),
)
def test_a_request_keeps_what_it_asked_for(resources: Resources, change: Json) -> None:
    document = request("kept", where="true", chunkRows=10)
    resources.create(document)
    try:
        with pytest.raises(AssertionError, match=f"{next(iter(change))} is immutable, like all of spec except suspend"):
            resources.change(document, change)
    finally:
        resources.delete(document)


def test_the_keys_of_a_request_cannot_be_changed_but_it_can_be_suspended(resources: Resources) -> None:
    document = request("by-key", keys=[["1"]])
    resources.create(document)
    with pytest.raises(AssertionError, match="keys is immutable"):
        resources.change(document, {"keys": [["2"]]})
    assert resources.change(document, {"suspend": True})["spec"]["suspend"] is True
    resources.delete(document)


def test_a_new_object_is_unobserved_and_status_is_written_apart(resources: Resources, kube_api: KubeApi) -> None:
    document = replicator("fresh") | {"status": {"observedGeneration": 9}}
    stored = resources.create(document)
    assert stored["status"] == {"observedGeneration": -1}
    assert stored["metadata"]["generation"] == 1
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Streaming", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    shown = {"lag": "1.2s", "tablesSummary": "3/4", "executorsSummary": "1/2"}
    status = {"state": "Running", "conditions": conditions, **shown}
    kubectl = ("-n", resources.namespace)
    change = (*kubectl, "patch", "repl", "fresh", "--subresource=status", "--type=merge", "-p")
    wait = (*kubectl, "wait", "--for=condition=Ready", "repl/fresh")
    kube_api.kubectl(*change, json.dumps({"status": status, "spec": {"suspend": True}}))
    assert "timed out" in kube_api.kubectl(*wait, "--timeout=1s", check=False), "an unobserved object is not ready"
    kube_api.kubectl(*change, json.dumps({"status": {"observedGeneration": 1}}))
    kube_api.kubectl(*wait, "--timeout=5s")
    assert kube_api.kubectl(*kubectl, "get", "repl", "fresh", "-o", "jsonpath={.spec.suspend}") == "false"
    header, row = kube_api.kubectl(*kubectl, "get", "replicators").splitlines()
    assert header.split() == ["NAME", "STATE", "READY", "LAG", "TABLES", "EXECUTORS", "SNAPSHOT", "AGE"]
    assert row.split()[:6] == ["fresh", "Running", "True", "1.2s", "3/4", "1/2"]
    assert "fresh" in kube_api.kubectl(*kubectl, "get", "tailrace")
    wrong = json.dumps({"status": {"conditions": conditions * 2}})
    assert "Duplicate value" in kube_api.kubectl(*change, wrong, check=False)
    resources.delete(document)


def test_requests_have_columns_and_a_short_name_of_their_own(resources: Resources, kube_api: KubeApi) -> None:
    resources.create(request("shown"))
    header = kube_api.kubectl("-n", resources.namespace, "get", "snapreq", "shown").splitlines()[0]
    assert header.split() == ["NAME", "REPLICATOR", "STATE", "TABLES", "PROGRESS", "ROWS", "AGE"]
    end = json.dumps({"status": {"estimatedEnd": "2199-01-01T00:00:00Z"}})
    kube_api.kubectl(
        "-n", resources.namespace, "patch", "snapreq", "shown", "--subresource=status", "--type=merge", "-p", end
    )
    wide = kube_api.kubectl("-n", resources.namespace, "get", "snapreq", "shown", "-o", "wide")
    assert "2199-01-01T00:00:00Z" in wide and "<invalid>" not in wide, "an end that is still to come"
    resources.delete(request("shown"))


def _applied(kube_api: KubeApi, namespace: str, manager: str, spec: Json, check: bool = True) -> str:
    document = {**replicator("owned"), "metadata": {"name": "owned", "namespace": namespace}, "spec": spec}
    arguments = ("apply", "--server-side", f"--field-manager={manager}", "-f", "-")
    return kube_api.kubectl(*arguments, stdin=json.dumps(document), check=check)


def test_server_side_apply_lets_two_managers_own_their_parts(resources: Resources, kube_api: KubeApi) -> None:
    """Argo CD or Flux owns the manifest; a person adds a node label and suspends, and neither undoes the other."""
    space = resources.namespace
    git = deepcopy(SPEC) | {"driver": {"podTemplate": {"spec": {"nodeSelector": {"a": "1"}}}}}
    _applied(kube_api, space, "git", git)
    more = {"podTemplate": {"spec": {"nodeSelector": {"b": "2"}}}}
    _applied(kube_api, space, "person", {"suspend": True, "driver": more})
    _applied(kube_api, space, "git", git | {"retry": {"time": "2h"}})
    spec = json.loads(kube_api.kubectl("-n", space, "get", "repl", "owned", "-o", "json"))["spec"]
    nodes = spec["driver"]["podTemplate"]["spec"]["nodeSelector"]
    assert (nodes, spec["suspend"], spec["retry"]["time"]) == ({"a": "1", "b": "2"}, True, "2h")
    said = _applied(kube_api, space, "person", {"retry": {"time": "3h"}}, check=False)
    assert 'conflict with "git"' in said
    assert ".spec.retry.time" in said
    resources.delete(replicator("owned"))


def test_kubectl_explain_describes_a_field_with_its_unit(resources: Resources, kube_api: KubeApi) -> None:
    said = kube_api.kubectl("explain", "replicator.spec.snapshot.chunkSeconds")
    assert "seconds to read" in said


def _define(kube_api: KubeApi, document: Json, check: bool = True) -> str:
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    return kube_api.kubectl(*arguments, stdin=json.dumps(document), check=check)


def _versions(monkeypatch: pytest.MonkeyPatch, group: str, stored: str, *versions: str) -> Json:
    """The Replicator's definition, as it would be with these versions."""
    for name, value in (("GROUP", group), ("VERSION", stored), ("VERSIONS", versions)):
        monkeypatch.setattr(make_crds, name, value)
    return make_crds.definitions()["replicators.yaml"]


def test_a_version_is_served_beside_the_stored_one_and_can_be_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a release that adds v1beta1 does, and its rollback; an older operator watches v1alpha1 throughout.

    On a server of its own: kubectl goes on asking for a version that it once saw and that is served no more.
    """
    one = _versions(monkeypatch, "tailrace.dev", "v1alpha1", "v1alpha1")
    two = _versions(monkeypatch, "tailrace.dev", "v1alpha1", "v1alpha1", "v1beta1")
    older, newer, name = "replicators.v1alpha1.tailrace.dev", "replicators.v1beta1.tailrace.dev", "served"
    with KubeApi(tmp_path / "own") as kube:
        _define(kube, two)
        until(lambda: "error:" not in kube.kubectl("get", newer, check=False), "v1beta1 is served")
        document = replicator(name) | {"apiVersion": "tailrace.dev/v1beta1"}
        kube.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        read = [json.loads(kube.kubectl("get", kind, name, "-o", "json")) for kind in (older, newer)]
        assert [found["apiVersion"] for found in read] == ["tailrace.dev/v1alpha1", "tailrace.dev/v1beta1"]
        assert read[0]["spec"] == read[1]["spec"]
        definition = json.loads(kube.kubectl("get", "crd", "replicators.tailrace.dev", "-o", "json"))
        assert definition["status"]["storedVersions"] == ["v1alpha1"]
        _define(kube, one)
        until(lambda: "could not find" in kube.kubectl("get", newer, check=False), "v1beta1 is gone")
        assert json.loads(kube.kubectl("get", older, name, "-o", "json"))["spec"] == read[0]["spec"]


def test_a_version_that_objects_are_stored_as_cannot_be_taken_back(
    kube_api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the stored one is the oldest."""
    group = "stored.example"
    _define(kube_api, _versions(monkeypatch, group, "v1beta1", "v1alpha1", "v1beta1"))
    said = _define(kube_api, _versions(monkeypatch, group, "v1alpha1", "v1alpha1"), check=False)
    assert "status.storedVersions" in said and "v1beta1" in said
    kube_api.kubectl("delete", "crd", f"replicators.{group}")
