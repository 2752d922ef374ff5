"""Rows of a table without a key, found by all their values."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap64

from support.counted_log import SCHEMA, Row
from support.folder_lake import NotedAccess, layout_of
from tailrace.changelog.records.terms import Column
from tailrace.fold.row_digests import digests
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate_rows import WantedRows, locate_rows
from tailrace.targets.lake.files.write import write_file
from tailrace.targets.lake.model import DataFile

A, B, C = (1, "a"), (2, None), (9, "a")


def rows_of(rows: list[Row]) -> pa.Table:
    return pa.table({"n": pa.array([n for n, _ in rows], pa.int32()), "t": pa.array([t for _, t in rows], pa.string())})


@pytest.fixture
def access(tmp_path: Path) -> NotedAccess:
    return NotedAccess(str(tmp_path))


def written(access: NotedAccess, name: str, rows: list[Row], *dead: int) -> DataFile:
    path = f"file://{access.root}/{name}"
    made = write_file(access, path, layout_of(SCHEMA), [rows_of(rows)])
    assert made is not None
    numbers = [n for n, _ in rows if n is not None]
    bounds = ({"n": min(numbers)}, {"n": max(numbers)})
    return DataFile(path, len(rows), made.file.size, BitMap64(dead), *bounds)


def found(
    access: NotedAccess, files: list[DataFile], wanted: dict[Row, int], layout: Layout, cache: IndexCache
) -> dict[str, list[tuple[int, Row]]]:
    rows = rows_of([*wanted])
    widened = [*rows.columns, *(pa.nulls(len(wanted), c.type) for c in [*layout.arrow][2:])]
    ends = pc.min_max(rows["n"])
    spans = {"n": (ends["min"], ends["max"])}
    columns = [c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in widened]
    sought = WantedRows(digests(columns), np.array([*wanted.values()], np.int64), spans)
    located = locate_rows(access, files, layout, sought, cache)
    names = [*wanted]
    return {
        path.rpartition("/")[2]: [
            (at, names[key]) for at, key in zip(rows.positions.tolist(), rows.keys.tolist(), strict=True)
        ]
        for path, rows in located.items()
    }


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_so_many_live_rows_are_found_as_are_sought(access: NotedAccess, room: int) -> None:
    cache = IndexCache(room)
    files = [written(access, "one", [A, B, A, A], 0), written(access, "two", [A, B, B, A])]
    assert found(access, files, {A: 3, B: 2}, layout_of(SCHEMA), cache) == {
        "one": [(1, B), (2, A), (3, A)],
        "two": [(0, A), (1, B)],
    }
    access.opened()
    assert found(access, files, {A: 1, C: 1}, layout_of(SCHEMA), cache) == {"one": [(2, A)]}
    assert bool(access.opened()) is (room == 0), "an index is kept"


def test_a_file_that_cannot_have_the_rows_is_not_opened(access: NotedAccess) -> None:
    files = [written(access, "one", [A, B]), written(access, "two", [C, C])]
    access.opened()
    assert found(access, files, {C: 1}, layout_of(SCHEMA), IndexCache(1 << 20)) == {"two": [(0, C)]}
    assert [path.rpartition("/")[2] for path in access.opened()] == ["two"]


def test_files_behind_the_last_row_are_not_opened(access: NotedAccess) -> None:
    files = [written(access, "one", [A, B]), written(access, "two", [A, A])]
    access.opened()
    assert found(access, files, {A: 1}, layout_of(SCHEMA), IndexCache(1 << 20)) == {"one": [(0, A)]}
    assert [path.rpartition("/")[2] for path in access.opened()] == ["one"]


def test_a_file_that_lacks_a_column_has_null_there_and_another_index(access: NotedAccess) -> None:
    cache, files = IndexCache(1 << 20), [written(access, "one", [A, B])]
    assert found(access, files, {A: 1}, layout_of(SCHEMA), cache) == {"one": [(0, A)]}
    more = (*SCHEMA.columns, Column(name="new", id=3, source_type="text", type="string"))
    assert found(access, files, {A: 1}, layout_of(SCHEMA.model_copy(update={"columns": more})), cache) == {
        "one": [(0, A)]
    }
