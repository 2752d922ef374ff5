"""Whom the policies of an installation by `manifests/install.yaml` let in, judged on the labels of the pods that the
operator makes.

The network of the tests' cluster enforces no policy: what is tested is which pods a network that does would protect.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.observed import SPEC
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import driver, drop, names, network, settings

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests" / "install.yaml"
DOCUMENTS: list[dict[str, Any]] = [d for d in yaml.safe_load_all(MANIFESTS.read_text()) if d]
HOME, SPACE = "tailrace-system", "shop"
"""The operator's namespace, and the Replicator's."""
HTTP, RPC, BLOCKS, ANY = names.HTTP_PORT, names.RPC_PORT, names.BLOCK_PORT, 41234
"""ANY: an executor's blocks."""
Labels = Mapping[str, str]


def matches(selector: dict[str, Any] | None, labels: Labels) -> bool:
    """A label selector; None: there is none, and it selects everything."""
    chosen = selector or {}
    assert set(chosen) <= {"matchLabels", "matchExpressions"}
    rules = chosen.get("matchExpressions", ())
    assert all(rule["operator"] == "NotIn" for rule in rules)
    others = all(labels.get(rule["key"]) not in rule["values"] for rule in rules)
    return others and chosen.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer: dict[str, Any], space: str, labels: Labels) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}
    spaces = peer.get("namespaceSelector")
    near = space == SPACE if spaces is None else matches(spaces, {"kubernetes.io/metadata.name": space})
    return near and matches(peer.get("podSelector"), labels)


def deployment() -> dict[str, Any]:
    (found,) = (d for d in DOCUMENTS if d["kind"] == "Deployment")
    template: dict[str, Any] = found["spec"]["template"]
    return template


def peers() -> list[dict[str, Any]]:
    """As the operator is told on its command line."""
    lead = "--driver-peers="
    arguments = deployment()["spec"]["containers"][0]["args"]
    (given,) = (argument.removeprefix(lead) for argument in arguments if argument.startswith(lead))
    found: list[dict[str, Any]] = json.loads(given)
    return found


def lets_in(space: str, labels: Labels, to: Labels, port: int) -> bool:
    """Whether somebody with `labels` in `space` reaches a pod with labels `to` in the policies' namespace."""
    policies = [policy["spec"] for policy in network.policies("shop", peers())]
    over = [p for p in policies if "Ingress" in p["policyTypes"] and matches(p["podSelector"], to)]
    rules = [rule for policy in over for rule in policy["ingress"]]
    return not over or any(
        ("ports" not in rule or any(p["port"] == port for p in rule["ports"]))
        and ("from" not in rule or any(is_peer(peer, space, labels) for peer in rule["from"]))
        for rule in rules
    )


def own_pods(name: str = "shop") -> dict[str, Labels]:
    theirs = {"podTemplate": {"metadata": {"labels": {"app": "shop-db", "team": "data"}}}}
    spec = ReplicatorSpec.model_validate({**SPEC, "driver": theirs, "executors": theirs})
    template = driver.stateful_set(name, spec, "image", "hash", 1)["spec"]["template"]
    return {
        "driver": template["metadata"]["labels"],
        "executor": settings.executor_template(name, spec)["metadata"]["labels"],
        "drop": drop.job(name, spec, "image", seconds=9)["spec"]["template"]["metadata"]["labels"],
    }


def operators() -> Labels:
    labels: Labels = deployment()["metadata"]["labels"]
    return labels


STRANGERS: dict[str, tuple[str, Labels]] = {
    "in the namespace": (SPACE, {"app": "shop-db"}),
    "in another one": ("elsewhere", {"app": "shop-db"}),
    "with our labels in another one": ("elsewhere", own_pods()["executor"]),
    "with the operator's labels in another one": ("elsewhere", operators()),
    "with the operator's labels in the namespace": (SPACE, operators()),
    "an executor of another Replicator": (SPACE, own_pods("other")["executor"]),
    "a driver of another Replicator": (SPACE, own_pods("other")["driver"]),
    "the Replicator's own clean-up": (SPACE, own_pods()["drop"]),
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
    assert lets_in(HOME, operators(), pods["driver"], HTTP)
    assert not lets_in(HOME, operators(), pods["driver"], RPC), "it asks over HTTP only"
    assert not lets_in(HOME, operators(), pods["executor"], HTTP), "nor does it ask executors"
    assert not lets_in(SPACE, pods["executor"], pods["driver"], HTTP), "its commands are none of theirs"
