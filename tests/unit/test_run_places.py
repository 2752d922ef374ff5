from pathlib import Path

import pytest

from support.journals import table_schema
from support.resources import replicator
from tailrace.changelog.state import LoggedSchema, TableLog
from tailrace.contract.resources import Replicator
from tailrace.errors import TargetRefused
from tailrace.run.drop import _data
from tailrace.run.targets import location


def test_of_the_change_log_s_location_only_its_own_folders_are_deleted(tmp_path: Path) -> None:
    document = replicator()
    place = {"location": f"file://{tmp_path}/lake"}
    document["spec"]["storage"] = place
    document["spec"]["target"] = {"type": "delta", **place}
    for name in ("journal/00000000000000000000.json.x", "segments/a-1/1-2-f.parquet", "_tailrace_doctor/1"):
        (tmp_path / "lake" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lake" / name).touch()
    foreign = [tmp_path / "lake" / name for name in ("public/other/part.parquet", "notes.txt", "journals/2024.txt")]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert len(list(_data(Replicator.model_validate(document).spec, tmp_path))) == 1
    assert sorted(p for p in (tmp_path / "lake").rglob("*") if p.is_file()) == sorted(foreign)


def test_a_table_whose_name_would_lead_out_of_its_folder_is_refused() -> None:
    schema = table_schema(1).model_copy(update={"table_name": ".."})
    logged = LoggedSchema(record=1, after_seq=0, table=schema)
    table = TableLog(table_id=1, added_record=1, edge_xid=1, initial_snapshot=False, schemas=(logged,))
    with pytest.raises(TargetRefused, match="public"):
        location("file:///lake", table)
