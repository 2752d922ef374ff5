"""A new copy beside the table: what its documents say, and whose they are."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from support.folder_lake import FolderAccess
from support.lake import table_schema
from tailrace.batch.applied import Generation
from tailrace.changelog.records.terms import Column, RecordNumber, Seq
from tailrace.errors import Fenced, Retry, SchemaChangeUnsupported, TargetChanged
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import FIELD_ID, Layout
from tailrace.targets.lake.model import Naming, NewFile, TableCommit, always
from tailrace.targets.lake.staged import FOLDER, KEPT, StagedTable

SCHEMA = table_schema([("id", "int64"), ("v", "string")], ["id"])
NEXT = Generation(RecordNumber(7), Seq(70), keeps=True)
NAMING = Naming(lambda schema: schema, lambda column, id_: f"c{id_}")


def copy(folder: Path, naming: Naming = NAMING, generation: Generation = NEXT) -> StagedTable:
    staged = StagedTable(FolderAccess(str(folder)), folder.as_uri(), naming, always)
    staged.ensure(SCHEMA, "log", generation, last_id=5, shown=1)
    return staged


def written(folder: Path, staged: StagedTable, *ids: int) -> NewFile:
    layout = Layout(SCHEMA, staged.arrow_schema(SCHEMA))
    rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([str(i) for i in ids])})
    return next(files.write_files(FolderAccess(str(folder)), folder.as_uri(), layout, [rows])).file


def commit(staged: StagedTable, record: int, **change: object) -> None:
    applied = replace(NEXT.begin(SCHEMA, "log"), applied_record=RecordNumber(record), holes=frozenset({("9",)}))
    staged.commit(TableCommit(applied, **change))  # type: ignore[arg-type]  # fields by name


def test_its_columns_have_numbers_that_the_table_has_not_used(tmp_path: Path) -> None:
    fields = copy(tmp_path).arrow_schema(SCHEMA)
    assert [(f.name, int((f.metadata or {})[FIELD_ID]), f.nullable) for f in fields] == [
        ("c6", 6, True),
        ("c7", 7, True),
    ]
    required = copy(tmp_path / "b", Naming(lambda schema: schema, key_required=True)).arrow_schema(SCHEMA)
    assert [(field.name, field.nullable) for field in required] == [("id", False), ("v", True)]


def test_the_next_process_finds_what_the_last_commit_left(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    one, two = written(tmp_path, staged, 1, 2, 3), written(tmp_path, staged, 4, 5)
    commit(staged, 8, add=[one, replace(two, dead=BitMap64([0]))])
    for record in range(9, 14):
        commit(staged, record, marks={one.path: BitMap64(range(record - 8))} if record < 11 else {})
    again = copy(tmp_path)
    assert {file.path: sorted(file.dead) for file in again.files()} == {one.path: [0, 1], two.path: [0]}
    assert {(file.lower["id"], file.upper["id"]) for file in again.files()} == {(1, 3), (4, 5)}
    taken = again.replacement()
    assert taken.applied.applied_record == 13 and taken.applied.holes == {("9",)} and taken.schema == SCHEMA
    assert len(list((tmp_path / FOLDER).iterdir())) == KEPT


def test_files_without_rows_go_at_once_but_chunks_may_be_asked_for_again(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    one, two = written(tmp_path, staged, 1), written(tmp_path, staged, 2)
    chunk = tmp_path / "data" / "chunk-s-000000-x.parquet"
    Path(two.path.removeprefix("file://")).rename(chunk)
    commit(staged, 8, add=[one, replace(two, path=chunk.as_uri())])
    commit(staged, 9, clear=True)
    assert staged.files() == [] and chunk.exists() and not Path(one.path.removeprefix("file://")).exists()


def test_what_is_of_another_generation_is_not_taken_for_it(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    commit(staged, 8, add=[written(tmp_path, staged, 1)])
    other = copy(tmp_path, generation=replace(NEXT, number=RecordNumber(77)))
    assert other.files() == []
    other.forget()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_copy_that_was_never_shown_goes_when_another_begins(tmp_path: Path) -> None:
    """Else each change of form while a table is read would leave the rows that were read until then."""
    staged = copy(tmp_path)
    one, two = written(tmp_path, staged, 1), written(tmp_path, staged, 2)
    commit(staged, 8, add=[one, two])
    copy(tmp_path, generation=replace(NEXT, number=RecordNumber(77)))
    assert [path.name[:20] for path in (tmp_path / FOLDER).iterdir()] == [f"{77:020d}"]
    assert not list((tmp_path / "data").iterdir())


def test_a_copy_that_is_shown_stays_when_another_begins(tmp_path: Path) -> None:
    """Whoever took it over died before its document was gone."""
    staged = copy(tmp_path)
    one = written(tmp_path, staged, 1)
    commit(staged, 8, add=[one])
    again = StagedTable(FolderAccess(str(tmp_path)), tmp_path.as_uri(), NAMING, always)
    again.ensure(SCHEMA, "log", replace(NEXT, number=RecordNumber(77)), last_id=5, shown=NEXT.number)
    assert Path(one.path.removeprefix("file://")).exists() and again.files() == []
    staged.forget()
    assert [path.name[:20] for path in (tmp_path / FOLDER).iterdir()] == [f"{77:020d}"], "nothing later than it goes"


def test_a_writer_that_is_taken_over_from_while_it_writes_deletes_nothing(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    one = written(tmp_path, staged, 1)
    commit(staged, 8, add=[one])
    looks = iter([None])

    def fenced_once_written() -> None:
        if next(looks, "over") == "over":
            raise Fenced("taken over")

    late = StagedTable(FolderAccess(str(tmp_path)), tmp_path.as_uri(), NAMING, fenced_once_written)
    late.ensure(SCHEMA, "log", NEXT, last_id=5, shown=1)
    with pytest.raises(Fenced):
        commit(late, 9, clear=True)
    assert Path(one.path.removeprefix("file://")).exists()


def test_of_two_writers_one_is_refused_and_one_that_was_taken_over_from_writes_nothing(tmp_path: Path) -> None:
    one, two = copy(tmp_path), copy(tmp_path)
    commit(one, 8)
    with pytest.raises(Retry):
        commit(two, 8)
    with pytest.raises(Retry):
        two.files()

    def fenced() -> None:
        raise Fenced("taken over")

    late = StagedTable(FolderAccess(str(tmp_path)), tmp_path.as_uri(), NAMING, fenced)
    late.ensure(SCHEMA, "log", NEXT, last_id=5, shown=1)
    with pytest.raises(Fenced):
        commit(late, 9)
    assert copy(tmp_path).replacement().applied.applied_record == 8


def test_columns_change_by_their_ids(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    one = written(tmp_path, staged, 1)
    commit(staged, 8, add=[one])
    later = SCHEMA.model_copy(
        update={"version": 2, "columns": (SCHEMA.columns[0], Column(name="v", id=9, source_type="int", type="int32"))}
    )
    commit(staged, 9, evolve=later)
    assert [field.name for field in copy(tmp_path).arrow_schema(later)] == ["c6", "c8"]
    typed = later.model_copy(
        update={"version": 3, "columns": (*later.columns[:1], later.columns[1].model_copy(update={"type": "string"}))}
    )
    with pytest.raises(SchemaChangeUnsupported, match="changed from int32 to string"):
        commit(staged, 10, evolve=typed)


def test_a_file_that_is_gone_is_told_before_anybody_sees_the_copy(tmp_path: Path) -> None:
    staged = copy(tmp_path)
    one = written(tmp_path, staged, 1)
    commit(staged, 8, add=[one])
    Path(one.path.removeprefix("file://")).write_bytes(b"")
    with pytest.raises(TargetChanged, match="gone or has another size"):
        staged.replacement()
