"""Bundles as readers see them: what is remembered, and what a damaged one says."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typing_extensions import override

from support import states
from support.segment_files import write_bundle
from tailrace.changelog.bundles import BundleCache, bundled_rows, encoded
from tailrace.changelog.records import Segment
from tailrace.changelog.segments import open_segment
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog
from tailrace.storage.store import NotFound, Storage

ROWS = pa.table({"_seq": pa.array([4, 5], pa.int64())})


class Counted(Storage):
    """Counts what is read, slowly."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Storage.open(StorageLocation(location=folder.as_uri())).access)
        self.reads: list[str] = []

    @override
    def get(self, path: str) -> bytes:
        self.reads.append(path)
        threading.Event().wait(0.05)
        return super().get(path)


@pytest.fixture
def log(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def made(log: Counted, name: str) -> str:
    path = f"segments/bundles/{name}.arrow"
    file = Path(log.access.prefix) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bundle(file, [(1, 4, ROWS), (2, 4, ROWS)])
    return path


def segment(log: Counted, **changes: object) -> Segment:
    path = made(log, f"4-5-{id(log):x}")
    return states.segment(1, 4, 5, path=path, size=9, **changes)


CANARY = b"\xa7SECRET\xa7"
FIXED = [pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"),
         pa.decimal128(38, 2), pa.bool_()]  # fmt: skip


def over_canaries(kind: pa.DataType, valid: list[bool]) -> pa.Array:
    """Values of which those that are not valid are NULL, with a canary's bytes under them."""
    count = len(valid)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(
            [over_canaries(field.type, [True] * count) for field in kind], fields=list(kind), mask=~np.array(valid)
        )
    mask = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    if pa.types.is_list(kind):
        inner = over_canaries(kind.value_type, valid)
        return pa.Array.from_buffers(
            kind, count, [mask, pa.array(range(count + 1), pa.int32()).buffers()[1]], -1, 0, [inner]
        )
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = pa.array(range(0, (count + 1) * len(CANARY), len(CANARY)), pa.int32()).buffers()[1]
        text = b"".join(b"harmless"[: len(CANARY)] if ok else CANARY for ok in valid)
        return pa.Array.from_buffers(kind, count, [mask, offsets, pa.py_buffer(text)])
    width = max(8, kind.bit_width) // 8
    each = [bytes(width) if ok else (CANARY * 2)[:width] for ok in valid]
    return pa.Array.from_buffers(kind, count, [mask, pa.py_buffer(b"".join(each))])


@pytest.mark.parametrize(
    "kind",
    [*FIXED, pa.string(), pa.binary(), pa.list_(pa.int64()), pa.list_(pa.string())],
    ids=str,
)
@pytest.mark.parametrize("sliced", [False, True])
def test_nothing_is_left_under_a_null(kind: pa.DataType, sliced: bool) -> None:
    """A decoder may leave another column's bytes there, which may be masked or not copied at all."""
    column = over_canaries(kind, [True, False, True, False, False, True] * 3)
    rows = pa.table({"c": column.slice(1) if sliced else column, "d": pa.array(range(17 if sliced else 18))})
    found = encoded(rows)
    assert found is not None
    assert pa.ipc.open_stream(found).read_all().equals(rows)
    for width in (8, 6, 4, 2):
        assert CANARY[:width] not in found


def test_nothing_is_left_under_a_struct_that_is_null() -> None:
    names = pa.array(["harmless", "SECRET", "SECRET"])
    column = pa.StructArray.from_arrays([names, pa.array([1, 2, 3])], ["s", "n"], mask=pa.array([False, True, True]))
    found = encoded(pa.table({"c": column}))
    assert found is not None and b"SECRET" not in found
    assert pa.ipc.open_stream(found).read_all()["c"].to_pylist() == [{"s": "harmless", "n": 1}, None, None]


def test_threads_that_want_the_same_bundle_read_it_once(log: Counted) -> None:
    cache, path = BundleCache(), made(log, "a")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: cache.get(log, path), range(8)))
    assert log.reads == [path] and all(parts is found[0] for parts in found)


def test_the_bundles_read_last_are_kept_up_to_a_bound(log: Counted) -> None:
    cache = BundleCache()
    cache.get(log, made(log, "a"))
    cache = BundleCache(limit=2 * cache._size)
    paths = {name: made(log, name) for name in "abc"}
    log.reads.clear()
    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(log, paths[name])
    assert log.reads == [paths[name] for name in ("a", "b", "c", "b")]


def test_a_bundle_that_could_not_be_read_is_read_again(log: Counted) -> None:
    cache, path = BundleCache(), made(log, "a")
    data = Storage.get(log, path)
    log.delete(path)
    with pytest.raises(NotFound):
        cache.get(log, path)
    log.put(path, data)
    assert len(cache.get(log, path)) == 2


def test_a_bundle_that_is_not_what_the_record_says_is_an_error_with_a_name(log: Counted) -> None:
    with pytest.raises(CorruptLog, match="has no rows of table 3"):
        bundled_rows(log, segment(log, table_id=3))
    with (
        pytest.raises(CorruptLog, match="has 2 rows, its record says 1"),
        open_segment(log, segment(log, rows=1)),
    ):
        pass


@pytest.mark.parametrize("damage", ["other", "empty", "half", "columns", "parts"])
def test_a_damaged_bundle_is_an_error_with_a_name(log: Counted, damage: str) -> None:
    path = made(log, "a")
    data = Storage.get(log, path)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as stream:
        stream.write_table(ROWS)
    contents = {
        "other": b"something else",
        "empty": b"",
        "half": data[: len(data) // 2],
        "columns": bytes(sink.getvalue()),
    }
    path = f"segments/bundles/4-5-{damage}.arrow"
    if damage == "parts":
        log.put(path, data.replace(bytes(sink.getvalue())[:24], b"x" * 24))
    else:
        log.put(path, contents[damage])
    one = states.segment(1, 4, 5, path=path, size=9)
    with pytest.raises(CorruptLog, match=r"is not a bundle|is a bundle with the columns"):
        bundled_rows(log, one)
