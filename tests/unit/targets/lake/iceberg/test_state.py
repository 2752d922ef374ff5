"""How the applied state is found among an Iceberg table's snapshots, and what a commit does file by file."""

import pytest
from pyroaring import BitMap64

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.errors import ForeignChange, SchemaChangeUnsupported, TargetChanged
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.files.vectors import PuffinBlob
from tailrace.targets.lake.iceberg.commit import plan
from tailrace.targets.lake.iceberg.files import LiveFile, Vector
from tailrace.targets.lake.iceberg.java import CommitConflict
from tailrace.targets.lake.iceberg.schema import PresentField, SchemaStep, evolution, first_columns
from tailrace.targets.lake.iceberg.state import (
    Broken,
    IcebergSnapshot,
    Mirror,
    StoredSummary,
    decode,
    decode_mirror,
    encode_mirror,
    encode_text,
    proven_by_mirror,
    walk,
)
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

STORED = StoredSummary(
    AppliedState("log", Seq(7), RecordNumber(3), frozenset({("1", "ä")}), 2, 99, gap=RecordNumber(4))
)


def _snapshot(id_: int, operation: str = "replace", state: str | None = None) -> IcebergSnapshot:
    return IcebergSnapshot(id_, id_ - 1 or None, id_, operation, state, None)


def test_the_walk_passes_over_compactions_only() -> None:
    history = {1: _snapshot(1, "append", "ours"), 2: _snapshot(2), 3: _snapshot(3), 4: _snapshot(4, "append")}
    assert walk("t", 3, history.get) == history[1]
    with pytest.raises(ForeignChange, match="snapshot 4"):
        walk("t", 4, history.get)
    del history[1]
    assert walk("t", 3, history.get) == Broken(history[2])


def test_a_history_without_any_state_is_refused() -> None:
    with pytest.raises(TargetChanged):
        walk("t", 1, {1: _snapshot(1)}.get)


@pytest.mark.parametrize(
    ("oldest_parent", "live", "proven"),
    [(5, set(), True), (6, {3, 5}, True), (6, {3, 4}, False), (6, {3, 5, 6}, False), (6, set(), False)],
)
def test_the_mirror_counts_only_with_proof_of_descent(oldest_parent: int, live: set[int], proven: bool) -> None:
    broken = Broken(IcebergSnapshot(9, oldest_parent, 9, "replace", None, None))
    mirror = Mirror(STORED, 5, 5)
    if proven:
        assert proven_by_mirror("t", broken, mirror, lambda: live) == STORED
    else:
        with pytest.raises(TargetChanged):
            proven_by_mirror("t", broken, mirror, lambda: live)


def test_state_and_mirror_come_back_as_they_were_stored() -> None:
    assert decode(encode_text(STORED), "t") == STORED
    assert decode_mirror(encode_mirror(Mirror(STORED, 12, 4)), "t") == Mirror(STORED, 12, 4)


def _tracked(path: str, dead: list[int]) -> LiveFile:
    vector = Vector("v", 9, PuffinBlob(4, 5, len(dead))) if dead else None
    return LiveFile(DataFile(path, 3, 100, BitMap64(dead)), path, vector)


def test_a_commit_removes_dead_files_and_replaces_vectors_that_grew() -> None:
    files = {"a": _tracked("a", [0]), "b": _tracked("b", [1]), "c": _tracked("c", [])}
    marks = {"a": BitMap64([0, 1, 2]), "b": BitMap64([1, 2]), "c": BitMap64()}
    add = [NewFile("n", 2, 10, BitMap64([1])), NewFile("all-dead", 1, 10, BitMap64([0]))]
    work = plan(TableCommit(AppliedState("log"), add, marks), files)
    assert [tracked.file.path for tracked in work.remove] == ["a"]
    assert work.vectors == {"b": BitMap64([1, 2]), "n": BitMap64([1])}
    assert [path for path, _ in work.replaced] == ["a", "b"]
    assert [new.path for new in work.add] == ["n"]


def test_marks_on_a_file_that_is_not_live_or_that_forget_dead_rows_are_refused() -> None:
    with pytest.raises(CommitConflict):
        plan(TableCommit(AppliedState("log"), (), {"x": BitMap64([0])}), {})
    with pytest.raises(ValueError, match="dead already"):
        plan(TableCommit(AppliedState("log"), (), {"a": BitMap64([1])}), {"a": _tracked("a", [0])})


def _table(version: int, *columns: tuple[int, str, str]) -> TableSchema:
    made = tuple(
        Column(name=name, id=attnum, source_type=kind, type=kind, key=0 if attnum == 1 else None)
        for attnum, name, kind in columns
    )
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=version, columns=made)


def test_a_name_used_again_is_another_column_and_a_rename_keeps_its_physical_name() -> None:
    columns = first_columns(_table(1, (1, "id", "int64"), (2, "a", "string"), (3, "b", "string")))
    present = [
        PresentField(1, "id", "long", True),
        PresentField(2, "a", "string", False),
        PresentField(3, "b", "string", False),
    ]
    wanted = _table(2, (1, "id", "int64"), (3, "c", "string"), (4, "a", "int32"))
    assert evolution("t", present, columns, wanted) == [
        SchemaStep("deleteColumn", "a"), SchemaStep("renameColumn", "b", "c"), SchemaStep("addColumn", "a", "int"),
    ]  # fmt: skip
    later = columns.extended(wanted, 3)
    assert (later.ids, later.names) == ({1: 1, 2: 2, 3: 3, 4: 4}, {1: "id", 2: "a", 3: "b", 4: "a_4"})
    assert Columns.from_json(later.to_json()) == later


@pytest.mark.parametrize("changed", [((1, "id", "int64"), (2, "a", "int32")), ((2, "a", "string"),)])
def test_changes_that_iceberg_cannot_do_in_place_are_named(changed: tuple[tuple[int, str, str], ...]) -> None:
    columns = first_columns(_table(1, (1, "id", "int64"), (2, "a", "string")))
    present = [PresentField(1, "id", "long", True), PresentField(2, "a", "string", False)]
    with pytest.raises(SchemaChangeUnsupported):
        evolution("t", present, columns, _table(2, *changed))


def test_a_wider_decimal_is_a_promotion() -> None:
    columns = first_columns(_table(1, (1, "id", "int64"), (2, "a", "decimal(10,2)")))
    present = [PresentField(1, "id", "long", True), PresentField(2, "a", "decimal(10, 2)", False)]
    wanted = _table(2, (1, "id", "int64"), (2, "a", "decimal(12,2)"))
    assert evolution("t", present, columns, wanted) == [SchemaStep("updateColumn", "a", "decimal(12, 2)")]
