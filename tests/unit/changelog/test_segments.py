"""Segments on a local folder: every logical type comes back bit for bit."""

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.segments import open_segment, segment_schema, write_segment
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog, NoKey, ValueUnsupported
from tailrace.storage.store import NotFound, Storage

LIMITS: dict[str, list[Any]] = {
    "bool": [True, False],
    "int32": [-(2**31), 2**31 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "float32": [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 2.0**-149],
    "float64": [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 0.1],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")],
    "decimal(1,0)": [Decimal(9), Decimal(-9)],
    "string": ["", "\0", "ä\U0001f600", "x" * 100_000],
    "binary": [b"", b"\0\xff", b"y" * 100_000],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "timestamptz": [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "float32": st.floats(width=32),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(),
}


def table(*types: str, version: int = 1) -> TableSchema:
    columns = [Column(name="id", id=1, source_type="bigint", type="int64", key=0)]
    columns += [Column(name=f"c{i}", id=i + 2, source_type=t, type=t) for i, t in enumerate(types)]
    return TableSchema(table_id=7, schema_name="public", table_name="T.x/1", version=version, columns=tuple(columns))


def rows(schema: TableSchema, values: list[list[Any]], first: int = 1, ops: str = "") -> pa.Table:
    count = len(values[0])
    arrow = segment_schema(schema)
    log = [
        pa.array(range(first, first + count), pa.int64()),
        pa.array(list(ops or "I" * count), pa.string()),
        pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * count, arrow.field("_commit_ts").type),
        pa.array([None] * count, arrow.field("_unchanged").type),
        pa.array([None] * count, arrow.field("_old_key").type),
        pa.array(range(count), pa.int64()),
    ]
    own = [pa.array(v, arrow_type(c.type)) for v, c in zip(values, schema.columns[1:], strict=True)]
    return pa.Table.from_arrays(log + own, schema=arrow)


def local(folder: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{folder}/log"))


def read(storage: Storage, segment: Segment) -> pa.Table:
    with open_segment(storage, segment) as file:
        assert isinstance(file, pq.ParquetFile)
        return file.read()


def bits(values: list[Any]) -> list[Any]:
    return [struct.pack("<d", v) if isinstance(v, float) else v for v in values]


@pytest.mark.parametrize("logical", LIMITS)
def test_extreme_values_of_a_logical_type_come_back_bit_for_bit(tmp_path: Path, logical: str) -> None:
    schema = table(logical)
    written = rows(schema, [[*LIMITS[logical], None]])
    storage = local(tmp_path)
    segment = write_segment(storage, schema, written)
    found = read(storage, segment)
    assert found.schema.equals(written.schema)
    assert bits(found["c0"].to_pylist()) == bits(written["c0"].to_pylist())
    assert segment.size == storage.size(segment.path)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_values_come_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    values = [data.draw(st.lists(st.none() | s, min_size=count, max_size=count)) for s in VALUES.values()]
    schema = table(*VALUES)
    storage = local(tmp_path_factory.mktemp("any"))
    written = rows(schema, values)
    found = read(storage, write_segment(storage, schema, written))
    for name in written.column_names:
        assert bits(found[name].to_pylist()) == bits(written[name].to_pylist())


def test_a_segment_says_what_is_in_it(tmp_path: Path) -> None:
    schema = table("string")
    data = rows(schema, [["a", "b", None, None, "c"]], first=11, ops="IUDDM")
    arrow = segment_schema(schema)
    unchanged = pa.array([None, None, None, None, [1]], arrow.field("_unchanged").type)
    old_key = pa.array([None, None, None, None, {"id": 3}], arrow.field("_old_key").type)
    data = data.set_column(3, arrow.field(3), unchanged).set_column(4, arrow.field(4), old_key)
    storage = local(tmp_path)
    segment = write_segment(storage, schema, data.to_batches(max_chunksize=2))
    assert (segment.rows, segment.first_seq, segment.last_seq) == (5, 11, 15)
    assert (segment.inserts, segment.updates, segment.deletes) == (1, 2, 1)
    assert segment.unchanged
    assert segment.moves
    assert segment.path.startswith("segments/public.T.x!2f1-7/11-15-")
    assert read(storage, segment).equals(data)


def test_a_removed_or_exchanged_segment_is_an_error_with_a_name(tmp_path: Path) -> None:
    schema = table("int64")
    storage = local(tmp_path)
    segment = write_segment(storage, schema, rows(schema, [[1, 2]]))
    with pytest.raises(CorruptLog, match="has 2 rows, its record says 3"):
        read(storage, segment.model_copy(update={"rows": 3}))
    storage.put(segment.path, b"something else")
    with pytest.raises(CorruptLog, match="not a Parquet file"):
        read(storage, segment)
    storage.delete(segment.path)
    with pytest.raises(NotFound):
        read(storage, segment)


def test_rows_out_of_order_and_other_columns_are_refused(tmp_path: Path) -> None:
    schema = table("int64")
    data = rows(schema, [[1, 2]])
    storage = local(tmp_path)
    with pytest.raises(ValueError, match="rise"):
        write_segment(storage, schema, data.take([1, 0]))
    with pytest.raises(ValueError, match="columns"):
        write_segment(storage, schema, data.drop_columns(["c0"]))
    with pytest.raises(ValueError, match="needs a row"):
        write_segment(storage, schema, data.slice(0, 0))
    assert list(storage.list("")) == []


def test_a_table_without_key_or_with_a_column_named_like_the_logs_own_is_refused() -> None:
    own = Column(name="_seq", id=9, source_type="bigint", type="int64")
    with pytest.raises(ValueUnsupported):
        segment_schema(table().model_copy(update={"columns": (*table().columns, own)}))
    with pytest.raises(NoKey):
        segment_schema(table().model_copy(update={"columns": table("int64").columns[1:]}))
