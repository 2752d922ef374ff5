"""Names, labels and annotations of everything that belongs to a Replicator. Pure."""

from typing import Any

from tailrace.contract.resources import API_VERSION, GROUP

MANAGER = "tailrace-operator"
"""Field manager, and value of the label managed-by."""
REPLICATOR_LABEL = f"{GROUP}/replicator"
COMPONENT_LABEL = "app.kubernetes.io/component"
LOG_CHECK = "log-check"
"""Component of what asks the source how much log it keeps."""
CONTENT_HASH = f"{GROUP}/content-hash"
TEMPLATE_HASH = f"{GROUP}/template-hash"
TRIED_AT = f"{GROUP}/tried-at"
SELECTOR = f"app.kubernetes.io/managed-by={MANAGER},{REPLICATOR_LABEL}"
"""Finds our objects and the pods of drivers and executors."""

RPC_PORT, BLOCK_PORT, HTTP_PORT = 7078, 7079, 8090
USER_ID = 185
"""UID and GID of Spark's images."""
MANIFEST_KEY, EXECUTOR_KEY, RESYNC_KEY = "replicator.yaml", "executor.yaml", "resync.yaml"
TOKEN_KEY, SPARK_KEY = "token", "secret"
DRIVER_ROLE = "tailrace-driver"
"""ClusterRole that the chart makes; the operator may bind this one only."""

MAX_NAME = 45
"""A StatefulSet's pods carry its name and an 11 character hash in a label of 63; `-driver` takes 7."""


def driver(name: str) -> str:
    """StatefulSet, Service, ConfigMap, token Secret, ServiceAccount, RoleBinding and NetworkPolicy."""
    return f"{name}-driver"


def executors(name: str) -> str:
    """The NetworkPolicy of the executors."""
    return f"{name}-executors"


def spark(name: str) -> str:
    """The Secret by which driver and executors know each other. Not the token's: executors must not have that."""
    return f"{name}-spark"


def secrets(name: str) -> dict[str, str]:
    """The Secrets that the operator makes, each with the key of its one random value."""
    return {driver(name): TOKEN_KEY, spark(name): SPARK_KEY}


def drop(name: str) -> str:
    """The Job that cleans up source and data of a deleted Replicator."""
    return f"{name}-drop"


def log_check(name: str) -> str:
    """The CronJob that asks how much log the source keeps while no driver runs. Names of CronJobs have 52 characters
    at most."""
    return f"{name}-check"


def replicator_of(kind: str, name: str) -> str | None:
    """The Replicator whose StatefulSet or Job has this name; None: it belongs to none."""
    ends = {"StatefulSet": driver(""), "Job": drop("")}
    end = ends.get(kind)
    if end is not None and name.endswith(end):
        return name.removesuffix(end)
    return name.rpartition("-")[0].removesuffix(log_check("")) if is_log_check(kind, name) else None


def is_log_check(kind: str, name: str) -> bool:
    """True for a Job of a CronJob that asks for the source's log: it has the CronJob's name and a number."""
    job, _, number = name.rpartition("-")
    return kind == "Job" and job.endswith(log_check("")) and number.isdigit()


def labels(name: str, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tailrace",
        "app.kubernetes.io/managed-by": MANAGER,
        COMPONENT_LABEL: component,
        REPLICATOR_LABEL: name,
    }


def selector(name: str, component: str) -> dict[str, str]:
    """The labels by which StatefulSet and Service select; they never change."""
    return {COMPONENT_LABEL: component, REPLICATOR_LABEL: name}


def owner(name: str, uid: str) -> dict[str, Any]:
    """The Replicator as the owner: Kubernetes removes its objects after it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Replicator",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
