"""The applied state in an Iceberg table: foreign compaction, expiry, roll-back, other writers, unknown outcomes."""

import json
import random
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from support.iceberg import LOG, Orders, create_namespace_late, local, random_rows
from tailrace.batch.applied import FIRST, Generation
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import ForeignChange, OutcomeUnknown, Retry, TargetChanged
from tailrace.seams import SeamFailure
from tailrace.targets.api import Opening, Runtime
from tailrace.targets.lake.iceberg import small
from tailrace.targets.lake.iceberg.catalog import IcebergCatalog
from tailrace.targets.lake.iceberg.java import CommitConflict, Java
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit
from tailrace.targets.lake.target import LakeTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""

REWRITE = ", options => map('rewrite-all', 'true')"
ONE = {1: (Decimal("1.00"), "one")}


def filled(spark: "SparkSession") -> Orders:
    """Three commits, two files with a vector each."""
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(10)))
    orders.apply(random_rows(random.Random(2), range(10, 20)), deletes=[0])
    orders.apply({}, deletes=[10])
    return orders


def expire(orders: Orders) -> None:
    time.sleep(0.01)
    orders.call("expire_snapshots", f", older_than => TIMESTAMP '{_now()}', retain_last => 1")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time())) + f".{int(time.time() * 1000) % 1000:03d}"


def test_we_forget_old_versions_ourselves_and_keep_state_and_rows(spark: "SparkSession") -> None:
    orders = filled(spark)
    for key in range(100, 125):
        orders.apply({key: (Decimal("1.00"), "more")})
    assert not orders.table.expire(time.time() - 3600), "nothing is that old"
    time.sleep(0.01)
    assert orders.table.expire(time.time(), at_once=1)
    assert len(snapshots(orders)) == 1
    before = orders.table.refresh()
    orders.apply({5: (Decimal("5.00"), "five")})
    assert orders.read() == orders.rows
    assert orders.table.refresh().applied_record == before.applied_record + 1


def test_a_table_at_rest_is_opened_without_java_and_by_java_when_more_is_wanted(spark: "SparkSession") -> None:
    orders = filled(spark)
    asked: list[bool] = []

    def java() -> Java:
        asked.append(True)
        return orders.catalog.java

    def at_rest() -> IcebergTable:
        catalog = IcebergCatalog(java, orders.place)
        table = IcebergTable(catalog, orders.access, orders.namespace, "orders")
        assert table.ensure(orders.schema, LOG) == orders.table.refresh()
        return table

    at_rest()
    orders.call("rewrite_data_files", REWRITE)
    first, second = at_rest(), at_rest()
    (local(orders.table.location) / "metadata" / "version-hint.text").write_text("1")
    third = at_rest()
    assert not asked
    run = Runtime(orders.access, lambda: None, lambda: pytest.fail("it needs no session"), "postgresql")
    unit = LakeTarget(orders.place).units(run).alone()
    placed = orders.schema.model_copy(update={"schema_name": orders.namespace})
    assert unit.open({4711: Opening(placed, FIRST)}, LOG)[4711].applied == orders.table.refresh()
    assert {file.path for file in first.files()} == {file.path for file in orders.table.files()} and asked
    state = orders.next()
    third.commit(TableCommit(state, orders.write({700: (Decimal("7.00"), "seven")}, third)))
    assert at_rest().refresh() == state
    with pytest.raises(Retry, match="dropped or re-created"):
        second.files()
    assert second.ensure(orders.schema, LOG) == state
    orders.spark.sql(f"INSERT INTO {orders.sql_name} VALUES (99, 1.0, 'x')")
    with pytest.raises(ForeignChange):
        orders.another_opened()


def snapshots(orders: Orders) -> list[int]:
    rows = orders.spark.sql(f"SELECT snapshot_id FROM {orders.sql_name}.snapshots ORDER BY committed_at").collect()
    return [row[0] for row in rows]


@pytest.mark.parametrize("damage", ["empty", "cut off", "gone", "manifests"])
def test_after_a_power_cut_the_version_before_the_damaged_one_is_put_back_as_the_document_says(
    spark: "SparkSession", damage: str
) -> None:
    """Iceberg writes its metadata through Hadoop, which forces nothing to a local disk."""
    orders = filled(spark)
    before = orders.table.refresh()
    rows = dict(orders.rows)
    orders.apply({5: (Decimal("5.00"), "five")})
    metadata = local(orders.table.location) / "metadata"
    newest = max(metadata.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    match damage:
        case "manifests":
            max(metadata.glob("snap-*.avro"), key=lambda path: path.stat().st_mtime_ns).write_bytes(b"")
        case "gone":
            newest.unlink()
        case _:
            newest.write_bytes(newest.read_bytes()[: 0 if damage == "empty" else 3000])
    with pytest.raises(Retry, match=r"v\d|RuntimeIOException|ValidationException") as caught:
        orders.another_opened().files()
    assert caught.value.name == "Retry" and "power cut" in caught.value.fix

    newest.unlink(missing_ok=True)
    (metadata / "version-hint.text").unlink()
    orders.table = orders.another_opened()
    assert orders.table.refresh() == before
    orders.rows = rows
    orders.apply({5: (Decimal("5.00"), "five")})
    assert orders.read() == orders.rows


def test_tables_that_are_opened_first_at_the_same_time_share_a_namespace(spark: "SparkSession") -> None:
    """Of the tables of a first start one failed, and the Replicator with it, until it was tried again."""
    create_namespace_late(Orders(spark))


def test_a_foreign_compaction_between_locate_and_commit_is_refused_and_then_located_again(
    spark: "SparkSession",
) -> None:
    orders = filled(spark)
    state, marks = orders.next(), orders.marks({5})
    orders.call("rewrite_data_files", REWRITE)
    with pytest.raises(Retry):
        orders.table.commit(TableCommit(state, orders.write(ONE), marks))
    assert orders.read() == orders.rows
    orders.apply({5: (Decimal("5.00"), "five")})
    assert orders.read() == orders.rows


BOTH_WAYS = pytest.mark.parametrize("files", [small.FILES, -1], ids=["small", "by Iceberg's transaction"])


@BOTH_WAYS
def test_a_foreign_compaction_that_wins_the_race_inside_the_commit_is_refused(
    files: int, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = filled(spark)
    state, marks = orders.next(), orders.marks({5})
    monkeypatch.setattr(small, "FILES", files)
    monkeypatch.setattr(orders.table, "_admit", lambda: orders.call("rewrite_data_files", REWRITE))
    with pytest.raises(CommitConflict, match=r"ValidationException|CommitFailed"):
        orders.table.commit(TableCommit(state, orders.write(ONE), marks))
    assert orders.read() == orders.rows


@BOTH_WAYS
def test_a_foreign_delete_of_a_whole_unmarked_file_cannot_slip_under_a_commit(
    files: int, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(10)))
    orders.apply(random_rows(random.Random(1), range(10, 20)))
    state, marks = orders.next(), orders.marks({5})
    monkeypatch.setattr(small, "FILES", files)
    monkeypatch.setattr(orders.table, "_admit", lambda: spark.sql(f"DELETE FROM {orders.sql_name} WHERE id >= 10"))
    with pytest.raises(CommitConflict):
        orders.table.commit(TableCommit(state, [], marks))
    with pytest.raises(ForeignChange, match="delete"):
        orders.table.refresh()


def test_state_survives_a_foreign_compaction_and_expiry_of_everything_else(spark: "SparkSession") -> None:
    orders = filled(spark)
    orders.apply(ONE, holes=[("7", "ä"), ("8", "b")])
    state = orders.table.refresh()
    orders.call("rewrite_data_files", REWRITE)
    orders.call("rewrite_manifests")
    assert orders.table.refresh() == orders.another_opened().refresh() == state
    expire(orders)
    assert len(snapshots(orders)) == 1
    assert orders.another_opened().refresh() == state
    orders.apply({3: (Decimal("3.00"), "after")}, deletes=[4])
    assert orders.read() == orders.rows


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO {} VALUES (99, 1.0, 'x')", "DELETE FROM {} WHERE id = 5", "UPDATE {} SET note = 'x' WHERE id = 6"],
)
def test_rows_changed_by_others_are_named(spark: "SparkSession", statement: str) -> None:
    orders = filled(spark)
    spark.sql(statement.format(orders.sql_name))
    with pytest.raises(ForeignChange, match="is not Tailrace's"):
        orders.table.refresh()
    with pytest.raises(ForeignChange):
        orders.another_opened()
    state = orders.another().ensure(orders.schema, LOG, accepts=True)
    assert orders.another_opened().refresh() == state, "from then on another process finds nothing of others"


def test_a_rolled_back_table_has_the_older_state_and_the_older_rows(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(ONE)
    first = orders.table.refresh()
    orders.apply({2: (Decimal("2.00"), "two")})
    orders.spark.sql(f"CALL iceberg.system.rollback_to_snapshot('{orders.namespace}.orders', {snapshots(orders)[0]})")
    assert orders.table.refresh() == first == orders.another_opened().refresh()
    assert [file.rows for file in orders.table.files()] == [1]


def test_a_rolled_back_then_compacted_and_expired_table_never_shows_the_newer_state(spark: "SparkSession") -> None:
    orders = filled(spark)
    orders.apply(ONE)
    back = snapshots(orders)[1]
    orders.spark.sql(f"CALL iceberg.system.rollback_to_snapshot('{orders.namespace}.orders', {back})")
    orders.call("rewrite_data_files", REWRITE)
    assert orders.another_opened().refresh().applied_record == 2
    orders.call("rewrite_manifests")
    expire(orders)
    with pytest.raises(TargetChanged, match="expired"):
        orders.another_opened()


def test_a_commit_after_a_roll_back_is_refused_until_the_table_is_read_again(spark: "SparkSession") -> None:
    orders = filled(spark)
    state, marks = orders.next(), orders.marks({5})
    orders.spark.sql(f"CALL iceberg.system.rollback_to_snapshot('{orders.namespace}.orders', {snapshots(orders)[1]})")
    with pytest.raises(CommitConflict):
        orders.table.commit(TableCommit(state, orders.write(ONE), marks))


def test_of_two_writers_one_is_refused_and_sees_the_others_state(spark: "SparkSession") -> None:
    orders = filled(spark)
    other = orders.another_opened()
    state, marks = orders.next(), orders.marks({5}, other)
    orders.apply({5: (Decimal("5.00"), "winner")})
    with pytest.raises(CommitConflict):
        other.commit(TableCommit(state, orders.write({5: (Decimal("6.00"), "loser")}, other), marks))
    assert other.refresh() == orders.table.refresh() == state
    assert orders.read() == orders.rows


def test_dying_before_the_commit_changes_nothing(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    orders = filled(spark)
    before = orders.table.refresh()

    def die(name: str) -> None:
        if name == "iceberg.before-commit":
            raise SeamFailure(name)

    monkeypatch.setattr("tailrace.targets.lake.iceberg.table.seam", die)
    with pytest.raises(SeamFailure):
        orders.apply({5: (Decimal("5.00"), "never")})
    monkeypatch.undo()
    assert orders.another_opened().refresh() == before
    orders.rows.pop(99, None)
    assert orders.read() == orders.rows


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_is_read_back_by_its_nonce(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    orders = filled(spark)
    transact = orders.table._transact

    def lost_answer(*arguments: Any, **more: Any) -> Any:
        if happened:
            transact(*arguments, **more)
        raise OutcomeUnknown("connection reset")

    monkeypatch.setattr(orders.table, "_transact", lost_answer)
    if happened:
        orders.apply({5: (Decimal("5.00"), "five")})
        assert orders.table.refresh().applied_record == 4
    else:
        with pytest.raises(CommitConflict, match="did not happen"):
            orders.apply({5: (Decimal("5.00"), "five")})
        assert orders.table.refresh().applied_record == 3
    assert orders.read() == orders.rows
    monkeypatch.undo()
    orders.apply({6: (Decimal("6.00"), "six")})
    assert orders.read() == orders.rows


def test_many_holes_are_kept_in_a_file_that_orphan_removal_leaves_alone(spark: "SparkSession") -> None:
    orders = filled(spark)
    holes = [(f"{number:08d}", "x" * 20) for number in range(3000)]
    orders.apply(ONE, holes=holes)
    orders.apply({2: (Decimal("2.00"), "two")}, holes=holes)
    kept = list(local(f"{orders.table.location}/_tailrace").iterdir())
    assert len(kept) == 1
    old = time.time() - 10 * 86400
    import os

    os.utime(kept[0], (old, old))
    orders.call("remove_orphan_files")
    assert orders.another_opened().refresh().holes == frozenset(holes)
    kept[0].write_text("[]")
    with pytest.raises(Exception, match="digest"):
        orders.another_opened()


def test_a_table_created_anew_is_noticed(spark: "SparkSession") -> None:
    orders = filled(spark)
    orders.spark.sql(f"DROP TABLE {orders.sql_name}")
    with pytest.raises(CommitConflict, match="dropped or re-created"):
        orders.table.refresh()
    orders.another().ensure(orders.schema, LOG)
    with pytest.raises(CommitConflict, match="dropped or re-created"):
        orders.table.refresh()


def dated_ahead(orders: Orders, seconds: int) -> None:
    """As if the newest version had been committed by a clock that was so much ahead."""
    folder = local(f"{orders.table.location}/metadata")
    newest = max(folder.glob("v*.metadata.json"), key=lambda path: int(path.name.split(".")[0][1:]))
    doc = json.loads(newest.read_text())
    doc["last-updated-ms"] += seconds * 1000
    for entry in (doc["snapshots"][-1], doc["snapshot-log"][-1]):
        entry["timestamp-ms"] += seconds * 1000
    newest.write_text(json.dumps(doc))
    (folder / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_version_dated_ahead_of_the_clock_is_named_with_the_time_when_commits_go_on(spark: "SparkSession") -> None:
    orders = filled(spark)
    dated_ahead(orders, 86_400)
    named = r"the newest version of .*orders is dated .*, 86\d\d\d s ahead of this computer's clock \(.*\); Iceberg"
    orders.table = orders.another_opened()
    with pytest.raises(Retry, match=named) as told:
        orders.apply({5: (Decimal("5.00"), "five")})
    assert told.type is Retry
    assert "Correct this computer's clock" in told.value.fix and "commits continue by themselves at" in told.value.fix
    with pytest.raises(Retry, match=named):
        orders.another().ensure(orders.schema, LOG, Generation(RecordNumber(7), Seq(70)))
    with pytest.raises(Retry, match=named):
        orders.another_opened().expire(time.time() + 2 * 86_400, at_once=1)


def test_a_clock_that_is_back_by_less_than_a_minute_blocks_nothing(spark: "SparkSession") -> None:
    orders = filled(spark)
    dated_ahead(orders, 50)
    orders.table = orders.another_opened()
    orders.apply({5: (Decimal("5.00"), "five")})
    assert orders.read() == orders.rows
