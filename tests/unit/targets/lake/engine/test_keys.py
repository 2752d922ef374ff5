"""Keys as text, as numbers and among parts."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tailrace.errors import CorruptLog
from tailrace.targets.lake.engine.keys import contained, from_text, group, readable, to_text
from tailrace.targets.lake.engine.moved_keys import _components
from tailrace.types import arrow_type

VALUES: list[tuple[str, object, str]] = [
    ("bool", True, "t"),
    ("int64", -(2**63), "-9223372036854775808"),
    ("float64", 0.1, "0.1"),
    ("decimal(38,2)", Decimal("-123456789012345678901234567890.10"), "-123456789012345678901234567890.10"),
    ("string", "a\u00e9\u0000:, ", "a\u00e9\u0000:, "),
    ("binary", b"\x00\xff", "\\x00ff"),
    ("date", dt.date(2024, 2, 29), "2024-02-29"),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29 01:02:03.000004"),
    ("timestamptz", dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), "2024-02-29 01:02:03.000004+00"),
]


@pytest.mark.parametrize(("logical", "value", "text"), VALUES, ids=[logical for logical, _, _ in VALUES])
def test_a_key_comes_back_from_its_text_and_from_the_sources(logical: str, value: object, text: str) -> None:
    column = pa.array([value], arrow_type(logical))
    assert from_text(to_text([column]), [column.type])[0].equals(column)
    assert from_text([(text,)], [column.type])[0].equals(column)


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptLog, match="int64"):
        from_text([("abc",)], [pa.int64()])


def test_keys_that_the_targets_types_cannot_hold_are_left_out() -> None:
    types = [pa.timestamp("us"), pa.int64()]
    good, other = ("2024-02-29 01:02:03", "7"), ("1999-01-01 00:00:00", "8")
    assert readable([good, ("infinity", "7"), other], types) == (good, other)
    assert readable([good, other], types) == (good, other)
    assert readable([], types) == ()


def test_equal_keys_get_equal_numbers() -> None:
    numbers, count = group([pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])])
    assert count == 3
    assert numbers[0] == numbers[3] and len(set(numbers.tolist())) == 3


def test_keys_are_found_among_others_in_every_column() -> None:
    mine = [pa.array([1, 1, 2]), pa.array(["a", "b", "a"])]
    others = [pa.array([1, 2, 3, 9]), pa.array(["b", "b", "a", "z"])]
    assert contained(mine, others).tolist() == [False, True, False]
    assert contained([pa.array([5])], [pa.array([], pa.int64())]).tolist() == [False]


def test_chains_and_swaps_of_moved_keys_are_one_tangle() -> None:
    olds, news = np.array([1, 2, 9, 8, 30, 4, 5]), np.array([2, 3, 8, 9, 31, 5, 6])
    tangle = _components(olds, news)
    rows, labels = tangle.place(np.array([1, 3, 7, 9, 8, 31, 4, 6]))
    assert rows.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert labels[0] == labels[1] and labels[2] == labels[3] and labels[5] == labels[6]
    assert len(set(labels.tolist())) == 4
