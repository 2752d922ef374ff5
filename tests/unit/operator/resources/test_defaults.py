"""What an installation says about all pods: it lies under what a Replicator says, in every kind of pod."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS as PLAIN
from support.observed import SPEC, applied, observed, of_cron_job, of_driver
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide.replicator import decide
from tailrace_operator.resources import driver, drop, log_check, settings
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

SPOT, GPU = {"key": "spot", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}
DEFAULTS = PodDefaults.model_validate(
    {
        "fixedUser": False,
        "podTemplate": {
            "metadata": {"labels": {"team": "platform", "cost": "7"}, "annotations": {"scrape": "no"}},
            "spec": {
                "imagePullSecrets": [{"name": "pull"}, {"name": "mine"}],
                "nodeSelector": {"disk": "ssd", "zone": "a"},
                "tolerations": [SPOT, GPU],
            },
        },
    }
)
OWN = {"metadata": {"labels": {"team": "data"}}, "spec": {"nodeSelector": {"zone": "b"}, "tolerations": [SPOT]}}
POD = {"podTemplate": OWN}
CHOSEN = ReplicatorSpec.model_validate({**SPEC, "imagePullSecrets": ["mine"], "driver": POD, "executors": POD})


def templates(defaults: PodDefaults) -> dict[str, dict[str, Any]]:
    """The pods' templates."""
    made = driver.stateful_set("shop", CHOSEN, "image", "hash", 1, defaults=defaults)
    return {
        "driver": made["spec"]["template"],
        "executor": settings.executor_template("shop", CHOSEN, defaults),
        "drop": drop.job("shop", CHOSEN, "image", seconds=9, defaults=defaults)["spec"]["template"],
        "check": of_cron_job(log_check.cron_job("shop", CHOSEN, "image", defaults=defaults)),
    }


@pytest.mark.parametrize("kind", ["driver", "executor", "drop", "check"])
def test_each_pod_has_them_under_the_replicators_own(kind: str) -> None:
    spec = templates(DEFAULTS)[kind]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "b"}
    assert [t["key"] for t in spec["tolerations"]] == ["spot", "gpu"]
    assert spec["imagePullSecrets"] == [{"name": "mine"}, {"name": "pull"}]


@pytest.mark.parametrize("kind", ["driver", "executor", "drop", "check"])
def test_labels_and_annotations_of_the_replicator_and_the_operator_win(kind: str) -> None:
    head = templates(DEFAULTS)[kind]["metadata"]
    assert (head["labels"]["team"], head["labels"]["cost"]) == ("data", "7")
    assert head["labels"]["app.kubernetes.io/name"] == "tailrace"
    assert head["annotations"]["scrape"] == "no"


@pytest.mark.parametrize("kind", ["driver", "executor", "drop", "check"])
def test_the_user_is_fixed_unless_the_cluster_assigns_it(kind: str) -> None:
    fixed, assigned = (templates(d)[kind]["spec"]["securityContext"] for d in (NO_DEFAULTS, DEFAULTS))
    users = {"runAsUser": 185, "runAsGroup": 185, "fsGroup": 185}
    assert users.items() <= fixed.items()
    assert assigned == {name: value for name, value in fixed.items() if name not in users}
    assert assigned["runAsNonRoot"] is True and assigned["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_operator_renders_with_them_and_restarts_nothing_for_them() -> None:
    plain, changed = (applied(decide(observed(), limits).actions) for limits in (PLAIN, replace(PLAIN, pods=DEFAULTS)))
    hashes = {made["StatefulSet"]["metadata"]["annotations"]["tailrace.dev/template-hash"] for made in (plain, changed)}
    assert len(hashes) == 1
    assert changed["StatefulSet"]["spec"]["template"]["metadata"]["labels"]["cost"] == "7"
    data = changed["ConfigMap"]["data"]
    assert '"cost": "7"' in data["executor.yaml"] and "cost" not in data["replicator.yaml"]


def test_cpu_is_limited_where_that_is_asked_for() -> None:
    limited = ReplicatorSpec.model_validate({**SPEC, "driver": {"cpuLimit": "1500m"}, "executors": {"cpuLimit": "2"}})
    (container,) = of_driver(limited)["containers"]
    assert container["resources"]["limits"]["cpu"] == "1500m"
    assert driver.spark_options("shop", limited, "image")["spark.kubernetes.executor.limit.cores"] == "2"
    (plain,) = of_driver(CHOSEN)["containers"]
    assert "cpu" not in plain["resources"]["limits"]
    assert "spark.kubernetes.executor.limit.cores" not in driver.spark_options("shop", CHOSEN, "image")
