"""PostgreSQL's text becomes exactly typed Arrow, or is refused by name."""

import datetime
import decimal
import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.changelog.types import arrow_type
from tailrace.errors import RESYNC, ValueUnsupported, privacy
from tailrace.sources.postgresql.codec import decode


@pytest.fixture(autouse=True)
def _values_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one was found is what these tests ask."""
    monkeypatch.setenv(privacy.VARIABLE, "1")


def decoded(type: str, *texts: str | bytes | None) -> pa.Array:
    raw = [t.encode() if isinstance(t, str) else t for t in texts]
    return decode(pa.array(raw, pa.large_binary()), type, "public.t", "c")


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        ("bool", "t", True),
        ("int32", "-2147483648", -(2**31)),
        ("int64", "9223372036854775807", 2**63 - 1),
        ("float64", "-Infinity", float("-inf")),
        ("float64", "5e-324", 5e-324),
        ("decimal(5,2)", "-999.99", decimal.Decimal("-999.99")),
        ("string", "\U0001f600", "\U0001f600"),
        ("binary", "\\x00ff", b"\0\xff"),
        ("binary", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", bytes.fromhex("a0eebc999c0b4ef8bb6d6bb9bd380a11")),
        ("date", "0001-01-01", datetime.date(1, 1, 1)),
        ("time", "23:59:59.999999", datetime.time(23, 59, 59, 999999)),
        ("time", "00:00:00.5", datetime.time(0, 0, 0, 500000)),
        ("timestamp", "9999-12-31 23:59:59.999999", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("timestamptz", "2020-01-01 00:00:00.5+00", datetime.datetime(2020, 1, 1, 0, 0, 0, 500000, datetime.UTC)),
    ],
)
def test_text_becomes_a_typed_value_and_nulls_stay_null(type: str, text: str, value: object) -> None:
    found = decoded(type, None, text, None)
    assert found.type == arrow_type(type)
    assert found.to_pylist() == [None, value, None]
    assert decoded(type).to_pylist() == []


UNFIT = pytest.mark.parametrize(
    ("type", "text"),
    [
        ("bool", "true"),
        ("int32", "2147483648"),
        ("float64", "1e400"),
        ("float32", "1e39"),
        ("decimal(5,2)", "1000.00"),
        ("decimal(5,2)", "1.005"),
        ("decimal(5,2)", "NaN"),
        ("decimal(5,2)", "-Infinity"),
        ("decimal(38,0)", "9" * 39),
        ("decimal(38,1)", "4" + "0" * 37),  # Arrow's cast (26) makes 5971763307906153653662539256823178854.4 of it
        ("float64", "1e-400"),
        ("binary", "\\x0"),
        ("binary", "abcd"),
        ("binary", "\\xzz"),
        ("binary", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1"),
        ("binary", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 "),
        ("time", "24:00:00"),
        ("time", "12:00:00+01"),
        ("time", "12:00"),
        ("date", "infinity"),
        ("date", "0044-03-15 BC"),
        ("date", "10000-01-01"),
        ("date", "0000-01-01"),
        ("timestamp", "-infinity"),
        ("timestamptz", "0044-03-15 00:00:00+00 BC"),
    ],
)


@UNFIT
def test_what_does_not_fit_is_found_among_others_and_named(type: str, text: str) -> None:
    fine = a_fine(type)
    with pytest.raises(ValueUnsupported) as caught:
        decoded(type, fine, None, *[fine] * 5, text, fine)
    assert caught.value.table == "public.t"
    assert repr(text) in caught.value.message and "'c'" in caught.value.message
    assert "as: {c: text}" in caught.value.fix


def a_fine(type: str) -> str:
    good = {
        "bool": "t",
        "binary": "\\x00",
        "time": "12:00:00",
        "date": "2020-01-01",
        "timestamp": "2020-01-01 00:00:00",
    }
    return good.get(type, "2020-01-01 00:00:00+00" if type == "timestamptz" else "1")


@UNFIT
def test_where_it_is_asked_for_it_becomes_null_and_nothing_else_does(type: str, text: str) -> None:
    fine = a_fine(type).encode()
    raw = pa.array([fine, None, text.encode(), fine, text.encode()], pa.large_binary())
    found = decode(raw, type, "public.t", "c", sets_null=True)
    assert found.is_valid().to_pylist() == [True, False, False, True, False]
    (value,) = decode(pa.array([fine], pa.large_binary()), type, "public.t", "c").to_pylist()
    assert found.drop_null().to_pylist() == [value, value]
    with pytest.raises(ValueUnsupported, match="A key cannot become NULL"):
        decode(raw, type, "public.t", "c", key=True, sets_null=True)


def test_text_that_is_not_utf8_becomes_null_where_it_is_asked_for() -> None:
    raw = pa.array(["é".encode(), b"A\xff", None], pa.large_binary())
    assert decode(raw, "string", "t", "c", sets_null=True).to_pylist() == ["é", None, None]


def test_text_that_is_not_utf8_is_named_in_hexadecimal() -> None:
    with pytest.raises(ValueUnsupported, match="bytes 41ff"):
        decoded("string", "fine", b"A\xff")


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.integers(0, 3))
def test_hexadecimal_round_trips_also_for_a_slice(values: list[bytes | None], skip: int) -> None:
    texts = pa.array([None if v is None else b"\\x" + v.hex().encode() for v in values], pa.large_binary())
    found = decode(texts.slice(skip), "binary", "t", "c")
    found.validate(full=True)
    assert found.to_pylist() == values[skip:]


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1))
def test_floats_round_trip_bit_for_bit(values: list[float]) -> None:
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    found = decoded("float64", *(names.get(repr(v), repr(v)) for v in values))

    def bits(numbers: list[float]) -> list[bytes]:
        return [b"NaN" if math.isnan(v) else struct.pack(">d", v) for v in numbers]

    assert bits(found.to_pylist()) == bits(values)


@settings(deadline=None)
@given(st.lists(st.datetimes(), min_size=1))
def test_timestamps_round_trip(values: list[datetime.datetime]) -> None:
    found = decoded("timestamp", *(v.isoformat(" ") for v in values))
    assert found.to_pylist() == values


def test_a_value_that_needs_text_names_the_repair_that_works() -> None:
    """The table is stopped by then: no snapshot, and no new target, brings it back."""
    with pytest.raises(ValueUnsupported) as caught:
        decode(pa.array([b"infinity"], pa.large_binary()), "date", "s.t", "d")
    assert "{match: s.t, as: {d: text}}" in caught.value.fix and RESYNC in caught.value.fix


DIGITS = st.text("0123456789", max_size=60)


@st.composite
def numerics(draw: st.DrawFn) -> str:
    """As PostgreSQL writes them: no zeros in front, zeros at the end as they were given."""
    whole = draw(st.one_of(st.just(""), DIGITS, st.builds(lambda d, n: d + "0" * n, DIGITS, st.integers(0, 350))))
    zeros = draw(st.sampled_from([0, 0, 0, 5, 30, 300, 330]))
    fraction = "0" * zeros + draw(DIGITS) + "0" * draw(st.sampled_from([0, 0, 2, 40]))
    number = whole.lstrip("0") or "0"
    number += f".{fraction}" if fraction else ""
    return f"-{number}" if draw(st.booleans()) and number.strip("0.") else number


ANY_NUMERIC = st.one_of(numerics(), st.sampled_from(["NaN", "Infinity", "-Infinity", "4" + "0" * 37, "9" * 38]))


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), ANY_NUMERIC), max_size=20), st.integers(1, 38), st.data())
def test_a_numeric_becomes_the_very_same_decimal_or_null(
    texts: list[str | None], precision: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, precision))
    raw = pa.array([None if t is None else t.encode() for t in texts], pa.large_binary())
    found = decode(raw, f"decimal({precision},{scale})", "public.t", "c", sets_null=True).to_pylist()

    def expected(text: str | None) -> decimal.Decimal | None:
        value = decimal.Decimal("NaN" if text is None else text)
        if not value.is_finite():
            return None
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale + 1000)
        fits = unscaled % 10**1000 == 0 and unscaled < 10 ** (precision + 1000)
        return value if fits else None

    assert found == [expected(t) for t in texts]


@settings(deadline=None)
@given(st.lists(ANY_NUMERIC, min_size=1, max_size=20))
def test_a_numeric_becomes_the_nearest_double_or_null_beyond_their_range(texts: list[str]) -> None:
    """Python reads a text as the nearest double, too."""
    found = decode(pa.array([t.encode() for t in texts], pa.large_binary()), "float64", "t", "c", sets_null=True)
    for text, value in zip(texts, found.to_pylist(), strict=True):
        expected = float(text)
        named = text.endswith(("Infinity", "NaN"))
        beyond = not named and (math.isinf(expected) or (expected == 0 and text.strip("-0.") != ""))
        assert value is None if beyond else repr(value) == repr(expected), text


@pytest.mark.parametrize(
    ("text", "value"),
    [("9007199254740993", 2.0**53), ("9007199254740995", 2.0**53 + 4), ("0." + "0" * 323 + "5", 5e-324)],
)
def test_a_number_halfway_between_two_doubles_becomes_the_even_one(text: str, value: float) -> None:
    assert decoded("float64", text).to_pylist() == [value]
