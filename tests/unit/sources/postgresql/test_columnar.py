"""Splitting rows by column gives what a plain decoder, row by row, gives."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import Retry
from tailrace.sources.postgresql.columnar import split

UNCHANGED = object()
Value = bytes | None | object


def encode(value: Value, tagged: bool) -> bytes:
    if isinstance(value, bytes):
        return (b"t" if tagged else b"") + struct.pack(">i", len(value)) + value
    if value is UNCHANGED:
        return b"u"
    return b"n" if tagged else struct.pack(">i", -1)


def encoded(rows: list[list[Value]], gaps: list[bytes], tagged: bool) -> tuple[bytes, np.ndarray, list[int]]:
    out, starts, ends = bytearray(b"head"), [], []
    for row, gap in zip(rows, gaps, strict=True):
        out += gap
        starts.append(len(out))
        out += b"".join(encode(v, tagged) for v in row)
        ends.append(len(out))
    return bytes(out) + b"tail", np.array(starts, dtype=np.int64), ends


@st.composite
def batches(draw: st.DrawFn) -> tuple[bool, int, list[list[Value]], list[bytes]]:
    tagged = draw(st.booleans())
    columns = draw(st.integers(0, 4))
    values: st.SearchStrategy[Value] = st.one_of(st.none(), st.binary(max_size=300))
    if tagged:
        values = st.one_of(values, st.just(UNCHANGED))
    rows = draw(st.lists(st.lists(values, min_size=columns, max_size=columns), max_size=8))
    return tagged, columns, rows, [draw(st.binary(max_size=9)) for _ in rows]


@settings(deadline=None)
@given(batches())
def test_splitting_by_column_equals_decoding_row_by_row(
    batch: tuple[bool, int, list[list[Value]], list[bytes]],
) -> None:
    tagged, columns, rows, gaps = batch
    buffer, starts, ends = encoded(rows, gaps, tagged)
    found, found_ends = split(buffer, starts, columns, tagged)
    assert found_ends.tolist() == ends
    assert len(found) == columns
    for i, column in enumerate(found):
        column.values.validate(full=True)
        assert column.values.to_pylist() == [row[i] if isinstance(row[i], bytes) else None for row in rows]
        unchanged = [row[i] is UNCHANGED for row in rows]
        assert (column.unchanged.tolist() if column.unchanged is not None else [False] * len(rows)) == unchanged
    for at, row in enumerate(rows):
        alone, end = split(buffer, starts[at : at + 1], columns, tagged)
        assert end.tolist() == ends[at : at + 1]
        for value, one in zip(row, alone, strict=True):
            assert one.values.type == pa.large_binary()
            assert one.values.to_pylist() == [value if isinstance(value, bytes) else None]
            assert (one.unchanged is not None and one.unchanged.tolist() == [True]) is (value is UNCHANGED)


ROWS = pytest.mark.parametrize("rows", [1, 2], ids=["alone", "behind-another"])


@ROWS
@pytest.mark.parametrize("tagged", [True, False])
def test_a_row_that_is_cut_short_is_refused(tagged: bool, rows: int) -> None:
    buffer, starts, _ = encoded([[b"abc", b"defgh"]] * rows, [b""] * rows, tagged)
    for length in range(starts[-1], len(buffer) - 4):
        with pytest.raises(Retry):
            split(buffer[:length], starts, 2, tagged)


@ROWS
def test_an_unknown_kind_of_value_is_refused(rows: int) -> None:
    with pytest.raises(Retry, match=r"unknown kind \['x'\]"):
        split(b"nx\0\0\0\0", np.array([0, 1])[-rows:], 1, True)


@ROWS
@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("length", [-7, -(2**31), 9, 2**31 - 1])
def test_a_length_that_is_none_is_refused(tagged: bool, rows: int, length: int) -> None:
    tag = b"t" * tagged
    buffer = tag + struct.pack(">i", 0) + tag + struct.pack(">i", length) + b"12345678"
    starts = np.array([0, 4 + tagged])[-rows:]
    with pytest.raises(Retry, match="invalid length"):
        split(buffer, starts, 1, tagged)
