"""What `spec.sparkConf` refuses: all that Tailrace and the operator set themselves, whatever is added there."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from support.resources import SPEC, replicator
from tailrace.contract.resources import Replicator, ReplicatorSpec, StorageLocation
from tailrace.contract.spark_conf import REFUSED, TO_LOOK_INSIDE, SparkSetting, refusal
from tailrace.places import Places
from tailrace.spark import artifacts, settings
from tailrace.storage.access import hadoop_options
from tailrace_operator.resources import driver, hashing

IN_A_POD = {
    "TAILRACE_SPARK_CONF_spark_authenticate_secret_file": "/etc/tailrace/spark/secret",
    "TAILRACE_SPARK_MASTER": "k8s://https://kubernetes.default.svc:443",
    "TAILRACE_SHOW_VALUES": "1",
}


def own(folder: Path) -> set[str]:
    """Names of all settings that somebody in Tailrace makes."""
    spec = ReplicatorSpec.model_validate(SPEC)
    needs = Places(spec).target.spark()
    sets = [settings.settings(spec, needs, folder, environment, "b007") for environment in ({}, IN_A_POD)]
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    place = StorageLocation(location="s3://lake/shop", endpoint="http://s3", region="r", path_style=True)
    hadoop = {f"spark.hadoop.{name}" for name in hadoop_options(place, keys)}
    return {name for one in sets for name in one} | set(driver.spark_options("shop", spec, "image")) | hadoop


def test_whatever_tailrace_sets_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    names = own(tmp_path)
    assert {
        "spark.authenticate.secret.file",
        "spark.kubernetes.container.image",
        "spark.delta.logStore.s3.impl",
    } <= names
    assert {name for name in names if refusal(name) is None} == {"spark.ui.enabled"}


@pytest.mark.parametrize("key", ["spark.network.timeout", "spark.executor.heartbeatInterval", "spark.memory.fraction"])
def test_what_tunes_spark_is_allowed(key: str) -> None:
    assert refusal(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "spark.repl.class.uri",  # executors load classes from any address
        "spark.resources.discoveryPlugin",
        "spark.storage.decommission.fallbackStorage.path",
        "spark.remote",
        "spark.api.mode",
    ],
)
def test_what_loads_code_sends_rows_or_starts_another_spark_is_refused(key: str) -> None:
    assert refusal(key) is not None


def test_spark_may_be_looked_into_and_its_event_log_stays_on_this_machine() -> None:
    assert {name for name in TO_LOOK_INSIDE if refusal(name)} == set()
    for name in ("spark.ui.showConsoleProgress", "spark.ui.filters", "spark.eventLog.logStageExecutorMetrics"):
        assert refusal(name) is not None
    SparkSetting(name="spark.eventLog.dir", value="file:///events")
    with pytest.raises(ValidationError, match=r"must be a folder: write file:///path"):
        SparkSetting(name="spark.eventLog.dir", value="s3a://bucket/events")


def test_each_name_is_refused_for_the_reason_that_it_stands_under() -> None:
    assert [(name, name + one.text) for one in REFUSED for name in one.names] == [
        (name, refusal(name)) for one in REFUSED for name in one.names
    ]


def test_a_replicator_without_such_settings_keeps_its_hash() -> None:
    """Or an upgrade of the operator would restart its driver."""
    spec = Replicator.model_validate(replicator()).spec
    empty = Replicator.model_validate(replicator(sparkConf=[])).spec
    some = Replicator.model_validate(replicator(sparkConf=[{"name": "spark.network.timeout", "value": "300s"}])).spec
    hashes = [hashing.template_hash(one, "image", {}) for one in (spec, empty, some)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert "sparkConf" not in spec.model_dump(by_alias=True, exclude_defaults=True)
