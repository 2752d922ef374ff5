"""What the operator renders: restricted pods, the user's wishes, the contract's names; what the hashes depend on."""

from pathlib import PurePath
from typing import Any

import pytest
import yaml

from support.observed import SPEC, of_cron_job, of_driver
from support.resources import template
from tailrace.contract import manifest
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import driver, drop, hashing, log_check, names, references, settings

POD: dict[str, Any] = {
    "podTemplate": {
        "metadata": {"labels": {"team": "data"}, "annotations": {"note": "x"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}],
            "initContainers": [{"name": "wait", "image": "wait"}],
            "containers": [
                {"name": "proxy", "image": "proxy"},
                {
                    "name": "tailrace",
                    "env": [
                        {"name": "AWS_REGION", "value": "eu"},
                        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "more", "key": "k"}}},
                    ],
                    "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "gone", "optional": True}}],
                    "resources": {"limits": {"ephemeral-storage": "60Gi"}},
                    "volumeMounts": [{"name": "log", "mountPath": "/log"}, {"name": "extra", "mountPath": "/extra"}],
                },
            ],
            "volumes": [
                {"name": "log", "persistentVolumeClaim": {"claimName": "shop-log"}},
                {"name": "extra", "projected": {"sources": [{"configMap": {"name": "extra"}}]}},
            ],
        },
    },
}


def spec(**change: Any) -> ReplicatorSpec:
    return ReplicatorSpec.model_validate({**SPEC, **change})


def pods(chosen: ReplicatorSpec) -> dict[str, dict[str, Any]]:
    return {
        "driver": of_driver(chosen),
        "executor": settings.executor_template("shop", chosen)["spec"],
        "drop": drop.job("shop", chosen, "image", seconds=9)["spec"]["template"]["spec"],
        "check": of_cron_job(log_check.cron_job("shop", chosen, "image"))["spec"],
    }


@pytest.mark.parametrize("kind", ["driver", "executor", "drop", "check"])
def test_every_pod_is_restricted_and_has_the_secrets_as_files(kind: str) -> None:
    found = pods(spec(maskKey={"secretName": "mask"}, driver=POD, executors=POD))[kind]
    security, container = found["securityContext"], found["containers"][0]
    assert security["runAsNonRoot"] and security["runAsUser"] == 185
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    restricted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [c["securityContext"] for c in found["containers"] + found["initContainers"]].count(restricted) == (
        2 if kind in ("drop", "check") else 3
    )
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    secrets = {f"/etc/tailrace/secrets/{name}" for name in ("lake", "shop-db", "mask")}
    assert {*secrets, "/tmp", "/var/lib/tailrace"} <= set(mounts)
    assert set(mounts.values()) == {v["name"] for v in found["volumes"]}
    assert found["enableServiceLinks"] is False


@pytest.mark.parametrize("kind", ["driver", "executor", "drop", "check"])
def test_no_pod_can_fill_the_disk_of_its_node(kind: str) -> None:
    def limits(chosen: ReplicatorSpec) -> set[str]:
        return {v["emptyDir"].get("sizeLimit", "none") for v in pods(chosen)[kind]["volumes"] if "emptyDir" in v}

    assert limits(spec()) == {"50Gi"}
    chosen = {"scratch": "7Gi"}
    assert limits(spec(driver=chosen, executors=chosen)) == {"7Gi"}


def test_executors_shuffle_into_a_volume_with_a_limit_unless_the_user_gives_one() -> None:
    """Spark adds one without a limit where the template names none `spark-local-dir-…`."""

    def dirs(chosen: ReplicatorSpec) -> list[dict[str, Any]]:
        return [v for v in pods(chosen)["executor"]["volumes"] if v["name"].startswith("spark-local-dir-")]

    assert dirs(spec()) == [{"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": "50Gi"}}]
    own = template(volumes=[{"name": "spark-local-dir-fast", "persistentVolumeClaim": {"claimName": "fast"}}])
    assert [v["name"] for v in dirs(spec(executors={"podTemplate": own}))] == ["spark-local-dir-fast"]


def test_an_upgrade_that_brings_the_limit_of_scratch_space_restarts_nothing() -> None:
    plain, default, less = (
        hashing.template_hash(spec(**change), "image", {})
        for change in ({}, {"driver": {"scratch": "50Gi"}}, {"driver": {"scratch": "9Gi"}})
    )
    assert plain == default != less


def test_the_users_template_is_under_the_operators_own_fields() -> None:
    made = driver.stateful_set("shop", spec(driver=POD), "image", "hash", 1)["spec"]["template"]
    assert made["metadata"]["labels"] == {"team": "data", **names.labels("shop", "driver")}
    assert made["metadata"]["annotations"] == {"note": "x", names.TEMPLATE_HASH: "hash"}
    pod, given = made["spec"], POD["podTemplate"]["spec"]
    for field in ("nodeSelector", "tolerations", "hostAliases"):
        assert pod[field] == given[field]
    own, beside = pod["containers"]
    assert (own["name"], own["image"], beside["image"]) == ("tailrace", "image", "proxy")
    assert {"POD_IP", "AWS_REGION", "KEY"} < {e["name"] for e in own["env"]}
    assert own["resources"]["limits"] == {"memory": "2867Mi", "ephemeral-storage": "60Gi"}
    assert [m["name"] for m in own["volumeMounts"]][-2:] == ["log", "extra"] and own["envFrom"]
    assert {"name": "log", "persistentVolumeClaim": {"claimName": "shop-log"}} in pod["volumes"]


@pytest.mark.parametrize("kind", ["drop", "check"])
def test_a_pod_that_ends_has_no_container_beside_it(kind: str) -> None:
    found = pods(spec(driver=POD))[kind]
    assert [c["name"] for c in found["containers"]] == ["tailrace"]
    assert [c["name"] for c in found["initContainers"]] == ["wait"]
    assert found["nodeSelector"] == {"disk": "ssd"}


@pytest.mark.parametrize(
    ("driver_pod", "request_and_limit"),
    [
        ({}, ("1536Mi", "2867Mi")),
        ({"memory": "1Gi"}, ("1433Mi", "1433Mi")),
        ({"memory": "8Gi", "memoryOverhead": "2Gi"}, ("5120Mi", "10240Mi")),
        ({"memoryRequest": "1Gi"}, ("1024Mi", "2867Mi")),
        ({"memoryRequest": "4Gi"}, ("2867Mi", "2867Mi")),
    ],
)
def test_a_driver_reserves_what_it_needs_while_nothing_large_comes(
    driver_pod: dict[str, str], request_and_limit: tuple[str, str]
) -> None:
    (container,) = of_driver(spec(driver=driver_pod))["containers"]
    needs = container["resources"]
    assert (needs["requests"]["memory"], needs["limits"]["memory"]) == request_and_limit


def test_the_manifest_that_the_driver_reads_is_the_spec_and_never_suspended() -> None:
    chosen = spec(suspend=True, snapshot={"parallelism": 7})
    text = settings.config_map("shop", "team", "uid-1", chosen, generation=3)["data"][names.MANIFEST_KEY]
    read = manifest.parse(text, "test").replicator()
    assert (read.metadata.uid, read.metadata.generation) == ("uid-1", 3)
    assert read.spec == chosen.model_copy(update={"suspend": False})
    assert settings.spec_of({names.MANIFEST_KEY: text}) == yaml.safe_load(text)["spec"]
    assert settings.spec_of({names.MANIFEST_KEY: "{"}) is None


def test_the_template_follows_what_users_say_and_nothing_else() -> None:
    plain = hashing.template_hash(spec(), "image", {"Secret/lake": "1"})
    assert plain == hashing.template_hash(spec(suspend=True, deletionPolicy="Delete"), "image", {"Secret/lake": "1"})
    assert plain == hashing.template_hash(spec(retry={"time": "1h"}), "image", {"Secret/lake": "1"}), "a default"
    others = [
        hashing.template_hash(spec(restartNonce=1), "image", {"Secret/lake": "1"}),
        hashing.template_hash(spec(), "newer", {"Secret/lake": "1"}),
        hashing.template_hash(spec(), "image", {"Secret/lake": "2"}),
    ]
    assert len({plain, *others}) == 4


def test_every_secret_and_config_map_that_the_pods_read_is_known() -> None:
    assert references.data(spec(executors=POD)) == (
        "ConfigMap/all",
        "ConfigMap/extra",
        "Secret/lake",
        "Secret/more",
        "Secret/shop-db",
    )


def test_the_secrets_of_a_database_target_are_mounted_and_watched() -> None:
    tls = {"mode": "verify-full", "caSecretName": "copy-ca", "clientSecretName": "copy-cert"}
    target = {**SPEC["source"], "credentials": {"secretName": "copy-db"}, "tls": tls}
    chosen, names = spec(target=target), {"copy-db", "copy-ca", "copy-cert"}
    assert {f"Secret/{name}" for name in names} < set(references.data(chosen))
    for found in pods(chosen).values():
        mounts = {mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
        assert {f"/etc/tailrace/secrets/{name}" for name in names} < mounts


def test_the_secret_of_a_log_that_is_followed_is_mounted_and_watched_also_where_the_lease_is_dropped() -> None:
    chosen = spec(follow={"location": "s3://lake/other", "credentials": {"secretName": "others-lake"}})
    assert "Secret/others-lake" in references.data(chosen)
    for kind in ("driver", "drop"):
        mounts = {m["mountPath"] for m in pods(chosen)[kind]["containers"][0]["volumeMounts"]}
        assert "/etc/tailrace/secrets/others-lake" in mounts, kind


def test_the_secret_of_lineage_events_is_mounted_and_watched_and_owners_are_handed_on() -> None:
    chosen = spec(lineage={"namespace": "prod", "secretName": "catalog"})
    assert "Secret/catalog" in references.data(chosen)
    mounts = {mount["mountPath"] for mount in of_driver(chosen)["containers"][0]["volumeMounts"]}
    assert "/etc/tailrace/secrets/catalog" in mounts
    owners = [("tailrace.dev/owner", "team-a")]
    made = settings.config_map("shop", "team", "uid-1", chosen, generation=3, owners=owners)
    read = manifest.parse(made["data"][names.MANIFEST_KEY], "test").replicator()
    assert read.metadata.labels == dict(owners) and read.spec.lineage == chosen.lineage


def test_probes_ask_for_an_answer_that_stays_short() -> None:
    """The status has megabytes with many tables, and the kubelet hangs up after ten kilobytes."""
    (container,) = of_driver(spec())["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert set(paths.values()) == {"/healthz"}


def test_spark_is_told_where_it_is() -> None:
    options = driver.spark_options("shop", spec(executors={"max": 3, "memory": "1Gi", "cores": 2}), "image")
    assert options["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"
    assert options["spark.executor.memory"] == "1024m"
    assert "spark-app-selector" not in str(driver.stateful_set("shop", spec(), "image", "h", 1))


def test_driver_and_executors_prove_themselves_with_a_file_and_only_the_driver_has_the_token() -> None:
    found = pods(spec())
    own = {"shop-driver", "shop-spark"}

    def secrets(kind: str) -> set[str]:
        return own & {v["secret"]["secretName"] for v in found[kind]["volumes"] if "secret" in v}

    assert (secrets("driver"), secrets("executor"), secrets("drop")) == (own, {"shop-spark"}, set())
    file = driver.spark_options("shop", spec(), "image")["spark.authenticate.secret.file"]
    for kind in ("driver", "executor"):
        mounts = found[kind]["containers"][0]["volumeMounts"]
        folders = {m["mountPath"] for m in mounts if m["name"] == "tailrace-spark"}
        assert folders == {str(PurePath(file).parent)}
    made = settings.secret("shop", "shop-spark", "s3cret")
    assert made["data"] == {PurePath(file).name: "czNjcmV0"}


def test_spark_looks_for_nothing_that_its_role_does_not_name() -> None:
    """At its end it would delete Services and claims that carry its id, and before an executor list claims to use."""
    options = driver.spark_options("shop", spec(), "image")
    told = {key.removeprefix("spark.kubernetes."): value for key, value in options.items()}
    assert told["executor.disableConfigMap"] == "true"
    assert told["driver.service.deleteOnTermination"] == "false"
    assert told["driver.ownPersistentVolumeClaim"] == told["driver.reusePersistentVolumeClaim"] == "false"


@pytest.mark.parametrize("name", ["max", "count"])
def test_without_executors_spark_is_told_nothing_of_kubernetes(name: str) -> None:
    """It starts with none of it: `tests/integration/spark/test_alone.py`."""
    (container,) = of_driver(spec(executors={name: 0}))["containers"]
    assert [e["name"] for e in container["env"] if "SPARK" in e["name"]] == ["TAILRACE_SPARK_CONF_spark_driver_memory"]


@pytest.mark.parametrize(("given", "account"), [({}, "shop-driver"), ({"serviceAccountName": "lake"}, "lake")])
def test_executors_have_the_drivers_account(given: dict[str, Any], account: str) -> None:
    """Spark has no setting `spark.kubernetes.authenticate.serviceAccountName`: it would be passed over."""
    options = driver.spark_options("shop", spec(**given), "image")
    accounts = {key: value for key, value in options.items() if key.endswith(".serviceAccountName")}
    assert accounts == {"spark.kubernetes.authenticate.executor.serviceAccountName": account}


def test_the_hashes_are_those_of_earlier_versions() -> None:
    """Where one of these has to change, the upgrade to that version restarts every stream: say so in its notes."""
    full = spec(driver=POD, executors={**POD, "count": 3}, retry={"time": "2h"}, restartNonce=4, suspend=True)
    # The defaults then, which the API server wrote into them.
    stored = spec(onSchemaChange="EvolveAdditive", apply={"freshness": "5s"})
    assert hashing.spec_hash(stored) == "8e8178aae2be0a5a58050604d9c5c425"
    assert hashing.data_hash({"data": {"password": "eA=="}}) == "f947d92e47b361ca30b4a0ecde68eb28"
    assert hashing.template_hash(full, "image", {"Secret/a": "h"}) == "a01ef2428f0f737594f078abcbe32557"


@pytest.mark.parametrize("kind", ["executor", "drop", "check"])
def test_secrets_for_telling_others_are_the_drivers_alone(kind: str) -> None:
    """Executors and the clean-up neither need them nor wait for one that is gone."""
    hook = {"url": "https://hooks.example.com/x", "credentials": {"secretName": "hook"}}
    found = pods(spec(lineage={"namespace": "prod", "secretName": "catalog"}, notifications=hook))

    def secrets(kind: str) -> set[str]:
        return {v["secret"]["secretName"] for v in found[kind]["volumes"] if "secret" in v}

    assert {"hook", "catalog"} < secrets("driver")
    assert not {"hook", "catalog"} & secrets(kind) and "shop-db" in secrets(kind)
