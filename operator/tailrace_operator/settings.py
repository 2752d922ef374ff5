"""The operator's command line and environment, as one frozen value."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tailrace.errors import InvalidManifest
from tailrace_operator.decide.model import Limits
from tailrace_operator.resources.defaults import PodDefaults
from tailrace_operator.resources.names import MANAGER

WRITES_PER_SECOND = 20.0
IMAGE_VARIABLE = "TAILRACE_SPARK_IMAGE"


@dataclass(frozen=True)
class OperatorSettings:
    namespaces: tuple[str | None, ...]
    """Watched; `(None,)`: all."""
    host: str
    port: int
    kubeconfig: str | None
    """None: the pod's service account."""
    lease: str
    lease_namespace: str
    identity: str
    log_level: str
    limits: Limits
    status_writes: float
    """Status writes per second for progress and lag, over all objects."""


def parse(arguments: Sequence[str] | None, environment: Mapping[str, str]) -> OperatorSettings:
    options = parser().parse_args(arguments)
    host, _, port = options.listen.rpartition(":")
    if not port.isdigit():
        raise InvalidManifest(f"--listen {options.listen} is not HOST:PORT", "Write 0.0.0.0:8080.")
    image = environment.get(IMAGE_VARIABLE, "")
    if not image:
        raise InvalidManifest(f"{IMAGE_VARIABLE} is not set", "Name the image of drivers and executors in it.")
    in_cluster = "KUBERNETES_SERVICE_HOST" in environment and "KUBECONFIG" not in environment
    return OperatorSettings(
        # Each once: two watches of one namespace would do all the work twice, and kopf's would look lost.
        namespaces=tuple(dict.fromkeys(options.namespace)) or (None,),
        host=host or "0.0.0.0",
        port=int(port),
        kubeconfig=None if in_cluster else environment.get("KUBECONFIG", "~/.kube/config"),
        lease=options.lease,
        lease_namespace=environment.get("POD_NAMESPACE", "default"),
        identity=environment.get("POD_NAME", "tailrace-operator"),
        log_level=options.log_level,
        limits=Limits(
            image=image,
            pods=_pods(options.pod_defaults),
            driver_peers=_peers(options.driver_peers),
            lag_seconds=options.lag_objective,
            retained_bytes=options.retained_limit << 30,
            rollout=options.rollout_limit,
            restart_limit=options.restart_limit,
            cleanup_seconds=options.cleanup_timeout,
        ),
        status_writes=options.status_writes,
    )


def _pods(text: str) -> PodDefaults:
    try:
        return PodDefaults.model_validate_json(text)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise InvalidManifest(f"--pod-defaults: {faults}", "Correct podDefaults among the chart's values.") from error


def _peers(text: str | None) -> tuple[Mapping[str, Any], ...] | None:
    if text is None:
        return None
    wrong = InvalidManifest(f"--driver-peers {text} is no list of peers", 'Write JSON, such as [{"podSelector": {}}].')
    try:
        found = json.loads(text)
    except ValueError as error:
        raise wrong from error
    if not isinstance(found, list) or not all(isinstance(peer, dict) for peer in found):
        raise wrong
    return tuple(found)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tailrace-operator", description="Runs Replicators and SnapshotRequests on Kubernetes."
    )
    top.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="watch this namespace; repeatable (default: all)",
    )
    top.add_argument(
        "--listen",
        default="0.0.0.0:8080",
        metavar="HOST:PORT",
        help="/healthz, /readyz and /metrics (default: 0.0.0.0:8080)",
    )
    top.add_argument(
        "--lease",
        default=MANAGER,
        metavar="NAME",
        help=f"only one of the operators that share this lease (in the pod's namespace) is active (default: {MANAGER})",
    )
    top.add_argument(
        "--pod-defaults",
        default="{}",
        metavar="JSON",
        help="defaults for the pods of all Replicators: fixedUser, and podTemplate under each Replicator's own"
        " (default: {})",
    )
    top.add_argument(
        "--driver-peers",
        metavar="JSON",
        help="give drivers and executors NetworkPolicies; a list of peers as in NetworkPolicy rules: who may connect to"
        " drivers over HTTP; []: anyone (default: no NetworkPolicies)",
    )
    top.add_argument(
        "--lag-objective",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="lag above which Lagging is set (default: 300)",
    )
    top.add_argument(
        "--retained-limit",
        type=int,
        default=10,
        metavar="GIB",
        help="source log kept above which SourceLogAtRisk is set (default: 10)",
    )
    top.add_argument(
        "--rollout-limit",
        type=int,
        default=5,
        metavar="N",
        help="a new default image restarts at most N drivers at a time (default: 5)",
    )
    top.add_argument(
        "--restart-limit",
        type=int,
        default=5,
        metavar="N",
        help="a driver that keeps failing for retry.time is stopped after more than N failures (default: 5)",
    )
    top.add_argument(
        "--cleanup-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="maximum time that a deletion waits for source and storage (default: 600)",
    )
    top.add_argument(
        "--status-writes",
        type=_positive,
        default=WRITES_PER_SECOND,
        metavar="N",
        help="budget of status writes per second for progress and lag, over all resources (default: 20)",
    )
    top.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return top
