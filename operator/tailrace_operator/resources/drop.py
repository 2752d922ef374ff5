"""The Job that cleans up after a deleted Replicator: the slot and publication that Tailrace made, on request its data;
or it releases the change log, and nothing goes. Pure. The operator has no database client; this runs the data plane's
image with what the driver had mounted.
"""

from typing import Any

from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec
from tailrace_operator.resources import names, pods
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

LAST_SECONDS = 20
"""Seconds of its time for the last attempt, before Kubernetes removes the pod and its termination message with it."""
BACKOFF_LIMIT = 20
"""Pods that may die under it (nodes that go, memory): its time is the limit, not their number."""


def job(
    name: str, spec: ReplicatorSpec, image: str, *, seconds: int, by: str = "", defaults: PodDefaults = NO_DEFAULTS
) -> dict[str, Any]:
    """`by`: hash of what it works by. `seconds`: it is stopped after these. The one pod keeps trying: the pauses that a
    Job makes between pods double, and a few attempts would be all."""
    commands: dict[DeletionPolicy, tuple[str, ...]] = {
        "Retain": ("drop",), "Delete": ("drop", "--data"), "Orphan": ("release",),
    }  # fmt: skip
    command = (*commands[spec.deletion_policy], "--wait", f"{max(seconds - LAST_SECONDS, 0)}s")
    # Memory as the driver's: an Iceberg catalog is spoken to through the same JVM.
    needs = pods.resources(spec.driver)
    template = pods.task(name, "drop", spec, image, command=command, needs=needs, defaults=defaults)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.drop(name),
            "labels": names.labels(name, "drop"),
            "annotations": {names.TEMPLATE_HASH: by},
        },
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": seconds,
            "template": template,
        },
    }
