import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from support.spark_specs import spec
from tailrace.errors import Retry
from tailrace.places import Places
from tailrace.spark import artifacts, session
from tailrace.spark.session import Launched
from tailrace.targets.api import DriverJvm


def test_a_jvm_that_died_is_named_with_its_code_and_its_log(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as jvm:
        launched = Launched(DriverJvm(SimpleNamespace(proc=jvm), None), cast(SparkConf, None), tmp_path)
        session.check(launched, tmp_path / "spark.log")
        jvm.kill()
        jvm.wait()
        with pytest.raises(Retry, match="code -9") as caught:
            session.check(launched, tmp_path / "spark.log")
    assert "spark.log" in caught.value.fix and "driver.memory" in caught.value.fix


@pytest.mark.parametrize(
    ("command", "code", "patience"), [("cat", 0, 60.0), ("sleep 60", -9, 0.1)], ids=["exits", "hangs"]
)
def test_the_jvm_is_gone_when_the_session_has_stopped(command: str, code: int, patience: float) -> None:
    with subprocess.Popen(command.split(), stdin=subprocess.PIPE) as jvm:
        context = SimpleNamespace(_gateway=SimpleNamespace(proc=jvm))
        session.stop(cast(SparkSession, SimpleNamespace(sparkContext=context, stop=lambda: None)), patience)
        assert jvm.returncode == code


def test_a_jvm_that_cannot_start_is_named_with_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: "/jars/a.jar")
    monkeypatch.setattr(session, "launch_gateway", fail)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    with pytest.raises(Retry, match="JVM did not start") as caught:
        session.start(spec(), Places(spec()).target, tmp_path, tmp_path / "spark.log")
    assert "Java 17" in caught.value.fix and "spark.log" in caught.value.fix


def test_what_a_killed_jvm_left_in_the_run_directory_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (
        "spark/blockmgr-1/0a/shuffle_0_0_0.data",
        "spark/spark-2/pyspark-3/broadcast",
        "spark/tmp/artifacts-4/jars/a.jar",
        "spark/metastore_db/db.lck",
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    session.forget_leftovers(tmp_path)
    assert [path.name for path in (tmp_path / "spark").iterdir()] == ["metastore_db"]
    assert (tmp_path / "spark/metastore_db/db.lck").exists()


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": "C"}, "C.UTF-8"),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LANG": "de_DE.utf8"}, None),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
    ],
)
def test_the_jvm_names_files_in_utf8_whatever_the_locale(given: dict[str, str], added: str | None) -> None:
    assert session.utf8_paths(given).get("LC_ALL") == added
