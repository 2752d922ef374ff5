"""Whose a table is, and whether somebody else has had his hands on it, by its files alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake import log_of_table
from tailrace.targets.lake.delta.state import DOMAIN
from tailrace.targets.lake.iceberg.state import STATE

STORED = {"format": 3, "logId": "log", "tableId": 7, "generation": 4}
OURS = {"snapshot-id": 1, "summary": {"operation": "overwrite", STATE: json.dumps(STORED)}}
COMPACTION = {"snapshot-id": 2, "parent-snapshot-id": 1, "summary": {"operation": "replace"}}
APPEND = {"snapshot-id": 2, "parent-snapshot-id": 1, "summary": {"operation": "append"}}
ANOTHER = {"snapshot-id": 3, "summary": {"operation": "append"}}
"""As CREATE OR REPLACE TABLE … AS leaves it: without a parent, and with the properties of the table that was there."""
UPDATE: list[dict[str, Any]] = [
    {"commitInfo": {"operation": "STREAMING UPDATE"}},
    {"domainMetadata": {"domain": DOMAIN, "configuration": json.dumps(STORED), "removed": False}},
]


def metadata(current: int | None, *snapshots: dict[str, Any], mirrored: int | None = 1) -> dict[str, Any]:
    mirror = STORED | {"snapshot": mirrored, "sequence": 1}
    found = {"properties": {STATE: json.dumps(mirror)}, "snapshots": list(snapshots)}
    return found if current is None else found | {"current-snapshot-id": current}


@pytest.mark.parametrize(
    ("document", "altered"),
    [
        (metadata(1, OURS), False),
        (metadata(2, OURS, COMPACTION), False),
        (metadata(2, OURS, APPEND), True),
        (metadata(3, OURS, ANOTHER), True),
        (metadata(2, COMPACTION), True),
        (metadata(None, mirrored=None), False),
        (metadata(-1, mirrored=None), False),
        (metadata(None), True),
    ],
    ids=["ours", "compacted", "written to", "replaced", "our version is gone", "new", "new (-1)", "emptied"],
)
def test_an_iceberg_table_that_somebody_else_changed_is_told(document: dict[str, Any], altered: bool) -> None:
    found = log_of_table.iceberg(document)
    assert found is not None
    assert (found.log_id, found.table_id, found.generation, found.altered) == ("log", 7, 4, altered)


def test_an_iceberg_table_without_the_state_is_nobody_s() -> None:
    assert log_of_table.iceberg({"properties": {}, "snapshots": [OURS], "current-snapshot-id": 1}) is None


@pytest.mark.parametrize(
    ("operation", "data_change", "altered"),
    [
        ("OPTIMIZE", False, False),
        ("SET TBLPROPERTIES", None, False),
        ("WRITE", True, True),
        ("RESTORE", False, True),
        ("CREATE OR REPLACE TABLE AS SELECT", True, True),
    ],
)
def test_a_delta_table_that_somebody_else_changed_is_told(
    tmp_path: Path, operation: str, data_change: bool | None, altered: bool
) -> None:
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": operation}}]
    actions += [] if data_change is None else [{"add": {"path": "x", "dataChange": data_change}}]
    log = tmp_path / "t/_delta_log"
    log.mkdir(parents=True)
    for version, commit in enumerate([UPDATE, actions]):
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, commit)))
    mark = log_of_table.delta(Storage.open(StorageLocation(location=tmp_path.as_uri())), "t")
    assert mark is not None and mark.path.endswith(f"{0:020d}.json")
    assert (mark.owner.log_id, mark.owner.table_id, mark.owner.altered) == ("log", 7, altered)


def test_a_table_that_was_put_back_carries_the_state_and_is_altered_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "t/_delta_log"
    log.mkdir(parents=True)
    restored = [{"commitInfo": {"operation": "RESTORE"}}, UPDATE[1]]
    (log / f"{9:020d}.json").write_text("\n".join(map(json.dumps, restored)))
    mark = log_of_table.delta(Storage.open(StorageLocation(location=tmp_path.as_uri())), "t")
    assert mark is not None and mark.owner.altered
