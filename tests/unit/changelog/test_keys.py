"""The text of keys: one for each value, read back to the very same, and nothing else is taken for one."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changelog.keys import column, columns, fitting, keys, texts
from tailrace.changelog.types import arrow_type
from tailrace.errors import CorruptLog

FORMS: list[tuple[str, object, str]] = [
    ("bool", True, "true"),
    ("bool", False, "false"),
    ("int32", -7, "-7"),
    ("int64", -(2**63), "-9223372036854775808"),
    ("decimal(38,2)", Decimal("-123456789012345678901234567890.10"), "-123456789012345678901234567890.10"),
    ("decimal(38,20)", Decimal("1E-20"), "0.00000000000000000001"),
    ("decimal(5,0)", Decimal(120), "120"),
    ("float64", 0.1, "0.1"),
    ("float64", 1e22, "1e+22"),
    ("float64", -0.0, "-0.0"),
    ("float32", 0.1, "0.1"),
    ("float64", float("inf"), "Infinity"),
    ("float32", float("-inf"), "-Infinity"),
    ("string", "a\u00e9\u0000:, ", "a\u00e9\u0000:, "),
    ("string", "", ""),
    ("binary", b"\x00\xff", "00ff"),
    ("binary", b"", ""),
    ("date", dt.date(2024, 2, 29), "2024-02-29"),
    ("date", dt.date(1, 1, 1), "0001-01-01"),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29T01:02:03.000004"),
    ("timestamp", dt.datetime(9999, 12, 31, 23, 59, 59, 999999), "9999-12-31T23:59:59.999999"),
    ("timestamptz", dt.datetime(2024, 2, 29, tzinfo=dt.UTC), "2024-02-29T00:00:00.000000Z"),
]
MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Of the years 0001 to 9999."""
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "float32": st.floats(width=32),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-10")),
    "decimal(38,38)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-38")),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": MICROSECONDS,
    "timestamptz": MICROSECONDS,
}


@pytest.mark.parametrize(("logical", "value", "text"), FORMS)
def test_a_value_has_this_text(logical: str, value: object, text: str) -> None:
    kind = arrow_type(logical)
    assert texts(pa.array([value], kind)) == [text]
    assert column([text], kind).equals(pa.array([value], kind))


@pytest.mark.parametrize("logical", list(VALUES))
@given(data=st.data())
def test_any_value_is_read_back_from_its_text(logical: str, data: st.DataObject) -> None:
    kind = arrow_type(logical)
    values = pa.array(data.draw(st.lists(VALUES[logical], max_size=20)), kind)
    written = texts(values)
    again = column(written, kind)
    assert texts(again) == written
    if pa.types.is_floating(kind):
        assert np.array_equal(again.to_numpy(), values.to_numpy(), equal_nan=True)
        assert np.array_equal(np.signbit(again.to_numpy()), np.signbit(values.to_numpy())) or "NaN" in written
    else:
        assert again.equals(values)


def test_keys_are_rows_of_texts() -> None:
    parts = [pa.array([1, 2]), pa.array(["a", "b"])]
    assert keys(parts) == [("1", "a"), ("2", "b")]
    assert columns(keys(parts), [pa.int64(), pa.string()]) == parts
    assert [len(part) for part in columns([], [pa.int64(), pa.string()])] == [0, 0]


@pytest.mark.parametrize(
    ("logical", "text"),
    [("int64", "abc"), ("bool", "t"), ("bool", "1"), ("binary", "\\x00"), ("binary", "abc"), ("date", "infinity")],
)
def test_a_text_that_is_no_value_is_refused(logical: str, text: str) -> None:
    with pytest.raises(CorruptLog, match="a key of the change log is no"):
        column([text], arrow_type(logical))


def test_a_null_is_no_key() -> None:
    with pytest.raises(ValueError, match="no nulls"):
        texts(pa.array([1, None]))


def test_keys_that_the_types_cannot_hold_are_left_out() -> None:
    kinds = [pa.timestamp("us"), pa.int64()]
    good, other = ("2024-02-29T01:02:03.000000", "7"), ("1999-01-01T00:00:00.000000", "8")
    assert fitting([good, ("infinity", "7"), other], kinds) == (good, other)
    assert fitting([good, other], kinds) == (good, other)
    assert fitting([], kinds) == ()
