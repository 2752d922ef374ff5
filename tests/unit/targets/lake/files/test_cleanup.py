"""Which files a clean-up takes, without a table: names, ages, the log's beginning, the versions to look at."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.lake import LocalFiles
from tailrace.storage.access import StorageRefused
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta.cleanup import outdated, removed_by, retention
from tailrace.targets.lake.files import cleanup
from tailrace.targets.lake.iceberg.history import MAX_AGE, History
from tailrace.targets.lake.iceberg.state import STATE
from tailrace.targets.lake.kept import HISTORY_SECONDS, KeptChunks, name_of, names_of

LOG = "file:///t/_delta_log"


def delta_log(commits: int, checkpoints: list[int]) -> list[tuple[str, float]]:
    """A commit a second."""
    found = [(f"{LOG}/{number:020d}.json", float(number)) for number in range(commits)]
    return found + [(f"{LOG}/{number:020d}.checkpoint.parquet", float(number)) for number in checkpoints]


def first_left(log: list[tuple[str, float]], gone: list[str]) -> int:
    return min(int(name_of(path)[:20]) for path, _ in log if path not in gone)


@pytest.mark.parametrize(
    ("older_than", "newest", "first"),
    [
        (-1.0, 29, 0),  # nothing is that old
        (9.5, 29, 0),  # version 9 was current then: only what checkpoint 0 begins with reads it
        (10.5, 29, 10),
        (25.0, 29, 20),
        (99.0, 29, 20),  # an idle table
        (25.0, 15, 10),  # our own last commit, or what Delta reads from, is older
        (25.0, -1, 0),
    ],
)
def test_the_log_begins_with_the_last_checkpoint_that_a_kept_version_needs(
    older_than: float, newest: int, first: int
) -> None:
    log = delta_log(30, [10, 20])
    assert first_left(log, outdated(log, older_than, newest)) == first


@pytest.mark.parametrize(
    "strange", ["00000000000000000010.checkpoint.80a083e8-7026.json", "0.00000000009.compacted.json", "x.parquet"]
)
def test_a_log_with_files_of_another_kind_is_left_to_delta(strange: str) -> None:
    log = delta_log(30, [10, 20])
    assert outdated([*log, (f"{LOG}/{strange}", 0.0)], 99.0, 29) == []
    assert outdated([*log, (f"{LOG}/_last_checkpoint", 0.0)], 99.0, 29) != []


def test_a_checkpoint_in_parts_is_no_beginning_of_a_log() -> None:
    """One of its parts may be missing."""
    parts = [(f"{LOG}/{20:020d}.checkpoint.{part:010d}.{2:010d}.parquet", 20.0) for part in (1, 2)]
    log = [*delta_log(30, [10]), *parts]
    assert first_left(log, outdated(log, 99.0, 29)) == 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, HISTORY_SECONDS),
        ("interval 1 hour", HISTORY_SECONDS),
        ("interval 7 days", 7 * 86400.0),
        ("INTERVAL 2 Weeks", 14 * 86400.0),
        ("interval 1 second", HISTORY_SECONDS),
        ("interval 1 day 3 hours", None),
    ],
)
def test_a_table_that_asks_for_a_longer_retention_gets_it(text: str | None, seconds: float | None) -> None:
    configuration = {} if text is None else {"delta.deletedFileRetentionDuration": text}
    assert retention({"configuration": configuration}) == seconds


def test_a_removed_file_gives_up_its_data_and_its_vector_file() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "cardinality": 6}
    inline = vector | {"storageType": "i", "pathOrInlineDv": "wi5b="}
    removed: list[dict[str, Any]] = [
        {"path": "data/a.parquet", "deletionTimestamp": 5000, "deletionVector": vector},
        {"path": "data/b%20c.parquet", "deletionTimestamp": 6000, "deletionVector": inline},
    ]
    assert removed_by(removed, "file:///t") == {
        "file:///t/data/a.parquet": 5.0,
        "file:///t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin": 5.0,
        "file:///t/data/b c.parquet": 6.0,
    }


def test_of_a_file_given_up_several_times_the_newest_time_counts(tmp_path: Path) -> None:
    """A data file has a tombstone for each vector that was replaced, a file of vectors one for each data file; in a
    checkpoint they stand in any order."""
    old = {"path": "data/a.parquet", "deletionTimestamp": 1000_000}
    new = {"path": "data/a.parquet", "deletionTimestamp": 9000_000}
    for order in ([old, new], [new, old]):
        assert removed_by(order, "file:///t") == {"file:///t/data/a.parquet": 9000.0}
        cleaner = delta_cleanup.DeltaCleaner(LocalFiles(), "file:///t")
        for action in order:
            cleaner.opened(5, [action])
        assert cleaner.removed == {"file:///t/data/a.parquet": 9000.0}
    cleaner.committed([old], "data/a.parquet", 1.0)
    assert cleaner.removed == {"file:///t/data/a.parquet": 9000.0}


def test_chunk_files_stay_while_the_change_log_or_a_snapshot_needs_them() -> None:
    names = ["chunk-s-000001-x.parquet", "chunk-s-000002-x.parquet", "other.parquet"]
    found = [(f"file:///t/data/{name}", 1.0) for name in names]

    def gone(chunks: KeptChunks, before: float = 2.0) -> list[str]:
        return sorted(names_of(cleanup.abandoned(found, set(), before=before, chunks=chunks)))

    assert gone(KeptChunks(frozenset(names[:1]))) == names[1:]
    assert gone(KeptChunks(reading=True)) == names[2:]
    assert not gone(KeptChunks(), before=1.0)


def test_files_are_compared_by_name_however_their_paths_are_written() -> None:
    found = [("s3://lake/t/data/a b.parquet", 1.0), ("file:///t/data/c.parquet", 1.0)]
    needed = names_of(["s3a://lake/t/data/a%20b.parquet", "file:/t/data/c.parquet"])
    assert cleanup.abandoned(found, needed, before=2.0, chunks=KeptChunks()) == []


def test_nothing_outside_the_table_is_deleted_and_a_storage_that_refuses_stops_nothing(tmp_path: Path) -> None:
    inside, outside = tmp_path / "t" / "data" / "a", tmp_path / "t2" / "b"
    for path in (inside, outside):
        path.parent.mkdir(parents=True)
        path.touch()
    assert cleanup.remove(LocalFiles(), [f"file://{inside}", f"file://{outside}"], f"file://{tmp_path}/t")
    assert (inside.exists(), outside.exists()) == (False, True)

    class Refusing(LocalFiles):
        @override
        def delete(self, path: str) -> None:
            raise StorageRefused("no right to delete")

    assert not cleanup.remove(Refusing(), [f"file://{inside}"], f"file://{tmp_path}/t")


@pytest.mark.parametrize("deletions", range(5))
def test_whoever_dies_while_files_are_deleted_leaves_no_checksum_without_its_file(
    tmp_path: Path, deletions: int
) -> None:
    names = [f"_delta_log/{number:020d}.checkpoint.parquet" for number in (100, 200)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for path in (tmp_path / name, (tmp_path / name).with_name(f".{name.partition('/')[2]}.crc")):
            path.touch()
    left = deletions

    class Dying(LocalFiles):
        @override
        def delete(self, path: str) -> None:
            nonlocal left
            if left == 0:
                raise StorageRefused("dead")
            left -= 1
            super().delete(path)

    assert cleanup.remove(Dying(), [f"file://{tmp_path}/{name}" for name in names], f"file://{tmp_path}") == (
        deletions == 4
    )
    found = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert len(found) == 4 - deletions
    assert {name[1:-4] for name in found if name.endswith(".crc")} <= found


UUID = "1cd9cb2a-bd22-4f6c-b5e4-b8e2f0ba7e5c"
KILLED = (
    f"_delta_log/.{7:020d}.json.{UUID}.tmp",
    f"_delta_log/.{100:020d}.checkpoint.parquet.{UUID}.TID12.tmp",
    f"_delta_log/..{100:020d}.checkpoint.parquet.{UUID}.tmp.crc",
    f"_delta_log/._last_checkpoint.{UUID}.tmp",
    f"metadata/{UUID}-version-hint.temp",
    "data/.tailrace-tmp-0123456789abcdef",
    "data/.gone.parquet.crc",
)
"""What a process leaves that dies while it writes, or between a deletion and that of the checksum."""


def test_what_killed_writers_left_goes_by_its_age_and_nothing_that_stands_for_a_file(tmp_path: Path) -> None:
    kept = ("data/a.parquet", "data/.a.parquet.crc", "_delta_log/_last_checkpoint", "data/.hidden", "metadata/v1.tmp")
    for name in (*KILLED, *kept):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1000.0, 1000.0))
    files, location = LocalFiles(), tmp_path.as_uri()
    assert cleanup.left_by_killed(files, location, 1000.0) == []
    found = cleanup.left_by_killed(files, location, 1001.0)
    assert {path.removeprefix(f"{location}/") for path in found} == set(KILLED)


def test_lists_of_holes_that_a_kept_commit_names_are_found(tmp_path: Path) -> None:
    def commit(number: int, configuration: dict[str, Any]) -> str:
        domain = {"domainMetadata": {"domain": "tailrace.applied", "configuration": json.dumps(configuration)}}
        path = tmp_path / f"{number:020d}.json"
        path.write_text('{"commitInfo": {}}\n' + json.dumps(domain))
        return f"file://{path}"

    log = [commit(1, {"holesFile": "_tailrace/holes-1.json"}), commit(2, {"holes": []})]
    assert delta_cleanup.side_files(LocalFiles(), [*log, f"file://{tmp_path}/_last_checkpoint"]) == {"holes-1.json"}


def history(
    *edges: tuple[int, int | None],
    current: int,
    refs: tuple[str, ...] = ("main",),
    max_age_ms: int = 0,
    of: Mapping[str, int] | None = None,
    ours: tuple[int, ...] = (),
) -> History:
    """`of`: the snapshots that refs name, the current one by default. `ours`: those that Tailrace committed."""
    of = of or {}
    snapshots = [
        {
            "snapshot-id": id_,
            "timestamp-ms": id_ * 1000,
            "manifest-list": f"snap-{id_}.avro",
            "summary": {STATE: "{}"} if id_ in ours else {},
        }
        | ({} if parent is None else {"parent-snapshot-id": parent})
        for id_, parent in edges
    ]
    doc = {
        "snapshots": snapshots,
        "current-snapshot-id": current,
        "properties": {MAX_AGE: str(max_age_ms)} if max_age_ms else {},
        "refs": {name: {"snapshot-id": of.get(name, current)} for name in refs},
    }
    return History.parse(json.dumps(doc))


def test_the_oldest_of_a_plain_line_of_versions_reaches_all_that_older_ones_share() -> None:
    plain = history((3, 2), (4, 3), (5, 4), current=5)
    assert [kept.id for kept in plain.borders()] == [3]
    assert history(current=-1).borders() == []


@pytest.mark.parametrize(
    "branched",
    [
        history((3, 2), (4, 3), (5, 3), current=5),  # put back to 3
        history((3, 2), (4, 3), (5, None), current=4),  # staged
        history((3, 2), (4, 3), current=4, refs=("main", "audit")),
    ],
)
def test_where_versions_branch_all_of_them_are_looked_at(branched: History) -> None:
    assert len(branched.borders()) == len(branched.snapshots)


def test_versions_that_cuts_keep_are_looked_at_beside_the_oldest_of_the_line() -> None:
    kept = history((1, None), (7, 6), (8, 7), current=8, refs=("main", "cut_a"), of={"cut_a": 1})
    assert ([version.id for version in kept.borders()], kept.plain) == ([7, 1], True)
    over = history((1, None), (7, 6), (8, 7), current=8, ours=(1, 7, 8))
    assert ([version.id for version in over.borders()], over.let_go(7000)) == ([7, 1], True)
    assert not kept.let_go(7000)
    staged = history((1, None), (7, 6), (8, 7), current=8, ours=(7, 8))
    assert not staged.plain, "another program's, of which files may come back"


def test_the_line_begins_with_cuts_that_are_older_than_what_is_kept_for_its_age() -> None:
    """Files that a killed writer left since the cut are as old as the version behind it, and go."""
    some = history(
        (1, None), (5, 4), (6, 5), (7, 6), current=7, refs=("main", "cut_a", "cut_b"), of={"cut_a": 5, "cut_b": 1}
    )
    assert [version.id for version in some.aged()] == [6, 7]
    assert [version.id for version in some.borders()] == [5, 6, 1]
    every = history((5, 4), (6, 5), current=6, refs=("main", "cut_a", "cut_b"), of={"cut_a": 5, "cut_b": 6})
    assert ([version.id for version in every.aged()], [version.id for version in every.borders()]) == ([6], [5, 6])
    assert history(current=-1).aged() == []


@pytest.mark.parametrize(("older_than", "cutoff"), [(2.0, 0), (3.0, 3000), (3.9, 3000), (4.0, 4000), (99.0, 5000)])
def test_the_version_that_was_current_at_the_time_is_kept(older_than: float, cutoff: int) -> None:
    assert history((3, 2), (4, 3), (5, 4), current=5).cutoff_ms(older_than) == cutoff


def test_a_longer_age_in_the_tables_properties_counts() -> None:
    asked = history((3, 2), (4, 3), (5, 4), current=5, max_age_ms=int(HISTORY_SECONDS + 1) * 1000)
    assert asked.cutoff_ms(5.0) == 4000
    shorter = history((3, 2), (4, 3), (5, 4), current=5, max_age_ms=1000)
    assert shorter.cutoff_ms(5.0) == 5000
