"""The chart as Helm renders it: lint, values that it refuses, what each value changes, and the copies made of it."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import make_crds
import make_manifests
from cluster import places
from make_manifests import CHART, INSTALL, rendered
from support.helm import helm, of_kind, only, refused
from support.resources import EXAMPLES, examples
from tailrace import __version__
from tailrace.cli.console.__main__ import parser as console_parser
from tailrace.cli.console.app import HEALTH
from tailrace.errors import InvalidManifest
from tailrace_operator import settings
from tailrace_operator.resources.defaults import PodDefaults

Json = dict[str, Any]


def pod(documents: list[Json]) -> Json:
    spec: Json = only(documents, "Deployment")["spec"]["template"]["spec"]
    return spec


def names(documents: list[Json], kind: str) -> list[str]:
    return sorted(document["metadata"]["name"] for document in of_kind(documents, kind))


def test_helm_is_of_the_version_that_is_asked_for() -> None:
    assert helm("version", "--template={{.Version}}") == places.HELM_VERSION


def test_the_chart_passes_lint_strictly() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_plain_manifests_are_the_charts_default_output() -> None:
    assert INSTALL.read_text(encoding="utf-8") == make_manifests.text(), "run `make manifests`"


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("replicas=9", "'/replicas': maximum: got 9, want 5"),
        ("watchNamespaces={a,a}", "items at 0 and 1 are equal"),
        ("watchNamespaces={Shop}", "does not match pattern"),
        ("image.tag=a b", "'/image/tag'"),
        ("image.digest=latest", "'/image/digest'"),
        ("image.pullPolicy=Sometimes", "'Always', 'IfNotPresent', 'Never'"),
        ("crds.keep=false", "'/crds': additional properties 'keep' not allowed"),
        ("podDefaults.metadata.labels.tailrace\\.dev/replicator=x", "invalid propertyName 'tailrace.dev/replicator'"),
        ("podDefaults.env=x", "'/podDefaults': additional properties 'env' not allowed"),
        ("env[0].name=TAILRACE_SPARK_IMAGE,env[0].value=x", "'/env/0/name'"),
        ("metrics.podMonitor.interval=often", "'/metrics/podMonitor/interval'"),
        ("metrics.alerts.runbookUrl=a#b", "'/metrics/alerts/runbookUrl'"),
        ("serviceAccount.create=false", "serviceAccount.name is empty"),
        ("console.allowActions=yes", "'/console/allowActions'"),
        ("console.enabled=yes", "'/console/enabled'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, words: str) -> None:
    assert words in refused("template", "x", str(CHART), "--set", setting)


def test_crds_come_with_the_release_are_equal_to_crds_and_stay_when_it_goes() -> None:
    found = {document["metadata"]["name"]: document for document in of_kind(rendered(), "CustomResourceDefinition")}
    assert {d["metadata"]["annotations"]["helm.sh/resource-policy"] for d in found.values()} == {"keep"}
    plain = {document["metadata"]["name"]: document for document in make_crds.definitions().values()}
    assert {name: make_manifests.without_helm(document) for name, document in found.items()} == plain
    assert found.keys() == plain.keys()


def test_crds_can_be_left_out_and_carry_annotations() -> None:
    assert of_kind(rendered("--set", "crds.enabled=false"), "CustomResourceDefinition") == []
    marked = of_kind(rendered("--set", "crds.annotations.a=b"), "CustomResourceDefinition")
    assert [d["metadata"]["annotations"] for d in marked] == [{"a": "b", "helm.sh/resource-policy": "keep"}] * 2


def test_the_operator_watches_all_namespaces_with_a_cluster_role() -> None:
    documents = rendered()
    assert "--namespace" not in pod(documents)["containers"][0]["args"]
    assert names(documents, "ClusterRoleBinding") == ["tailrace-operator"]
    assert names(documents, "Role") == ["tailrace-operator-lease"]


def test_with_namespaces_the_operator_has_no_right_elsewhere() -> None:
    documents = rendered("--set", "watchNamespaces={shop,sales}")
    assert pod(documents)["containers"][0]["args"][-4:] == ["--namespace", "shop", "--namespace", "sales"]
    assert of_kind(documents, "ClusterRoleBinding") == []
    assert "tailrace-operator" not in names(documents, "ClusterRole")
    bound = [(d["metadata"]["namespace"], d["roleRef"]["name"]) for d in of_kind(documents, "RoleBinding")]
    assert sorted(bound) == [
        ("sales", "tailrace-operator"),
        ("shop", "tailrace-operator"),
        ("tailrace-system", "tailrace-operator-lease"),
    ]


def test_the_operator_may_neither_run_commands_in_pods_nor_hand_on_any_role_but_the_drivers() -> None:
    rules = [rule for role in of_kind(rendered(), "ClusterRole") for rule in role["rules"]]
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert not any("*" in pair for pair in granted)
    assert not {resource for resource, _ in granted} & {"pods/exec", "pods/log", "nodes", "deployments", "roles"}
    (bind,) = [rule for rule in rules if "bind" in rule["verbs"]]
    assert bind["resourceNames"] == ["tailrace-driver"]
    assert "escalate" not in {verb for _, verb in granted}


def test_a_driver_may_handle_pods_and_read_its_namespace() -> None:
    """No more than what drivers on a whole cluster were seen to ask: `tests/integration/cluster/test_stream.py`."""
    (role,) = [d for d in of_kind(rendered(), "ClusterRole") if d["metadata"]["name"] == "tailrace-driver"]
    granted = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    pods = {("pods", verb) for verb in ("get", "list", "watch", "create", "delete", "deletecollection")}
    assert granted == {*pods, ("namespaces", "get")}


def test_roles_can_be_left_to_others() -> None:
    documents = rendered("--set", "rbac.create=false,rbac.driverRole=false,rbac.aggregate=false")
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {d["kind"] for d in documents}
    with_account = rendered("--set", "serviceAccount.create=false,serviceAccount.name=mine")
    assert of_kind(with_account, "ServiceAccount") == []
    assert pod(with_account)["serviceAccountName"] == "mine"


def test_users_of_a_namespace_may_read_or_write_the_resources_by_the_clusters_own_roles() -> None:
    labels = {d["metadata"]["name"]: d["metadata"]["labels"] for d in of_kind(rendered(), "ClusterRole")}
    assert labels["tailrace-operator-view"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert labels["tailrace-operator-edit"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"


def test_the_operators_own_settings_reach_its_command_line() -> None:
    values = 'settings={"lagObjective":0.5,"cleanupTimeout":3000000,"logLevel":"debug"}'
    documents = rendered("--set-json", values)
    arguments = pod(documents)["containers"][0]["args"]
    assert {"--lag-objective=0.5", "--cleanup-timeout=3000000", "--log-level=debug"} <= set(arguments)


def test_images_are_named_by_tag_or_digest() -> None:
    container = pod(rendered("--set-string", "image.tag=7,sparkImage.repository=registry:5000/spark"))["containers"][0]
    assert container["image"] == "tailrace-operator:7"
    assert {e["name"]: e.get("value") for e in container["env"]}["TAILRACE_SPARK_IMAGE"] == "registry:5000/spark:0.1.0"
    digest = "sha256:" + "0" * 64
    container = pod(rendered("--set-string", f"image.tag=7,image.digest={digest}"))["containers"][0]
    assert container["image"] == f"tailrace-operator@{digest}"


def test_pod_values_reach_the_pod(tmp_path: Path) -> None:
    values: Json = {
        "imagePullSecrets": ["pull"],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podLabels": {"team": "data", "app.kubernetes.io/name": "mine"},
        "podAnnotations": {"a": "b"},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "replicas": 2,
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    documents = rendered("-f", str(tmp_path / "values.yaml"))
    spec, deployment = pod(documents), only(documents, "Deployment")["spec"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    for field in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[field] == values[field]
    assert values["env"][0] in spec["containers"][0]["env"]
    metadata = deployment["template"]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"], deployment["replicas"]) == ("data", {"a": "b"}, 2)
    assert deployment["selector"]["matchLabels"].items() <= metadata["labels"].items()


def test_what_holds_for_all_replicators_reaches_the_operator(tmp_path: Path) -> None:
    defaults: Json = {
        "metadata": {"labels": {"team": "data"}, "annotations": {"a": "b"}},
        "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"podDefaults": defaults, "fixedUser": False}))
    documents = rendered("-f", str(tmp_path / "values.yaml"))
    arguments = pod(documents)["containers"][0]["args"]
    told = settings.parse(arguments, {settings.IMAGE_VARIABLE: "spark"}).limits.pods
    assert told == PodDefaults.model_validate({"podTemplate": defaults, "fixedUser": False})
    assert "runAsUser" not in str(pod(documents)["securityContext"]), "nor has the operator a fixed one"
    plain = settings.parse(pod(rendered())["containers"][0]["args"], {settings.IMAGE_VARIABLE: "spark"}).limits.pods
    assert plain == PodDefaults()
    said = refused_by_the_operator('{"podTemplate": {"spec": {"hostPID": true}}}')
    assert "--pod-defaults: podTemplate.spec: Value error, hostPID (found true): pods do not reach" in said


def refused_by_the_operator(defaults: str) -> str:
    with pytest.raises(InvalidManifest) as caught:
        settings.parse([f"--pod-defaults={defaults}"], {settings.IMAGE_VARIABLE: "spark"})
    return str(caught.value)


def test_several_operators_prefer_different_nodes_and_are_drained_one_at_a_time() -> None:
    one, two = rendered(), rendered("--set", "replicas=2")
    assert of_kind(one, "PodDisruptionBudget") == [], "it would block every drain"
    assert "topologySpreadConstraints" not in pod(one)
    budget, labels = only(two, "PodDisruptionBudget")["spec"], only(two, "Deployment")["spec"]["template"]["metadata"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"]["matchLabels"].items() <= labels["labels"].items()
    spread = pod(two)["topologySpreadConstraints"]
    assert [s["topologyKey"] for s in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert {s["whenUnsatisfiable"] for s in spread} == {"ScheduleAnyway"}
    assert all(s["labelSelector"] == budget["selector"] for s in spread)


def test_two_releases_do_not_meet() -> None:
    first, second = rendered(), rendered("--set", "rbac.driverRole=false,crds.enabled=false", release="second")
    taken = {(d["kind"], d["metadata"]["name"]) for d in first}
    assert [d for d in second if (d["kind"], d["metadata"]["name"]) in taken] == []
    full = rendered("--set", "fullnameOverride=mine")
    assert names(full, "Deployment") == ["mine"]
    # Each has a lease of its own: both work, on other namespaces, in whatever namespace they are installed.
    for documents, lease in ((first, "tailrace-operator"), (second, "second-tailrace-operator"), (full, "mine")):
        assert f"--lease={lease}" in pod(documents)["containers"][0]["args"]
        assert [rule.get("resourceNames") for rule in only(documents, "Role")["rules"]] == [None, [lease], None]


def test_network_policies_protect_operator_and_drivers() -> None:
    assert names(rendered(), "NetworkPolicy") == ["tailrace-operator"]
    assert of_kind(rendered("--set", "networkPolicy.enabled=false"), "NetworkPolicy") == []
    assert driver_peers(rendered("--set", "networkPolicy.drivers=false")) is None
    documents = rendered("--set", "networkPolicy.enabled=false")
    (peer,) = driver_peers(documents) or ()
    assert peer["podSelector"] == only(documents, "Deployment")["spec"]["selector"]
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "tailrace-system"}}
    scraped = ("--set", "metrics.podMonitor.enabled=true")
    assert driver_peers(rendered(*scraped)) == (), "whoever scrapes may come from anywhere"
    prometheus = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    named = rendered(*scraped, "--set-json", f"networkPolicy.from=[{json.dumps(prometheus)}]")
    assert driver_peers(named) == (peer, prometheus)


def driver_peers(documents: list[Json]) -> tuple[Any, ...] | None:
    """As the operator understands its arguments."""
    arguments = pod(documents)["containers"][0]["args"]
    return settings.parse(arguments, {settings.IMAGE_VARIABLE: "spark"}).limits.driver_peers


def console_arguments(arguments: list[str]) -> argparse.Namespace:
    """As the console understands them."""
    return console_parser().parse_args(arguments)


CONSOLE = ("--set", "console.enabled=true")


def of_console(documents: list[Json]) -> list[Json]:
    return [d for d in documents if d["metadata"]["name"] == "tailrace-operator-console"]


def test_the_console_comes_only_if_asked_for_and_may_only_read() -> None:
    assert of_console(rendered()) == []
    documents = of_console(rendered(*CONSOLE))
    assert sorted(d["kind"] for d in documents) == [
        "ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "Service", "ServiceAccount",
    ]  # fmt: skip
    granted = {
        (r, v) for rule in only(documents, "ClusterRole")["rules"] for r in rule["resources"] for v in rule["verbs"]
    }
    kinds = ("replicators", "snapshotrequests", "events")
    assert granted == {(kind, verb) for kind in kinds for verb in ("get", "list", "watch")}
    spec = pod(documents)
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == "tailrace-operator-console" and spec["securityContext"]["runAsNonRoot"] is True
    assert container["image"] == f"tailrace-operator:{__version__}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {container[p]["httpGet"]["path"] for p in ("startupProbe", "livenessProbe", "readinessProbe")} == {HEALTH}
    options = console_arguments(container["args"])
    assert not options.allow_actions
    acting = only(of_console(rendered(*CONSOLE, "--set", "console.allowActions=true")), "Deployment")
    (allowed,) = acting["spec"]["template"]["spec"]["containers"]
    assert console_arguments(allowed["args"]).allow_actions
    assert (options.listen, options.namespace, options.log_level) == ("0.0.0.0:8650", [], "info")
    ports = {container["ports"][0]["containerPort"], only(documents, "Service")["spec"]["ports"][0]["port"]}
    assert ports == {8650}
    selector = only(documents, "Service")["spec"]["selector"]
    operator = only([d for d in rendered() if d["kind"] == "Deployment"], "Deployment")["spec"]["selector"][
        "matchLabels"
    ]
    assert selector.items() <= only(documents, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert not operator.items() <= selector.items(), "the operator's Service does not find it"


def test_nobody_connects_to_the_console_unless_named_and_drivers_let_it_in() -> None:
    documents = rendered(*CONSOLE)
    assert "ingress" not in only(of_console(documents), "NetworkPolicy")["spec"]
    operators = [d for d in documents if d not in of_console(documents)]
    labels = [peer["podSelector"]["matchLabels"] for peer in driver_peers(operators) or ()]
    assert only(of_console(documents), "Deployment")["spec"]["selector"]["matchLabels"] in labels and len(labels) == 2
    ingress = {"podSelector": {"matchLabels": {"app": "ingress"}}}
    named = of_console(rendered(*CONSOLE, "--set-json", f"console.from=[{json.dumps(ingress)}]"))
    (rule,) = only(named, "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [ingress] and rule["ports"] == [{"port": "http", "protocol": "TCP"}]


def test_the_console_of_some_namespaces_reads_nothing_elsewhere() -> None:
    documents = of_console(rendered(*CONSOLE, "--set", "watchNamespaces={shop,sales},console.serviceAccountName=mine"))
    assert of_kind(documents, "ClusterRole") == of_kind(documents, "ClusterRoleBinding") == []
    assert of_kind(documents, "ServiceAccount") == []
    assert sorted(d["metadata"]["namespace"] for d in of_kind(documents, "RoleBinding")) == ["sales", "shop"]
    assert {d["subjects"][0]["name"] for d in of_kind(documents, "RoleBinding")} == {"mine"}
    assert console_arguments(pod(documents)["containers"][0]["args"]).namespace == ["shop", "sales"]
    without = of_console(rendered(*CONSOLE, "--set", "rbac.create=false"))
    assert not {"ClusterRole", "ClusterRoleBinding"} & {d["kind"] for d in without}


def test_the_test_of_the_release_may_ask_whoever_else_may() -> None:
    documents = rendered("--set-json", 'networkPolicy.from=[{"podSelector": {"matchLabels": {"app": "prometheus"}}}]')
    own = next(d for d in of_kind(documents, "NetworkPolicy") if d["metadata"]["name"] == "tailrace-operator")
    (rule,) = own["spec"]["ingress"]
    hook, prometheus = (peer["podSelector"]["matchLabels"] for peer in rule["from"])
    assert hook.items() <= only(documents, "Pod")["metadata"]["labels"].items()
    assert prometheus == {"app": "prometheus"}


def test_notes_say_where_to_go_on() -> None:
    said = helm("install", "tailrace", str(CHART), "--dry-run=client", "-n", "here")
    assert "kubectl get replicators,snapshotrequests -A" in said


def test_the_values_of_the_examples_are_taken(tmp_path: Path) -> None:
    (application,) = [d for d in examples("Application") if "helm" in d["spec"]["source"]]
    (release,) = examples("HelmRelease")
    (tmp_path / "argocd.yaml").write_text(yaml.safe_dump(application["spec"]["source"]["helm"]["valuesObject"]))
    (tmp_path / "flux.yaml").write_text(yaml.safe_dump(release["spec"]["values"]))
    for path in (EXAMPLES / "helm" / "values.yaml", tmp_path / "argocd.yaml", tmp_path / "flux.yaml"):
        container = pod(rendered("-f", str(path)))["containers"][0]
        assert container["image"] == "registry.example.org/tailrace-operator:0.1.0"
