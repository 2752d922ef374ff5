"""A record's segments: small ones share an object, large ones are files, and all are there before the record."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.journals import table_schema
from support.segment_files import bundled, read_segment
from tailrace.changelog import bundles, record_segments
from tailrace.changelog.paths import is_bundle, segment_range
from tailrace.changelog.record_segments import RecordSegments
from tailrace.changelog.segments import open_segment, segment_schema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def rows(table_id: int, first: int, count: int = 1, text: str = "a") -> pa.Table:
    made = [{"_seq": first + n, "_op": "I", "_commit_ts": NOW, "id": n, "c1": f"{text}{n}"} for n in range(count)]
    return pa.Table.from_pylist(made, schema=segment_schema(table_schema(table_id)))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=tmp_path.as_uri()))


def objects(storage: Storage) -> list[str]:
    return [path for path, _ in storage.list("")]


def test_a_row_of_each_table_is_one_object(storage: Storage) -> None:
    record = RecordSegments()
    for number in range(200):
        record.add(storage, table_schema(number), rows(number, 7 + number))
    assert objects(storage) == []
    segments = record.finish(storage)
    (path,) = objects(storage)
    assert segment_range(path) == (7, 206) and {s.path for s in segments} == {path}
    assert storage.size(path) < 12_000
    assert record.finish(storage) == segments and objects(storage) == [path]


def test_a_large_segment_is_a_file_and_the_order_stays(storage: Storage) -> None:
    record, large = RecordSegments(), "x" * bundles.LARGE
    for first, text in ((1, "a"), (2, large), (3, "b")):
        record.add(storage, table_schema(1), rows(1, first, text=text), lambda s: s.model_copy(update={"updates": 9}))
    segments = record.finish(storage)
    assert [is_bundle(s.path) for s in segments] == [True, False, True]
    assert [(s.first_seq, s.updates) for s in segments] == [(1, 9), (2, 9), (3, 9)]
    for segment, text in zip(segments, ("a", large, "b"), strict=True):
        found = read_segment(Path(storage.access.prefix), segment.path, 1, segment.first_seq)
        assert found["c1"].to_pylist() == [f"{text}0"]


def test_a_segment_that_is_neither_small_nor_large_has_a_bundle_to_itself(storage: Storage) -> None:
    record, text = RecordSegments(), "x" * bundles.SMALL
    for number, values in enumerate(("a", text, text, "b"), 1):
        record.add(storage, table_schema(number), rows(number, number, text=values))
    small, one, other, last = record.finish(storage)
    assert small.path == last.path and len({small.path, one.path, other.path}) == 3
    assert all(is_bundle(segment.path) for segment in (small, one, other))
    folder = Path(storage.access.prefix)
    assert [(t, f) for t, f, _ in bundled(folder / one.path)] == [(2, 2)]
    assert read_segment(folder, other.path, 3, other.first_seq)["c1"].to_pylist() == [f"{text}0"]


def test_a_bundle_is_written_when_it_is_full(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_segments, "FULL", 5_000)
    record = RecordSegments()
    sizes = [record.add(storage, table_schema(n), rows(n, 1 + n)).size for n in range(10)]
    assert len(objects(storage)) == 2 and 1_000 < sizes[0] < 2_500
    segments = record.finish(storage)
    held = {path: [(t, f) for t, f, _ in bundled(Path(storage.access.prefix) / path)] for path in objects(storage)}
    assert [part for parts in held.values() for part in parts] == [(s.table_id, s.first_seq) for s in segments]
    assert all((s.table_id, s.first_seq) in held[s.path] for s in segments)


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(0, 8_000)), max_size=12))
def test_every_segment_reads_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int, int]]
) -> None:
    storage = Storage.open(StorageLocation(location=tmp_path_factory.mktemp("any").as_uri()))
    record, given, first = RecordSegments(), [], 1
    for table_id, count, width in parts:
        given.append(rows(table_id, first, count, "x" * width))
        record.add(storage, table_schema(table_id), given[-1])
        first += count
    for segment, data in zip(record.finish(storage), given, strict=True):
        assert not is_bundle(segment.path) or segment.size < bundles.LARGE
        with open_segment(storage, segment) as found:
            assert (found.read() if isinstance(found, pq.ParquetFile) else found).equals(data)
