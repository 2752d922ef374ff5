"""Locating keys in data files and reading rows back: every key type, dead rows, pruning, bounded cache."""

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from support.lake import LocalFiles, new_location, table_schema
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import TargetChanged
from tailrace.storage.store import NotFound
from tailrace.targets.lake.files import locate
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.access import FooterCache, parquet
from tailrace.targets.lake.files.index import FileIndex
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.model import DataFile


def layout_of(schema: TableSchema) -> Layout:
    fields = [physical_field(f"c{number}", column.type, number) for number, column in enumerate(schema.columns, 1)]
    return Layout(schema, pa.schema(fields))


def written(folder: Path, layout: Layout, tables: list[pa.Table]) -> list[DataFile]:
    location = new_location(folder)
    out = []
    for table in tables:
        made = files.write_file(LocalFiles(), files.data_path(location, uuid.uuid4()), layout, [table])
        assert made is not None
        out.append(DataFile(made.file.path, made.file.rows, made.file.size))
    return out


SAMPLES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int32": [0, -1, 2**31 - 1, -(2**31)],
    "int64": [0, -1, 2**63 - 1, -(2**63)],
    "float32": [0.0, math.nan, math.inf, -1.5],
    "float64": [0.0, math.nan, -math.inf, 1e-300],
    "decimal(9,2)": [decimal.Decimal("0.00"), decimal.Decimal("-1.25")],
    "decimal(18,0)": [decimal.Decimal(-(10**17)), decimal.Decimal(10**17)],
    "decimal(38,10)": [decimal.Decimal("1E-10"), decimal.Decimal("-12345678901234567890.5")],
    "string": ["", "a", "ä", "b4a9b1f4-6a2e-4d5c-8f0d-3f6a1c2b9e77"],
    "binary": [b"", b"\0", b"\xff\0"],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1)],
    "timestamptz": [dt.datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=dt.UTC)],
}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("kind", SAMPLES)
def test_every_key_type_is_found_where_it_stands(kind: str, cached: bool, tmp_path: Path) -> None:
    layout = layout_of(table_schema([("k", kind), ("v", "string")], ["k"]))
    values = SAMPLES[kind]
    arrow = layout.fields["k"].type
    rows = pa.table({"k": pa.array(values, arrow), "v": [str(number) for number in range(len(values))]})
    (file,) = written(tmp_path, layout, [rows])
    cache = IndexCache(1 << 20 if cached else 0)
    for number, value in enumerate(values):
        found = locate.locate(LocalFiles(), [file], layout, pa.table({"k": pa.array([value], arrow)}), cache)
        assert found[file.path].positions.tolist() == [number]
    assert (cache.size > 0) is cached


def test_floats_that_postgresql_holds_equal_are_one_key(tmp_path: Path) -> None:
    layout = layout_of(table_schema([("k", "float64"), ("v", "string")], ["k"]))
    odd_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    keys = np.concatenate([[-0.0], odd_nan, [5.0]])
    (file,) = written(tmp_path, layout, [pa.table({"k": keys, "v": ["z", "n", "5"]})])
    bounded = DataFile(file.path, file.rows, file.size, lower={"k": -0.0}, upper={"k": 5.0})
    found = locate.locate(LocalFiles(), [bounded], layout, pa.table({"k": [0.0, math.nan]}), IndexCache(1 << 20))
    assert found[file.path].positions.tolist() == [0, 1]
    assert found[file.path].keys.tolist() == [0, 1]


def test_dead_rows_are_not_found_and_keys_tell_which_input_row_matched(tmp_path: Path) -> None:
    layout = layout_of(table_schema([("a", "string"), ("b", "int32"), ("v", "string")], ["b", "a"]))
    rows = pa.table({"a": ["x", "y", "x", "y"], "b": pa.array([1, 1, 2, 2], pa.int32()), "v": list("stuv")})
    (file,) = written(tmp_path, layout, [rows])
    marked = DataFile(file.path, file.rows, file.size, BitMap64([1]))
    keys = pa.table({"a": ["y", "x", "y", "q"], "b": [2, 1, 1, 1]})
    found = locate.locate(LocalFiles(), [marked], layout, keys, IndexCache(1 << 20))[file.path]
    assert (found.positions.tolist(), found.keys.tolist()) == ([0, 3], [1, 0])


def test_a_file_whose_bounds_exclude_every_key_is_not_opened(tmp_path: Path) -> None:
    layout = layout_of(table_schema([("k", "int64")], ["k"]))
    absent = DataFile(f"file://{tmp_path}/absent.parquet", 10, 100, lower={"k": 10}, upper={"k": 20})
    keys = pa.table({"k": [9, 21]})
    assert locate.locate(LocalFiles(), [absent], layout, keys, IndexCache(0)) == {}
    with pytest.raises(FileNotFoundError):
        locate.locate(LocalFiles(), [absent], layout, pa.table({"k": [10]}), IndexCache(0))


def test_a_file_without_any_row_group_has_no_keys(tmp_path: Path) -> None:
    """Other writers make such."""
    layout = layout_of(table_schema([("k", "int64")], ["k"]))
    path = tmp_path / "empty.parquet"
    pq.ParquetWriter(path, pa.schema(list(layout.fields.values()))).close()
    file = DataFile(path.as_uri(), 0, path.stat().st_size)
    assert locate.locate(LocalFiles(), [file], layout, pa.table({"k": [1]}), IndexCache(1 << 20)) == {}


def test_keys_of_much_text_in_a_small_file_are_searched_group_by_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 keys of 2,000 characters are 100 MB in a file of some 100 kB."""
    layout = layout_of(table_schema([("k", "string")], ["k"]))
    keys = [f"{'p' * 1990}{number:010d}" for number in range(50_000)]
    (file,) = written(tmp_path, layout, [pa.table({"k": keys})])
    assert file.size < 10 << 20
    cache, wanted, built = IndexCache(128 << 20), pa.table({"k": [keys[7], keys[49_999]]}), list[int]()
    read = locate._key_columns

    def counted(opened: pq.ParquetFile, layout: Layout, groups: Sequence[int], path: str) -> list[pa.Array]:
        built.append(len(groups))
        return read(opened, layout, groups, path)

    monkeypatch.setattr(locate, "_key_columns", counted)
    for _ in range(2):
        found = locate.locate(LocalFiles(), [file], layout, wanted, cache)
        assert found[file.path].positions.tolist() == [7, 49_999]
    assert cache.size == 0
    with parquet(LocalFiles(), file.path) as opened:
        groups = opened.metadata.num_row_groups
    assert set(built) == {1}
    assert len(built) < 2 * groups + groups, "the second time it is known"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_locate_finds_what_a_dictionary_finds(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind = data.draw(st.sampled_from(["int64", "string"]))
    value = st.integers(-20, 20).map(lambda v: v if kind == "int64" else f"k{v}")
    tables = data.draw(st.lists(st.lists(value, min_size=1, max_size=30), min_size=1, max_size=3))
    wanted = sorted(data.draw(st.sets(value, min_size=1, max_size=15)))
    limit = data.draw(st.sampled_from([0, 300, 1 << 20]))
    layout = layout_of(table_schema([("k", kind)], ["k"]))
    there = written(tmp_path_factory.mktemp("f"), layout, [pa.table({"k": rows}) for rows in tables])
    cache = IndexCache(limit)
    for _ in range(2):
        found = locate.locate(LocalFiles(), there, layout, pa.table({"k": wanted}), cache)
        for file, rows in zip(there, tables, strict=True):
            expected = [(at, wanted.index(row)) for at, row in enumerate(rows) if row in wanted]
            here = found.get(file.path)
            got = [] if here is None else list(zip(here.positions.tolist(), here.keys.tolist(), strict=True))
            assert got == expected
        assert cache.size <= limit


def test_rows_are_read_at_positions_in_the_given_order_and_a_missing_column_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 10)
    old = layout_of(table_schema([("k", "int64"), ("v", "string")], ["k"]))
    rows = pa.table({"k": list(range(35)), "v": [f"v{number}" for number in range(35)]})
    (file,) = written(tmp_path, old, [rows])
    new = layout_of(table_schema([("k", "int64"), ("v", "string"), ("w", "date")], ["k"], version=2))
    taken = locate.take_rows(LocalFiles(), file.path, np.array([34, 3, 12, 3]), new)
    assert taken.to_pydict() == {"k": [34, 3, 12, 3], "v": ["v34", "v3", "v12", "v3"], "w": [None] * 4}
    found = locate.locate(LocalFiles(), [file], new, pa.table({"k": [29, 30, 99]}), IndexCache(0))
    assert found[file.path].positions.tolist() == [29, 30]
    assert locate.take_rows(LocalFiles(), file.path, np.array([], np.int64), new, ["v", "w"]).num_rows == 0


def test_a_table_that_got_another_key_is_searched_by_it_in_files_that_are_indexed(tmp_path: Path) -> None:
    columns = [("a", "int64"), ("b", "int64")]
    old, new = layout_of(table_schema(columns, ["a"])), layout_of(table_schema(columns, ["b"], version=2))
    (file,) = written(tmp_path, old, [pa.table({"a": [1, 2, 3], "b": [3, 1, 2]})])
    cache = IndexCache(1 << 20)
    for layout, name, position in ((old, "a", 0), (new, "b", 1)):
        found = locate.locate(LocalFiles(), [file], layout, pa.table({name: [1]}), cache)
        assert found[file.path].positions.tolist() == [position]


def test_a_key_that_became_wider_is_found_in_files_that_are_indexed(tmp_path: Path) -> None:
    """Of 18 digits the word is the number, of more it is a hash."""
    old, new = (layout_of(table_schema([("k", f"decimal({digits},0)")], ["k"])) for digits in (18, 20))
    one, two = decimal.Decimal(1), decimal.Decimal(2)
    (file,) = written(tmp_path, old, [pa.table({"k": pa.array([one, two], pa.decimal128(18))})])
    cache = IndexCache(1 << 20)
    for layout, digits in ((old, 18), (new, 20)):
        wanted = pa.table({"k": pa.array([two], pa.decimal128(digits))})
        found = locate.locate(LocalFiles(), [file], layout, wanted, cache)
        assert found[file.path].positions.tolist() == [1]


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_the_keys_of_a_new_file_are_known_without_reading_it_but_it_must_be_there(kind: str, tmp_path: Path) -> None:
    layout = layout_of(table_schema([("k", kind)], ["k"]))
    b, a, c = ("b", "a", "c") if kind == "string" else (2, 1, 3)
    cache, new = IndexCache(1 << 20), DataFile(f"file://{tmp_path}/new.parquet", 2, 100)
    locate.note_keys(new.path, layout, [pa.array([b, a])], cache)
    for _ in range(2):  # each time anew
        with pytest.raises(NotFound, match=r"new\.parquet"):
            locate.locate(LocalFiles(), [new], layout, pa.table({"k": [a, c]}), cache)
    (tmp_path / "new.parquet").write_bytes(b"not read")
    found = locate.locate(LocalFiles(), [new], layout, pa.table({"k": [a, c]}), cache)
    assert (found[new.path].positions.tolist(), found[new.path].keys.tolist()) == ([1], [0])


def test_a_new_file_is_asked_for_only_if_a_row_of_it_is_found(tmp_path: Path) -> None:
    """Each question is a request, and random keys meet the bounds of every small file."""
    layout, cache = layout_of(table_schema([("k", "int64")], ["k"])), IndexCache(1 << 20)
    new = DataFile(f"file://{tmp_path}/new.parquet", 2, 100)
    locate.note_keys(new.path, layout, [pa.array([1, 9])], cache)
    for keys in ([5], list(range(2, 9)), list(range(10, 200))):
        assert locate.locate(LocalFiles(), [new], layout, pa.table({"k": keys}), cache) == {}
    dead = DataFile(new.path, 2, 100, BitMap64([0]))
    assert locate.locate(LocalFiles(), [dead], layout, pa.table({"k": [1]}), cache) == {}
    with pytest.raises(NotFound):
        locate.locate(LocalFiles(), [dead], layout, pa.table({"k": [9]}), cache)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_file_that_is_older_than_a_key_column_stops_its_table_alone(limit: int, tmp_path: Path) -> None:
    old = layout_of(table_schema([("a", "int64")], ["a"]))
    new = layout_of(table_schema([("a", "int64"), ("b", "int64")], ["b"], version=2))
    (file,) = written(tmp_path, old, [pa.table({"a": [1]})])
    with pytest.raises(TargetChanged, match="older than the column 'c2'"):
        locate.locate(LocalFiles(), [file], new, pa.table({"b": [1]}), IndexCache(limit))


@pytest.mark.parametrize("key", [7, "seven"])
def test_indexes_of_tiny_files_are_bounded_by_what_they_really_take(key: int | str) -> None:
    """An insert-only table makes one with each commit, and nobody ever asks for it."""
    cache, index = IndexCache(1 << 20), FileIndex.build([pa.array([key])])
    for number in range(2_000):
        cache.begin()
        cache.offer(f"file:///{number}", index)
    assert 100 < len(cache._entries) <= 1024


def test_keys_of_much_text_are_not_noted() -> None:
    layout, cache = layout_of(table_schema([("k", "string")], ["k"])), IndexCache(1 << 20)
    locate.note_keys("file:///new", layout, [pa.array(["k" * 1000] * 300)], cache)
    assert cache.size == 0


def test_a_pass_over_more_files_than_fit_keeps_the_first_ones() -> None:
    index = FileIndex.build([pa.array(range(10), pa.int64())])
    cache = IndexCache(index.size * 2)
    for _ in range(3):
        cache.begin()
        hits = []
        for name in "abcd":
            hits.append(cache.get(name) is not None)
            if not hits[-1] and cache.admits(index.size):
                cache.offer(name, index)
    assert hits == [True, True, False, False]


def test_footers_are_kept_within_a_bound_of_bytes_and_the_newest_stay(tmp_path: Path) -> None:
    layout = layout_of(table_schema([("k", "int64")], ["k"]))
    rows = pa.table({"k": [1, 2, 3]})
    made = files.write_file(LocalFiles(), files.data_path(new_location(tmp_path), uuid.uuid4()), layout, [rows])
    assert made is not None
    read = pq.read_metadata(made.file.path.removeprefix("file://"))
    assert read.equals(made.footer), "the writer's own is what the file has"
    cache = FooterCache(read.serialized_size * 3)
    for name in "abcac":
        cache.put(name, made.footer, read.serialized_size)
    assert [cache.get(name) is not None for name in "abc"] == [True, True, True]
    cache.put("d", read)
    assert [cache.get(name) is not None for name in "abcd"] == [False, True, True, True]


def test_files_are_split_by_size_and_keep_order_and_field_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 100)
    layout = layout_of(table_schema([("k", "int64"), ("v", "binary")], ["k"]))
    noise = np.random.default_rng(1).bytes(1000 * 32)
    rows = pa.table({"k": range(1000), "v": [noise[at * 32 : at * 32 + 32] for at in range(1000)]})
    made = list(files.write_files(LocalFiles(), new_location(tmp_path), layout, [rows], file_bytes=8000))
    assert len(made) > 2 and sum(item.file.rows for item in made) == 1000
    keys: list[int] = []
    for item in made:
        with parquet(LocalFiles(), item.file.path) as opened:
            assert opened.schema_arrow.field(0).metadata[b"PARQUET:field_id"] == b"1"
            keys += opened.read()["c1"].to_pylist()
    assert keys == list(range(1000))
    assert list(files.write_files(LocalFiles(), new_location(tmp_path), layout, [rows.slice(0, 0)])) == []
