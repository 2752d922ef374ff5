"""The CronJob that asks the source how much log it keeps for a Replicator whose driver does not run. Pure.

The operator has no database client; this runs the data plane's image with the Secrets that the driver has, and without
Spark. Why a CronJob: docs/decisions/0066.
"""

import hashlib
from typing import Any

from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import names, pods
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

MINUTES = 15
"""Between two questions."""
MOST_SECONDS = 300
"""Seconds for one of them, once its pod is on a node. The pod's own deadline, not the Job's, which would take the pod
away and with it all that says why; one that never begins is replaced by the next."""
CPU, MEMORY = "50m", "256Mi"
"""Measured: 142 MiB, most of it libraries."""


def cron_job(name: str, spec: ReplicatorSpec, image: str, *, defaults: PodDefaults = NO_DEFAULTS) -> dict[str, Any]:
    labels = names.labels(name, names.LOG_CHECK)
    # A quota on limits.cpu, for which the user bounds the driver, asks for a bound here, too.
    bound = {"cpu": spec.driver.cpu_limit} if spec.driver.cpu_limit is not None else {}
    needs = {"requests": {"cpu": CPU, "memory": MEMORY}, "limits": {**bound, "memory": MEMORY}}
    template = pods.task(name, names.LOG_CHECK, spec, image, command=("retained",), needs=needs, defaults=defaults)
    template["spec"]["activeDeadlineSeconds"] = MOST_SECONDS
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": names.log_check(name), "labels": labels},
        "spec": {
            "schedule": schedule(name),
            "concurrencyPolicy": "Replace",
            "startingDeadlineSeconds": MINUTES * 60,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "metadata": {"labels": labels},
                "spec": {"backoffLimit": 0, "template": template},
            },
        },
    }


def schedule(name: str) -> str:
    """Each Replicator at minutes of its own: many may be suspended at once."""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % MINUTES
    return f"{','.join(str(minute) for minute in range(first, 60, MINUTES))} * * * *"
