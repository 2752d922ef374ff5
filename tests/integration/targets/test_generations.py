"""A target of another generation is replaced in one commit, in both formats; no old file is taken for a new one."""

import json
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from support.generations import LOG, Place, random_schema, write
from support.lake import table_schema
from support.versions import turns
from tailrace.batch.applied import Generation
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import TargetChanged
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.iceberg.cleanup import RESTED_SECONDS
from tailrace.targets.lake.kept import NO_CHUNKS
from tailrace.targets.lake.model import FormatTable, TableCommit

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


@pytest.fixture(params=turns("delta", "iceberg"))
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    return Place.make(request.param, spark, tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_a_target_of_another_generation_has_the_new_columns_and_rows_and_no_old_ones(place: Place, seed: int) -> None:
    random = Random(seed)
    for record in (3, 10, 20, 30):
        schema = random_schema(random, random.choice([1, 2]))
        table, generation = place.open(), Generation(RecordNumber(record), Seq(record * 10))
        state = table.ensure(schema, LOG, generation)
        assert state == generation.begin(schema, LOG)
        assert list(table.files()) == [] and place.rows() == []
        expected = write(table, place, schema, state, record + 1)
        assert place.rows() == expected
        again = place.open()
        assert again.ensure(schema, LOG, generation).applied_record == record + 1, "opening again replaces nothing"
        assert len(again.files()) == 1 and place.rows() == expected == place.rows_by_spark()


def test_the_layout_of_files_differs_between_generations_of_the_same_columns(place: Place) -> None:
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    first = place.open()
    first.ensure(schema, LOG, Generation(RecordNumber(1)))
    before = Layout(schema, first.arrow_schema(schema)).digest
    second = place.open()
    second.ensure(schema, LOG, Generation(RecordNumber(5)))
    assert Layout(schema, second.arrow_schema(schema)).digest != before


def test_a_column_may_be_called_as_what_is_in_one_that_goes(place: Place) -> None:
    before = table_schema([("id", "int64"), ("d", 'struct<"e":int32>'), ("tags", "list<int32>")], ["id"])
    after = table_schema([("id", "int64"), ("d.e", "int64"), ("tags.element", "string")], ["id"])
    place.open().ensure(before, LOG, Generation(RecordNumber(1)))
    table = place.open()
    state = table.ensure(after, LOG, Generation(RecordNumber(5)))
    assert write(table, place, after, state, 6) == place.rows()


def test_a_writer_of_the_former_generation_cannot_commit_and_cannot_open(place: Place) -> None:
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    other = table_schema([("v", "int64"), ("id", "string")], ["v"], table_id=2)
    old = place.open()
    state = old.ensure(schema, LOG, Generation(RecordNumber(1)))
    write(old, place, schema, state, 2)
    new = place.open()
    begun = new.ensure(other, LOG, Generation(RecordNumber(5), Seq(50)))
    with pytest.raises(Exception):  # noqa: B017 - a conflict, whatever each format calls it
        write(old, place, schema, replace(state, applied_seq=Seq(9)), 9)
    with pytest.raises(TargetChanged, match="since record 5"):
        place.open().ensure(schema, LOG, Generation(RecordNumber(1)))
    assert new.refresh() == begun
    assert write(new, place, other, begun, 6) == place.rows()


def test_rows_that_no_reader_can_open_are_replaced_like_any_other(place: Place) -> None:
    """The holes' file is gone, and a data file: a resync must bring such a table back."""
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    table = place.open()
    state = table.ensure(schema, LOG, Generation(RecordNumber(1)))
    holes = frozenset((f"{number:0100d}",) for number in range(1000))
    write(table, place, schema, replace(state, holes=holes), 2)
    folder = Path(table.location.removeprefix("file://"))
    for path in [*folder.rglob("holes-*.json"), *folder.rglob("*.parquet")]:
        if "_delta_log" not in path.parts:
            path.unlink()
    with pytest.raises(TargetChanged):
        place.open().ensure(schema, LOG, Generation(RecordNumber(1)))
    again = place.open()
    begun = again.ensure(schema, LOG, Generation(RecordNumber(9), Seq(90)))
    assert begun.holes == frozenset()
    assert write(again, place, schema, begun, 10) == place.rows()


def test_the_stored_state_names_the_generation(place: Place) -> None:
    schema = table_schema([("id", "int64")], ["id"])
    table = place.open()
    table.ensure(schema, LOG, Generation(RecordNumber(4), Seq(40)))
    texts = [p.read_text() for p in Path(table.location.removeprefix("file://")).rglob("*.json")]
    assert any(json.dumps("generation").strip('"') in text for text in texts)


def data_files(table: FormatTable) -> set[str]:
    folder = Path(table.location.removeprefix("file://")) / "data"
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_the_files_of_a_former_generation_stay_for_the_retention_and_go_after_it(place: Place) -> None:
    """As after a resync of a table that is rarely written to: rows, columns and vectors of before."""
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    table = place.open()
    state = table.ensure(schema, LOG, Generation(RecordNumber(1)))
    write(table, place, schema, state, 2)
    (file,) = table.files()
    table.commit(
        TableCommit(
            replace(state, applied_seq=Seq(9), applied_record=RecordNumber(3)), marks={file.path: BitMap64([1])}
        )
    )
    before = data_files(table)
    time.sleep(0.05)  # storage and Iceberg count milliseconds
    replaced = time.time()
    time.sleep(0.05)
    again = place.open()
    begun = again.ensure(schema, LOG, Generation(RecordNumber(5), Seq(50)))
    expected = write(again, place, schema, begun, 6)
    again.expire(replaced, NO_CHUNKS)
    assert before <= data_files(again), "an earlier version can be read for as long as it is kept"
    again.expire(time.time() + RESTED_SECONDS, NO_CHUNKS)
    assert data_files(again) == {Path(file.path).name for file in again.files()}
    assert place.rows() == expected
