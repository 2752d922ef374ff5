"""Rows as texts in Parquet, and how COPY reads them."""

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.targets.snowflake import types, values
from tailrace.targets.sql.session import UnfitValue


@pytest.mark.parametrize(
    ("array", "kind", "texts"),
    [
        (pa.array([1, None]), "NUMBER(19,0)", ["1", None]),
        (pa.array([True]), "BOOLEAN", ["true"]),
        (pa.array([0.1, float("nan"), float("-inf")]), "FLOAT", ["0.1", "NaN", "-inf"]),
        (pa.array([0.1, float("inf")], pa.float32()), "FLOAT", ["0.10000000149011612", "inf"]),
        (pa.array([Decimal("-1.50")]), "NUMBER(9,2)", ["-1.50"]),
        (pa.array([b"\x00\xff"]), "BINARY", ["00ff"]),
        (pa.array([date(1, 1, 1)]), "DATE", ["0001-01-01"]),
        (pa.array([time(1, 2, 3, 4)]), "TIME(6)", ["01:02:03.000004"]),
        (pa.array([datetime(2020, 1, 1, 0, 0, 0, 5)], pa.timestamp("us")), "TIMESTAMP_NTZ(6)",
         ["2020-01-01 00:00:00.000005"]),
        (pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), "TIMESTAMP_LTZ(6)",
         ["2020-01-01 00:00:00.000000+00:00"]),
        (pa.array([["a", None]]), "VARCHAR", ['["a", null]']),
    ],
)  # fmt: skip
def test_a_value_is_the_text_that_is_read_as_it(array: pa.Array, kind: str, texts: list[str | None]) -> None:
    (file,) = values.files([pa.table({"a": array})], [kind])
    assert pq.read_table(io.BytesIO(file)).to_pylist() == [{"c0": text} for text in texts]


def test_what_copy_reads_has_the_columns_types() -> None:
    read = values.selected(["NUMBER(19,0)", "BINARY"])
    assert read == "$1:c0::VARCHAR::NUMBER(19,0), TO_BINARY($1:c1::VARCHAR, 'HEX')"


def test_a_value_that_snowflake_does_not_have_is_refused_with_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    late = pa.table({"at": pa.array([-62135596800000001], pa.timestamp("us"))})
    with pytest.raises(UnfitValue, match="at: a date outside of the years 1 to 9999"):
        list(values.files([late], ["TIMESTAMP_NTZ(6)"]))
    monkeypatch.setattr(types, "MOST_BYTES", {types.TEXT: 1 << 20, types.BINARY: 1 << 20})
    for kind, fits, too_long in (
        ("VARCHAR", "x" * (1 << 20), "é" * (1 << 20)),
        ("BINARY", b"x" * (1 << 20), b"x" * 3000000),
    ):
        assert list(values.files([pa.table({"a": [fits]})], [kind]))
        with pytest.raises(UnfitValue, match="a: a value of more than 1 MiB"):
            list(values.files([pa.table({"a": [too_long]})], [kind]))
