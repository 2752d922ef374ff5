"""Small commits to an Iceberg table (`TailraceWriter.java`): what readers and Iceberg itself find in the metadata."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from support.iceberg import LOG, Orders, folder_catalog, local, random_rows
from support.versions import turns
from tailrace.targets.lake.iceberg import small
from tailrace.targets.lake.iceberg.java import CommitConflict
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
MEMORY = 100_000_000
Entries = dict[str, tuple[Any, ...]]


def entries(orders: Orders) -> Entries:
    """Of each live file and vector: the snapshot and the sequence numbers that it came with."""
    parts = "snapshot_id, sequence_number, file_sequence_number, data_file.file_path, data_file.referenced_data_file"
    found = orders.spark.sql(f"SELECT {parts} FROM {orders.sql_name}.entries WHERE status < 2").collect()
    assert len({(row[3], row[4]) for row in found}) == len(found)
    return {f"{row[3]} {row[4]}": tuple(row[:3]) for row in found}


def row_ids(orders: Orders) -> dict[int, int]:
    return {row[0]: row[1] for row in orders.spark.sql(f"SELECT id, _row_id FROM {orders.sql_name}").collect()}


def manifests(orders: Orders) -> list[Any]:
    table = orders.table._open()[0].table
    table.refresh()
    return list(table.currentSnapshot().allManifests(table.io()))


def by_iceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "FILES", -1)


def change(orders: Orders, rng: random.Random) -> None:
    upserts = random_rows(rng, rng.sample(range(80), 6))
    orders.apply(upserts, [key for key in rng.sample(range(80), 3) if key not in upserts])


def forget(orders: Orders) -> None:
    """Nothing is known of any table's manifests."""
    keep = orders.catalog.java.iceberg.TailraceWriter.keep
    assert keep(0) == 0
    keep(MEMORY)


def reopen(orders: Orders, _: random.Random) -> None:
    forget(orders)
    orders.table = orders.another_opened()


def compact(orders: Orders, _: random.Random) -> None:
    chosen = [file for file in orders.table.files() if file.dead][:3]
    if chosen:
        remove = [file.path for file in chosen]
        keys = keys_of(orders, remove)
        rows = {key: row for key, row in orders.rows.items() if key in keys}
        orders.table.commit(TableCommit(orders.next(), orders.write(rows), remove=remove, data_change=False))


def keys_of(orders: Orders, paths: list[str]) -> set[int]:
    names = ", ".join(f"'{path.removeprefix('file://')}'" for path in paths)
    found = orders.spark.sql(
        f"SELECT id FROM {orders.sql_name} WHERE replace(replace(_file, 'file://', ''), 'file:', '') IN ({names})"
    )
    return {row[0] for row in found.collect()}


def others_compact(orders: Orders, _: random.Random) -> None:
    orders.call("rewrite_manifests")


@pytest.mark.parametrize("seed", turns(0, 1, 2))
@pytest.mark.parametrize("reopened", [True, False], ids=["manifests read", "manifests known"])
def test_files_keep_their_numbers_and_rows_their_ids_through_any_commits(
    reopened: bool, seed: int, spark: "SparkSession"
) -> None:
    orders, rng = Orders(spark), random.Random(2 * seed + reopened)
    known: Entries = {}
    ids: dict[int, int] = {}
    acts: list[Callable[[Orders, random.Random], None]] = [change] * 3 + [reopen, compact, compact, others_compact]
    rng.shuffle(acts)
    for act in [change] * 3 + acts + [change] * 2:
        if reopened:
            reopen(orders, rng)
        before = ids
        act(orders, rng)
        found = entries(orders)
        for name in found.keys() & known.keys():
            assert found[name] == known[name]
        known = found
        ids = row_ids(orders)
        assert ids.keys() == orders.rows.keys()
        assert len(set(ids.values())) == len(ids)
        if act is others_compact:
            assert ids == before
    assert orders.read() == orders.rows
    assert sorted(orders.another_opened().files(), key=str) == sorted(orders.table.files(), key=str)


def test_the_summary_is_that_of_icebergs_own_operation(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[tuple[str, dict[str, str]]]:
        orders, rng = Orders(spark), random.Random(3)
        for _ in range(6):
            change(orders, rng)
        orders.table.commit(TableCommit(orders.next(), orders.write(random_rows(rng, [1, 2])), clear=True))
        found = spark.sql(f"SELECT operation, summary FROM {orders.sql_name}.snapshots ORDER BY committed_at").collect()
        skipped = ("tailrace.commit", "manifests-created", "manifests-kept", "manifests-replaced")
        sizes = ("added-files-size", "removed-files-size", "total-files-size")  # paths differ in length
        return [(row[0], {k: v for k, v in row[1].items() if k not in skipped + sizes}) for row in found]

    ours = told()
    by_iceberg(monkeypatch)
    assert ours == told()


def test_small_manifests_are_those_of_icebergs_writer(spark: "SparkSession") -> None:
    def told(name: str) -> tuple[list[str], list[str]]:
        orders, rng = Orders(spark), random.Random(7)
        table: Any = orders.table._open()[0].table
        table.updateProperties().set(name, "gzip").commit()
        for act in [change] * 5 + [compact, change]:
            act(orders, rng)
        files = spark.table(f"{orders.sql_name}.entries").select(
            "status", "sequence_number", "file_sequence_number", "data_file.*"
        )
        lists = spark.table(f"{orders.sql_name}.manifests").drop("path", "length", "added_snapshot_id")
        rows = files.drop("file_path", "referenced_data_file").collect()
        return sorted(map(repr, rows)), sorted(map(repr, lists.collect()))

    assert told("another property") == told("write.manifest.compression-codec")


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_commit_that_another_one_overtakes_changes_nothing_and_deletes_nothing(
    step: int, spark: "SparkSession"
) -> None:
    orders, rng = Orders(spark), random.Random(step)
    for _ in range(step):
        change(orders, rng)
    folder = local(f"{orders.table.location}/metadata")
    left: set[str] = set()

    def overtaken() -> None:
        if not left:
            other = orders.another_opened()
            left.update(path.name for path in folder.iterdir())
            other.commit(TableCommit(orders.next(), orders.write({-1: (None, "other")}, other)))

    table = IcebergTable(orders.catalog, orders.access, orders.namespace, "orders", admit=overtaken)
    table.ensure(orders.schema, LOG)
    state = orders.next()
    with pytest.raises(CommitConflict):
        table.commit(TableCommit(state, orders.write({-2: (None, "overtaken")}, table)))
    assert left <= {path.name for path in folder.iterdir()}, "the catalog may be wrong: the sweep finds what is left"
    assert orders.read() == orders.rows | {-1: (None, "other")}


def test_a_commit_reads_no_manifest_that_was_written_before(spark: "SparkSession") -> None:
    orders, rng = Orders(spark), random.Random(1)
    for _ in range(12):
        change(orders, rng)
    for path in local(f"{orders.table.location}/metadata").glob("*.avro"):
        path.unlink()
    change(orders, rng)
    assert [int(manifest.existingFilesCount()) > 0 for manifest in manifests(orders)] == [True, True]
    assert orders.read() == orders.rows


def test_the_many_manifests_of_a_table_become_one_of_each_kind(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, rng = Orders(spark), random.Random(2)
    with monkeypatch.context() as patched:
        by_iceberg(patched)
        for _ in range(6):
            change(orders, rng)
    assert len(manifests(orders)) > 6
    change(orders, rng)
    assert len(manifests(orders)) == 2
    assert orders.read() == orders.rows


def many(spark: "SparkSession", files: int) -> Orders:
    """A table whose files, of two rows each, came in one commit."""
    orders = Orders(spark)
    rows = [{key: (None, "a"), key + 1: (None, "b")} for key in range(0, 2 * files, 2)]
    orders.table.commit(TableCommit(orders.next(), [new for some in rows for new in orders.write(some)]))
    orders.rows = {key: row for some in rows for key, row in some.items()}
    return orders


def test_a_manifest_too_large_to_merge_loses_a_file_and_nothing_is_added(spark: "SparkSession") -> None:
    orders = many(spark, 60)
    orders.apply({}, [0, 1])
    assert [int(manifest.existingFilesCount()) for manifest in manifests(orders)] == [59]
    assert orders.read() == orders.rows


def test_compaction_takes_vectors_from_a_manifest_too_large_to_merge(spark: "SparkSession") -> None:
    orders, rng = many(spark, 60), random.Random(1)
    orders.apply({}, list(range(0, 120, 2)))
    compact(orders, rng)
    assert [int(manifest.existingFilesCount()) for manifest in manifests(orders)] == [0, 57, 57]
    assert orders.read() == orders.rows
    assert row_ids(orders).keys() == orders.rows.keys()


def test_no_manifest_is_merged_to_more_than_a_limit(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "MERGED", 70)
    orders = many(spark, 60)
    rows = dict.fromkeys(range(200, 260), (None, "c"))
    orders.table.commit(TableCommit(orders.next(), [new for key in rows for new in orders.write({key: rows[key]})]))
    assert [int(manifest.addedFilesCount()) for manifest in manifests(orders)] == [60, 60]
    assert orders.read() == orders.rows | rows


def test_a_commit_that_had_to_read_much_is_left_to_iceberg(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[bool] = []
    real = IcebergTable._small

    def spied(*args: Any) -> Any:
        result = real(*args)
        done.append(result is not None)
        return result

    monkeypatch.setattr(IcebergTable, "_small", spied)
    orders = many(spark, 60)
    monkeypatch.setattr(small, "READ", 59)
    forget(orders)
    folder = local(f"{orders.table.location}/metadata")
    orders.apply({}, [0, 1])
    assert len(list(folder.glob("*.avro"))) == 4, "two lists, two manifests"
    orders.apply({}, [2, 3])
    assert done == [True, False, True]
    assert orders.read() == orders.rows


def test_what_is_known_of_all_tables_has_one_bound(spark: "SparkSession") -> None:
    writer = folder_catalog(spark).java.iceberg.TailraceWriter
    forget(Orders(spark))
    first = many(spark, 4)
    one = writer.keep(MEMORY)
    assert one > 0
    try:
        writer.keep(one)
        second = many(spark, 4)
        assert writer.keep(one) == one
        first.apply({}, [0, 1])
        assert writer.keep(one) <= one
        second.apply({}, [2, 3])
        assert (first.read(), second.read()) == (first.rows, second.rows)
    finally:
        writer.keep(MEMORY)
