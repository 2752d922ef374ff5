"""What PostgreSQL reads is what was written, however odd the value is."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.targets.postgresql.texts import lines
from tailrace.targets.sql.session import UnfitValue


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), "\\N"),
        ("\\N", pa.string(), "\\\\N"),
        ("a\tb\nc\rd\\", pa.string(), "a\\tb\\nc\\rd\\\\"),
        ("", pa.string(), ""),
        (True, pa.bool_(), "true"),
        (-(2**63), pa.int64(), str(-(2**63))),
        (0.1, pa.float32(), "0.1"),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float64(), "-Infinity"),
        (-0.0, pa.float64(), "-0"),
        (Decimal("1E-9"), pa.decimal128(38, 9), "1E-9"),
        (b"\x00\xff", pa.binary(), "\\\\x00ff"),
        (date(1, 1, 1), pa.date32(), "0001-01-01"),
        (-719528, pa.date32(), "0001-01-01 BC"),
        (-719529, pa.date32(), "0002-12-31 BC"),
        (2932897, pa.date32(), "10000-01-01"),
        (datetime(9999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us"), "9999-12-31 23:59:59.999999"),
        (datetime(1582, 10, 4, tzinfo=UTC), pa.timestamp("us", "UTC"), "1582-10-04 00:00:00.000000+00"),
        (["", None, 'b"\\', "NULL"], pa.list_(pa.string()), '{"",NULL,"b\\\\"\\\\\\\\","NULL"}'),
        ([], pa.list_(pa.int32()), "{}"),
        ([1, None], pa.list_(pa.int32()), '{"1",NULL}'),
        ({"a": None, "b b": "x"}, pa.struct({"a": pa.int32(), "b b": pa.string()}), '{"a": null, "b b": "x"}'),
    ],
)
def test_a_value_is_written_as_copy_reads_it(value: Any, kind: pa.DataType, text: str) -> None:
    stored = pa.array([value], pa.int32()).cast(kind) if isinstance(value, int) and kind == pa.date32() else None
    column = pa.array([value], kind) if stored is None else stored
    assert lines(pa.table({"c": column})) == f"{text}\n".encode()


def test_values_stay_in_their_rows_and_columns() -> None:
    rows = pa.table({"a": [1, None, 3], "b": pa.array([None, ["x"], []], pa.list_(pa.string())), "c": [0.5, None, 2.0]})
    assert lines(rows) == b'1\t\\N\t0.5\n\\N\t{"x"}\t\\N\n3\t{}\t2\n'
    assert lines(rows.slice(1, 1)) == b'\\N\t{"x"}\t\\N\n'
    assert lines(rows.slice(0, 0)) == b""


@pytest.mark.parametrize("column", [["a\0"], [["b", "a\0"]], [{"x": "a\0"}]])
def test_a_text_with_nul_is_refused_with_its_column(column: list[Any]) -> None:
    with pytest.raises(UnfitValue) as refused:
        lines(pa.table({"n": column}))
    assert refused.value.column == "n"
