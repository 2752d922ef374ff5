"""MySQL's values become Arrow's exactly, or are refused by name."""

import datetime as dt
from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ValueUnsupported
from tailrace.sources.mysql import charsets, values
from tailrace.sources.mysql.types import Form
from tailrace.sources.mysql.values import Clock, Unrepresentable

MOMENTS = st.lists(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)), min_size=1, max_size=9)


def clock(*rows: Sequence[int]) -> Clock:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    return Clock(*columns)


def of(moments: Sequence[dt.datetime]) -> Clock:
    return clock(*[(m.year, m.month, m.day, m.hour, m.minute, m.second, m.microsecond) for m in moments])


@given(MOMENTS)
def test_moments_are_the_calendars(moments: list[dt.datetime]) -> None:
    at = of(moments)
    assert values.datetimes(at, None, Form("timestamp")).to_pylist() == moments
    assert values.dates(at, None, Form("date")).to_pylist() == [m.date() for m in moments]
    spelled = values.datetimes(at, None, Form("string", 6)).to_pylist()
    assert spelled == [f"{m:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0") for m in moments]


@given(st.lists(st.integers(1, 2**33), min_size=1))
def test_seconds_since_the_epoch_are_the_same_moment(seconds: list[int]) -> None:
    at = Clock.of(np.array(seconds), np.zeros(len(seconds), np.int64))
    found = values.datetimes(at, None, Form("timestamptz"))
    assert found.cast(pa.int64()).to_pylist() == [s * 1_000_000 for s in seconds]


@pytest.mark.parametrize("day", [(0, 0, 0), (2024, 0, 0), (2024, 1, 0), (2023, 2, 29), (1900, 2, 29), (0, 1, 1)])
def test_a_date_that_does_not_exist_is_refused_and_spelled_as_text(day: tuple[int, int, int]) -> None:
    at = clock((2024, 2, 29, 0, 0, 0, 0), (*day, 0, 0, 0, 0))
    with pytest.raises(Unrepresentable):
        values.dates(at, None, Form("date"))
    text = f"{day[0]:04}-{day[1]:02}-{day[2]:02}"
    assert values.dates(at, None, Form("string")).to_pylist() == ["2024-02-29", text]


def test_where_it_is_asked_for_a_date_that_does_not_exist_becomes_null() -> None:
    at = clock((2024, 2, 29, 1, 0, 0, 0), (2024, 2, 31, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0), (2024, 3, 1, 0, 0, 0, 0))
    valid = np.array([True, True, True, False])
    for some in (valid, None):
        days = values.dates(at, some, Form("date", sets_null=True)).to_pylist()
        assert days == [dt.date(2024, 2, 29), None, None, None if some is not None else dt.date(2024, 3, 1)]
    moments = values.datetimes(at, valid, Form("timestamp", sets_null=True))
    assert moments.to_pylist() == [dt.datetime(2024, 2, 29, 1), None, None, None]
    assert values.dates(at, None, Form("string", sets_null=True)).to_pylist()[1:3] == ["2024-02-31", "0000-00-00"]


def test_where_it_is_asked_for_bytes_that_are_no_text_become_null() -> None:
    raw = pa.array(["я".encode("cp1251"), b"\x98", None, b"plain"], pa.binary())
    assert charsets.decoded(raw, "cp1251", sets_null=True).to_pylist() == ["я", None, None, "plain"]
    raw = pa.array([b"A\xff", "é".encode(), b"plain"], pa.binary())
    assert charsets.decoded(raw, "ascii", sets_null=True).to_pylist() == [None, None, "plain"]
    raw = pa.array([b"\xd8\x00", "é".encode("utf-16-be")], pa.binary())
    assert charsets.decoded(raw, "utf16", sets_null=True).to_pylist() == [None, "é"]
    with pytest.raises(Unrepresentable):
        charsets.decoded(raw, "utf16")


def test_the_zero_timestamp_is_a_zero_date() -> None:
    at = Clock.of(np.array([0, 1]), np.array([0, 5]))
    assert values.datetimes(at, None, Form("string", 6)).to_pylist() == [
        "0000-00-00 00:00:00.000000",
        "1970-01-01 00:00:01.000005",
    ]


def test_a_null_is_not_looked_at() -> None:
    at = clock((0, 0, 0, 0, 0, 0, 0), (2024, 2, 29, 0, 0, 0, 0))
    found = values.dates(at, np.array([False, True]), Form("date"))
    assert found.to_pylist() == [None, dt.date(2024, 2, 29)]


def test_times_are_spelled_with_sign_and_hours_beyond_a_day() -> None:
    rest = np.array([59, 0, 1]), np.array([59, 0, 2]), np.array([0, 0, 30])
    found = values.times(np.array([True, False, True]), np.array([838, 5, 99]), rest, None, Form("string", 6))
    assert found.to_pylist() == ["-838:59:59.000000", "05:00:00.000000", "-99:01:02.000030"]
    one = rest[0][:1], rest[1][:1], rest[2][:1]
    whole = values.times(np.array([True]), np.array([100]), one, None, Form("string"))
    assert whole.to_pylist() == ["-100:59:59"]


def test_unsigned_numbers_keep_all_their_bits() -> None:
    found = values.integers(pa.array([2**64 - 1, 2**63, None], pa.uint64()), Form("decimal(20,0)"))
    assert [None if v is None else int(v) for v in found.to_pylist()] == [2**64 - 1, 2**63, None]
    assert values.integers(pa.array([0, 1, None], pa.uint64()), Form("bool")).to_pylist() == [False, True, None]
    assert values.integers(pa.array([2**64 - 1], pa.uint64()), Form("string")).to_pylist() == [str(2**64 - 1)]


def test_what_does_not_fit_names_the_column_and_the_way_out() -> None:
    with (
        pytest.raises(ValueUnsupported, match=r"'c' of a\.t.*as: \{c: text\}"),
        values.fitted("a.t", "c", Form("date"), key=False),
    ):
        values.dates(clock((0, 0, 0, 0, 0, 0, 0)), None, Form("date"))


def test_small_decimals_stay_decimals() -> None:
    found = values.decimals(pa.array(["-0.00000001", "0.50000000", None]), Form("decimal(20,8)"))
    assert [None if v is None else f"{v:f}" for v in found.to_pylist()] == ["-0.00000001", "0.50000000", None]


EXACT = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**35), max_value=10**35, places=30)
WIDE = Context(prec=100)
"""Python's own context rounds to 28 digits."""


@given(st.lists(st.one_of(st.none(), EXACT), max_size=9), st.integers(1, 38), st.data())
def test_a_decimal_becomes_the_very_same_one_or_null(
    given_ones: list[Decimal | None], precision: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, precision))
    text = pa.array([None if v is None else f"{v:f}" for v in given_ones], pa.string())
    found = values.other_numbers(text, Form(f"decimal({precision},{scale})", sets_null=True)).to_pylist()
    assert len(found) == len(given_ones)
    for before, after in zip(given_ones, found, strict=True):
        fits = (
            before is not None
            and before.copy_abs() < 10 ** (precision - scale)
            and int(before.scaleb(30, WIDE)) % 10 ** max(0, 30 - scale) == 0
        )
        assert after == (before if fits else None)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_integers_become_the_nearest_doubles_and_decimals_with_their_digits(given_ones: list[int]) -> None:
    numbers = pa.array(given_ones, pa.int64())
    assert values.other_numbers(numbers, Form("float64")).to_pylist() == [float(n) for n in given_ones]
    assert values.other_numbers(numbers, Form("decimal(38,19)")).to_pylist() == given_ones
    large = [n for n in given_ones if abs(n) >= 10**9]
    if large:
        with pytest.raises(values.Unrepresentable) as caught:
            values.other_numbers(numbers, Form("decimal(10,1)"))
        assert int(caught.value.value) in large
