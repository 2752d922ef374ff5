"""The configuration of the session, by the place where the driver runs."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.spark_specs import spec
from tailrace.contract.pods import Executors
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.spark_conf import SparkSetting
from tailrace.errors import InvalidManifest
from tailrace.places import Places
from tailrace.selection import masking
from tailrace.spark import artifacts, jvm_log
from tailrace.spark import settings as spark


def settings(spec: ReplicatorSpec, run_dir: Path, environment: Mapping[str, str], boot: str = "") -> dict[str, str]:
    return spark.settings(spec, Places(spec).target.spark(), run_dir, environment, boot)


def test_chunks_have_slots_beyond_the_cores_so_that_changes_never_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    values = settings(spec(), tmp_path, {})
    assert values["spark.master"] == "local[5]"
    assert values["spark.driver.memory"] == "1024m"
    assert values["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_place_may_name_another_master_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    given = {
        "TAILRACE_SPARK_MASTER": "k8s://https://api",
        "TAILRACE_SPARK_CONF_spark_driver_host": "10.0.0.7",
        SECRET_FILE: "/secret",
    }
    values = settings(spec(), tmp_path, given)
    assert (values["spark.master"], values["spark.driver.host"]) == ("k8s://https://api", "10.0.0.7")


SECRET_FILE = "TAILRACE_SPARK_CONF_spark_authenticate_secret_file"
IN_A_POD = {
    SECRET_FILE: "/etc/tailrace/spark/secret",
    "TAILRACE_SPARK_MASTER": "k8s://https://kubernetes.default.svc:443",
    "POD_IP": "10.244.0.9",
    "POD_NAME": "shop-driver-0",
    "POD_NAMESPACE": "data",
}


def test_on_kubernetes_executors_reach_the_driver_at_its_pod_s_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "local:/jars/a.jar,local:/jars/b.jar")
    values = settings(spec(), tmp_path, IN_A_POD, boot="0123abcd")
    assert (values["spark.driver.host"], values["spark.driver.bindAddress"]) == ("10.244.0.9", "10.244.0.9")
    assert (values["spark.driver.port"], values["spark.driver.blockManager.port"]) == ("7078", "7079")
    assert values["spark.kubernetes.driver.pod.name"] == "shop-driver-0"
    assert values["spark.kubernetes.namespace"] == "data"
    assert values["spark.jars"] == "local:/jars/a.jar,local:/jars/b.jar"
    assert "spark.executor.instances" not in values, "it would be what Spark starts with"
    assert f"file:{jvm_log.CONFIGURATION}" in values["spark.executor.extraJavaOptions"]
    assert (values["spark.executor.cores"], values["spark.kubernetes.executor.request.cores"]) == ("3", "1")
    assert values["spark.ui.enabled"] == "false"


def test_executors_are_told_where_the_mask_key_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    given = IN_A_POD | {masking.VARIABLE: "/etc/tailrace/secrets/mask/maskKey"}
    found = settings(spec(), tmp_path, given)
    assert found[f"spark.executorEnv.{masking.VARIABLE}"] == "/etc/tailrace/secrets/mask/maskKey"
    assert not [name for name in settings(spec(), tmp_path, IN_A_POD) if "MASK" in name]


def test_spark_s_processes_authenticate_and_encrypt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    for place in ({}, IN_A_POD):
        values = settings(spec(), tmp_path, place)
        for name in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
            assert values[name] == "true"
        assert values["spark.network.crypto.saslFallback"] == "false"
        assert values["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert values["spark.authenticate.secret.file"] == "/etc/tailrace/spark/secret"
    values = settings(spec(), tmp_path, {})
    assert not [name for name in values if name.startswith("spark.authenticate.secret")], "Spark makes one in memory"


def test_without_a_secret_file_spark_is_not_started_on_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write a secret of its own into the executors' pods."""
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    given = {name: value for name, value in IN_A_POD.items() if name != SECRET_FILE}
    with pytest.raises(InvalidManifest, match=f"{SECRET_FILE} is not set.* upgrade the operator"):
        settings(spec(), tmp_path, given)


@pytest.mark.parametrize("none", [Executors(max=0), Executors(count=0), Executors(max=0, count=3)])
def test_without_executors_the_driver_s_pod_does_the_work_itself(
    none: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    alone = spec().model_copy(update={"executors": none})
    assert settings(alone, tmp_path, IN_A_POD)["spark.master"] == "local[5]"


def test_executors_come_when_they_are_needed_and_none_is_kept_for_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    some = spec().model_copy(update={"executors": Executors(min=1, max=4, cores=2)})
    prefix = "spark.dynamicAllocation."
    for given, least, most, slots in ((spec(), "0", "1", "3"), (some, "1", "4", "3")):
        values = settings(given, tmp_path, IN_A_POD)
        assert values["spark.executor.cores"] == slots
        assert {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)} == {
            "enabled": "true",
            "shuffleTracking.enabled": "true",
            "minExecutors": least,
            "initialExecutors": least,
            "maxExecutors": most,
            "executorIdleTimeout": "60s",
            "cachedExecutorIdleTimeout": "60s",
            "shuffleTracking.timeout": "60s",
        }
    assert not [name for name in settings(spec(), tmp_path, {}) if name.startswith(prefix)], "on a laptop"


def test_every_start_on_kubernetes_names_its_executors_anew_and_not_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    pod = IN_A_POD | {"POD_NAME": "a" * 37 + "-driver-0"}
    one, two = (settings(spec(), tmp_path, pod, boot=boot) for boot in ("0123abcd", "4567cdef"))
    for name in ("spark.app.id", "spark.kubernetes.executor.podNamePrefix"):
        assert one[name] != two[name]
    assert one["spark.kubernetes.executor.podNamePrefix"] == "a" * 37 + "-0123abcd"
    assert "spark.app.id" not in settings(spec(), tmp_path, {})


@pytest.mark.parametrize("environment", [{}, IN_A_POD])
def test_a_users_settings_reach_spark_whatever_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    chosen = {"spark.network.timeout": "300s", "spark.rpc.message.maxSize": "256"}
    plain = settings(spec(), tmp_path, environment)
    users = tuple(SparkSetting(name=name, value=value) for name, value in chosen.items())
    given = settings(spec().model_copy(update={"spark_conf": users}), tmp_path, environment)
    assert given == plain | chosen


def test_no_secret_reaches_the_configuration_that_becomes_the_jvm_s_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    keys = tmp_path / "keys"
    keys.write_text("accessKeyId=AKIA\nsecretAccessKey=hush\n")
    values = settings(spec(location="s3://lake/shop", credentials={"file": str(keys)}), tmp_path, {})
    assert "hush" not in str(values)
    assert values["spark.jars"] == "lake,s3"
