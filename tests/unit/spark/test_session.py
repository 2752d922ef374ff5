import errno
import os
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tailrace.contract.pods import Executors
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.spark_conf import SparkSetting
from tailrace.driver.process.run_dir import AlreadyRunning, NotRunning, RunFolder
from tailrace.errors import InvalidManifest, Retry, StorageFull
from tailrace.places import Places
from tailrace.selection import masking
from tailrace.spark import artifacts, jvm_log, session
from tailrace.storage.access import hadoop_options


def spec(**target: object) -> ReplicatorSpec:
    return ReplicatorSpec.model_validate(
        {
            "source": {"type": "postgresql", "host": "db", "database": "d", "username": "u"},
            "tables": {"include": ["public.*"]},
            "target": {"type": "delta", "location": "file:///lake", **target},
            "storage": {"location": "file:///log"},
            "driver": {"cores": 3, "memory": "1Gi"},
            "snapshot": {"parallelism": 2},
        }
    )


def settings(spec: ReplicatorSpec, run_dir: Path, environment: Mapping[str, str], boot: str = "") -> dict[str, str]:
    return session.settings(spec, Places(spec).target.spark(), run_dir, environment, boot)


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


def test_a_jvm_that_died_is_named_with_its_code_and_its_log(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as jvm:
        spark = cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=jvm))))
        session.check(spark, tmp_path / "spark.log")
        jvm.kill()
        jvm.wait()
        with pytest.raises(Retry, match="code -9") as caught:
            session.check(spark, tmp_path / "spark.log")
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


def test_tables_can_lie_only_where_spark_can_write(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="gs://lake/shop"):
        hadoop_options(spec(location="gs://lake/shop").target.lake, {})


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


def test_a_run_directory_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.take()
    with pytest.raises(AlreadyRunning, match="another"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_the_server_is_found_while_it_is_announced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(NotRunning):
        folder.server()
    folder.take()
    token = folder.make_token()
    folder.announce("http://127.0.0.1:9", None, "file:///log")
    with pytest.raises(InvalidManifest, match=r"storage\.location file:///log, this manifest has file:///other"):
        RunFolder(tmp_path).server("file:///other")
    url, path = RunFolder(tmp_path).server("file:///log")
    assert (url, path.read_text(), path.stat().st_mode & 0o777) == ("http://127.0.0.1:9", token, 0o600)
    folder.retract()
    with pytest.raises(NotRunning):
        folder.server()
    folder.release()


def test_a_full_run_directory_is_told_by_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "token"))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageFull, match=r"token: No space left on device"):
        RunFolder(tmp_path).make_token()


def test_the_server_of_a_killed_driver_is_not_taken_for_whoever_listens_there_now(tmp_path: Path) -> None:
    killed = RunFolder(tmp_path)
    killed.take()
    killed.announce("http://127.0.0.1:9", None)
    killed.release()
    with pytest.raises(NotRunning, match="no driver runs"):
        RunFolder(tmp_path).server()


def test_a_long_path_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    assert len(str(RunFolder(long).socket)) < 100
    assert RunFolder(long).socket != RunFolder(tmp_path / ("y" * 120)).socket
    assert RunFolder(tmp_path).socket == tmp_path / "capture.sock"


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


def test_a_session_is_started_by_the_first_who_asks_and_by_nobody_once_the_run_ends() -> None:
    made, asked, go_on = cast(SparkSession, SimpleNamespace()), list[int](), threading.Event()

    def start() -> SparkSession:
        asked.append(1)
        assert go_on.wait(20)
        return made

    spark, never = session.OnDemand(start), session.OnDemand(start)
    assert not asked
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(spark.session) for _ in range(2)]
        go_on.set()
        assert [one.result(20) for one in waiting] == [made, made]
    assert (spark.started(), asked) == (made, [1])
    assert never.started() is None
    never.abandon(None)
    never.stop()
    with pytest.raises(Retry, match="the run ends"):
        never.session()


def test_whoever_waits_for_a_session_learns_why_there_is_none() -> None:
    def start() -> SparkSession:
        raise Retry("no Java")

    spark = session.OnDemand(start)
    for ask in (spark.session, spark.started):
        with pytest.raises(Retry, match="no Java"):
            ask()
    spark.stop()
