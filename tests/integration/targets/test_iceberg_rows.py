"""Rows in an Iceberg table after commits by mark: against a model, Spark's MERGE and a second reader."""

import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import StaticTable

from support.iceberg import LOG, Orders, local, random_rows
from tailrace.batch.applied import AppliedState, Generation
from tailrace.changelog.records.terms import Column, RecordNumber, Seq
from tailrace.errors import ForeignChange, Retry, TargetChanged, TargetRefused
from tailrace.targets.lake.model import TableCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


def test_random_upserts_and_deletes_equal_spark_merge_on_a_copy(spark: "SparkSession") -> None:
    rng = random.Random(7)
    orders = Orders(spark)
    copy = f"{orders.spark_name}.{orders.namespace}.copy"
    spark.sql(f"CREATE TABLE {copy} (id BIGINT, amount DECIMAL(10,2), note STRING) USING iceberg")
    for _ in range(6):
        upserts = random_rows(rng, rng.sample(range(60), 15))
        deletes = [key for key in rng.sample(range(60), 10) if key not in upserts]
        orders.apply(upserts, deletes)
        changes = [(k, *v, False) for k, v in upserts.items()] + [(k, None, None, True) for k in deletes]
        spark.createDataFrame(
            changes, "id BIGINT, amount DECIMAL(10,2), note STRING, gone BOOLEAN"
        ).createOrReplaceTempView("ch")
        spark.sql(f"""MERGE INTO {copy} t USING ch s ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE
                      WHEN MATCHED THEN UPDATE SET id = s.id, amount = s.amount, note = s.note
                      WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, amount, note) VALUES (s.id, s.amount, s.note)""")
    merged = {row[0]: tuple(row[1:]) for row in spark.table(copy).collect()}
    assert orders.read() == merged == orders.rows
    assert any(file.dead for file in orders.table.files())


def test_a_second_reader_without_spark_sees_the_same_rows(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(20)))
    orders.apply(random_rows(random.Random(2), range(5, 9)), deletes=[0, 19])
    newest = max(
        local(f"{orders.table.location}/metadata").glob("*.metadata.json"), key=lambda p: int(p.name.split(".")[0][1:])
    )
    table = StaticTable.from_metadata(str(newest))
    read = {row["id"]: (row["amount"], row["note"]) for row in table.scan().to_arrow().to_pylist()}
    assert read == orders.rows


def test_a_reopened_table_lists_the_same_files_bounds_and_dead_rows(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(1), range(100, 120)))
    orders.apply({105: (Decimal("1.00"), "x")}, deletes=[119])
    again = orders.another()
    state = again.ensure(orders.schema, LOG)
    assert (state.applied_seq, state.applied_record, state.schema_version) == (20, 2, 1)
    assert sorted(again.files(), key=lambda f: f.path) == sorted(orders.table.files(), key=lambda f: f.path)
    first = max(again.files(), key=lambda f: f.rows)
    assert (first.lower["id"], first.upper["id"], len(first.dead)) == (100, 119, 2)
    assert [file.vector_bytes > 20 for file in again.files()] == [bool(file.dead) for file in again.files()]


def test_rows_of_an_adopted_file_that_are_superseded_never_appear(spark: "SparkSession") -> None:
    orders = Orders(spark)
    chunk = orders.write(random_rows(random.Random(3), range(10)), dead=[0, 9])
    orders.table.commit(TableCommit(orders.next(), chunk))
    assert sorted(orders.read()) == list(range(1, 9))
    assert [len(file.dead) for file in orders.another_opened().files()] == [2]


def test_a_file_whose_last_row_dies_leaves_the_table_with_its_vector(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(3), range(4)))
    orders.apply(random_rows(random.Random(3), range(4, 8)), deletes=[0, 1])
    orders.apply({}, deletes=[2, 3])
    assert len(orders.table.files()) == 1
    assert orders.read() == orders.rows
    totals = spark.sql(f"SELECT summary FROM {orders.sql_name}.snapshots ORDER BY committed_at DESC").collect()[0][0]
    assert (totals["total-data-files"], totals["total-delete-files"]) == ("1", "0")
    assert spark.sql(f"SELECT * FROM {orders.sql_name}.delete_files").count() == 0


def test_truncate_and_the_rows_after_it_are_one_version(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply(random_rows(random.Random(3), range(50)))
    orders.apply({}, deletes=[7])
    before = spark.sql(f"SELECT * FROM {orders.sql_name}.snapshots").count()
    new = random_rows(random.Random(4), [7, 8])
    orders.table.commit(TableCommit(orders.next(), orders.write(new), clear=True))
    assert orders.read() == new
    assert spark.sql(f"SELECT * FROM {orders.sql_name}.snapshots").count() == before + 1


def test_an_added_and_a_renamed_column_come_with_their_rows_in_one_version(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply({1: (Decimal("1.00"), "old")})
    city = Column(name="city", id=4, source_type="text", type="string")
    wider = orders.schema.model_copy(
        update={
            "version": 2,
            "columns": (
                orders.schema.columns[0],
                orders.schema.columns[1].model_copy(update={"name": "total", "type": "decimal(12,2)"}),
                orders.schema.columns[2],
                city,
            ),
        }
    )
    orders.schema = wider
    file = orders.write({2: (Decimal("2.00"), "new", "Ulm")})
    orders.table.commit(TableCommit(orders.next(schema_version=2), file, evolve=wider))
    assert [f.name for f in spark.table(orders.sql_name).schema] == ["id", "total", "note", "city"]
    assert orders.read() == {1: (Decimal("1.00"), "old", None), 2: (Decimal("2.00"), "new", "Ulm")}
    assert orders.another_opened().refresh().schema_version == 2
    assert orders.table.arrow_schema(wider).names == ["id", "amount", "note", "city"]
    orders.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    with pytest.raises(ForeignChange, match="renamed"):
        orders.table.refresh()


def test_a_column_dropped_and_added_again_does_not_show_old_values(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply({1: (Decimal("1.00"), "old")})
    note = Column(name="note", id=5, source_type="integer", type="int32")
    orders.schema = orders.schema.model_copy(update={"version": 2, "columns": (*orders.schema.columns[:2], note)})
    orders.table.commit(
        TableCommit(orders.next(schema_version=2), orders.write({2: (Decimal("2.00"), 5)}), evolve=orders.schema)
    )
    assert orders.read() == {1: (Decimal("1.00"), None), 2: (Decimal("2.00"), 5)}


def test_our_compaction_replaces_files_and_keeps_state_and_rows(spark: "SparkSession") -> None:
    orders = Orders(spark)
    for part in range(3):
        orders.apply(random_rows(random.Random(part), range(part * 5, part * 5 + 8)))
    state = orders.table.refresh()
    old = [file.path for file in orders.table.files()]
    orders.table.commit(TableCommit(state, orders.write(orders.rows), data_change=False, remove=old))
    assert orders.read() == orders.rows
    assert len(orders.table.files()) == 1
    assert orders.another_opened().refresh() == state
    last = spark.sql(f"SELECT operation FROM {orders.sql_name}.snapshots ORDER BY committed_at DESC").first()
    assert last is not None and last[0] == "replace"


def test_another_logs_table_and_a_foreign_table_are_refused(spark: "SparkSession") -> None:
    orders = Orders(spark)
    with pytest.raises(TargetRefused, match="filled from change log log-1") as refused:
        orders.another().ensure(orders.schema, "log-2")
    assert "do not delete it" in refused.value.fix
    orders.table.commit(TableCommit(AppliedState(LOG, Seq(1), RecordNumber(1), frozenset(), 1, 4711), ()))
    spark.sql(f"ALTER TABLE {orders.sql_name} UNSET TBLPROPERTIES ('tailrace.state')")
    with pytest.raises(TargetRefused, match="Tailrace did not make"):
        orders.another().ensure(orders.schema, LOG)


@pytest.mark.parametrize("opened", [True, False])
def test_a_column_that_others_drop_is_named_before_a_row_is_written_without_it(
    spark: "SparkSession", opened: bool
) -> None:
    """Iceberg commits files that have a field which the table has not, and readers never see its values."""
    orders = Orders(spark)
    orders.apply({1: (Decimal("1.00"), "a")})
    rows = orders.write({2: (Decimal("2.00"), "b")})
    spark.sql(f"ALTER TABLE {orders.sql_name} DROP COLUMN note")
    if opened:
        with pytest.raises(Retry, match="columns"):
            orders.table.commit(TableCommit(orders.next(), rows))
        orders.table.refresh()
    table = orders.table if opened else orders.another_opened()
    with pytest.raises(TargetChanged, match=r"the target has no column 'note'") as stopped:
        table.arrow_schema(orders.schema)
    assert "resync the table" in stopped.value.fix
    assert [row[0] for row in spark.sql(f"SELECT id FROM {orders.sql_name}").collect()] == [1]


def test_a_table_that_others_partition_is_named_until_they_have_removed_that(spark: "SparkSession") -> None:
    orders = Orders(spark)
    orders.apply({1: (Decimal("1.00"), "a")})
    rows = orders.write({2: (Decimal("2.00"), "b")})
    spark.sql(f"ALTER TABLE {orders.sql_name} ADD PARTITION FIELD bucket(4, id)")
    with pytest.raises(TargetChanged, match="partitioned") as stopped:
        orders.table.commit(TableCommit(orders.next(), rows))
    assert "DROP PARTITION FIELD" in stopped.value.fix
    with pytest.raises(TargetChanged, match="partitioned"):
        orders.another().ensure(orders.schema, LOG, Generation(RecordNumber(10)))
    spark.sql(f"ALTER TABLE {orders.sql_name} DROP PARTITION FIELD bucket(4, id)")
    orders.table.commit(TableCommit(orders.next(), rows))
    assert sorted(orders.read()) == [1, 2]


def test_a_property_of_ours_that_others_remove_is_named(spark: "SparkSession") -> None:
    """Not as a table that Tailrace did not make: its rows are ours."""
    orders = Orders(spark)
    orders.apply({1: (Decimal("1.00"), "a")})
    spark.sql(f"ALTER TABLE {orders.sql_name} UNSET TBLPROPERTIES ('tailrace.columns')")
    with pytest.raises(TargetChanged, match=r"lost its property tailrace\.columns") as stopped:
        orders.another_opened()
    assert "resync the table" in stopped.value.fix
