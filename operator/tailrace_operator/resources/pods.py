"""The common parts of driver, executor and clean-up pods: the user's template, security, volumes, environment. Pure.

Everything fits the `restricted` Pod Security level; the root file system is read-only.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tailrace.contract.pod_template import CONTAINER, items
from tailrace.contract.pods import DriverPod, Pod
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import names
from tailrace_operator.resources.defaults import PodDefaults
from tailrace_operator.resources.merge import merged
from tailrace_operator.resources.references import secrets_of_places

SECRETS = "/etc/tailrace/secrets"
MANIFESTS = "/etc/tailrace/replicator"
TOKENS = "/etc/tailrace/token"
SPARK_SECRET = f"/etc/tailrace/spark/{names.SPARK_KEY}"
"""The secret of driver and executors; the path is the same, as Spark has one setting for both."""
RUN_DIR = "/var/lib/tailrace"
LAST_WORDS = {"name": "TAILRACE_TERMINATION_MESSAGE", "value": "/dev/termination-log"}
"""The path to which a container writes its report of what it dropped or found."""
_UNITS = {"Mi": 1, "Gi": 1024}
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
    return pod.beside_jvm >> 20


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


def volumes(pod: Pod, secrets: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts: scratch space and the Secrets."""
    found: list[dict[str, Any]] = [scratch("tailrace-run", pod), scratch("tailrace-tmp", pod)]
    mounts: list[dict[str, Any]] = [
        {"name": "tailrace-run", "mountPath": RUN_DIR},
        {"name": "tailrace-tmp", "mountPath": "/tmp"},
    ]
    for number, secret in enumerate(secrets):
        volume = f"tailrace-secret-{number}"
        found.append({"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": volume, "mountPath": f"{SECRETS}/{secret}", "readOnly": True})
    return found, mounts


def scratch(name: str, pod: Pod) -> dict[str, Any]:
    """A volume on the node's disk that cannot fill it: Kubernetes evicts the pod before."""
    return {"name": name, "emptyDir": {"sizeLimit": pod.scratch}}


def spark_secret(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Volume and mount of what driver and executors prove themselves with."""
    volume = {"name": "tailrace-spark", "secret": {"secretName": names.spark(name), "defaultMode": 0o440}}
    return volume, {"name": "tailrace-spark", "mountPath": str(PurePath(SPARK_SECRET).parent), "readOnly": True}


def users(pod: Pod, defaults: PodDefaults) -> dict[str, Any]:
    """The template of the Replicator's user over the installation's."""
    under, over = (
        t.model_dump(by_alias=True, exclude_defaults=True) for t in (defaults.pod_template, pod.pod_template)
    )
    found: dict[str, Any] = merged(under, over)
    return found


def template(
    name: str, component: str, users: Mapping[str, Any], own: Mapping[str, Any], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """The template of a pod. `users`: its users' part; `own`: the operator's pod spec, which counts where both say
    something."""
    metadata = {"labels": names.labels(name, component), "annotations": annotations}
    found: dict[str, Any] = merged(users, {"metadata": metadata, "spec": own})
    for container in (*items(found["spec"], "containers"), *items(found["spec"], "initContainers")):
        container["securityContext"] = container_security()
    return found


def task(
    name: str,
    component: str,
    spec: ReplicatorSpec,
    image: str,
    *,
    command: Sequence[str],
    needs: dict[str, Any],
    defaults: PodDefaults,
) -> dict[str, Any]:
    """The template of a pod that runs one command of the data plane, with the Secrets of its places, and ends. It has
    none of the user's containers beside it: they would not end. `command`: what follows `tailrace`; `needs`: its
    resources. Credentials of the cloud may come by the service account (workload identity), rights in the cluster are
    not needed."""
    mounted, mounts = volumes(spec.driver, secrets_of_places(spec))
    mounted.append({"name": "tailrace-replicator", "configMap": {"name": names.driver(name)}})
    mounts.append({"name": "tailrace-replicator", "mountPath": MANIFESTS, "readOnly": True})
    verb, *options = command
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["tailrace", verb, "-f", f"{MANIFESTS}/{names.MANIFEST_KEY}", *options, "--log-format", "json"],
        "env": [
            {"name": "HOME", "value": RUN_DIR},
            {"name": "XDG_STATE_HOME", "value": RUN_DIR},
            {"name": "TAILRACE_SECRETS", "value": SECRETS},
            LAST_WORDS,
        ],
        "resources": needs,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    own = {
        "restartPolicy": "Never",
        "serviceAccountName": spec.service_account_name or names.driver(name),
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "securityContext": pod_security(defaults.fixed_user),
        **image_fields(spec),
        "containers": [container],
        "volumes": mounted,
    }
    found = template(name, component, users(spec.driver, defaults), own, {})
    found["spec"]["containers"] = found["spec"]["containers"][:1]
    return found


def image_fields(spec: ReplicatorSpec) -> dict[str, Any]:
    """The image fields of a pod's spec."""
    return {"imagePullSecrets": [{"name": n} for n in spec.image_pull_secrets]} if spec.image_pull_secrets else {}
