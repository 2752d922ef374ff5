"""Others work on the target while Tailrace does: hazards T4, T5, T11, and a table that is put back. The tables are
real, the source is in memory, and what a reader that is not ours finds at the end equals it.

(Logs and checkpoints that are lost, on whole processes: `tests/proof/test_lost.py`.)
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.pipeline import lake
from support.scripted import ScriptedSource
from support.scripted_database import Change
from support.scripted_runs import Copy, by_key, filled, manifest
from support.versions import turns
from tailrace.apply.units import ApplyUnit
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.resources import Replicator
from tailrace.errors import Retry, TargetRefused
from tailrace.targets.lake.table import LakeTable

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
Begin = Callable[[str], Copy]


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Iterator[Begin]:
    """Starts a pipeline into tables of a format."""
    with ExitStack() as ends:

        def make(format: str) -> Copy:
            tables = lake(Replicator.model_validate(manifest(tmp_path, format)), spark)
            copy = Copy(filled("one", "two", rows=40), tmp_path, format, tables)
            ends.callback(copy.stop)
            copy.start()
            return copy

        yield make


def place(copy: Copy, table: str = "one") -> Path:
    return copy.folder / "lake" / "main" / table


def equal(copy: Copy, format: str) -> None:
    """After more changes."""
    copy.database.commit(Change("D", 1, 5), Change("I", 1, 500, "+"), Change("U", 2, 6, "++"))
    copy.level()
    assert copy.driver.faults() == {}
    for number, name in enumerate(copy.database.names, 1):
        found = READERS[format](place(copy, name)).select(["id", "v"])
        assert by_key(found) == copy.database.rows(number), name


def waiting_files(copy: Copy) -> list[Path]:
    """Of the first table's chunks that are registered and in no commit; a chunk without rows has no file."""
    applied = copy.driver.progress.all()[1].applied_record
    paths = (c.chunk.path for c in copy.state.tables[1].chunks if c.record > applied)
    return [Path(path.removeprefix("file://")) for path in paths if path is not None]


def before_the_next_commit(copy: Copy, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """`act` between the last look at the target and the commit of the first table's next rows, once. Only theirs: the
    second table's worker may commit first, and what `act` then changes is found by the first table's own look."""
    check = LakeTable._check_chunks

    def checked(table: LakeTable, part: TableSlice) -> None:
        if part.table_id == 1 and (part.segments or part.chunks):
            monkeypatch.undo()
            act()
        check(table, part)

    monkeypatch.setattr(LakeTable, "_check_chunks", checked)


def faults_met(copy: Copy) -> list[Exception]:
    """What tables fail with from now on, whoever listens to the log."""
    met: list[Exception] = []
    applier = copy.driver.applier
    failed = applier._failed

    def noted(unit: ApplyUnit, error: Exception, record: RecordNumber) -> None:
        met.append(error)
        failed(unit, error, record)

    setattr(applier, "_failed", noted)  # noqa: B010  (a method of this object alone)
    return met


def test_a_foreign_compaction_between_locating_and_committing_makes_the_batch_locate_again(
    begin: Begin, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4: what was located lies elsewhere now; the conflict is refused, and what comes after it looks anew."""
    copy = begin("delta")
    copy.level()
    met = faults_met(copy)
    removed: list[int] = []

    def compact() -> None:
        (done,) = spark.sql(f"OPTIMIZE delta.`{place(copy)}`").collect()
        removed.append(done.metrics.numFilesRemoved)

    for attempt in range(5):
        before_the_next_commit(copy, monkeypatch, compact)
        copy.database.commit(*(Change("U", 1, i, f"changed {attempt}") for i in range(2, 40, 2)))
        copy.level()
        # A conflict that passed unnoticed shows here: rows that were marked where they no longer are stand twice.
        equal(copy, "delta")
        if refused := [error for error in met if "somebody else changed the table" in str(error)]:
            break
    assert refused and isinstance(refused[0], Retry), removed


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_chunk_file_that_is_removed_before_its_adoption_is_read_again(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """T11: VACUUM, an orphan clean-up, or somebody's `rm` after the rows were located."""
    removed: list[Path] = []

    def remove() -> None:
        for path in waiting_files(begun):
            path.unlink()
            removed.append(path)

    begun = begin(format)
    begun.until(lambda _: begun.driver.tools.opened(1), work=True)
    while not waiting_files(begun):
        begun.driver.runner.step(0.02)
    before_the_next_commit(begun, monkeypatch, remove)
    begun.until(lambda _: "ChunkLost" in begun.driver.faults().values(), work=True)
    equal(begun, format)
    assert removed and "repair" in {snapshot.plan.reason for snapshot in begun.state.snapshots.values()}


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_second_tailrace_on_the_same_target_is_refused_and_harms_nothing(
    begin: Begin, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """T5: another change log, the same tables in the same place."""
    first = begin(format)
    first.level()
    (tmp_path / "second").mkdir()
    document = manifest(tmp_path / "second", format, target=first.document["spec"]["target"])
    second = Copy(first.database, tmp_path / "second", format, lake(Replicator.model_validate(document), spark))
    second.document, second.source = document, ScriptedSource(first.database)
    with second.running(), pytest.raises(TargetRefused, match="is filled from change log"):
        second.level()
    equal(first, format)


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_target_table_put_back_to_an_older_state_is_brought_forward(
    begin: Begin, tmp_path: Path, format: str
) -> None:
    copy = begin(format)
    copy.level()
    copy.stop()
    shutil.copytree(place(copy), tmp_path / "older")
    copy.start()
    copy.database.commit(*(Change("U", 1, i, "newer") for i in range(1, 30, 3)), Change("D", 1, 2))
    copy.level()
    copy.stop()
    shutil.rmtree(place(copy))
    shutil.copytree(tmp_path / "older", place(copy))
    copy.start()
    copy.level()
    equal(copy, format)
