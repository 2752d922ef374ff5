"""`kubectl tailrace` with a real API server and a real operator; the driver's HTTP side is the data plane's server."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import places
from support.kube import KubeApi
from support.kubectl_plugin import Plugin
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import DriverDouble
from support.resources import replicator, request
from support.waiting import until
from tailrace.cli.kubectl.applied import Unasked, as_stored
from tailrace.cli.kubectl.cluster import Cluster
from tailrace.contract import manifest
from tailrace.contract.defaults import for_comparing
from tailrace.contract.driver import LastWords
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.status import Fault, TableStatus


@pytest.fixture(scope="module", autouse=True)
def crds(kube_api: KubeApi) -> None:
    install_crds(kube_api)


@pytest.fixture
def place(kube_api: KubeApi, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OperatorNamespace]:
    name = re.sub("[^a-z0-9]+", "-", f"{request.node.name[5:25]}-{request.node.name[-6:]}").strip("-")
    with operator_namespace(kube_api, f"plugin-{name}", tmp_path) as made:
        yield made


@pytest.fixture
def plugin(place: OperatorNamespace, tmp_path: Path) -> Plugin:
    return Plugin.installed(tmp_path / "bin", place.kube.kubeconfig, place.namespace)


@pytest.fixture
def driver(place: OperatorNamespace) -> Iterator[DriverDouble]:
    """Of a Replicator that streams, with an operator that runs."""
    with operator(place):
        place.apply(replicator())
        made = place.driver("shop", "127.0.12.1")
        made.change(generation=place.get("repl/shop")["metadata"]["generation"])
        place.until_reason("repl/shop", "Streaming")
        yield made
        made.close()


def uid(place: OperatorNamespace, name: str) -> str:
    found = until(lambda: place.get(f"snapreq/{name}"), f"snapreq/{name}")
    return str(found["metadata"]["uid"])


def test_the_status_tells_of_snapshots_lag_and_conditions(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    place.apply(request("again"), request("other", replicator="later"))
    until(lambda: uid(place, "again") in driver.snapshots, "the driver has it")
    driver.let(uid(place, "again"), rows_done=30, rows_per_second=10.0, seconds_left=7.0)
    until(lambda: place.get("snapreq/again")["status"].get("progress") == "30%", "its progress shows", 60)
    lines = plugin("status", "shop").splitlines()
    assert lines[0] == "shop  Running"
    bar = "snapshot again  [#######-----------------] 30%  30 of about 100 rows, 10/s"
    assert any(line.startswith(bar) for line in lines), lines
    assert any(line.split()[:3] == ["Ready", "True", "Streaming"] for line in lines)
    assert not any(line.startswith("snapshot other") for line in lines)
    told = json.loads(plugin("status", "shop", "--json"))
    assert [r["metadata"]["name"] for r in told["replicators"]] == ["shop"]
    assert [r["metadata"]["name"] for r in told["snapshotRequests"]] == ["again"]
    assert plugin("status").splitlines()[1].split()[:3] == ["shop", "Running", "True"]
    assert place.namespace in plugin("status", "-A")


@pytest.mark.timeout(180)
def test_a_watch_shows_each_change_until_it_is_interrupted(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    with plugin.start("status", "shop", "--watch") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "shop  Running\n"
        place.kubectl("patch", "repl", "shop", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        while (line := process.stdout.readline()) != "shop  Suspended\n":
            assert line, "it ended"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_names_and_values_that_are_wrong_are_named(place: OperatorNamespace, plugin: Plugin) -> None:
    place.apply(replicator("first"), replicator("second"))
    assert (
        "InvalidManifest: there is no Replicator 'shop' (found: first, second). Fix: Correct the name, or choose -n."
        in plugin("status", "shop", code=2)
    )
    assert "--tables is 'orders': write schema.table" in plugin("snapshot", "first", "--tables", "orders", code=2)
    said = plugin("snapshot", "first", "--tables", "a.b", "--wait", "--timeout", "soon", code=2)
    assert "--timeout: 'soon' is not a duration" in said
    said = plugin("status", "--context", "nowhere", code=1)
    assert 'context "nowhere" does not exist' in said and "Fix: Correct --context" in said
    assert "no driver of first runs" in plugin("doctor", "first", code=1)
    assert "no driver of first runs" in plugin("diff", "first", "-f", os.devnull, code=1)
    assert "cannot read nothing.yaml: No such file" in plugin("diff", "first", "-f", "nothing.yaml", code=2)
    assert "the position of first is not lost: it is Pending" in plugin("recover", "first", code=2)
    assert "there is no SnapshotRequest 'x' (found: none)" in plugin("pause", "snapshot", "x", code=2)


def test_a_snapshot_is_waited_for_and_the_same_id_is_the_same_request(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    same = ("snapshot", "shop", "--tables", "public.orders", "--id", "again")
    with plugin.start(*same, "--wait") as waiting:
        until(lambda: uid(place, "again") in driver.snapshots, "the driver has it")
        assert "SnapshotRequest again created" in plugin(*same)
        said = plugin("snapshot", "shop", "--tables", "public.customers", "--id", "again", code=1)
        assert "already exists" in said and "Choose another --id." in said
        driver.let(uid(place, "again"), state="Completed", rows_done=100, tables_done=1)
        assert waiting.wait(60) == 0
    said = plugin("pause", "snapshot", "again", code=2)
    assert "snapshot again has ended: Completed" in said
    said = plugin("snapshot", "shop", "--tables", "public.nothing", "--wait", "--timeout", "2m", code=1)
    assert "Correct tables." in said and "has ended: Failed" in said
    body = '{"spec":{"suspend":true}}'
    place.kubectl("patch", "repl", "shop", "--type=merge", "-p", body)
    said = plugin("snapshot", "shop", "--tables", "public.late", "--wait", "--timeout", "1s", code=1)
    assert "has not ended within 1 s" in said


def test_what_is_paused_continues_when_it_is_resumed(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    place.apply(request("again"))
    until(lambda: uid(place, "again") in driver.snapshots, "the driver has it")
    ident = uid(place, "again")
    plugin("pause", "snapshot", "again")
    until(lambda: driver.snapshots[ident].state == "Paused", "it pauses")
    plugin("resume", "snapshot", "again")
    until(lambda: driver.snapshots[ident].state == "Running", "it continues")
    plugin("pause", "reconciliation", "shop")
    until(lambda: place.condition("repl/shop", "ReconciliationPaused"), "the operator keeps its hands off")
    plugin("resume", "reconciliation", "shop")
    until(lambda: not place.condition("repl/shop", "ReconciliationPaused"), "it is back")
    plugin("pause", "apply", "shop")
    until(lambda: driver.specs and driver.specs[-1].spec.apply.suspend, "the driver is told")
    plugin("resume", "apply", "shop")
    until(lambda: not driver.specs[-1].spec.apply.suspend, "the driver is told")
    assert "its disk may fill" in plugin("pause", "replicator", "shop")
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "the driver is stopped")
    plugin("resume", "replicator", "shop")
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "the driver is started")


def test_of_a_suspended_replicator_it_says_what_helps(place: OperatorNamespace, plugin: Plugin) -> None:
    with operator(place):
        place.apply(replicator(suspend=True))
        place.until_reason("repl/shop", "Suspended")
        for verb in ("logs", "doctor"):
            said = plugin(verb, "shop", code=1)
            assert "no driver of shop runs: " in said and "kubectl tailrace resume replicator shop" in said
        assert plugin("tables", "shop") == "no table is known to fail\n"
        said = plugin("snapshot", "shop", "--tables", "public.late")
        assert "shop is suspended: the snapshot begins once it is resumed" in said
        plugin("resume", "replicator", "shop")
        until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "the driver is started")


def test_tables_that_fail_are_listed_with_their_fault(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    fault = Fault(name="NoKey", message="public.a has no primary key", fix="Add one.", where="source")
    table = TableStatus(name="public.a", state="STOPPED", fault=fault)
    driver.change(tables=(table,), tables_total=2, tables_replicating=1, tables_failing=1)
    until(lambda: (place.get("repl/shop")["status"].get("tables") or {}).get("worst"), "it is reported")
    said = plugin("tables", "shop")
    assert "public.a   STOPPED   ?        NoKey: public.a has no primary key. Fix: Add one." in said
    assert "and 1 more; `kubectl tailrace tables shop --all` lists them" in said
    assert json.loads(plugin("tables", "shop", "--json"))[0]["fault"]["name"] == "NoKey"


def test_a_driver_is_restarted_by_the_next_number_each_time(place: OperatorNamespace, plugin: Plugin) -> None:
    place.apply(replicator())
    assert "spec.restartNonce is now 1" in plugin("restart", "shop")
    assert "spec.restartNonce is now 2" in plugin("restart", "shop")
    assert place.get("repl/shop")["spec"]["restartNonce"] == 2
    assert "is suspended" not in plugin("restart", "shop")
    plugin("pause", "replicator", "shop")
    assert "It is suspended; `kubectl tailrace resume replicator shop` starts it." in plugin("restart", "shop")


def test_a_lost_position_is_recovered_by_a_new_number_each_time(
    place: OperatorNamespace, plugin: Plugin, driver: DriverDouble
) -> None:
    assert "the position of shop is not lost: it is Running" in plugin("recover", "shop", code=2)
    driver.close()
    lose_position(place)
    assert "spec.recover.nonce is now 1" in plugin("recover", "shop")
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "it is started", 60)
    assert place.get("repl/shop")["spec"]["recover"] == {"mode": "Resnapshot", "nonce": 1}

    place.node.make_pod("shop")
    lose_position(place)
    used = "The number in spec.recover has been used: set another."
    assert used in place.until_reason("repl/shop", "PositionLost")["message"]
    assert "spec.recover.nonce is now 2" in plugin("recover", "shop")
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 1, "it is started again", 60)
    repl = place.get("repl/shop")
    assert repl["status"]["recoveryUid"] == f"recover-2-{repl['metadata']['uid']}"


def lose_position(place: OperatorNamespace) -> None:
    """Its driver ends with these words, is stopped, and its pod goes."""
    fault = Fault(name="PositionLost", message="the slot is gone", fix="Create a SnapshotRequest.", where="source")
    place.node.end_pod("shop", 12, LastWords(fault=fault).to_message())
    until(lambda: place.get("statefulset/shop-driver")["spec"]["replicas"] == 0, "it is stopped")
    place.until_reason("repl/shop", "PositionLost")
    place.node.delete_pod("shop")


def test_it_has_the_rights_of_its_user_and_names_those_that_are_missing(
    place: OperatorNamespace, plugin: Plugin
) -> None:
    place.apply(replicator())
    place.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": ["tailrace.dev"], "resources": ["*"], "verbs": ["get", "list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": place.namespace}],
        },
    )
    plugin.kubeconfig = _as_reader(place)
    until(lambda: "shop" in plugin("status"), "the right is there")
    said = plugin("pause", "apply", "shop", code=1)
    assert "(Forbidden)" in said and "Fix: Ask for the cluster's role `view` in that namespace" in said


def _as_reader(place: OperatorNamespace) -> Path:
    found: dict[str, Any] = yaml.safe_load(place.kube.kubeconfig.read_text())
    token = place.kubectl("create", "token", "reader").strip()
    found["users"] = [{"name": user["name"], "user": {"token": token}} for user in found["users"]]
    path = place.folder / "reader.conf"
    path.write_text(yaml.safe_dump(found))
    return path


def test_without_kubectl_it_says_so(plugin: Plugin) -> None:
    command = [sys.executable, str(plugin.folder / "kubectl-tailrace"), "status"]
    environment = plugin.environment() | {"PATH": "/nowhere"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the program kubectl is missing. Fix: Install kubectl" in done.stderr


@pytest.mark.parametrize("way", [(), ("--server-side", "--field-manager=flux")])
def test_what_a_changed_manifest_would_be_is_what_applying_it_stores(
    place: OperatorNamespace, monkeypatch: pytest.MonkeyPatch, way: tuple[str, ...]
) -> None:
    """Fields that somebody patched stay, those that the file had and has no longer go, and defaults are none of it."""
    monkeypatch.setenv("KUBECONFIG", str(place.kube.kubeconfig))
    monkeypatch.setenv("PATH", f"{places.program('kubectl').parent}:{os.environ['PATH']}")
    cluster = Cluster(place.namespace, None)

    def apply(document: Any, *more: str) -> None:
        place.kube.kubectl("-n", place.namespace, "apply", *way, *more, "-f", "-", stdin=json.dumps(document))

    apply(replicator(retry={"time": "1h", "halted": "5m"}, onSchemaChange="Stop"))
    patch = {"spec": {"apply": {"suspend": True}, "snapshot": {"parallelism": 5}}}
    place.kubectl("patch", "repl", "shop", "--type=merge", "-p", json.dumps(patch))
    before = place.get("repl/shop")
    changed = replicator(retry={"time": "2h"}, sparkConf=[{"name": "spark.x", "value": "1"}])
    content = yaml.safe_dump_all([{"kind": "Secret", "metadata": {"name": "shop"}}, changed]).encode()
    told = manifest.parse(as_stored(cluster, "shop", content).decode(), "file").replicator().spec
    assert place.get("repl/shop")["metadata"]["generation"] == before["metadata"]["generation"], "nothing is stored"
    assert (told.apply.suspend, told.snapshot.parallelism, told.retry.time) == (True, 5, "2h")
    assert (told.retry.halted, told.on_schema_change) != ("5m", "Stop")
    came = json.dumps({**place.get("repl/shop"), "spec": changed["spec"]}).encode()
    assert manifest.parse(as_stored(cluster, "shop", came).decode(), "file").replicator().spec == told
    apply(changed, *(["--force-conflicts"] if way else []))
    stored = ReplicatorSpec.model_validate(place.get("repl/shop")["spec"])
    assert for_comparing(stored) == for_comparing(told)


def test_what_the_api_server_does_not_take_is_compared_as_the_file_is(
    place: OperatorNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(place.kube.kubeconfig))
    monkeypatch.setenv("PATH", f"{places.program('kubectl').parent}:{os.environ['PATH']}")
    cluster = Cluster(place.namespace, None)
    place.apply(replicator())
    moved = replicator(storage={"location": "s3://lake/elsewhere"})
    with pytest.raises(Unasked, match=r"storage\.location is immutable"):
        as_stored(cluster, "shop", json.dumps(moved).encode())
    other = replicator()
    other["metadata"]["namespace"] = "elsewhere"
    with pytest.raises(Unasked, match="of namespace elsewhere, not "):
        as_stored(cluster, "shop", json.dumps(other).encode())
