"""Indexes of keys on the disk: they find what a scan finds, survive restarts and damage, and go when they should."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from support.lake import LocalFiles, table_schema
from tailrace.changelog.parquet_batches import BATCH_BYTES
from tailrace.storage.store import NotFound
from tailrace.targets.lake.files import key_files, locate
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.key_files import KeyFiles
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import DataFile

from .test_locate import SAMPLES, layout_of, written

Answer = dict[str, tuple[list[int], list[int]]]


@pytest.fixture(autouse=True)
def all_files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "LEAST_ROWS", 1)


def kept_in(folder: Path, limit: int = 1 << 30) -> IndexCache:
    cache = IndexCache(0)
    cache.kept = KeyFiles(folder, limit)
    return cache


def ask(files: Sequence[DataFile], layout: Layout, keys: pa.Table, cache: IndexCache | None = None) -> Answer:
    found = locate.locate(LocalFiles(), files, layout, keys, cache or IndexCache(0))
    return {path: (hits.positions.tolist(), hits.keys.tolist()) for path, hits in found.items()}


def texts(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string())})


def indexes(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def layout() -> Layout:
    return layout_of(table_schema([("k", "string")], ["k"]))


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forbids reading data files from then on."""

    def forbid(*_: object) -> None:
        raise AssertionError("a data file was read")

    return lambda: monkeypatch.setattr(locate, "_some_keys", forbid)


COMPOSITES = st.tuples(st.sampled_from(list(SAMPLES)), st.sampled_from(list(SAMPLES)))


@settings(max_examples=120, deadline=None)
@given(data=st.data(), kinds=COMPOSITES, sections=st.sampled_from([4, 1 << 20]))
def test_an_index_finds_what_a_full_scan_finds(
    data: st.DataObject, kinds: tuple[str, str], sections: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All types of keys, alone and in pairs, with rows of one key in several files, dead rows, and NULLs."""
    key = ["a", "b"][: data.draw(st.integers(1, 2))]
    layout = layout_of(table_schema([("a", kinds[0]), ("b", kinds[1]), ("v", "int32")], key))
    row = st.tuples(*(st.sampled_from([*SAMPLES[kind], None]) for kind in kinds))
    folder = tmp_path_factory.mktemp("f")
    tables = data.draw(st.lists(st.lists(row, min_size=1, max_size=20), min_size=1, max_size=3))
    files = written(folder, layout, [_table(layout, rows) for rows in tables])
    files = [
        replace(file, dead=BitMap64(data.draw(st.sets(st.integers(0, file.rows - 1), max_size=3)))) for file in files
    ]
    rows = data.draw(st.lists(row.filter(lambda row: None not in row), min_size=1, max_size=10, unique_by=repr))
    wanted = _table(layout, rows).select(key).group_by(key, use_threads=False).aggregate([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_files, "SECTION_ROWS", sections)
        cache = kept_in(folder / "keys")
        expected = ask(files, layout, wanted)
        assert ask(files, layout, wanted, cache) == expected
        assert ask(files, layout, wanted, cache) == expected
        assert ask(files, layout, wanted, kept_in(folder / "keys")) == expected, "after a restart"
    assert len(indexes(folder / "keys")) == len(files)


def _table(layout: Layout, rows: Sequence[tuple[Any, Any]]) -> pa.Table:
    columns: list[Any] = [[row[0] for row in rows], [row[1] for row in rows], list(range(len(rows)))]
    fields = [layout.fields[name] for name in ("a", "b", "v")]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=["a", "b", "v"])


def test_a_restart_reads_no_data_file_but_they_must_be_there(
    tmp_path: Path, layout: Layout, unread: Callable[[], None]
) -> None:
    files = written(tmp_path, layout, [texts("a", "b"), texts("c")])
    ask(files, layout, texts("a", "c"), kept_in(tmp_path / "keys"))
    unread()
    again = kept_in(tmp_path / "keys")
    assert ask(files, layout, texts("b", "c"), again) == {files[0].path: ([1], [0]), files[1].path: ([0], [1])}
    Path(files[1].path.removeprefix("file://")).unlink()
    assert ask(files, layout, texts("b", "c"), again), "it was there since this process began"
    late = kept_in(tmp_path / "keys")
    assert ask(files, layout, texts("b"), late) == {files[0].path: ([1], [0])}
    with pytest.raises(NotFound, match="does not exist"):
        ask(files, layout, texts("c"), late)


def damage_end(data: bytes) -> bytes:
    return data[:-1] + b"?"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data + bytes(8),
        damage_end,
        lambda data: bytes(len(data)),
        lambda data: bytes(8) + data[8:],
        lambda data: data.replace(b'"wide": true', b'"wide": fals'),
    ],
)
def test_a_damaged_index_is_made_again(
    damage: Callable[[bytes], bytes], tmp_path: Path, layout: Layout, unread: Callable[[], None]
) -> None:
    files = written(tmp_path, layout, [texts("a", "b", "c")])
    ask(files, layout, texts("a"), kept_in(tmp_path / "keys"))
    (index,) = indexes(tmp_path / "keys")
    whole = index.read_bytes()
    index.write_bytes(damage(whole))
    assert ask(files, layout, texts("b"), kept_in(tmp_path / "keys")) == {files[0].path: ([1], [0])}
    assert indexes(tmp_path / "keys") == [index] and index.read_bytes() == whole
    unread()
    assert ask(files, layout, texts("c"), kept_in(tmp_path / "keys"))


def test_the_index_of_another_file_or_form_is_not_taken(tmp_path: Path, layout: Layout) -> None:
    files = written(tmp_path, layout, [texts("a", "b"), texts("b", "a")])
    ask(files, layout, texts("a"), kept_in(tmp_path / "keys"))
    one, other = indexes(tmp_path / "keys")
    shutil.copy(one, other)
    expected = {files[0].path: ([0], [0]), files[1].path: ([1], [0])}
    assert ask(files, layout, texts("a"), kept_in(tmp_path / "keys")) == expected


def test_whoever_dies_while_an_index_is_written_leaves_nothing_behind(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(tmp_path, layout, [texts("a", "b")])
    write = key_files._write

    def die(*given: Any) -> None:
        write(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(key_files, "_write", die)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # killed: nobody tidies up
        with pytest.raises(KeyboardInterrupt):
            ask(files, layout, texts("a"), kept_in(tmp_path / "keys"))
    assert [path.suffix == ".keys" for path in indexes(tmp_path / "keys")] == [False]
    cache = kept_in(tmp_path / "keys")
    assert indexes(tmp_path / "keys") == []
    assert ask(files, layout, texts("a"), cache) == {files[0].path: ([0], [0])}


def test_indexes_of_files_that_the_table_no_longer_has_go(tmp_path: Path, layout: Layout) -> None:
    files = written(tmp_path, layout, [texts("a"), texts("b")])
    others = written(tmp_path / "other", layout, [texts("a")])
    cache = kept_in(tmp_path / "keys")
    ask(files, layout, texts("a"), cache)
    ask(others, layout, texts("a"), cache)
    assert len(indexes(tmp_path / "keys")) == 3
    ask(files[1:], layout, texts("b"), cache)
    assert len(indexes(tmp_path / "keys")) == 2
    assert cache.kept is not None and cache.kept.size == sum(path.stat().st_size for path in indexes(tmp_path / "keys"))


def test_the_disk_is_bounded_and_tables_that_nobody_writes_to_make_room(tmp_path: Path, layout: Layout) -> None:
    now = [0.0]
    cache = IndexCache(0)
    kept = cache.kept = KeyFiles(tmp_path / "keys", 1, clock=lambda: now[0])
    tables = [written(tmp_path / name, layout, [texts(name)]) for name in "abc"]
    for name, files in zip("abc", tables, strict=True):
        assert ask(files, layout, texts(name), cache) == {files[0].path: ([0], [0])}, "all are searched"
    assert len(indexes(tmp_path / "keys")) == 1
    now[0] = key_files.IDLE_SECONDS + 1
    ask(tables[1], layout, texts("b"), cache)
    assert len(indexes(tmp_path / "keys")) == 1
    assert kept.unproven(key_files.identity_of(tables[0][0].path, 1, tables[0][0].size, layout.key_form))


def test_a_disk_without_room_is_not_filled(tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(tmp_path, layout, [texts("a")])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1000, free=99))
    assert ask(files, layout, texts("a"), kept_in(tmp_path / "keys")) == {files[0].path: ([0], [0])}
    assert indexes(tmp_path / "keys") == []
    (tmp_path / "file").touch()
    assert key_files.key_files(tmp_path / "file" / "keys", 1) is None


def test_no_more_indexes_are_open_than_the_bound(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch, unread: Callable[[], None]
) -> None:
    monkeypatch.setattr(key_files, "OPEN", 2)
    files = written(tmp_path, layout, [texts(str(number)) for number in range(5)])
    cache = kept_in(tmp_path / "keys")
    ask(files, layout, texts("4"), cache)
    unread()
    assert ask(files, layout, texts("0"), cache) == {files[0].path: ([0], [0])}
    assert cache.kept is not None and len(cache.kept._open) == 2


def test_a_folder_with_two_secrets_begins_anew(tmp_path: Path, layout: Layout) -> None:
    """Another's indexes would find nothing."""
    for name in ("0" * 16, "1" * 16):
        (tmp_path / "keys" / name / "x").mkdir(parents=True)
    kept = KeyFiles(tmp_path / "keys", 1)
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [kept.salt]
    assert kept.salt not in {"0" * 16, "1" * 16}
    assert KeyFiles(tmp_path / "keys", 1).salt == kept.salt


def test_keys_of_much_text_are_read_in_little_memory(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{'p' * 1990}{number:06d}" for number in range(40_000)]
    files = written(tmp_path, layout, [texts(*keys)])
    sizes, digested = list[int](), key_files.digested

    def counted(columns: Sequence[pa.Array], salt: str, start: int) -> key_files.Digested:
        sizes.append(sum(column.nbytes for column in columns))
        return digested(columns, salt, start)

    monkeypatch.setattr(key_files, "digested", counted)
    assert ask(files, layout, texts(keys[39_999], "x"), kept_in(tmp_path / "keys"))[files[0].path] == ([39_999], [0])
    assert sum(sizes) > 80_000_000 and max(sizes) <= 2 * BATCH_BYTES
