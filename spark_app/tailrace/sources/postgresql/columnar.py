"""Split rows in wire form into columns, all rows together, with numpy.

Called by capture (pgoutput TupleData) and by the chunk reader (rows of COPY … FORMAT binary). The columns come out
as Arrow; `codec.decode` gives them their types. Cost is per column and per byte, never per row in Python; a single row,
as most are where hundreds of tables change now and then, is split without numpy, whose calls would cost ten times that.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import Retry

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Wire = tuple[Bools, Bools | None, Int64s, Int64s]
"""Present, unchanged, start of the value, end of the value: one entry per row."""

SHORT = 64
"""The most bytes of values that are picked by their places alone."""
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")


@dataclass(frozen=True)
class SplitColumn:
    """One column of all rows."""

    values: pa.LargeBinaryArray
    """Null where the row's value is null or unchanged."""
    unchanged: Bools | None
    """True where the log did not carry the value (TOAST); None: nowhere."""


def split(
    buffer: bytes | bytearray | memoryview | npt.NDArray[np.uint8], starts: Int64s, columns: int, tagged: bool
) -> tuple[list[SplitColumn], Int64s]:
    """Split the tuples that begin at `starts` (after the int16 column count) into `columns` columns.

    `tagged`: pgoutput TupleData (kind byte, then for text int32 length and bytes); else COPY BINARY (int32 length, -1
    null). `starts` must ascend and the tuples must not overlap. Also returns where each tuple ends. Bytes that are no
    such tuples raise `Retry`: a new connection is to be opened.
    """
    data = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
    if len(starts) == 1:
        return _split_one(data, int(starts[0]), columns, tagged)
    position: Int64s = np.asarray(starts, dtype=np.int64)
    walk: Callable[[npt.NDArray[np.uint8], Int64s], Wire] = _tagged if tagged else _plain
    result: list[SplitColumn] = []
    owner = pa.py_buffer(np.ascontiguousarray(data))
    for _ in range(columns):
        try:
            present, unchanged, first, position = walk(data, position)
        except IndexError:
            raise Retry("a row from PostgreSQL is cut short") from None
        outside = len(position) and (int(position.max()) > len(data) or bool((position < first).any()))
        if outside or bool((first[1:] < position[:-1]).any()):  # or the value reaches into another row's
            raise Retry("a row from PostgreSQL has a value of invalid length")
        result.append(SplitColumn(_gather(owner, present, first, position), unchanged))
    return result, position


def _split_one(
    data: npt.NDArray[np.uint8], position: int, columns: int, tagged: bool
) -> tuple[list[SplitColumn], Int64s]:
    """A single row."""
    row, result = data[position:].data, list[SplitColumn]()
    at, head = 0, 5 if tagged else 4
    for _ in range(columns):
        try:
            kind = row[at] if tagged else _TEXT
        except IndexError:
            raise Retry("a row from PostgreSQL is cut short") from None
        value: bytes | None = None
        if kind == _TEXT:
            if at + head > len(row):
                raise Retry("a row from PostgreSQL is cut short")
            length = int.from_bytes(row[at + head - 4 : at + head], "big", signed=True)
            at += head
            if tagged or length != -1:
                if length < 0 or at + length > len(row):
                    raise Retry("a row from PostgreSQL has a value of invalid length")
                value = bytes(row[at : at + length])
                at += length
        elif kind in (_NULL, _UNCHANGED):
            at += 1
        else:
            raise Retry(f"a row from PostgreSQL has values of unknown kind {[chr(kind)]}")
        unchanged = np.ones(1, np.bool_) if kind == _UNCHANGED else None
        result.append(SplitColumn(pa.array([value], pa.large_binary()), unchanged))
    return result, np.array([position + at], dtype=np.int64)


def _tagged(data: npt.NDArray[np.uint8], position: Int64s) -> Wire:
    kind = data[position]
    present = kind == _TEXT
    if present.all():
        length = _int32(data, position + 1)
        first = position + 5
        return present, None, first, first + length
    unchanged = kind == _UNCHANGED
    if not (present | unchanged | (kind == _NULL)).all():
        unknown = sorted({chr(k) for k in np.unique(kind)} - {"n", "u", "t"})
        raise Retry(f"a row from PostgreSQL has values of unknown kind {unknown}")
    length = np.zeros(len(position), dtype=np.int64)
    length[present] = _int32(data, position[present] + 1)
    first = position + np.where(present, 5, 1)
    return present, (unchanged if unchanged.any() else None), first, first + length


def _plain(data: npt.NDArray[np.uint8], position: Int64s) -> Wire:
    length = _int32(data, position)
    present = length != -1
    first = position + 4
    return present, None, first, first + np.where(present, length, 0)


def _int32(data: npt.NDArray[np.uint8], position: Int64s) -> Int64s:
    """Signed big-endian integers at any byte offset."""
    if not len(position):
        return np.zeros(0, dtype=np.int64)
    # Every offset of the buffer seen as four bytes: an overlapping view, no copy. Picked as raw bytes first: that is
    # twice as fast as picking unaligned integers.
    every = np.ndarray(shape=(max(len(data) - 3, 0),), dtype="V4", buffer=data, strides=(1,))
    return every[position].view(">i4").astype(np.int64)


def _of_one_width(owner: pa.Buffer, first: Int64s, width: int) -> pa.LargeBinaryArray:
    """The byte ranges of numbers, times and the like, in half the time: picked as `_int32` does."""
    every = np.ndarray(shape=(owner.size - width + 1,), dtype=f"V{width}", buffer=owner, strides=(1,))
    ends = np.arange(len(first) + 1, dtype=np.int64) * width
    picked = pa.py_buffer(every[first])
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(first), [None, pa.py_buffer(ends), picked])


def _gather(owner: pa.Buffer, present: Bools, first: Int64s, last: Int64s) -> pa.LargeBinaryArray:
    """The byte ranges [first, last) as one array; null where not present."""
    rows = len(first)
    if rows == 0:
        return pa.array([], type=pa.large_binary())
    width = int(last[0] - first[0])
    if 0 < width <= SHORT and present.all() and (last - first == width).all():
        return _of_one_width(owner, first, width)
    # Values and the gaps between them are neighbours in the buffer, so one offsets array describes both: the values are
    # the even entries.
    offsets = np.empty(2 * rows, dtype=np.int64)
    offsets[0::2] = first
    offsets[1::2] = last
    both = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), owner])
    even = np.arange(0, 2 * rows - 1, 2)
    indices = pa.array(even) if present.all() else pa.array(even, mask=~present)
    return both.take(indices)
