"""Rows in the binary protocol -> Arrow, column by column. Called by `chunks` with what `packets` brings.

A row is a byte 0, a bitmap of NULLs (two bits late), then the values one after the other. All rows of a block are
walked at once: each column is one gather, and what it takes moves every row's place on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tailrace.sources.mysql import charsets, values
from tailrace.sources.mysql.model import MysqlColumn
from tailrace.sources.mysql.packets import Block, WireColumn
from tailrace.sources.mysql.values import Clock, Ints, Valid

Bytes = NDArray[np.uint8]
_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 7, 8, 9
_DATE, _TIME, _DATETIME, _YEAR = 10, 11, 12, 13
_INTEGERS: dict[int, tuple[int, str]] = {
    _TINY: (1, "i1"),
    _SHORT: (2, "i2"),
    _YEAR: (2, "i2"),
    _LONG: (4, "i4"),
    _INT24: (4, "i4"),
    _LONGLONG: (8, "i8"),
}
Typed = tuple[list[pa.Array], list[tuple[str, int]]]
"""One array per column; and of each how many values became NULL."""
_FLOATS = {_FLOAT: (4, "<f4"), _DOUBLE: (8, "<f8")}


@dataclass
class _Walk:
    """The place that the walk has reached in each row."""

    data: Bytes
    at: Ints

    def word(self, offset: Ints, dtype: str) -> NDArray[np.generic]:
        """Values that begin at these places, aligned or not."""
        size = np.dtype(dtype).itemsize
        return np.ndarray((len(self.data) - size + 1,), dtype, self.data, 0, (1,))[offset]

    def skip(self, sizes: Ints | int, valid: Valid) -> Ints:
        """The places of a column; rows that have it move on."""
        found = self.at
        self.at = found + (sizes if valid is None else sizes * valid)
        return found


def to_arrow(block: Block, wire: Sequence[WireColumn], columns: Sequence[MysqlColumn], table: str) -> Typed:
    """`table`: for the message of a value that does not fit."""
    bitmap = block.starts + 1
    walk = _Walk(block.data, bitmap + (len(wire) + 9) // 8)
    found: list[pa.Array] = []
    nulled: list[tuple[str, int]] = []
    for i, (on_wire, column) in enumerate(zip(wire, columns, strict=True)):
        null = (block.data[bitmap + ((i + 2) >> 3)] >> np.uint8((i + 2) & 7)) & np.uint8(1)
        valid = null == 0 if null.any() else None
        with values.fitted(table, column.name, column.form, column.key is not None):
            found.append(_column(walk, on_wire, column, valid))
        nulled.append((column.name, found[-1].null_count - int(null.sum())))
    return found, nulled


def _column(walk: _Walk, wire: WireColumn, column: MysqlColumn, valid: Valid) -> pa.Array:
    if wire.type in _INTEGERS:
        size, dtype = _INTEGERS[wire.type]
        dtype = f"<{dtype.replace('i', 'u')}" if wire.unsigned else f"<{dtype}"
        found = _fixed(walk, size, dtype, valid)
        return (values.other_numbers if column.other_number else values.integers)(found, column.form)
    if wire.type in _FLOATS:
        return values.floats(_fixed(walk, *_FLOATS[wire.type], valid), column.form)
    if wire.type in (_DATE, _DATETIME, _TIMESTAMP):
        clock = _clock(walk, valid)
        make = values.dates if wire.type == _DATE else values.datetimes
        return make(clock, valid, column.form)
    if wire.type == _TIME:
        return _time(walk, valid, column)
    return _bytes(walk, valid, column)


def _fixed(walk: _Walk, size: int, dtype: str, valid: Valid) -> pa.Array:
    found = walk.word(walk.skip(size, valid), dtype)
    return pa.array(found, mask=None if valid is None else ~valid)


def _sized(walk: _Walk, valid: Valid) -> tuple[Ints, Ints]:
    """Place and number of a temporal value's bytes; parts that are zero are left out at its end."""
    sizes = walk.data[walk.at].astype(np.int64)
    if valid is not None:
        sizes = sizes * valid
    return walk.skip(sizes + 1, valid) + 1, sizes


def _byte(walk: _Walk, at: Ints, sizes: Ints, place: int) -> Ints:
    return np.where(sizes > place, walk.data[np.minimum(at + place, len(walk.data) - 1)], 0).astype(np.int64)


def _micro(walk: _Walk, at: Ints, sizes: Ints, place: int) -> Ints:
    safe = np.minimum(at + place, len(walk.data) - 4)
    return np.where(sizes > place, walk.word(safe, "<u4"), 0).astype(np.int64)


def _clock(walk: _Walk, valid: Valid) -> Clock:
    at, sizes = _sized(walk, valid)
    year = _byte(walk, at, sizes, 0) + 256 * _byte(walk, at, sizes, 1)
    month, day, hour, minute, second = (_byte(walk, at, sizes, place) for place in range(2, 7))
    return Clock(year, month, day, hour, minute, second, _micro(walk, at, sizes, 7))


def _time(walk: _Walk, valid: Valid, column: MysqlColumn) -> pa.Array:
    at, sizes = _sized(walk, valid)
    negative = _byte(walk, at, sizes, 0) == 1
    days = sum(_byte(walk, at, sizes, 1 + i) << 8 * i for i in range(4))
    hour, minute, second = (_byte(walk, at, sizes, place) for place in (5, 6, 7))
    rest = minute, second, _micro(walk, at, sizes, 8)
    return values.times(negative, days * 24 + hour, rest, valid, column.form)


def _bytes(walk: _Walk, valid: Valid, column: MysqlColumn) -> pa.Array:
    starts, sizes = _lengths(walk, valid)
    if column.type.name == "bit":
        return values.integers(_bits(walk, starts, sizes, valid), column.form)
    if column.type.name == "json" and (sizes == 0 if valid is None else (sizes == 0) & valid).any():
        raise values.Unsent  # no JSON value has an empty text
    found = _gathered(walk.data, starts, sizes, valid)
    if column.type.name == "decimal":
        text = values.unfilled(found) if column.type.zerofill else found
        return (values.other_numbers if column.other_number else values.decimals)(text, column.form)
    if column.native == "binary":
        return values.octets(found, column.form)
    if column.form.logical == "binary":
        return values.uuids(found)
    return charsets.decoded(found, column.type.charset if charsets.raw(column.type) else None, column.form.sets_null)


def _lengths(walk: _Walk, valid: Valid) -> tuple[Ints, Ints]:
    """Places and sizes of length-encoded strings: one byte below 251, else 2, 3 or 8 bytes behind a mark."""
    first = walk.data[walk.at].astype(np.int64)
    if valid is not None:
        first = first * valid
    starts, sizes = walk.at + 1, first
    long = np.flatnonzero(first > 251)
    if len(long):
        width = np.array([2, 3, 8])[first[long] - 252]
        word = walk.word(walk.at[long] + 1, "<u8").astype(np.int64)
        mask = np.array([0xFFFF, 0xFFFFFF, 2**63 - 1])[first[long] - 252]
        sizes, starts = sizes.copy(), starts.copy()
        sizes[long] = word & mask
        starts[long] += width
    walk.at = starts + sizes if valid is None else np.where(valid, starts + sizes, walk.at)
    return starts, sizes


def _bits(walk: _Walk, starts: Ints, sizes: Ints, valid: Valid) -> pa.Array:
    """Big-endian, one to eight bytes, equally many in all rows."""
    number = np.zeros(len(starts), np.uint64)
    for i in range(int(sizes.max(initial=0))):
        byte = walk.data[np.minimum(starts + i, len(walk.data) - 1)].astype(np.uint64)
        number = np.where(i < sizes, number << np.uint64(8) | byte, number)
    return pa.array(number, mask=None if valid is None else ~valid)


def _gathered(data: Bytes, starts: Ints, sizes: Ints, valid: Valid) -> pa.Array:
    """Pieces of `data` as one array: Arrow takes every other piece of one that has the gaps in it as well."""
    rows = len(starts)
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = starts, starts + sizes
    offsets[-1] = offsets[-2] if rows else 0
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    taken = pieces.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    if valid is None:
        return taken
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [bitmap, *taken.buffers()[1:]])
