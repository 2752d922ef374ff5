"""Whom the policies of `manifests/install.yaml` let in, judged on the labels of the pods that the operator makes.

The network of the tests' cluster enforces no policy: what is tested is which pods a network that does would protect.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.observed import SPEC
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import driver, drop, names, settings

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests" / "install.yaml"
DOCUMENTS: list[dict[str, Any]] = [d for d in yaml.safe_load_all(MANIFESTS.read_text()) if d]
SPACE = "tailrace-system"
HTTP, RPC, BLOCKS, ANY = names.HTTP_PORT, names.RPC_PORT, names.BLOCK_PORT, 41234
"""ANY: an executor's blocks."""
Labels = Mapping[str, str]


def matches(selector: dict[str, Any] | None, labels: Labels) -> bool:
    """A label selector; None: there is none, and it selects everything."""
    chosen = selector or {}
    assert set(chosen) <= {"matchLabels", "matchExpressions"}
    assert all(rule["operator"] == "Exists" for rule in chosen.get("matchExpressions", ()))
    exist = all(rule["key"] in labels for rule in chosen.get("matchExpressions", ()))
    return exist and chosen.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer: dict[str, Any], space: str, labels: Labels) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}
    spaces = peer.get("namespaceSelector")
    near = space == SPACE if spaces is None else matches(spaces, {"kubernetes.io/metadata.name": space})
    return near and matches(peer.get("podSelector"), labels)


def lets_in(space: str, labels: Labels, to: Labels, port: int) -> bool:
    """Whether somebody with `labels` in `space` reaches a pod with labels `to` in the policies' namespace."""
    policies = [d["spec"] for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
    over = [p for p in policies if "Ingress" in p["policyTypes"] and matches(p["podSelector"], to)]
    rules = [rule for policy in over for rule in policy["ingress"]]
    return not over or any(
        ("ports" not in rule or any(p["port"] == port for p in rule["ports"]))
        and ("from" not in rule or any(is_peer(peer, space, labels) for peer in rule["from"]))
        for rule in rules
    )


def own_pods() -> dict[str, Labels]:
    theirs = {"labels": {"app": "shop-db", "team": "data"}}
    spec = ReplicatorSpec.model_validate({**SPEC, "driver": theirs, "executors": theirs})
    template = driver.stateful_set("shop", spec, "image", "hash", 1)["spec"]["template"]
    return {
        "driver": template["metadata"]["labels"],
        "executor": settings.executor_template("shop", spec)["metadata"]["labels"],
        "drop": drop.job("shop", spec, "image", seconds=9)["spec"]["template"]["metadata"]["labels"],
    }


def operators() -> Labels:
    (deployment,) = (d for d in DOCUMENTS if d["kind"] == "Deployment")
    labels: Labels = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


STRANGERS: dict[str, tuple[str, Labels]] = {
    "in the namespace": (SPACE, {"app": "shop-db"}),
    "in another one": ("elsewhere", {"app": "shop-db"}),
    "with our labels in another one": ("elsewhere", own_pods()["executor"]),
    "with the operator's labels in another one": ("elsewhere", operators()),
}


@pytest.mark.parametrize("kind", ["driver", "executor", "drop"])
@pytest.mark.parametrize("port", [RPC, BLOCKS, HTTP, ANY])
def test_no_stranger_is_let_in(kind: str, port: int) -> None:
    """Whatever labels the user gives to driver and executors."""
    let_in = [who for who, (space, labels) in STRANGERS.items() if lets_in(space, labels, own_pods()[kind], port)]
    assert let_in == []


def test_those_who_work_together_are() -> None:
    pods = own_pods()
    for port in (RPC, BLOCKS):
        assert lets_in(SPACE, pods["executor"], pods["driver"], port)
    assert lets_in(SPACE, pods["driver"], pods["executor"], ANY)
    assert lets_in(SPACE, pods["executor"], pods["executor"], ANY), "shuffled blocks"
    assert lets_in(SPACE, operators(), pods["driver"], HTTP)
    assert not lets_in(SPACE, operators(), pods["driver"], RPC), "it asks over HTTP only"
