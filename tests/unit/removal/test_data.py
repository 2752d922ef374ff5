"""`drop --data` where the catalog is no folder: tables and files can have parted."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.journals import table_schema
from support.origins import origin
from support.resources import replicator
from support.states import log_state, table_log
from tailrace.changelog.paths import DROPPED
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import Replicator
from tailrace.places import Places
from tailrace.removal import data
from tailrace.removal.claims import Known
from tailrace.targets.lake.iceberg.state import STATE
from tailrace.targets.lake.removal import LakeRemoval

ORIGIN = origin("log")
NAMES = ("orders", "items")


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    """A change log of two tables whose files lie in the lake. The catalog, which takes a JVM, has neither name."""

    def nothing(lake: LakeRemoval, name: tuple[str, str]) -> Any:
        return None

    monkeypatch.setattr(LakeRemoval, "_entry", nothing)
    monkeypatch.setattr(LakeRemoval, "_drop_from_catalog", nothing)
    for name in NAMES:
        metadata = tmp_path / "lake/public" / name / "metadata/00003-aa.metadata.json"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(json.dumps({"properties": {STATE: json.dumps({"logId": "log"})}}))
        (metadata.parent.parent / "part.parquet").write_bytes(b"x")
    document = replicator()
    document["spec"]["target"] = {
        "type": "iceberg",
        "location": f"file://{tmp_path}/lake",
        "catalog": {"type": "rest", "uri": "http://catalog"},
    }
    document["spec"]["storage"] = {"location": f"file://{tmp_path}/log"}
    tables = [_table(i, name) for i, name in enumerate(NAMES, 1)]
    log = log_state(*tables, number=0, origin=ORIGIN, owner="shop")
    return Known(Replicator.model_validate(document), f"file://{tmp_path}/log", log)


def test_a_table_that_a_user_keeps_under_another_name_in_the_catalog_is_kept_with_its_files(
    known: Known, tmp_path: Path
) -> None:
    """`ALTER TABLE … RENAME` leaves the files where they are."""
    lines = list(data.drop(known, Places(known.replicator.spec), tmp_path / "run", lambda: known))
    assert [(line[1], line[2]) for line in lines[:-1]] == [("kept", "the catalog has no such table")] * 2
    assert _files(tmp_path) == {(name, file) for name in NAMES for file in ("00003-aa.metadata.json", "part.parquet")}


def test_of_tables_without_an_entry_a_repeated_deletion_completes_those_that_it_had_begun(
    known: Known, tmp_path: Path
) -> None:
    places = Places(known.replicator.spec)
    note = data.Proven(owner="shop", log_id="log", epoch=-1, tables=(("public", "items"),))
    places.storage.put(DROPPED, note.model_dump_json().encode())
    lines = {line[0].rpartition("/")[2]: line[1] for line in data.drop(known, places, tmp_path / "run", lambda: known)}
    assert (lines["orders"], lines["items"]) == ("kept", "dropped")
    assert {name for name, _ in _files(tmp_path)} == {"orders"}


def _files(folder: Path) -> set[tuple[str, str]]:
    """Table and name."""
    lake = folder / "lake/public"
    return {(p.relative_to(lake).parts[0], p.name) for p in lake.rglob("*") if p.is_file()}


def _table(table_id: int, name: str) -> TableLog:
    schema = table_schema(table_id).model_copy(update={"table_name": name})
    return table_log(schema)
