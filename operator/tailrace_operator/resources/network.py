"""The NetworkPolicies of a Replicator's pods. Pure.

Who may connect to them; what they connect to is not limited: sources and storage may be anywhere. Two policies, as
drivers and executors admit different peers: the driver its executors and, over HTTP, the installation's peers; the
executors the driver and each other, on any port, as Spark lets them choose theirs. The clean-up's pod, which nothing
has to reach, is covered by the executors' policy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace_operator.resources import names


def policies(name: str, peers: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`peers`: who may ask the driver over HTTP, as in a NetworkPolicy's rule; empty: anyone."""
    executors = {"podSelector": {"matchLabels": names.selector(name, "executor")}}
    driver = {"podSelector": {"matchLabels": names.selector(name, "driver")}}
    http = {"ports": _ports(names.HTTP_PORT), **({"from": [dict(peer) for peer in peers]} if peers else {})}
    to_driver = [{"from": [executors], "ports": _ports(names.RPC_PORT, names.BLOCK_PORT)}, http]
    others = {
        "matchLabels": {names.REPLICATOR_LABEL: name},
        "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "NotIn", "values": ["driver"]}],
    }
    return (
        _policy(name, names.driver(name), "driver", {"matchLabels": names.selector(name, "driver")}, to_driver),
        _policy(name, names.executors(name), "executor", others, [{"from": [driver, executors]}]),
    )


def _policy(
    name: str, own: str, component: str, selector: dict[str, Any], ingress: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": own, "labels": names.labels(name, component)},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]
