import pickle
from pathlib import Path

import pytest

from tailrace.cli.main import main
from tailrace.contract import faults
from tailrace.contract.driver import LastWords
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import StorageLocation, StorageSpec, TargetSpec
from tailrace.errors import CorruptLog, Retry, TailraceError, Where, met_at, where_of
from tailrace.storage.store import Storage


def test_an_error_keeps_the_first_place_that_it_leaves_through_pickling_and_as_a_cause() -> None:
    with pytest.raises(Retry) as caught, met_at("source"), met_at("target"):
        raise Retry("away")
    assert where_of(pickle.loads(pickle.dumps(caught.value))) == "target"
    with pytest.raises(ValueError, match="x") as foreign, met_at("source"):
        raise ValueError("x") from caught.value
    assert fault_of(foreign.value, 1.0).where == "target"
    with pytest.raises(CorruptLog) as corrupt, met_at("target"):
        raise CorruptLog("gap", "")
    assert where_of(corrupt.value) == "storage", "whoever reads it"


def test_what_nobody_has_placed_is_the_drivers() -> None:
    assert fault_of(ZeroDivisionError(), 1.0).where == "driver"
    assert fault_of(ZeroDivisionError(), 1.0, "capture").where == "capture"


@pytest.mark.parametrize("where", ["storage", "target"])
def test_a_place_that_refuses_is_named_as_the_change_logs_or_the_targets(tmp_path: Path, where: Where) -> None:
    (tmp_path / "file").write_text("")
    location = f"file://{tmp_path}/file/inside"
    config = StorageSpec(location=location) if where == "storage" else TargetSpec(type="delta", location=location)
    place = config.lake if isinstance(config, TargetSpec) else config
    storage = pickle.loads(pickle.dumps(Storage.open(place, part=where)))
    with pytest.raises(TailraceError) as refused:
        storage.create("x", b"")
    assert (refused.value.name, fault_of(refused.value, 1.0).where) == ("StorageRefused", where)
    with pytest.raises(TailraceError) as refused, storage.open_output("x"):
        pass
    assert where_of(refused.value) == where


def test_keys_that_cannot_be_read_are_the_fault_of_whose_they_are(tmp_path: Path) -> None:
    given = {"location": "s3://b/x", "credentials": {"file": str(tmp_path / "missing")}}
    lake = TargetSpec.model_validate(given | {"type": "delta"}).lake
    places: tuple[tuple[StorageLocation, Where], ...] = (
        (StorageSpec.model_validate(given), "storage"),
        (lake, "target"),
    )
    for place, where in places:
        with pytest.raises(TailraceError) as refused:
            Storage.open(place, part=where)
        assert where_of(refused.value) == where


def test_a_command_that_an_error_ends_leaves_it_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "words"
    place.write_text("")  # as the kubelet makes it
    monkeypatch.setenv(faults.TERMINATION_VARIABLE, str(place))
    assert main(["run", "-f", str(tmp_path / "missing.yaml")]) == 2
    words = LastWords.of_message(place.read_text())
    assert words is not None and words.fault is not None and words.drop is None
    assert (words.fault.name, words.fault.where) == ("InvalidManifest", "driver")
    assert words.fault.message in capsys.readouterr().err
