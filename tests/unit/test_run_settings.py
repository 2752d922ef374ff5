from pathlib import Path

import pytest

from tailrace import artifacts
from tailrace.contract.resources import ReplicatorSpec
from tailrace.run import session
from tailrace.run.folder import AlreadyRunning, NotRunning, RunFolder


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


def test_chunks_have_slots_beyond_the_cores_so_that_changes_never_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    values = session.settings(spec(), tmp_path, {})
    assert values["spark.master"] == "local[5]"
    assert values["spark.driver.memory"] == "1024m"
    assert values["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_place_may_name_another_master_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    given = {"TAILRACE_SPARK_MASTER": "k8s://https://api", "TAILRACE_SPARK_CONF_spark_driver_host": "10.0.0.7"}
    values = session.settings(spec(), tmp_path, given)
    assert (values["spark.master"], values["spark.driver.host"]) == ("k8s://https://api", "10.0.0.7")


def test_no_secret_reaches_the_configuration_that_becomes_the_jvm_s_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "spark_jars", lambda *names: ",".join(names))
    keys = tmp_path / "keys"
    keys.write_text("accessKeyId=AKIA\nsecretAccessKey=hush\n")
    values = session.settings(spec(location="s3://lake/shop", credentials={"file": str(keys)}), tmp_path, {})
    assert "hush" not in str(values)
    assert values["spark.jars"] == "lake,s3"


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
    token = folder.make_token()
    folder.announce("http://127.0.0.1:9", None)
    url, path = folder.server()
    assert (url, path.read_text(), path.stat().st_mode & 0o777) == ("http://127.0.0.1:9", token, 0o600)
    folder.retract()
    with pytest.raises(NotRunning):
        folder.server()


def test_a_long_path_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    assert len(str(RunFolder(long).socket)) < 100
    assert RunFolder(long).socket != RunFolder(tmp_path / ("y" * 120)).socket
    assert RunFolder(tmp_path).socket == tmp_path / "capture.sock"
