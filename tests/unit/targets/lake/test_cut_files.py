import json
from pathlib import Path

from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.cut_files import FOLDER, CutFiles


def test_a_replicator_that_leaves_takes_its_cuts_along_and_no_others(tmp_path: Path) -> None:
    files = CutFiles(Storage.open(StorageLocation(location=tmp_path.as_uri())))
    files.show("ours", "noon", {"record": 1})
    files.show("theirs", "evening", {"record": 2})
    files.show("ours", "evening", {"record": 3})
    assert json.loads((tmp_path / FOLDER / "evening.json").read_text())["record"] == 2, "a name that another has"
    assert files.names("ours") == ["noon"]
    files.remove("ours")
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["evening.json"]
    files.remove("theirs")
    assert not list(tmp_path.iterdir()), "and the folder with the last of them"
