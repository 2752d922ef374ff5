"""Whole rows as numbers: two rows have one digest exactly if they are written alike."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.fold.row_digests import digests, numbered_within

TEXTS = st.sampled_from([None, "", "n", ";", "n;", "1:n", "1:", ":", "0:;", "é", "12", "1", "2"])
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "text": (pa.string(), TEXTS),
    "more": (pa.string(), TEXTS),
    "raw": (pa.binary(), st.sampled_from([None, b"", b"n", b";", b"\x00"])),
    "flag": (pa.bool_(), st.sampled_from([None, True, False])),
    "int": (pa.int32(), st.sampled_from([None, 0, 1, -1])),
    "wide": (pa.int64(), st.sampled_from([None, 2**62, -(2**63)])),
    "f": (pa.float64(), st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan, math.inf, 0.1])),
    "g": (pa.float32(), st.sampled_from([None, 0.0, -0.0, math.nan])),
    "n": (pa.decimal128(38, 2), st.sampled_from([None, Decimal("0.00"), Decimal("1.50"), Decimal(10) ** 35])),
    "d": (pa.date32(), st.sampled_from([None, date(1970, 1, 1), date(9999, 12, 31)])),
    "at": (pa.timestamp("us"), st.sampled_from([None, datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)])),
    "tz": (pa.timestamp("us", "UTC"), st.sampled_from([None, datetime(2024, 2, 29, tzinfo=UTC)])),
    "texts": (pa.list_(pa.string()), st.one_of(st.none(), st.lists(TEXTS, max_size=3))),
    "floats": (pa.list_(pa.float64()), st.sampled_from([None, [], [None], [0.0], [-0.0], [math.nan, 1.0]])),
}
PAIR = pa.struct([("a", pa.string()), ("b", pa.list_(pa.float32()))])
COLUMNS["pair"] = (
    PAIR,
    st.one_of(st.none(), st.fixed_dictionaries({"a": TEXTS, "b": st.sampled_from([None, [], [0.0], [-0.0]])})),
)
ROWS = st.lists(st.tuples(*(values for _, values in COLUMNS.values())), min_size=1, max_size=30)


def written(value: object) -> object:
    match value:
        case dict():
            return [(name, written(one)) for name, one in value.items()]
        case tuple() | list():
            return [written(one) for one in value]
        case float():
            return "nan" if math.isnan(value) else value.hex()
        case _:
            return type(value), value


@given(ROWS)
def test_rows_are_equal_exactly_if_they_are_written_alike(rows: list[tuple[object, ...]]) -> None:
    columns = [
        pa.chunked_array([[row[at] for row in rows[:3]], [row[at] for row in rows[3:]]], kind)
        for at, (kind, _) in enumerate(COLUMNS.values())
    ]
    found = list(zip(*(half.tolist() for half in digests(columns)), strict=True))
    assert len(found) == len(rows)
    for one, digest in zip(rows, found, strict=True):
        for other, its in zip(rows, found, strict=True):
            assert (digest == its) == (written(one) == written(other)), (one, other)


def test_no_rows_have_no_digests() -> None:
    assert [len(half) for half in digests([pa.chunked_array([], pa.string())])] == [0, 0]


def test_columns_that_a_file_lacks_count_as_null() -> None:
    """They do not come in chunks."""
    for kind, _ in COLUMNS.values():
        lacking = digests([pa.chunked_array([[1, 2]], pa.int32()), pa.nulls(2, kind)])
        there = digests([pa.chunked_array([[1, 2]], pa.int32()), pa.chunked_array([[None], [None]], kind)])
        assert [half.tolist() for half in lacking] == [half.tolist() for half in there]


def test_as_many_columns_as_a_table_can_have_are_one_digest() -> None:
    columns = [pa.chunked_array([[1, 1, None]], pa.int32())] * 1600
    high, low = digests(columns)
    assert high[0] == high[1] != high[2]
    assert low[0] == low[1] != low[2]


@given(st.lists(st.integers(0, 4), max_size=30))
def test_rows_are_numbered_inside_their_groups(groups: list[int]) -> None:
    found = numbered_within(np.array(groups, np.int64)).tolist()
    assert found == [groups[:at].count(group) for at, group in enumerate(groups)]
