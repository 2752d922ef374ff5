"""Bounds of data files: what Iceberg wrote is read back exactly, or a key that lies on one would not be found."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg import types
from pyiceberg.conversions import to_bytes

from tailrace.targets.lake.iceberg.schema import bound


@given(scale=st.integers(0, 38), number=st.integers(-(10**38) + 1, 10**38 - 1))
@example(scale=10, number=12345678901234567890123456781234567890)
@example(scale=38, number=10**38 - 1)
@example(scale=0, number=-(10**38) + 1)
def test_decimals_of_every_length_are_exact(scale: int, number: int) -> None:
    value = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    assert bound(f"decimal(38,{scale})", to_bytes(types.DecimalType(38, scale), value)) == value


@pytest.mark.parametrize(
    ("logical", "iceberg", "values"),
    [
        ("int32", types.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
        ("int64", types.LongType(), st.integers(-(2**63), 2**63 - 1)),
        ("float32", types.FloatType(), st.floats(width=32, allow_nan=False)),
        ("float64", types.DoubleType(), st.floats(allow_nan=False)),
        ("string", types.StringType(), st.text()),
        ("binary", types.BinaryType(), st.binary()),
        ("bool", types.BooleanType(), st.booleans()),
        ("date", types.DateType(), st.dates()),
        ("timestamp", types.TimestampType(), st.datetimes()),
        ("timestamptz", types.TimestamptzType(), st.datetimes(timezones=st.just(dt.UTC))),
    ],
)
def test_every_other_type_is_exact(logical: str, iceberg: types.PrimitiveType, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def check(value: Any) -> None:
        assert bound(logical, to_bytes(iceberg, value)) == value

    check()


def test_what_python_cannot_hold_is_no_bound() -> None:
    assert bound("date", (10**8).to_bytes(4, "little")) is None
    assert bound("timestamp", (2**62).to_bytes(8, "little")) is None
    assert bound("string", b"\xff") is None
