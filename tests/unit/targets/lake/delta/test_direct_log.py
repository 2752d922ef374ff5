"""Delta's log as files: which of them make up a version, who gets a version, and which tables are left to Delta."""

import json
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.lake import LocalFiles, table_schema
from tailrace.errors import OutcomeUnknown, Retry, StorageFull
from tailrace.targets.lake.delta.direct_log import DirectLog, LogGap, version_files
from tailrace.targets.lake.delta.protocol import FEATURE, NEW, is_direct, settled
from tailrace.targets.lake.delta.schema import new_metadata

PROTOCOL, METADATA = settled(NEW, new_metadata(table_schema([("id", "int64"), ("at", "timestamp")], ["id"]), "a", 0))


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def checkpoint(version: int, parts: str = "") -> str:
    return f"{version:020d}.checkpoint{parts}.parquet"


PARTS = [".0000000001.0000000002", ".0000000002.0000000002"]
OTHER = ["_last_checkpoint", f"{2:020d}.crc", f".{2:020d}.json.crc", f"_staged_commits/{9:020d}.json", "x.json.tmp"]


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        (commits(0, 1, 2), 2, commits(0, 1, 2)),
        ([*commits(0, 1, 2, 3), checkpoint(2)], 3, [checkpoint(2), *commits(3)]),
        ([*commits(2, 3), checkpoint(1), checkpoint(2)], 3, [checkpoint(2), *commits(3)]),
        ([*commits(0, 1), checkpoint(1)], 1, [checkpoint(1)]),
        ([checkpoint(4)], 4, [checkpoint(4)]),
        ([*commits(4), *(checkpoint(4, part) for part in PARTS)], 4, [checkpoint(4, part) for part in PARTS]),
        # Half a checkpoint is none; the log before it is still there, or it is not.
        ([*commits(0, 1, 2), checkpoint(2, PARTS[0])], 2, commits(0, 1, 2)),
        ([*commits(2, 3), checkpoint(2, PARTS[1])], 3, None),
        (commits(0, 2), 2, None),
        ([*commits(5, 6), f"{5:020d}.checkpoint.00000000-0000-0000-0000-000000000000.parquet"], 6, None),
    ],
)
def test_a_version_is_its_last_whole_checkpoint_and_every_commit_after_it(
    names: list[str], version: int, expected: list[str] | None
) -> None:
    assert version_files([*reversed(names), *OTHER]) == (version, expected)


def test_a_folder_without_versions_is_no_table_and_an_older_version_is_asked_for_by_number() -> None:
    assert version_files(OTHER) is None
    assert version_files([*commits(0, 1, 2, 3), checkpoint(3)], last=2) == (2, commits(0, 1, 2))


@pytest.fixture
def log(tmp_path: Path) -> DirectLog:
    return DirectLog(LocalFiles(), f"file://{tmp_path}/t")


def domain(text: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": "d", "configuration": text, "removed": False}}


def test_what_was_committed_is_read_and_known_to_be_the_newest(log: DirectLog) -> None:
    assert log.read() is None
    first = log.commit(0, [{"protocol": PROTOCOL}, {"metaData": METADATA}, domain("a")])
    second = log.commit(1, [domain("ä")])
    read = log.read()
    assert read is not None and read.state is not None and (read.version, read.digest) == (1, second)
    assert (read.state.protocol, read.state.metadata, read.state.domains) == (PROTOCOL, METADATA, {"d": "ä"})
    assert log.is_newest(1, second)
    assert not log.is_newest(0, first), "another version came after it"
    assert not log.is_newest(1, first), "the table was made anew"
    assert not log.is_newest(2, second) and not log.is_newest(1, None)
    assert log.has(0, first) and not log.has(1, first) and log.has(1, None) and not log.has(2, None)
    assert list(log.changes(1, 1)) == [(1, [domain("ä")])]
    with pytest.raises(LogGap, match="lacks version 2"):
        list(log.changes(1, 2))


class Unsure(LocalFiles):
    """Of each version created nothing is heard but `error`; `happened`: it was created all the same."""

    def __init__(self, error: Exception, happened: bool) -> None:
        self.error, self.happened = error, happened

    @override
    def create(self, path: str, data: bytes) -> None:
        if self.happened:
            super().create(path, data)
        raise self.error


def test_a_version_belongs_to_whoever_created_it(tmp_path: Path, log: DirectLog) -> None:
    mine = log.commit(3, [domain("mine")])
    with pytest.raises(Retry, match=r"somebody else changed the table: .*/0{19}3\.json exists"):
        log.commit(3, [domain("theirs")])
    assert log.commit(3, [domain("mine")]) == mine, "a request that was sent twice"
    location = f"file://{tmp_path}/t"
    lost = OutcomeUnknown("the answer got lost")
    assert DirectLog(Unsure(lost, True), location).commit(4, [domain("4")]) == log.commit(4, [domain("4")])
    with pytest.raises(Retry, match=r"did not happen: the answer got lost"):
        DirectLog(Unsure(lost, False), location).commit(5, [domain("5")])
    log.commit(5, [domain("theirs")])
    with pytest.raises(Retry, match="somebody else"):
        DirectLog(Unsure(lost, False), location).commit(5, [domain("5")])
    with pytest.raises(StorageFull):
        DirectLog(Unsure(StorageFull("full", ""), False), location).commit(6, [domain("6")])


def test_an_outcome_that_cannot_be_found_out_stays_unknown(tmp_path: Path) -> None:
    class Away(Unsure):
        @override
        def get(self, path: str) -> bytes:
            raise Retry("no connection")

    with pytest.raises(OutcomeUnknown):
        DirectLog(Away(OutcomeUnknown("lost"), True), f"file://{tmp_path}/t").commit(0, [domain("0")])


def test_a_checksum_of_hadoops_does_not_outlive_its_file(tmp_path: Path, log: DirectLog) -> None:
    folder = tmp_path / "t" / "_delta_log"
    folder.mkdir(parents=True)
    stale = [folder / f".{0:020d}.json.crc", folder / "._last_checkpoint.crc"]
    for path in stale:
        path.write_bytes(b"crc")
    log.commit(0, [domain("0")])
    log.point_to({"version": 0, "size": 1})
    assert not any(path.exists() for path in stale)
    assert json.loads((folder / "_last_checkpoint").read_text()) == {"version": 0, "size": 1}


def test_features_that_the_columns_need_move_from_the_properties_to_the_protocol() -> None:
    assert not any(name.startswith(FEATURE) for name in METADATA["configuration"])
    assert PROTOCOL["readerFeatures"] == ["columnMapping", "deletionVectors", "timestampNtz"]
    assert PROTOCOL["writerFeatures"] == sorted([*NEW["writerFeatures"], "timestampNtz"])
    assert settled(PROTOCOL, METADATA) == (PROTOCOL, METADATA)
    assert is_direct(PROTOCOL, METADATA)


@pytest.mark.parametrize(
    ("features", "configuration", "direct"),
    [
        ([], {}, True),
        (["changeDataFeed", "clustering"], {"delta.enableChangeDataFeed": "true", "team": "lake"}, True),
        ([], {"delta.constraints.short": "length(b) < 9", "delta.checkpointPolicy": "classic"}, True),
        (["rowTracking"], {}, False),
        (["inCommitTimestamp"], {}, False),
        (["v2Checkpoint"], {}, False),
        (["icebergCompatV2"], {}, False),
        (["somethingNew"], {}, False),
        ([], {"delta.enableRowTracking": "true"}, False),
        ([], {"delta.columnMapping.mode": "id"}, False),
        ([], {"delta.checkpoint.writeStatsAsStruct": "true"}, False),
        ([], {"delta.checkpoint.writeStatsAsJson": "false"}, False),
        ([], {"delta.universalFormat.enabledFormats": "iceberg"}, False),
        ([], {"delta.compatibility.symlinkFormatManifest.enabled": "true"}, False),
    ],
)
def test_a_table_with_rules_that_are_not_known_here_is_left_to_delta(
    features: list[str], configuration: dict[str, str], direct: bool
) -> None:
    protocol = {**PROTOCOL, "writerFeatures": [*PROTOCOL["writerFeatures"], *features]}
    metadata = {**METADATA, "configuration": {**METADATA["configuration"], **configuration}}
    assert is_direct(protocol, metadata) is direct


def test_a_table_without_what_our_commits_need_is_left_to_delta_which_says_so() -> None:
    for lacking in ("deletionVectors", "domainMetadata", "columnMapping"):
        left = [feature for feature in PROTOCOL["writerFeatures"] if feature != lacking]
        readers = [feature for feature in PROTOCOL["readerFeatures"] if feature != lacking]
        assert not is_direct({**PROTOCOL, "writerFeatures": left, "readerFeatures": readers}, METADATA)
    assert not is_direct({"minReaderVersion": 1, "minWriterVersion": 2}, METADATA)
    assert not is_direct({}, METADATA)
