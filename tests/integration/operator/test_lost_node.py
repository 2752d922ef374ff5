"""A node stops responding: Kubernetes' own controllers evict the driver's pod and wait for a kubelet that is gone. The
operator removes the pod, and the StatefulSet's controller makes another. Only nodes are stood in for."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.kube import KubeApi
from support.operator_namespace import OperatorNamespace, install_crds, operator, operator_namespace
from support.operator_process import DriverDouble
from support.resources import replicator, template
from support.waiting import until

TAINT = "node.kubernetes.io/unreachable"
SOON = {"key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
POD = "pod/shop-driver-0"
TIMERS = {"decide.lost_nodes.PATIENCE": 10.0}
"""Instead of a minute."""


@pytest.mark.timeout(600)
def test_a_driver_on_a_lost_node_is_started_on_another(tmp_path: Path) -> None:
    with KubeApi(tmp_path / "own", controllers=True) as kube:
        install_crds(kube)
        for name in ("far", "near"):
            kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        with operator_namespace(kube, "nodes", tmp_path) as place, operator(place, timers=TIMERS) as process:
            place.apply(replicator(driver={"podTemplate": template(tolerations=[SOON])}))
            streams(place, "far", "127.0.10.71").close()
            lost = place.get(POD)["metadata"]["uid"]
            kube.kubectl("taint", "node", "far", f"{TAINT}=:NoExecute")
            until(lambda: evicted(place), "Kubernetes evicts it")
            # Its grace period is a minute: shortened, to wait less.
            place.kubectl("delete", POD, "--grace-period=2", "--wait=false")
            ready = place.until_reason("repl/shop", "NodeLost")
            assert "node far" in ready["message"]
            assert place.get(POD)["metadata"]["uid"] == lost, "it is given time"
            until(
                lambda: (place.get(POD) or {"metadata": {"uid": lost}})["metadata"]["uid"] != lost, "another pod", 180
            )
            streams(place, "near", "127.0.10.72").close()
            events = place.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
            assert "NodeLost" in events
            assert not [line for line in process.lines() if line["level"] == "error"], process.log


def streams(place: OperatorNamespace, node: str, ip: str) -> DriverDouble:
    """The pod that the StatefulSet's controller made runs on this node."""
    until(lambda: place.get(POD), "its pod")
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "shop-driver-0"}, "target": target}
    with place.kube.client() as api:
        core: Any = client.CoreV1Api(api)
        core.create_namespaced_binding(place.namespace, binding, _preload_content=False)
    double = DriverDouble("shop", ip, place.node.token("shop"))
    place.node.run_pod("shop", ip)
    place.until_reason("repl/shop", "Streaming")
    return double


def evicted(place: OperatorNamespace) -> bool:
    document = place.get(POD)
    reasons = {c.get("reason") for c in document["status"]["conditions"]}
    return "deletionTimestamp" in json.dumps(document["metadata"]) and "DeletionByTaintManager" in reasons
