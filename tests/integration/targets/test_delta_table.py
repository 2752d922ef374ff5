"""A Delta table under Tailrace's commits, on real Spark and Delta: rows, refusals, foreign changes, lost answers."""

import json
import random
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import Row, SparkSession

from support.delta import COLUMNS, LOG, SCHEMA, Target
from support.killed import killed_at
from support.lake import EAGER, table_schema
from support.versions import turns
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import ForeignChange, OutcomeUnknown, Retry, TailraceError, TargetChanged, TargetRefused
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.lake.delta import log as delta_log
from tailrace.targets.lake.delta.direct_log import DirectLog
from tailrace.targets.lake.delta.replay import replay
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.compact import compact
from tailrace.targets.lake.files.locate import take_rows
from tailrace.targets.lake.model import NewFile, TableCommit

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, tmp_path)


def test_after_random_batches_by_mark_readers_find_what_is_expected(target: Target) -> None:
    rng, expected = random.Random(7), dict[int, str]()
    for step in range(1, 4):
        keys = rng.sample(range(300), 60)
        upserts, deletes = {key: f"{step}-{key}" for key in keys[:45]}, keys[45:]
        target.apply(step, upserts, deletes)
        expected = {key: name for key, name in expected.items() if key not in deletes} | upserts
    assert target.rows() == target.rows_by_spark() == expected
    assert any(file.dead for file in target.table.files())
    assert target.reopen().refresh() == target.state(3)
    there = [{f.path: (set(f.dead), f.vector_bytes) for f in t.files()} for t in (target.reopen(), target.table)]
    assert there[0] == there[1] and all(bool(dead) == bool(size) for dead, size in there[0].values())


def test_vectors_too_large_for_the_log_are_read_by_spark_and_by_us(target: Target) -> None:
    target.apply(1, dict.fromkeys(range(20000), "old"))
    scattered = random.Random(3).sample(range(20_000), 3000)
    target.apply(2, {}, scattered)
    (file,) = target.table.files()
    assert target.storage.exists(file.path) and len(file.dead) == 3000
    (vector,) = Path(target.location.removeprefix("file://")).glob("deletion_vector_*.bin")
    assert 0 < vector.stat().st_size - file.vector_bytes < 10
    assert set(target.rows()) == set(range(20_000)) - set(scattered) == set(target.rows_by_spark())
    assert set(target.reopen().files()[0].dead) == set(file.dead)


def test_a_vector_that_spark_wrote_is_read_and_carried_on_once_it_is_accepted(target: Target) -> None:
    target.apply(1, dict.fromkeys(range(5000), "old"))
    target.sql("DELETE FROM {t} WHERE id % 7 = 0")
    target.table = DeltaTable(lambda: target.spark, target.storage, target.location)
    with pytest.raises(ForeignChange, match=r"DELETE in version 2"):
        target.table.ensure(SCHEMA, LOG)
    killed_at("takeover.after-commit", lambda: target.table.ensure(SCHEMA, LOG, accepts=True))
    state = target.table.ensure(SCHEMA, LOG, accepts=True)
    assert target.reopen().refresh() == state, "another process finds nothing of others"
    assert sum(len(file.dead) for file in target.table.files()) == len(range(0, 5000, 7))
    target.apply(2, {1: "new"}, [2, 7])
    expected = {key: "old" for key in range(5000) if key % 7 and key != 2} | {1: "new"}
    assert target.rows() == expected == target.rows_by_spark()


def test_a_file_whose_rows_are_all_dead_is_removed(target: Target) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.apply(2, {3: "c"}, [1, 2])
    assert [file.rows for file in target.table.files()] == [1]
    assert target.rows() == {3: "c"}


def test_adopted_files_come_with_their_dead_rows_and_true_statistics(target: Target) -> None:
    path = files.chunk_path(target.location, "snap/1", 0, uuid.uuid4())
    made = files.write_file(target.storage, path, target.layout, [pa.table({"id": [1, 2, 3], "name": list("abc")})])
    assert made is not None
    file = NewFile(path, made.file.rows, made.file.size, BitMap64([1]))
    target.table.commit(TableCommit(target.state(1), [file]))
    assert target.rows() == {1: "a", 3: "c"}
    assert target.sql("SELECT count(*) n FROM {t} WHERE id = 3")[0].n == 1
    assert target.sql("SELECT count(*) n, min(id) low, max(id) high FROM {t}")[0] == Row(n=2, low=1, high=3)


def test_a_missing_chunk_file_is_named_before_anything_is_committed(target: Target) -> None:
    lost = NewFile(f"{target.location}/data/lost.parquet", 1, 10)
    with pytest.raises(NotFound, match=r"lost\.parquet"):
        target.table.commit(TableCommit(target.state(1), [lost]))
    assert target.table.refresh() == target.applied


def test_truncate_empties_the_table_in_one_commit(target: Target) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.table.commit(TableCommit(target.state(2), target.write({9: "z"}), clear=True))
    assert target.rows() == {9: "z"} == target.rows_by_spark()


def test_new_columns_come_with_the_commit_that_needs_them(target: Target) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.schema = table_schema([*COLUMNS, ("note", "string"), ("at", "timestamp")], ["id"], version=2)
    rows = pa.table({"id": [2, 3], "name": ["B", "c"], "note": ["x", "y"]})
    new = [made.file for made in files.write_files(target.storage, target.location, target.layout, [rows])]
    target.table.commit(TableCommit(target.state(2), new, target.marks([2, 3]), evolve=target.schema))
    assert [tuple(row) for row in target.sql("SELECT id, name, note FROM {t} ORDER BY id")] == [
        (1, "a", None),
        (2, "B", "x"),
        (3, "c", "y"),
    ]
    before = target.layout.arrow
    target.table.commit(TableCommit(target.state(3), evolve=target.schema))
    assert target.layout.arrow == before == target.reopen().arrow_schema(target.schema)


def test_holes_of_any_number_come_back_and_older_lists_of_them_go(target: Target) -> None:
    now = time.time()
    target.table = DeltaTable(lambda: target.spark, target.storage, target.location, clock=lambda: now)
    target.table.ensure(SCHEMA, LOG)
    for step, count in ((1, 3), (2, 20_000), (3, 0)):
        holes = frozenset((str(number), "ä") for number in range(count))
        target.table.commit(TableCommit(AppliedState(LOG, Seq(step), RecordNumber(step), holes, 1, SCHEMA.table_id)))
        assert target.reopen().refresh().holes == holes
    lists = Path(target.location.removeprefix("file://")) / "_tailrace"
    assert len(list(lists.iterdir())) == 1
    assert not target.table.expire(now - 1)
    assert target.table.expire(now + 1)
    assert list(lists.iterdir()) == []


def test_opening_and_committing_starts_no_spark_job_and_delta_reads_what_was_written(
    target: Target, spark: SparkSession
) -> None:
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    for step in range(1, 6):
        if step == 3:
            target.table = target.reopen()
        target.apply(step, dict.fromkeys(range(step, 60, step), f"{step}"), [step * 7])
    assert scheduler.numTotalJobs() == before
    check_replay(target)
    compact(target.table, target.storage, target.layout, target.table.refresh(), EAGER)
    target.schema = table_schema([*COLUMNS, ("note", "string")], ["id"], version=2)
    target.table.commit(TableCommit(target.state(6), evolve=target.schema))
    check_replay(target)
    target.table.commit(TableCommit(target.state(7), target.write({1: "a"}), clear=True))
    target.apply(8, {1: "b", 2: "c"})
    check_replay(target)


FEATURES = ("readerFeatures", "writerFeatures")


def check_replay(target: Target) -> None:
    """What is read from the log's files is what Delta makes of them."""
    snapshot = delta_log.DeltaLog(target.spark, target.location).update()
    assert snapshot is not None
    read = DirectLog(target.storage, target.location).read()
    assert read is not None and read.version == snapshot.version
    found = read.state
    assert found is not None
    assert [sorted(found.protocol[kind]) for kind in FEATURES] == [
        sorted(snapshot.protocol()[kind]) for kind in FEATURES
    ]
    assert found.domains == snapshot.domains()
    assert {k: found.metadata[k] for k in ("id", "schemaString", "configuration")} == {
        k: snapshot.metadata()[k] for k in ("id", "schemaString", "configuration")
    }
    kept = ("path", "size", "stats", "deletionVector")
    assert sorted(json.dumps([file.get(name) for name in kept]) for file in found.files) == sorted(
        json.dumps([file.get(name) for name in kept]) for file in snapshot.files()
    )


@pytest.mark.parametrize(
    "settings", turns({}, {"spark.databricks.delta.checkpoint.partSize": "2"}), ids=["one", "parts"]
)
def test_a_table_is_opened_from_a_checkpoint_and_what_follows_it(
    target: Target, spark: SparkSession, settings: dict[str, str]
) -> None:
    for step in range(1, 5):
        target.apply(step, dict.fromkeys(range(step, 40, step), f"{step}"), [step * 7])
    target.set_properties({"team": "lake"})
    target.reopen()
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # a session has a JVM
    for name, value in settings.items():
        spark.conf.set(name, value)
    log.forTable(spark._jsparkSession, target.location.removeprefix("file://")).checkpoint()
    for name in settings:
        spark.conf.unset(name)
    check_replay(target)
    target.table = target.reopen()
    target.apply(6, {3: "c", 99: "new"}, [5])
    check_replay(target)
    opened = target.reopen()
    assert [file.dead for file in opened.files()] == [file.dead for file in target.table.files()]
    names = [path.name for path in Path(target.location.removeprefix("file://"), "_delta_log").glob("*.parquet")]
    assert (len(names) == 1) == (not settings), names


def test_a_log_that_only_delta_can_read_is_left_to_it(target: Target) -> None:
    target.apply(1, {1: "a"})
    target.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    spark: Any = target.spark
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    log.forTable(spark._jsparkSession, target.location.removeprefix("file://")).checkpoint()
    snapshot = delta_log.DeltaLog(target.spark, target.location).update()
    assert snapshot is not None
    assert replay(target.storage, target.location, snapshot.log_files()) is None
    assert target.reopen().refresh() == target.state(1)


def test_a_table_whose_features_are_not_known_here_is_committed_to_by_delta(target: Target) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    with pytest.raises(Retry, match="somebody else changed the table"):
        target.apply(2, {1: "b"})
    target.table.refresh()
    for step in (2, 3):
        target.apply(step, {step: "new"}, [1])
        log = Path(target.location.removeprefix("file://"), "_delta_log", f"{step + 1:020d}.json")
        info = json.loads(log.read_text().splitlines()[0])["commitInfo"]
        assert info["inCommitTimestamp"] > 0 and info["operation"] == "STREAMING UPDATE"
        assert target.table.refresh() == target.state(step)
    target.schema = table_schema([*COLUMNS, ("note", "string")], ["id"], version=2)
    target.table.commit(TableCommit(target.state(4), evolve=target.schema))
    assert target.rows() == {2: "new", 3: "new"}
    assert target.reopen().refresh() == target.state(4)


def test_a_session_that_gives_new_tables_properties_has_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "spark.databricks.delta.properties.defaults.enableInCommitTimestamps"
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(name, "true")
    spark.conf.set(name, "true")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-D{name}=true")
    try:
        target = Target(spark, tmp_path)
        target.apply(1, {1: "a"})
    finally:
        spark.conf.unset(name)
        conf.remove(name)
    (found,) = target.sql("SHOW TBLPROPERTIES {t} ('delta.enableInCommitTimestamps')")
    assert found.value == "true" and target.rows() == {1: "a"}


def test_a_foreign_compaction_between_locate_and_commit_is_refused(target: Target) -> None:
    for step in range(1, 4):
        target.apply(step, {step: "old", step + 10: "old"})
    change = target.change(4, {1: "new"}, [2])
    target.sql("OPTIMIZE {t}")
    with pytest.raises(Retry, match="somebody else changed the table"):
        target.table.commit(change)
    assert target.table.refresh() == target.state(3)
    target.apply(4, {1: "new"}, [2])
    assert target.rows() == {1: "new", 3: "old", 11: "old", 12: "old", 13: "old"}


def test_after_a_refused_commit_nothing_is_sent_before_a_refresh(target: Target) -> None:
    target.apply(1, {1: "a"})
    change = target.change(2, {1: "b"})
    target.set_properties({"user.note": "x"})
    with pytest.raises(Retry):
        target.table.commit(change)
    with pytest.raises(Retry, match="not known"):
        target.table.commit(change)
    assert target.table.refresh() == target.state(1)
    target.apply(2, {1: "b"})
    assert target.rows() == {1: "b"}


FOREIGN = [
    *turns(
        ("INSERT INTO {t} (id, name) VALUES (99, 'x')", ForeignChange, "WRITE"),
        ("UPDATE {t} SET name = 'x' WHERE id = 1", ForeignChange, "UPDATE"),
        ("DELETE FROM {t} WHERE id = 1", ForeignChange, "DELETE"),
        ("TRUNCATE TABLE {t}", ForeignChange, "TRUNCATE"),
        ("MERGE INTO {t} a USING (SELECT 1 id) b ON a.id = b.id WHEN MATCHED THEN DELETE", ForeignChange, "MERGE"),
    ),
    ("RESTORE TABLE {t} TO VERSION AS OF 1", TargetChanged, "RESTORE"),
]


@pytest.mark.parametrize(("statement", "error", "named"), FOREIGN)
def test_a_foreign_change_of_rows_is_named(
    target: Target, statement: str, error: type[TailraceError], named: str
) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.apply(2, {2: "c"})
    change = target.change(3, {1: "ours"})
    target.sql(statement)
    with pytest.raises(Retry):
        target.table.commit(change)
    with pytest.raises(error, match=named):
        target.table.refresh()
    with pytest.raises((error, TargetRefused), match=named):
        target.reopen()


def test_vacuum_and_properties_of_others_are_accepted(target: Target) -> None:
    target.apply(1, {1: "a", 2: "b"})
    target.sql("ALTER TABLE {t} SET TBLPROPERTIES ('user.note' = 'x')")
    target.sql("VACUUM {t}")
    assert target.table.refresh() == target.state(1)
    assert target.reopen().refresh() == target.state(1)


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    turns(("delta.enableDeletionVectors", "false", "true"), ("delta.appendOnly", "true", "false")),
)
def test_a_property_of_others_under_which_no_row_can_be_changed_is_named_until_it_is_set_back(
    target: Target, name: str, theirs: str, ours: str
) -> None:
    target.apply(1, {1: "a", 2: "b"})
    change = target.change(2, {2: "c"})
    target.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{name}' = '{theirs}')")
    with pytest.raises(Retry):
        target.table.commit(change)
    for look in (target.table.refresh, target.reopen):
        with pytest.raises(TargetChanged, match=f"{name} = '{theirs}'") as stopped:
            look()
        assert f"ALTER TABLE delta.`{target.location}` SET TBLPROPERTIES ('{name}' = '{ours}')" in stopped.value.fix
    target.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{name}' = '{ours}')")
    target.table.refresh()
    target.apply(2, {2: "c"})
    assert target.rows() == {1: "a", 2: "c"}


def test_a_table_that_is_not_ours_or_of_another_log_is_refused(target: Target) -> None:
    with pytest.raises(TargetRefused, match="filled from change log log-1, not from log-2") as refused:
        DeltaTable(lambda: target.spark, target.storage, target.location).ensure(SCHEMA, "log-2")
    assert refused.value.fix.startswith("It may be the live copy of another Replicator, so do not delete it.")
    target.location += "_plain"
    target.sql("CREATE TABLE {t} (id BIGINT) USING delta")
    with pytest.raises(TargetRefused, match="did not make"):
        target.reopen()


def test_a_table_deleted_under_us_is_named(target: Target) -> None:
    target.apply(1, {1: "a"})
    shutil.rmtree(target.location.removeprefix("file://"))
    with pytest.raises(TargetChanged, match="no longer a Delta table"):
        target.table.refresh()
    assert target.reopen().refresh().applied_record == 0


@pytest.mark.parametrize("since", turns("commit", "opening"))
@pytest.mark.parametrize("left", ["nothing", "older", "anew"])
def test_a_table_deleted_put_back_or_made_anew_between_two_commits_is_read_anew(
    target: Target, left: str, since: str
) -> None:
    """The first commit after an opening continued a table that was no longer there, and every reader lost it."""
    folder = Path(target.location.removeprefix("file://"))
    target.apply(1, {1: "a"})
    older = folder.with_suffix(".older")
    shutil.copytree(folder, older)
    target.apply(2, {2: "b"})
    if since == "opening":
        target.table = target.reopen()
    change = TableCommit(target.state(3), target.write({3: "c"}))
    shutil.rmtree(folder)
    if left == "older":
        older.rename(folder)
    if left == "anew":  # as many versions
        other = DeltaTable(lambda: target.spark, target.storage, target.location)
        other.ensure(SCHEMA, LOG)
        for step in (1, 2):
            other.commit(TableCommit(target.state(step)))
    with pytest.raises(Retry, match="the table was deleted or restored"):
        target.table.commit(change)
    target.table = target.reopen()
    assert target.applied.applied_record == {"nothing": 0, "older": 1, "anew": 2}[left]
    target.apply(4, {4: "d"})
    assert target.rows() == ({1: "a"} if left == "older" else {}) | {4: "d"}


def test_what_a_former_table_pointed_to_misleads_no_reader(target: Target) -> None:
    log = Path(target.location.removeprefix("file://"), "_delta_log")
    for path in log.iterdir():
        path.unlink()
    (log / "_last_checkpoint").write_text('{"version":100,"size":3}')
    target.table = target.reopen()
    target.apply(1, {1: "a"})
    assert target.rows() == {1: "a"} == target.rows_by_spark()


def test_files_written_without_a_commit_have_no_effect(target: Target) -> None:
    target.apply(1, {1: "a"})
    target.change(2, {1: "b", 2: "b"})
    assert target.reopen().refresh() == target.state(1)
    assert target.rows() == {1: "a"}


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("by", turns("us", "delta"))
def test_a_commit_of_unknown_outcome_is_read_back(
    target: Target, happened: bool, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.apply(1, {1: "a"})
    if by == "delta":
        target.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
        target.table.refresh()
    owner, name = (delta_log.DeltaLog, "commit") if by == "delta" else (Storage, "create")
    real = getattr(owner, name)

    def lossy(self: Any, *arguments: Any) -> Any:
        ours = by == "delta" or "_delta_log" in arguments[0]
        if happened or not ours:
            real(self, *arguments)
        if ours:
            raise OutcomeUnknown("the answer got lost")

    monkeypatch.setattr(owner, name, lossy)
    if happened:
        target.apply(2, {1: "b"})
    else:
        with pytest.raises(Retry, match="did not happen"):
            target.apply(2, {1: "b"})
    monkeypatch.undo()
    assert target.table.refresh() == target.state(2 if happened else 1)
    assert target.rows() == {1: "b" if happened else "a"}
    target.apply(3, {1: "c"})
    assert target.rows() == {1: "c"}


def test_compaction_keeps_rows_and_applied_state_and_is_not_a_change_of_rows(target: Target) -> None:
    for step in range(1, 6):
        target.apply(step, dict.fromkeys(range(step, 40, step), f"{step}"), [step * 7])
    before, applied, limits = target.rows(), target.table.refresh(), EAGER
    killed_at("compact.before-commit", lambda: compact(target.table, target.storage, target.layout, applied, limits))
    assert target.reopen().refresh() == target.state(5) and target.rows() == before
    removed = compact(target.table, target.storage, target.layout, target.table.refresh(), limits)
    assert removed >= 2 and len(target.table.files()) == 1
    assert target.rows() == before
    assert target.table.refresh() == target.state(5)
    ids = take_rows(
        target.storage, target.table.files()[0].path, pa.array(range(len(before))).to_numpy(), target.layout
    )["id"].to_pylist()
    assert sorted(ids) == sorted(before)
    last = target.sql("DESCRIBE HISTORY {t} LIMIT 1")[0]
    assert (last.operation, last.operationParameters["epochId"]) == ("STREAMING UPDATE", "5")
    assert compact(target.table, target.storage, target.layout, target.table.refresh(), limits) == 0


def test_a_table_whose_own_retention_is_longer_keeps_its_files(target: Target) -> None:
    target.apply(1, {1: "one"})
    target.set_properties({"delta.deletedFileRetentionDuration": "interval 7 days"})
    target.table.refresh()
    target.apply(2, {1: "two"})
    assert not target.table.expire(time.time() + 3600)
    assert target.table.sweep(time.time() + 3600) == 0
    assert target.table.expire(time.time() + 7 * 86400)
    assert target.rows() == {1: "two"}


def test_a_vacuum_of_ours_leaves_what_another_tool_made_of_the_table(target: Target) -> None:
    """Rows rewritten by OPTIMIZE lie in files with names of its own; what it replaced goes."""
    for step in range(1, 4):
        target.apply(step, {step * 10 + key: f"{step}" for key in range(3)})
    old = {file.path for file in target.table.files()}
    target.sql("OPTIMIZE {t}")
    assert target.table.sweep(time.time() + 1, skew=0.0) == 0, "given up just now, and known by name"
    assert not any(target.storage.exists(path) for path in old)
    assert len(target.table.files()) == 1 and len(target.rows()) == 9
