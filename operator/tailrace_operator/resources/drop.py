"""The Job that cleans up after a deleted Replicator: the slot and publication that Tailrace made, on request its data;
or it releases the change log, and nothing goes. Pure. The operator has no database client; this runs the data plane's
image with what the driver had mounted.
"""

from typing import Any

from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec
from tailrace_operator.resources import names, pods
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

LAST_SECONDS = 20
"""Of its time that the last attempt may take, before Kubernetes removes the pod and its last words with it."""
BACKOFF_LIMIT = 20
"""Pods that may die under it (nodes that go, memory): its time is the limit, not their number."""


def job(
    name: str, own: ReplicatorSpec, image: str, *, seconds: int, defaults: PodDefaults = NO_DEFAULTS
) -> dict[str, Any]:
    """`seconds`: it is given up after these. The one pod keeps trying: the pauses that a Job makes between pods double,
    and a few attempts would be all."""
    spec = defaults.under(own)
    volumes, mounts = pods.volumes(spec, spec.driver)
    volumes.append({"name": "tailrace-replicator", "configMap": {"name": names.driver(name)}})
    mounts.append({"name": "tailrace-replicator", "mountPath": pods.MANIFESTS, "readOnly": True})
    commands: dict[DeletionPolicy, tuple[str, ...]] = {
        "Retain": ("drop",), "Delete": ("drop", "--data"), "Orphan": ("release",),
    }  # fmt: skip
    command, *flags = commands[spec.deletion_policy]
    container = {
        "name": names.CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": [
            *("tailrace", command, "-f", f"{pods.MANIFESTS}/{names.MANIFEST_KEY}", *flags),
            *("--wait", f"{max(seconds - LAST_SECONDS, 0)}s"),
            *("--log-format", "json"),
        ],
        "env": pods.environment(
            spec.driver,
            [
                {"name": "HOME", "value": pods.RUN_DIR},
                {"name": "XDG_STATE_HOME", "value": pods.RUN_DIR},
                {"name": "TAILRACE_SECRETS", "value": pods.SECRETS},
                pods.LAST_WORDS,
            ],
        ),
        # As the driver's: an Iceberg catalog is spoken to through the same JVM.
        "resources": pods.resources(spec.driver),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": spec.service_account_name or names.driver(name),
        # Credentials of the cloud may come by the account (workload identity), rights in the cluster are not needed.
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "securityContext": pods.pod_security(defaults.fixed_user),
        **pods.image_fields(spec),
        **pods.scheduling(spec.driver, name),
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": names.drop(name), "labels": names.labels(name, "drop")},
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": seconds,
            "template": {"metadata": {"labels": names.labels(name, "drop")}, "spec": pod},
        },
    }
