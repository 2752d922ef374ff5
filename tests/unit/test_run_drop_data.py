from pathlib import Path

from support.resources import replicator
from tailrace.contract.resources import Replicator
from tailrace.run.drop import _data


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
