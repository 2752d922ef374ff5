"""What a checkpoint says: the log up to its version, without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.lake import table_schema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta import checkpoint
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.delta.schema import new_metadata

NOW = 1_700_000_000.0
SECOND = 1000
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["columnMapping", "deletionVectors"],
    "writerFeatures": ["columnMapping", "deletionVectors", "domainMetadata"],
}
METADATA = new_metadata(table_schema([("id", "int64")], ["id"]), "a-table", int(NOW) * SECOND)
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 34, "cardinality": 2}


def add(path: str, **more: Any) -> dict[str, Any]:
    rest = {
        "partitionValues": {"day": None, "a b": "x=y"},
        "size": 7,
        "modificationTime": 5,
        "stats": '{"numRecords":3}',
    }
    return {"add": {"path": path, "dataChange": True, **rest, **more}}


def remove(path: str, seconds_ago: int, **more: Any) -> dict[str, Any]:
    when = {"deletionTimestamp": (int(NOW) - seconds_ago) * SECOND, "extendedFileMetadata": True}
    return {"remove": {"path": path, "dataChange": True, **when, "partitionValues": {"day": None}, "size": 7, **more}}


def domain(name: str, configuration: str, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


def txn(application: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": application, "version": version, "lastUpdated": 9}}


LOG: list[list[dict[str, Any]]] = [
    [{"commitInfo": {"operation": "CREATE"}}, {"protocol": PROTOCOL}, {"metaData": METADATA}, domain("tailrace", "0")],
    [
        add("a.parquet", tags={"t": "1"}),
        add("b%20b.parquet"),
        add("c.parquet", baseRowId=4),
        txn("ours", 1),
        txn("x", 8),
    ],
    [
        remove("a.parquet", 60),
        add("a.parquet", deletionVector=VECTOR, clusteringProvider="liquid"),
        domain("gone", "1"),
    ],
    [remove("b%20b.parquet", 3 * 3600), remove("c.parquet", 50, baseRowId=4), domain("gone", "", removed=True)],
    [add("c.parquet", baseRowId=4), txn("ours", 2), domain("tailrace", "4")],
    [remove("a.parquet", 40, deletionVector=VECTOR), add("d.parquet"), txn("ours", 3)],
]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=tmp_path.as_uri()))


def write_log(storage: Storage, versions: range) -> list[str]:
    names = []
    for version in versions:
        names.append(f"{version:020d}.json")
        text = "\n".join(json.dumps(action) for action in LOG[version])
        storage.create(f"{storage.root}/_delta_log/{names[-1]}", text.encode())
    return names


def said(state: State | None) -> list[tuple[str, Any]]:
    assert state is not None
    return sorted(checkpoint.actions(state, NOW), key=lambda entry: json.dumps(entry, sort_keys=True))


@pytest.mark.parametrize("at", range(1, 7))
def test_a_checkpoint_says_what_the_log_up_to_it_says(storage: Storage, at: int) -> None:
    names = write_log(storage, range(len(LOG)))
    whole = replay(storage, storage.root, names)
    begun = replay(storage, storage.root, names[: at + 1])
    assert begun is not None
    pointer = checkpoint.write(storage, storage.root, at, begun, NOW)
    assert pointer is not None and pointer["numOfAddFiles"] == len(begun.files)
    stored = f"{at:020d}.checkpoint.parquet"
    assert said(replay(storage, storage.root, [stored])) == said(begun)
    assert said(replay(storage, storage.root, [stored, *names[at + 1 :]])) == said(whole)


def test_nothing_that_counts_is_left_out(storage: Storage) -> None:
    found = said(replay(storage, storage.root, write_log(storage, range(len(LOG)))))
    assert ("protocol", PROTOCOL) in found and ("metaData", METADATA) in found
    kinds = [(kind, action.get("path") or action.get("appId") or action.get("domain")) for kind, action in found]
    assert sorted((kind, name) for kind, name in kinds if name) == [
        ("add", "c.parquet"),
        ("add", "d.parquet"),
        ("domainMetadata", "tailrace"),
        # Both names of it: the file, and the file under its vector. `b b` is past what the table keeps.
        ("remove", "a.parquet"),
        ("remove", "a.parquet"),
        ("txn", "ours"),
        ("txn", "x"),
    ]
    (ours,) = [action for kind, action in found if kind == "txn" and action["appId"] == "ours"]
    assert ours["version"] == 3
    assert not any(action["dataChange"] for kind, action in found if kind in ("add", "remove"))


def test_a_version_that_has_a_checkpoint_keeps_it(storage: Storage) -> None:
    state = replay(storage, storage.root, write_log(storage, range(2)))
    assert state is not None
    assert checkpoint.write(storage, storage.root, 1, state, NOW) is not None
    name = f"{storage.root}/_delta_log/{1:020d}.checkpoint.parquet"
    before = storage.get(name)
    assert checkpoint.write(storage, storage.root, 1, State(PROTOCOL, METADATA), NOW) is None
    assert storage.get(name) == before


def test_a_checkpoint_is_due_where_the_table_says_so() -> None:
    assert [version for version in range(31) if checkpoint.due(version, {"configuration": {}})] == [10, 20, 30]
    assert [version for version in range(201) if checkpoint.due(version, METADATA)] == [100, 200]
    for odd in ("0", "-3", "often"):
        settings = {"configuration": {"delta.checkpointInterval": odd}}
        assert [version for version in range(31) if checkpoint.due(version, settings)] == [10, 20, 30]
