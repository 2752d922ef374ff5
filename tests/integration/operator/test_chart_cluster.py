"""The chart in a real API server: installed, upgraded, taken away; the rights it gives, tried by the operator itself;
every pod under Pod Security `restricted`."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import make_manifests
from make_manifests import CHART, INSTALL, rendered
from support.helm import helm, of_kind, only
from support.kube import KubeApi
from support.kube_objects import KubeObjects
from support.observed import of_cron_job, of_driver
from support.process import Program
from support.resources import POD, SOURCE, replicator, request
from support.waiting import until
from tailrace.contract.resources import Replicator
from tailrace_operator.resources import drop, identity, log_check, settings

Json = dict[str, Any]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """Of this module's own: releases own the CRDs of a cluster."""
    with KubeApi(tmp_path_factory.mktemp("chart")) as found:
        yield found


# ---- Pod Security ----


@cache
def pods() -> dict[str, Json]:
    """Every kind of pod that the chart or the operator makes."""
    chart = make_manifests.rendered()
    more = make_manifests.rendered("--set", "console.enabled=true")
    (console,) = [d for d in of_kind(more, "Deployment") if d["metadata"]["name"] == "tailrace-operator-console"]
    spec = Replicator.model_validate(replicator(driver=POD, executors=POD, imagePullSecrets=["pull"])).spec
    executor = settings.executor_template("shop", spec)["spec"]
    executor["containers"][0]["image"] = "spark"
    return {
        "operator": only(chart, "Deployment")["spec"]["template"]["spec"],
        "console": console["spec"]["template"]["spec"],
        "test": only(chart, "Pod")["spec"],
        "driver": of_driver(spec),
        "executor": executor,
        "drop": drop.job("shop", spec, "spark", seconds=60)["spec"]["template"]["spec"],
        "check": of_cron_job(log_check.cron_job("shop", spec, "spark"))["spec"],
    }


@pytest.fixture(scope="module")
def restricted(api: KubeApi) -> str:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": labels}})
    return "restricted"


def admit(api: KubeApi, namespace: str, spec: Json) -> str:
    metadata = {"name": "one", "namespace": namespace}
    plain = {k: v for k, v in spec.items() if k != "priorityClassName"}  # of a class that is not there
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": plain}
    return api.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document), check=False)


@pytest.mark.parametrize("kind", ["operator", "console", "test", "driver", "executor", "drop", "check"])
def test_every_pod_is_admitted_under_restricted_pod_security(api: KubeApi, restricted: str, kind: str) -> None:
    assert admit(api, restricted, pods()[kind]) == "pod/one created (server dry run)\n"


def test_a_pod_with_more_rights_is_not(api: KubeApi, restricted: str) -> None:
    spec = deepcopy(pods()["operator"])
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in admit(api, restricted, spec)


# ---- install, upgrade, uninstall ----


def older(folder: Path) -> Path:
    """The chart as an earlier version could have been: without a field of the CRD, with another version."""
    chart = folder / "tailrace"
    shutil.copytree(CHART, chart)
    about = (chart / "Chart.yaml").read_text().replace("0.1.0", "0.0.9")
    (chart / "Chart.yaml").write_text(about)
    path = chart / "files" / "crds" / "replicators.yaml"
    crd = yaml.safe_load(path.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["serviceAccountName"]
    path.write_text(yaml.safe_dump(crd, sort_keys=False))
    return chart


def test_a_release_is_upgraded_with_its_crds_and_taken_away_without_the_replicators(
    api: KubeApi, tmp_path: Path
) -> None:
    run = ("-n", "releases", "tailrace")
    helm("install", *run, str(older(tmp_path)), "--create-namespace", kubeconfig=api.kubeconfig)
    shop = replicator("shop")
    shop["metadata"]["namespace"] = "releases"
    api.kubectl("wait", "--for=condition=Established", "crd/replicators.tailrace.dev", "--timeout=30s")
    api.apply(shop)
    uid = api.kubectl("-n", "releases", "get", "repl", "shop", "-o", "jsonpath={.metadata.uid}")
    image = ("-n", "releases", "get", "deployment", "tailrace-operator", "-o", "jsonpath={..image}")
    assert api.kubectl(*image) == "tailrace-operator:0.0.9"
    assert "unknown field" in account_set(api)

    helm("upgrade", *run, str(CHART), "--set", "replicas=2", kubeconfig=api.kubeconfig)
    assert api.kubectl("-n", "releases", "get", "poddisruptionbudget", "-o", "name") != ""
    assert api.kubectl(*image) == "tailrace-operator:0.1.0"
    until(lambda: "unknown field" not in account_set(api), "the new field is known")

    helm("uninstall", *run, kubeconfig=api.kubeconfig)
    gone = ("get", "deployment,sa,service,pdb", "-l", "app.kubernetes.io/instance=tailrace", "-o", "name")
    assert api.kubectl("-n", "releases", *gone) == ""
    # Its driver runs on: executors that are lost are replaced.
    person = "system:serviceaccount:releases:shop-driver"
    api.apply({**identity.role_binding("shop", "releases"), "metadata": {"name": "shop", "namespace": "releases"}})
    assert api.kubectl("-n", "releases", "auth", "can-i", "create", "pods", "--as", person).strip() == "yes"
    assert api.kubectl("-n", "releases", "get", "repl", "shop", "-o", "jsonpath={.metadata.uid}") == uid

    helm("install", *run, str(CHART), kubeconfig=api.kubeconfig)
    assert api.kubectl("-n", "releases", "get", "repl", "shop", "-o", "jsonpath={.metadata.uid}") == uid
    helm("uninstall", *run, kubeconfig=api.kubeconfig)


def account_set(api: KubeApi) -> str:
    patch = json.dumps({"spec": {"serviceAccountName": "lake"}})
    return api.kubectl("-n", "releases", "patch", "repl", "shop", "--type=merge", "-p", patch, check=False)


def test_the_plain_manifests_install_by_server_side_apply(api: KubeApi) -> None:
    api.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(INSTALL))
    again = api.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(INSTALL))
    assert again.count("serverside-applied") == len(make_manifests.documents())
    api.kubectl("-n", make_manifests.NAMESPACE, "get", "deployment/tailrace-operator")


# ---- rights ----


class Installed:
    """A release whose operator runs here, as its ServiceAccount and with the arguments of its pod."""

    def __init__(self, api: KubeApi, folder: Path, namespace: str, *arguments: str) -> None:
        self.api, self.folder, self.namespace = api, folder, namespace
        documents = rendered(*arguments, "--skip-tests", release=namespace, namespace=namespace)
        api.kubectl("create", "namespace", namespace)
        text = yaml.safe_dump_all(documents)
        api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        self.account = only(documents, "ServiceAccount")["metadata"]["name"]
        self.container = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]

    def can(self, verb: str, what: str, namespace: str) -> bool:
        person = f"system:serviceaccount:{self.namespace}:{self.account}"
        resource, _, part = what.partition("/")
        command = ("auth", "can-i", verb, resource, f"--subresource={part}", "-n", namespace, "--as", person)
        said = self.api.kubectl(*command, check=False)
        return said.strip().splitlines()[-1] == "yes"

    def kubeconfig(self) -> Path:
        config = yaml.safe_load(self.api.kubeconfig.read_text())
        token = self.api.kubectl("-n", self.namespace, "create", "token", self.account).strip()
        config["users"][0]["user"] = {"token": token}
        path = self.folder / f"{self.namespace}.conf"
        path.write_text(yaml.safe_dump(config))
        return path

    def start(self) -> Program:
        given = {entry["name"]: entry["value"] for entry in self.container["env"] if "value" in entry}
        own = {"POD_NAME": "here", "POD_NAMESPACE": self.namespace, "KUBECONFIG": str(self.kubeconfig())}
        arguments = [a.replace("0.0.0.0:8080", "127.0.0.1:0") for a in self.container["args"]]
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tailrace_operator", *arguments]
        paths = os.pathsep.join(sys.path)
        return Program.start(command, self.log, env={**os.environ, **given, **own, "PYTHONPATH": paths})

    @property
    def log(self) -> Path:
        return self.folder / f"{self.namespace}.log"


NEEDED = (
    *(("delete", what) for what in ("pods", "statefulsets.apps", "networkpolicies.networking.k8s.io")),
    *(("create", what) for what in ("jobs.batch", "secrets", "events")),
    *(("get", what) for what in ("secrets", "configmaps", "events")),
    ("update", "replicators.tailrace.dev/finalizers"),
    ("patch", "snapshotrequests.tailrace.dev/status"),
)
"""Rights for what the short life in the test does not come to."""
CHILDREN = ("statefulset", "service", "configmap", "secret", "serviceaccount", "rolebinding", "networkpolicy")


def placed(document: Json, namespace: str) -> Json:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def everything(api: KubeApi, namespace: str) -> str:
    """All that is in the namespace and that an operator could have made or changed, each in its version."""
    kinds = f"repl,snapreq,secret,cronjob,job,event,{','.join(CHILDREN)}"
    found = ("-n", namespace, "get", kinds, "-o")
    return api.kubectl(*found, "custom-columns=A:.kind,B:.metadata.name,C:.metadata.resourceVersion", "--no-headers")


@pytest.mark.parametrize("scope", ["cluster", "namespaced"])
def test_the_operator_finds_its_rights_enough_in_either_scope(api: KubeApi, tmp_path: Path, scope: str) -> None:
    space = f"data-{scope}"
    second, other = f"{space}-2", f"{space}-not"
    for name in (space, second, other):
        api.kubectl("create", "namespace", name)
    limited = ["--set", f"watchNamespaces={{{space},{second}}}"] if scope == "namespaced" else []
    release = Installed(api, tmp_path, f"own-{scope}", *limited)
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop-db", "namespace": space}}
    shop, again = replicator("shop"), request("again")
    for document in (shop, again):
        document["metadata"]["namespace"] = space
    api.kubectl("wait", "--for=condition=Established", "crd/replicators.tailrace.dev", "--timeout=30s")
    lacking = replicator("lone", source=SOURCE | {"credentials": {"secretName": "never"}})
    lone = [placed(lacking, name) for name in (second, other)]
    api.apply(keys | {"stringData": {"password": "x"}}, shop, again, *lone)
    before = everything(api, other)
    process = release.start()
    try:
        with closing(KubeObjects(api.kubeconfig)) as objects:
            for kind in CHILDREN:
                until(partial(objects.get, space, kind, "shop-driver"), f"a {kind}")
        for kind, name in (("repl", "shop"), ("snapreq", "again")):
            api.kubectl("-n", space, "wait", "--for=condition=Reconciling", f"{kind}/{name}", "--timeout=30s")
        for name in (second, other) if scope == "cluster" else (second,):
            api.kubectl("-n", name, "wait", "--for=condition=Reconciling", "repl/lone", "--timeout=30s")
        finalizers = ("-n", space, "get", "repl,snapreq", "-o", "jsonpath={.items[*].metadata.finalizers[0]}")
        assert api.kubectl(*finalizers).split() == ["tailrace.dev/finalizer"] * 2
        assert "LAST SEEN" in api.kubectl("-n", space, "get", "events")
    finally:
        assert process.stop(30) == 0
    said = release.log.read_text()
    assert "forbidden" not in said.lower(), said[-3000:]
    assert (everything(api, other) == before) == (scope == "namespaced"), "it touches what it watches, and nothing else"
    # The one driver role may be handed on, no other.
    bind = ("-n", space, "create", "rolebinding", "more", f"--serviceaccount={space}:default", "--dry-run=server")
    person = ("--as", f"system:serviceaccount:{release.namespace}:{release.account}")
    assert "created" in api.kubectl(*bind, "--clusterrole=tailrace-driver", *person, check=False)
    assert "attempting to grant" in api.kubectl(*bind, "--clusterrole=cluster-admin", *person, check=False)
    for verb, what in NEEDED:
        assert release.can(verb, what, space), f"{verb} {what}"
    for verb, what in (("create", "pods"), ("create", "pods/exec"), ("patch", "secrets"), ("delete", "configmaps")):
        assert not release.can(verb, what, space), f"{verb} {what}"
    for verb, what in (("list", "secrets"), ("get", "replicators.tailrace.dev"), ("create", "events")):
        assert release.can(verb, what, other) == (scope == "cluster"), f"{verb} {what}"
    assert release.can("create", "leases", release.namespace)
    assert not release.can("create", "leases", space)
    assert not release.can("get", "leases", release.namespace), "of others"
