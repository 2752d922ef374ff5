"""A new copy is made beside the table that readers see, and takes its place in one commit. In both formats."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from support.generations import LOG, SAMPLES, STRUCT, Place, write
from support.lake import table_schema
from support.versions import turns
from tailrace.batch.applied import AppliedState, Generation
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.errors import Retry, TargetChanged
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.kept import NO_CHUNKS
from tailrace.targets.lake.model import FormatTable, NewFile, TableCommit, always
from tailrace.targets.lake.staged import StagedTable

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""

OLD = table_schema([("id", "int64"), ("v", "string"), ("w", STRUCT)], ["id"])
NEW = table_schema([("v", "string"), ("id", "string"), ("x", "int64"), ("y", "list<string>")], ["id", "v"])
NEXT = Generation(RecordNumber(10), Seq(100), keeps=True)


@pytest.fixture(params=turns("delta", "iceberg"))
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    return Place.make(request.param, spark, tmp_path)


@dataclass
class Beside:
    """The new copy, in the hands of one process."""

    place: Place
    table: FormatTable
    staged: StagedTable
    applied: AppliedState

    @classmethod
    def open(cls, place: Place, schema: TableSchema = NEW, generation: Generation = NEXT) -> "Beside":
        table = place.open()
        told = table.ensure(schema, LOG, generation)
        assert not generation.holds(told, schema.table_id)
        staged = StagedTable(place.storage, table.location, table.naming, always)
        return cls(place, table, staged, staged.ensure(schema, LOG, generation, table.last_id(), told.generation))

    def rows(self, schema: TableSchema) -> tuple[NewFile, pa.Table]:
        layout = Layout(schema, self.staged.arrow_schema(schema))
        columns = {c.name: pa.array(SAMPLES[c.type], layout.fields[c.name].type) for c in schema.columns}
        (made,) = files.write_files(self.place.storage, self.table.location, layout, [pa.table(columns)])
        return made.file, pa.table(columns)

    def commit(self, schema: TableSchema, **change: Any) -> None:
        applied = replace(
            self.applied,
            applied_seq=Seq(self.applied.applied_seq + 1),
            applied_record=RecordNumber(self.applied.applied_record + 11),
            schema_version=schema.version,
        )
        self.applied = applied
        self.staged.commit(TableCommit(applied, **change))

    def publish(self) -> None:
        self.table.replace(self.staged.replacement())


def begun(place: Place) -> list[dict[str, Any]]:
    """The table of the former generation, with rows and dead ones."""
    table = place.open()
    state = table.ensure(OLD, LOG, Generation(RecordNumber(1)))
    rows = write(table, place, OLD, state, 2)
    (file,) = table.files()
    state = replace(state, applied_seq=Seq(9), applied_record=RecordNumber(3))
    table.commit(TableCommit(state, marks={file.path: BitMap64([1])}))
    assert place.rows() == [rows[0], rows[2]]
    return [rows[0], rows[2]]


def as_rows(*tables: pa.Table) -> list[dict[str, Any]]:
    return sorted((row for table in tables for row in table.to_pylist()), key=str)


def evolved(schema: TableSchema, dropped: str, added: tuple[str, str]) -> TableSchema:
    kept = tuple(column for column in schema.columns if column.name != dropped)
    new = Column(name=added[0], id=20 + schema.version, source_type=added[1], type=added[1])
    return schema.model_copy(update={"columns": (*kept, new), "version": schema.version + 1})


def test_readers_see_the_old_table_until_the_new_one_is_complete(place: Place) -> None:
    """Whoever makes it may die after each commit, and its columns may change meanwhile."""
    old = begun(place)
    beside = Beside.open(place)
    first, _ = beside.rows(NEW)
    beside.commit(NEW, add=[first])
    assert place.rows() == old
    beside = Beside.open(place)
    assert beside.applied.applied_record == 11 and [file.path for file in beside.staged.files()] == [first.path]
    later = evolved(evolved(NEW, "x", ("z", STRUCT)), "z", ("x", "list<string>"))
    second, more = beside.rows(later)
    beside.commit(later, marks={first.path: BitMap64([0])}, add=[second], evolve=later, before=NEW)
    beside = Beside.open(place)
    third, rest = beside.rows(later)
    beside.commit(later, marks={first.path: BitMap64([0, 1, 2]), second.path: BitMap64([2])}, add=[third])
    assert [len(file.dead) for file in beside.staged.files()] == [1, 0] and place.rows() == old
    beside.publish()
    assert place.rows() == as_rows(more.slice(0, 2), rest)
    again = place.open()
    assert again.ensure(later, LOG, NEXT) == beside.applied, "the table itself is of the new generation now"
    found = {file.path: len(file.dead) for file in again.files()}
    assert found == {second.path: 1, third.path: 0}
    assert Layout(later, again.arrow_schema(later)).digest == Layout(later, beside.staged.arrow_schema(later)).digest
    further = evolved(later, "y", ("q", STRUCT))
    fourth = write(again, place, further, replace(beside.applied, schema_version=4), 99, evolve=further)
    assert len(place.rows()) == 5 + len(fourth)


def test_older_versions_stay_as_they_were_and_none_is_empty(place: Place) -> None:
    old = begun(place)
    beside = Beside.open(place)
    file, values = beside.rows(NEW)
    beside.commit(NEW, add=[replace(file, dead=BitMap64([2]))])
    before = place.versions()
    beside.publish()
    after = place.versions()
    assert len(after) == len(before) + 1 and after[: len(before)] == before
    assert place.rows_at(before[-1]) == old
    assert place.rows() == place.rows_at(after[-1]) == as_rows(values.slice(0, 2))


def test_another_change_of_form_begins_another_copy_and_the_first_one_is_nobodys(place: Place) -> None:
    old = begun(place)
    beside = Beside.open(place)
    file, _ = beside.rows(NEW)
    beside.commit(NEW, add=[file])
    other = replace(NEXT, number=RecordNumber(50))
    second = Beside.open(place, OLD, other)
    assert not second.staged.files() and second.applied.generation == 50 and place.rows() == old
    assert not Path(file.path.removeprefix("file://")).exists()
    with pytest.raises(TargetChanged, match="captured since record 1"):
        second.publish()
        place.open().ensure(OLD, LOG, Generation(RecordNumber(1)))
    assert place.rows() == []
    swept = place.open()
    swept.ensure(OLD, LOG, other)
    for path in Path(swept.location.removeprefix("file://")).rglob("*.*"):
        os.utime(path, (1e9, 1e9))
    swept.sweep(2e9, NO_CHUNKS)
    left = [path.name for path in Path(swept.location.removeprefix("file://")).rglob("*.json") if "next" in path.parts]
    assert left == [] and not Path(file.path.removeprefix("file://")).exists()


def test_old_versions_expire_while_another_copy_is_made(place: Place) -> None:
    """What was hidden an hour ago must not stay in them for as long as reading takes."""
    old = begun(place)
    table = place.open()
    state = table.ensure(OLD, LOG, Generation(RecordNumber(1)))
    for record in range(4, 30):
        state = replace(state, applied_record=RecordNumber(record))
        write(table, place, OLD, state, record)
    (rows, folder) = (place.rows(), Path(table.location.removeprefix("file://")))
    removed = [file.path for file in table.files()]
    table.commit(TableCommit(replace(state, applied_record=RecordNumber(30)), clear=True))
    beside = Beside.open(place)
    file, values = beside.rows(NEW)
    beside.commit(NEW, add=[file])
    assert len(removed) > 20 and rows and old
    beside.table.expire(2e10, NO_CHUNKS)
    left = {path.name for path in folder.rglob("*.parquet")}
    assert Path(file.path).name in left and not left & {Path(path).name for path in removed}
    assert place.rows() == []
    beside.publish()
    assert place.rows() == as_rows(values)


def test_of_two_processes_one_is_refused(place: Place) -> None:
    begun(place)
    one, two = Beside.open(place), Beside.open(place)
    file, _ = one.rows(NEW)
    one.commit(NEW, add=[file])
    with pytest.raises(Retry):
        two.commit(NEW)
    one.publish()
    with pytest.raises((Retry, TargetChanged)):
        one.table.replace(one.staged.replacement())
        two.publish()


def test_a_copy_whose_files_others_have_deleted_is_not_shown(place: Place) -> None:
    old = begun(place)
    beside = Beside.open(place)
    file, _ = beside.rows(NEW)
    beside.commit(NEW, add=[file])
    Path(file.path.removeprefix("file://")).unlink()
    with pytest.raises(TargetChanged, match="is gone"):
        beside.publish()
    assert place.rows() == old


def test_a_table_that_no_reader_can_open_is_replaced_like_any_other(place: Place) -> None:
    begun(place)
    folder = Path(place.open().location.removeprefix("file://"))
    for path in [*folder.rglob("data/*.parquet"), *folder.rglob("*.puffin"), *folder.rglob("*.bin")]:
        path.unlink()
    beside = Beside.open(place)
    file, values = beside.rows(NEW)
    beside.commit(NEW, add=[replace(file, dead=BitMap64([0]))])
    beside.publish()
    assert place.rows() == as_rows(values.slice(1))


def test_a_column_that_others_add_meanwhile_takes_no_number_of_the_new_copy(place: Place) -> None:
    begun(place)
    beside = Beside.open(place)
    file, values = beside.rows(NEW)
    beside.commit(NEW, add=[file])
    place.spark.sql(f"ALTER TABLE {place.sql_name} ADD COLUMN theirs int")
    beside = Beside.open(place)
    if isinstance(beside.table, IcebergTable):
        with pytest.raises(TargetChanged, match="columns were added to the target"):
            beside.publish()
        return
    beside.publish()
    assert place.rows() == as_rows(values)
