from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from tailrace.contract.resources import ReplicatorSpec, SnapshotSpec, StorageSpec, TargetSpec
from tailrace.contract.settings import LineageSpec
from tailrace.driver.asking.doctor import Line, Report, _failure, _java, _line, _lineage, _place
from tailrace.errors import AuthenticationFailed, Retry
from tailrace.places import Places
from tailrace.sources.findings import Finding


def places(**spec: StorageSpec | TargetSpec) -> Places:
    source, snapshot = SimpleNamespace(type="postgresql"), SnapshotSpec()
    return Places(cast(ReplicatorSpec, SimpleNamespace(source=source, snapshot=snapshot, **spec)))


def test_a_place_is_tried_and_left_without_a_file(tmp_path: Path) -> None:
    (line,) = _place(places(storage=StorageSpec(location=f"file://{tmp_path}/log")), "storage")
    assert (line.level, line.exit_code) == ("ok", 0)
    assert not list(tmp_path.rglob("*"))


def test_a_place_that_cannot_be_written_fails_with_its_fix(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    (line,) = _place(places(storage=StorageSpec(location=f"file://{tmp_path}/log")), "storage")
    assert (line.level, line.exit_code) == ("fail", 10)
    assert f"{tmp_path}/log" in line.message and line.fix


def test_a_catalog_without_address_or_with_unreadable_keys_is_found_before_a_start(tmp_path: Path) -> None:
    place = {"type": "iceberg", "location": f"file://{tmp_path}/lake"}
    for catalog, exit_code, part in (
        ({"type": "jdbc"}, 2, "catalog.uri"),
        ({"type": "rest", "uri": "https://c", "credentials": {"file": f"{tmp_path}/none"}}, 10, f"{tmp_path}/none"),
    ):
        (line,) = _place(places(target=TargetSpec.model_validate(place | {"catalog": catalog})), "target")
        assert (line.level, line.exit_code) == ("fail", exit_code)
        assert part in line.message and line.fix


def test_a_lineage_configuration_is_read_before_a_start(tmp_path: Path) -> None:
    path = tmp_path / "openlineage.yml"
    spec = SimpleNamespace(lineage=LineageSpec(namespace="prod", config_file=str(path)))
    asked = cast(Any, SimpleNamespace(spec=spec))
    (line,) = _lineage(asked, places())
    assert (line.level, line.exit_code) == ("fail", 2) and str(path) in line.message and line.fix
    path.write_text("transport: {type: console}")
    (line,) = _lineage(asked, places())
    assert line.level == "ok" and "console" in line.message
    assert list(_lineage(cast(Any, SimpleNamespace(spec=SimpleNamespace(lineage=None))), places())) == []


def test_a_storage_setting_that_no_client_can_use_is_found_before_a_start() -> None:
    config = StorageSpec(location="s3://lake/log", endpoint="http://10.0.0.7:9000")
    (line,) = _place(places(storage=config), "storage")
    assert (line.level, line.exit_code) == ("fail", 2)
    assert "10.0.0.7" in line.message and "pathStyle" in line.fix


@pytest.mark.parametrize("place", ["storage", "target"])
def test_a_secret_name_outside_kubernetes_is_told_with_the_field_that_serves_there(
    place: Literal["storage", "target"], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path / "secrets"))
    given: dict[str, Any] = {
        "location": "s3://lake/shop",
        "region": "eu-central-1",
        "credentials": {"secretName": "lake-keys"},
    }
    storage, target = StorageSpec.model_validate(given), TargetSpec.model_validate(given | {"type": "delta"})
    (line,) = _place(places(storage=storage, target=target), place)
    assert (line.level, line.exit_code) == ("fail", 10)
    assert "credentials.secretName 'lake-keys' is not mounted" in line.message
    assert line.fix == "In Kubernetes, create the Secret. Elsewhere, use credentials.file."


def test_every_failure_of_a_report_has_the_exit_code_that_a_start_would_end_with() -> None:
    lines = (Line("ok", "version", "PostgreSQL 18"), Line("fail", "wal_level", "wal_level is replica"))
    assert [line.exit_code for line in lines] == [0, 10]
    assert Report((*lines, Line("fail", "source", "wrong password", exit_code=11))).exit_code == 11


def test_a_machine_without_java_is_warned_before_a_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for home in (None, str(tmp_path)):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("JAVA_HOME", home)
        (line,) = _java()
        assert (line.level, line.fix) == ("warn", "Install Java 17, or set JAVA_HOME.")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o755)
    assert not list(_java())


def test_a_passing_fault_is_told_by_its_message_and_any_other_by_its_name() -> None:
    """`Retry` beside a message that asks for an action reads as an instruction."""
    assert str(_failure("source", Retry("cannot connect to h:5432", "Start it."))) == (
        "fail source: cannot connect to h:5432\n     fix: Start it."
    )
    assert str(_failure("source", AuthenticationFailed("no"))) == "fail source: AuthenticationFailed: no"


def test_the_count_of_tables_tells_what_the_target_refuses_of_them() -> None:
    counted = Finding("tables", "ok", "13 of 21 tables can be captured")
    assert _line(counted, 0).message == "13 of 21 tables can be captured"
    assert _line(counted, 2).message == "13 of 21 tables can be captured; the target refuses 2 of them"
    assert _line(Finding("slot", "ok", "1 of 30 replication slots is free"), 2).message.endswith("is free")
