"""The common parts of driver, executor and clean-up pods: security, volumes, scheduling, environment. Pure.

Everything fits the `restricted` Pod Security level; the root file system is read-only.
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from tailrace.contract.pods import Affinity, DriverPod, NodeRequirement, Pod, Volume
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import names
from tailrace_operator.resources.references import mounted_secrets

SECRETS = "/etc/tailrace/secrets"
MANIFESTS = "/etc/tailrace/replicator"
TOKENS = "/etc/tailrace/token"
SPARK_SECRET = f"/etc/tailrace/spark/{names.SPARK_KEY}"
"""The secret of driver and executors; the path is the same, as Spark has one setting for both."""
RUN_DIR = "/var/lib/tailrace"
LAST_WORDS = {"name": "TAILRACE_TERMINATION_MESSAGE", "value": "/dev/termination-log"}
"""The path to which a container writes its report of what it dropped or found."""
_UNITS = {"Mi": 1, "Gi": 1024}
LEAST_OVERHEAD = 384
"""MiB, as Spark's own."""
LEAST_REQUEST = 1536
"""MiB, for all processes of a driver without large batches (docs/decisions/0061)."""


def pod_security(fixed_user: bool) -> dict[str, Any]:
    """`fixed_user`: else the cluster assigns user and group, which must not be named then."""
    user = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), names.USER_ID) if fixed_user else {}
    return {
        "runAsNonRoot": True,
        **user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def mebibytes(size: str) -> int:
    return int(size[:-2]) * _UNITS[size[-2:]]


def overhead(pod: Pod) -> int:
    """MiB beside the JVM."""
    if pod.memory_overhead is not None:
        return mebibytes(pod.memory_overhead)
    return max(mebibytes(pod.memory) * 2 // 5, LEAST_OVERHEAD)


def cpu(pod: Pod) -> str:
    """The share that the container is sure of."""
    return pod.cpu_request or str(pod.cores)


def resources(pod: DriverPod) -> dict[str, Any]:
    """Memory is a bound, of which a part is reserved; CPU a share unless the user asks for a bound: it only makes the
    JVM stutter."""
    most = mebibytes(pod.memory) + overhead(pod)
    asked = max(LEAST_REQUEST, most // 2) if pod.memory_request is None else mebibytes(pod.memory_request)
    bound = {"cpu": pod.cpu_limit} if pod.cpu_limit is not None else {}
    requests = {"cpu": cpu(pod), "memory": f"{min(asked, most)}Mi"}
    return {"requests": requests, "limits": {**bound, "memory": f"{most}Mi"}}


def volumes(spec: ReplicatorSpec, pod: Pod) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts: scratch space, the spec's Secrets, the user's own."""
    found: list[dict[str, Any]] = [scratch("tailrace-run", pod), scratch("tailrace-tmp", pod)]
    mounts: list[dict[str, Any]] = [
        {"name": "tailrace-run", "mountPath": RUN_DIR},
        {"name": "tailrace-tmp", "mountPath": "/tmp"},
    ]
    for number, secret in enumerate(mounted_secrets(spec)):
        volume = f"tailrace-secret-{number}"
        found.append({"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": volume, "mountPath": f"{SECRETS}/{secret}", "readOnly": True})
    for one in pod.volumes:
        found.append({"name": one.name, **_volume_source(one)})
        mounts.append(_mount(one))
    return found, mounts


def scratch(name: str, pod: Pod) -> dict[str, Any]:
    """A volume on the node's disk that cannot fill it: Kubernetes evicts the pod before."""
    return {"name": name, "emptyDir": {"sizeLimit": pod.scratch}}


def spark_secret(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Volume and mount of what driver and executors prove themselves with."""
    volume = {"name": "tailrace-spark", "secret": {"secretName": names.spark(name), "defaultMode": 0o440}}
    return volume, {"name": "tailrace-spark", "mountPath": str(PurePath(SPARK_SECRET).parent), "readOnly": True}


def _volume_source(volume: Volume) -> dict[str, Any]:
    if volume.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.persistent_volume_claim.claim_name}}
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map.name}}
    if volume.secret is not None:
        return {"secret": {"secretName": volume.secret.secret_name}}
    empty = volume.empty_dir
    medium = {"medium": empty.medium} if empty is not None and empty.medium else {}
    limit = {"sizeLimit": empty.size_limit} if empty is not None and empty.size_limit else {}
    return {"emptyDir": {**medium, **limit}}


def _mount(volume: Volume) -> dict[str, Any]:
    sub_path = {"subPath": volume.sub_path} if volume.sub_path else {}
    read_only = {"readOnly": True} if volume.read_only else {}
    return {"name": volume.name, "mountPath": volume.mount_path, **sub_path, **read_only}


def task(
    name: str,
    spec: ReplicatorSpec,
    image: str,
    command: Sequence[str],
    needs: dict[str, Any],
    *,
    fixed_user: bool,
) -> dict[str, Any]:
    """The spec of a pod that runs one command of the data plane, with what the driver has mounted, and ends. `command`:
    what follows `tailrace`; `needs`: its resources. Credentials of the cloud may come by the service account (workload
    identity), rights in the cluster are not needed."""
    mounted, mounts = volumes(spec, spec.driver)
    mounted.append({"name": "tailrace-replicator", "configMap": {"name": names.driver(name)}})
    mounts.append({"name": "tailrace-replicator", "mountPath": MANIFESTS, "readOnly": True})
    own = [
        {"name": "HOME", "value": RUN_DIR},
        {"name": "XDG_STATE_HOME", "value": RUN_DIR},
        {"name": "TAILRACE_SECRETS", "value": SECRETS},
        LAST_WORDS,
    ]
    verb, *options = command
    container = {
        "name": names.CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["tailrace", verb, "-f", f"{MANIFESTS}/{names.MANIFEST_KEY}", *options, "--log-format", "json"],
        "env": environment(spec.driver, own),
        "resources": needs,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",
        "serviceAccountName": spec.service_account_name or names.driver(name),
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "securityContext": pod_security(fixed_user),
        **image_fields(spec),
        **scheduling(spec.driver, name),
        "containers": [container],
        "volumes": mounted,
    }


def environment(pod: Pod, own: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The user's variables first; one that the operator sets itself stays the operator's."""
    taken = {entry["name"] for entry in own}
    theirs = [e.model_dump(by_alias=True, exclude_none=True) for e in pod.env if e.name not in taken]
    return [*theirs, *own]


def scheduling(pod: Pod, replicator: str) -> dict[str, Any]:
    """Fields of a pod's spec that say where it may run."""
    fields: dict[str, Any] = {
        "nodeSelector": dict(pod.node_selector),
        "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in pod.tolerations],
        "affinity": _affinity(pod.affinity, replicator),
        "priorityClassName": pod.priority_class_name,
    }
    return {name: value for name, value in fields.items() if value}


def _affinity(affinity: Affinity, replicator: str) -> dict[str, Any]:
    required = [_requirement(r) for r in affinity.required_nodes]
    preferred = [
        {"weight": 100, "preference": {"matchExpressions": [_requirement(r)]}} for r in affinity.preferred_nodes
    ]
    nodes: dict[str, Any] = {}
    if required:
        terms = [{"matchExpressions": required}]
        nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if preferred:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    found: dict[str, Any] = {"nodeAffinity": nodes} if nodes else {}
    if affinity.spread_over:
        selector = {"matchLabels": {names.REPLICATOR_LABEL: replicator}}
        term = {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": affinity.spread_over}}
        found["podAntiAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    return found


def _requirement(requirement: NodeRequirement) -> dict[str, Any]:
    found: dict[str, Any] = requirement.model_dump(mode="json", by_alias=True)
    if not found["values"]:
        del found["values"]
    return found


def image_fields(spec: ReplicatorSpec) -> dict[str, Any]:
    """The image fields of a pod's spec."""
    return {"imagePullSecrets": [{"name": n} for n in spec.image_pull_secrets]} if spec.image_pull_secrets else {}
