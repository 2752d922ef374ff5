"""Checkpoints that Tailrace writes: without a Spark job, and to every reader what Delta's own are."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.delta import COLUMNS, Target
from support.lake import table_schema
from support.versions import turns
from tailrace.contract.resources import StorageLocation
from tailrace.errors import StorageFull
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta import checkpoint
from tailrace.targets.lake.delta import log as delta_log
from tailrace.targets.lake.delta.direct_log import DirectLog
from tailrace.targets.lake.delta.protocol import is_direct
from tailrace.targets.lake.model import TableCommit

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
PARSED = ("stats_parsed", "partitionValues_parsed")
"""Forms of other fields that Delta writes besides; they are optional."""


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    """With a checkpoint at each fourth version."""
    target = Target(spark, tmp_path)
    target.apply(1, {1: "first"})
    target.set_properties({"delta.checkpointInterval": "4", "team": "lake"})
    target.table = target.reopen()
    return target


def log_folder(location: str) -> Path:
    return Path(location.removeprefix("file://"), "_delta_log")


def checkpoints(location: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in log_folder(location).glob("*.checkpoint.parquet"))


def jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_neither_commits_nor_checkpoints_are_spark_jobs(target: Target, spark: SparkSession) -> None:
    before = jobs(spark)
    for step in range(2, 16):
        target.apply(step, {step: f"{step}", 1: f"{step}"}, [step - 2])
        target.table.refresh()
        target.table.expire(0)
    assert jobs(spark) == before
    assert checkpoints(target.location) == [4, 8, 12, 16]
    pointer = json.loads((log_folder(target.location) / "_last_checkpoint").read_text())
    assert pointer["version"] == 16 == target.table.refresh().applied_record + 1
    snapshot = delta_log.DeltaLog(spark, target.location).update()
    assert snapshot is not None and snapshot.checkpoint() == 16
    assert target.rows() == target.rows_by_spark() == {1: "15", 14: "14", 15: "15"}


def content(path: Path) -> list[str]:
    """Every action of a checkpoint, in no order."""
    table = pq.read_table(path)
    found = []
    for name in table.schema.names:
        for action in table[name].drop_null().to_pylist(maps_as_pydicts="strict"):
            known = {key: value for key, value in action.items() if key not in PARSED}
            found.append(json.dumps({name: without_nulls(known)}, sort_keys=True, default=str))
    return sorted(found)


def without_nulls(value: Any) -> Any:
    """Delta's file has columns for fields that nothing uses. (Partition values that are null are compared as rows.)
    Features are in no order."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return sorted(value) if isinstance(value, list) else value


def by_delta(spark: SparkSession, location: str) -> tuple[int, list[str]]:
    """The version, and what Delta's own checkpoint of it has, which is removed again."""
    java: Any = spark._jvm
    delta: Any = java.org.apache.spark.sql.delta.DeltaLog
    delta.clearCache()
    delta.forTable(spark._jsparkSession, location.removeprefix("file://")).checkpoint()
    version = checkpoints(location)[-1]
    made = log_folder(location) / f"{version:020d}.checkpoint.parquet"
    found = content(made)
    made.unlink()
    (log_folder(location) / "_last_checkpoint").unlink()
    (log_folder(location) / f".{made.name}.crc").unlink(missing_ok=True)
    return version, found


def by_us(location: str) -> list[str]:
    storage = Storage.open(StorageLocation(location=location))
    log = DirectLog(storage, location)
    read = log.read()
    assert read is not None and read.state is not None and is_direct(read.state.protocol, read.state.metadata)
    pointer = checkpoint.write(storage, location, read.version, read.state)
    assert pointer is not None
    log.point_to(pointer)
    return content(log_folder(location) / f"{read.version:020d}.checkpoint.parquet")


def read_by_spark(spark: SparkSession, location: str) -> list[str]:
    java: Any = spark._jvm
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()
    rows = spark.sql(f"SELECT * FROM delta.`{location}`").collect()
    return sorted(str(sorted(row.asDict().items())) for row in rows)


def read_by_rust(location: str) -> list[str]:
    table = deltalake.DeltaTable(location)
    rows = pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()).to_pylist()
    return sorted(str(sorted(row.items())) for row in rows)


def check(spark: SparkSession, location: str) -> None:
    """The same actions as in Delta's checkpoint, and the same rows from it alone."""
    version, expected = by_delta(spark, location)
    rows, rust = read_by_spark(spark, location), read_by_rust(location)
    ours = by_us(location)
    assert ours == expected, "\n".join(sorted(set(ours) ^ set(expected)))
    for path in log_folder(location).glob("*.json"):
        if int(path.stem) < version:
            path.unlink()
            (log_folder(location) / f".{path.name}.crc").unlink(missing_ok=True)
    assert read_by_spark(spark, location) == rows
    assert read_by_rust(location) == rust


def test_ours_has_what_deltas_has_of_our_tables(target: Target, spark: SparkSession) -> None:
    for step in range(2, 6):
        target.apply(step, dict.fromkeys(range(step, 60, step), f"{step}"), [step * 7])
    check(spark, target.location)
    target.table = target.reopen()
    target.schema = table_schema([*COLUMNS, ("note", "string")], ["id"], version=2)
    target.table.commit(TableCommit(target.state(6), evolve=target.schema))
    target.table.commit(TableCommit(target.state(7), marks=target.marks([9, 25])))
    check(spark, target.location)


WRITES = (
    "INSERT INTO {t} VALUES (1, 'a', date'2024-01-01', 'x y/z%'), (2, 'b', NULL, NULL), (3, 'c', date'2024-01-02', '')",
    "INSERT INTO {t} SELECT id, 'many', date'2024-01-01', concat('p', id % 3) FROM range(10, 40)",
    "DELETE FROM {t} WHERE id IN (1, 11, 12)",
    "ALTER TABLE {t} RENAME COLUMN name TO title",
    "ALTER TABLE {t} ADD COLUMN more STRUCT<a: INT, b: STRING>",
    "ALTER TABLE {t} DROP COLUMN more",
    "UPDATE {t} SET title = 'new' WHERE id = 20",
    "ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'lake')",
    "COMMENT ON TABLE {t} IS 'others wrote it'",
    "DELETE FROM {t} WHERE place = 'p1'",
)


@pytest.mark.parametrize(
    ("partitions", "properties"),
    turns(
        ("PARTITIONED BY (day, place)", "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"),
        (
            "CLUSTER BY (id)",
            "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true',"
            " 'delta.enableChangeDataFeed' = 'true'",
        ),
    ),
    ids=["partitions", "clustering"],
)
def test_ours_has_what_deltas_has_of_others_tables(
    spark: SparkSession, tmp_path: Path, partitions: str, properties: str
) -> None:
    location = f"file://{tmp_path}/t"

    def sql(text: str) -> None:
        spark.sql(text.format(t=f"delta.`{location}`"))

    sql(
        "CREATE TABLE {t} (id BIGINT, name STRING, day DATE, place STRING) USING delta "
        f"{partitions} TBLPROPERTIES ({properties}, 'delta.checkpointInterval' = '1000',"
        " 'delta.feature.domainMetadata' = 'supported')"
    )
    for number, text in enumerate(WRITES):
        sql(text)
        if number == 6:
            check(spark, location)
    frame = spark.createDataFrame([(90, "t", None, "p")], "id BIGINT, title STRING, day DATE, place STRING")
    frame.write.format("delta").mode("append").option("txnAppId", "other").option("txnVersion", 7).save(location)
    check(spark, location)


def test_a_checkpoint_that_fails_or_is_there_fails_no_commit(
    target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise StorageFull("no room", "Make some.")

    target.apply(2, {2: "b"})
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full)
        target.apply(3, {3: "c"})
    assert checkpoints(target.location) == []
    assert "checkpoint of version 4 failed: " in caplog.text
    for step in range(4, 7):
        target.apply(step, {step: "d"})
    # Somebody else was faster, or our answer was lost.
    (log_folder(target.location) / f"{8:020d}.checkpoint.parquet").write_bytes(b"theirs")
    target.apply(7, {7: "g"})
    assert target.table.refresh() == target.state(7)


class Killed(BaseException):
    """What a process does not survive."""


@pytest.mark.parametrize("before", ["file", "pointer"])
def test_whoever_dies_between_the_parts_of_a_checkpoint_leaves_a_whole_table(
    target: Target, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    def dies(*_: object) -> None:
        raise Killed

    where: dict[str, tuple[Any, str]] = {
        "file": (checkpoint, "write"),
        "pointer": (DirectLog, "point_to"),
    }
    target.apply(2, {2: "b"})
    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(*where[before], dies)
        target.apply(3, {3: "c"}, [1])
    assert checkpoints(target.location) == ([] if before == "file" else [4])
    assert read_by_spark(spark, target.location) == read_by_rust(target.location)
    target.table = target.reopen()
    assert target.table.refresh() == target.state(3)
    for step in range(4, 12):
        target.apply(step, {step: "d"}, [step - 2])
        target.table.refresh()
        target.table.expire(0)
    assert checkpoints(target.location)[-1] == 12 and target.table.refresh() == target.state(11)
    assert target.rows() == target.rows_by_spark() == {10: "d", 11: "d"}


def test_deltas_own_checkpoints_stay_where_a_table_wants_what_ours_lack(target: Target) -> None:
    target.set_properties({"delta.checkpoint.writeStatsAsStruct": "true"})
    target.table = target.reopen()
    target.apply(2, {2: "b"})
    assert checkpoints(target.location) == [4]
    table = pq.read_table(log_folder(target.location) / f"{4:020d}.checkpoint.parquet")
    assert "stats_parsed" in table.schema.field("add").type.names
