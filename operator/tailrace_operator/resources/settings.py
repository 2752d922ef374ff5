"""The input of a driver: the ConfigMap with its manifest and the executors' pod template, and its Secrets. Pure.

The manifest in the ConfigMap is also the operator's own memory of the last valid spec.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.contract.defaults import for_reading
from tailrace.contract.pod_template import CONTAINER, items
from tailrace.contract.resources import API_VERSION, ReplicatorSpec, SnapshotRequestSpec
from tailrace_operator.resources import names, pods, references
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

Owners = Sequence[tuple[str, str]]
"""The labels of a Replicator that name owners, with their values."""
SPARK_DIRS = "spark-local-dir-"
"""The prefix by which Spark recognises volumes for shuffles and spills. If a template has none, it adds one without a
limit."""
SPARK_DIR = "/var/lib/spark"


def for_driver(spec: ReplicatorSpec) -> ReplicatorSpec:
    """`suspend` is the operator's: a driver that runs is not suspended; so are `onTableFailure` and `recover`, which a
    driver of an older image would refuse."""
    return spec.model_copy(update={"suspend": False, "on_table_failure": "Degrade", "recover": None})


def manifest(name: str, namespace: str, uid: str, spec: ReplicatorSpec, *, generation: int, owners: Owners = ()) -> str:
    """JSON is YAML. The uid distinguishes this object from every namesake: it is in the name of what is made in the
    source, and in the change log as its owner."""
    head = {"name": name, "namespace": namespace, "uid": uid, "generation": generation}
    document = {
        "apiVersion": API_VERSION,
        "kind": "Replicator",
        "metadata": head | ({"labels": dict(owners)} if owners else {}),
        "spec": for_reading(for_driver(spec)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def spec_of(data: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The spec out of the ConfigMap's data; None: it is not ours, or damaged."""
    try:
        spec = json.loads((data or {})[names.MANIFEST_KEY])["spec"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return spec if isinstance(spec, dict) else None


def config_map(
    name: str,
    namespace: str,
    uid: str,
    spec: ReplicatorSpec,
    *,
    generation: int,
    owners: Owners = (),
    resync: str | None = None,
    defaults: PodDefaults = NO_DEFAULTS,
) -> dict[str, Any]:
    """`owners`: labels that the driver reads at its start. `resync`: the request that the driver's next start carries
    out, if it has not yet. It is no part of the pod's template: that it comes and goes restarts nothing."""
    asked = {} if resync is None else {names.RESYNC_KEY: resync}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.driver(name), "labels": names.labels(name, "driver")},
        "data": {
            names.MANIFEST_KEY: manifest(name, namespace, uid, spec, generation=generation, owners=owners),
            names.EXECUTOR_KEY: json.dumps(executor_template(name, spec, defaults), indent=1) + "\n",
            **asked,
        },
    }


def request(name: str, namespace: str, uid: str, spec: SnapshotRequestSpec) -> str:
    document = {
        "apiVersion": API_VERSION,
        "kind": "SnapshotRequest",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": for_reading(spec),
    }
    return json.dumps(document, indent=1) + "\n"


def executor_template(name: str, spec: ReplicatorSpec, defaults: PodDefaults = NO_DEFAULTS) -> dict[str, Any]:
    """Spark fills in image, resources, commands and its own labels."""
    users = pods.users(spec.executors, defaults)
    volumes, mounts = pods.volumes(spec.executors, references.secrets_of_places(spec))
    spark_volume, spark_mount = pods.spark_secret(name)
    if not any(str(one.get("name")).startswith(SPARK_DIRS) for one in items(users.get("spec", {}), "volumes")):
        volumes.append(pods.scratch(f"{SPARK_DIRS}1", spec.executors))
        mounts.append({"name": f"{SPARK_DIRS}1", "mountPath": SPARK_DIR})
    container = {
        "name": CONTAINER,
        "env": [{"name": "HOME", "value": pods.RUN_DIR}, {"name": "TAILRACE_SECRETS", "value": pods.SECRETS}],
        "volumeMounts": [*mounts, spark_mount],
    }
    own = {
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "securityContext": pods.pod_security(defaults.fixed_user),
        **pods.image_fields(spec),
        "containers": [container],
        "volumes": [*volumes, spark_volume],
    }
    return {"apiVersion": "v1", "kind": "Pod", **pods.template(name, "executor", users, own, {})}


def secret(name: str, secret_name: str, value: str) -> dict[str, Any]:
    """`secret_name`: one of `names.secrets`."""
    data = {names.secrets(name)[secret_name]: base64.b64encode(value.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name, "labels": names.labels(name, "driver")},
        "type": "Opaque",
        "data": data,
    }
