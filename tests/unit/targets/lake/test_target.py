from pathlib import Path
from typing import Any, cast

import pytest

from support.journals import table_schema
from support.origins import origin
from support.resources import replicator
from support.states import log_state, table_log
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import Replicator
from tailrace.places import Places
from tailrace.removal import data as drop_data
from tailrace.removal.claims import Known
from tailrace.targets.api import Runtime
from tailrace.targets.lake.files.locate import CACHE
from tailrace.targets.lake.target import location

ORIGIN = origin()


def test_of_the_change_log_s_location_only_its_own_folders_are_deleted(tmp_path: Path) -> None:
    document = replicator()
    place = {"location": f"file://{tmp_path}/lake"}
    document["spec"]["storage"] = place
    document["spec"]["target"] = {"type": "delta", "location": f"file://{tmp_path}/tables"}
    for name in ("journal/00000000000000000000.json.x", "segments/a-1/1-2-f.parquet", "_tailrace_doctor/1"):
        (tmp_path / "lake" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lake" / name).touch()
    foreign = [tmp_path / "lake" / name for name in ("public/other/part.parquet", "notes.txt", "journals/2024.txt")]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    places = Places(Replicator.model_validate(document).spec)
    log = log_state(number=0, origin=ORIGIN.model_copy(update={"owner": "shop"}), owner="shop")
    known = Known(Replicator.model_validate(document), places.storage.root, log)
    assert [line[1] for line in drop_data.drop(known, places, tmp_path, lambda: known)] == ["dropped"]
    assert sorted(p for p in (tmp_path / "lake").rglob("*") if p.is_file()) == sorted(foreign)


def test_a_table_whose_name_would_lead_out_of_its_folder_stays_inside() -> None:
    assert location("file:///lake", _table("..").schema) == "file:///lake/public/!2e!2e"


def test_indexes_of_keys_are_kept_in_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CACHE, "kept", None)
    document = replicator()
    document["spec"]["target"] = {"type": "delta", "location": f"file://{tmp_path}/lake"}
    places = Places(Replicator.model_validate(document).spec)
    run = Runtime(
        cast(Any, None), lambda: None, cast(Any, None), "postgresql", scratch=tmp_path / "run", scratch_size=7
    )
    places.target.units(run)
    assert CACHE.kept is not None and CACHE.kept.size == 0
    assert (tmp_path / "run" / "keys").is_dir()


def _table(name: str) -> TableLog:
    schema = table_schema(1).model_copy(update={"table_name": name})
    return table_log(schema)
