"""Values in the binary log -> typed Arrow, one column of one image at a time.

Called by `decode.Decoder` with what `walk` found. Numbers are gathered with numpy, texts and bytes with one Arrow
`take`; `sources.mysql.values` then makes of them what the chunk reader makes of its wire form.
"""

import socket
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from tailrace.sources.mysql import charsets, values
from tailrace.sources.mysql.log import json_binary
from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.events import UnknownEvent
from tailrace.sources.mysql.log.table_map import MapColumn
from tailrace.sources.mysql.log.walk import SLACK, Bytes, Cells, Places
from tailrace.sources.mysql.model import MysqlColumn

_INTEGERS: dict[int, tuple[str, str]] = {
    wire.TINY: ("<i1", "<u1"),
    wire.SHORT: ("<i2", "<u2"),
    wire.LONG: ("<i4", "<u4"),
    wire.LONGLONG: ("<i8", "<u8"),
}
_DATE_BASE = 1 << 39
_TIME_BASE = 1 << 23
_UUID = 16
"""Bytes."""
_SMALL = 18
"""Digits of a decimal whose number without the point is one of 64 bits."""


class Buffer:
    """Many events' bytes, to be looked at as numpy and as Arrow see them."""

    def __init__(self, data: bytes) -> None:
        """`data` ends with SLACK bytes that no value reaches."""
        self.data = data
        self.bytes: Bytes = np.frombuffer(data, np.uint8)
        self.arrow = pa.py_buffer(data)

    @staticmethod
    def of(pieces: list[bytes]) -> "Buffer":
        return Buffer(b"".join((*pieces, bytes(SLACK))))

    def numbers(self, at: Places, kind: DTypeLike) -> NDArray[np.generic]:
        """Unaligned numbers at these places."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.data) - size + 1,), kind, self.data, 0, (1,))[at]

    def pieces(self, cells: Cells) -> pa.Array:
        """Bytes of each value; null where it is NULL."""
        rows = len(cells.at)
        offsets = np.empty(2 * rows + 1, np.int32)
        offsets[0:-1:2], offsets[1::2] = cells.at, cells.at + cells.length
        offsets[-1] = offsets[-2] if rows else 0
        spread = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), self.arrow])
        places = pa.array(np.arange(0, 2 * rows, 2), mask=None if cells.valid is None else ~cells.valid)
        return spread.take(places)


def column(buffer: Buffer, sent: MapColumn, known: MysqlColumn, cells: Cells) -> pa.Array:
    """Raises `values.Unrepresentable` for a value that its logical type cannot hold."""
    if known.form.logical == "string" and known.type.name not in ("decimal", "date", "datetime", "timestamp", "time"):
        return _as_text(buffer, sent, known, cells)
    return _typed(buffer, sent, known, cells)


def _as_text(buffer: Buffer, sent: MapColumn, known: MysqlColumn, cells: Cells) -> pa.Array:
    match sent.kind:
        case wire.JSON:
            return json_binary.texts(buffer.pieces(cells))
        case wire.ENUM | wire.SET:
            return _labels(_unsigned(buffer, cells, sent.meta), sent.kind, known, cells)
        case wire.STRING if known.type.name in _OWN_TEXTS:
            spell = _OWN_TEXTS[known.type.name]
            return pa.array([None if v is None else spell(v) for v in buffer.pieces(cells).to_pylist()], pa.string())
        case wire.VARCHAR | wire.STRING | wire.BLOB if known.type.charset is not None:
            return charsets.decoded(buffer.pieces(cells), known.type.charset, known.form.sets_null)
        case _:
            return _typed(buffer, sent, known, cells)


def _typed(buffer: Buffer, sent: MapColumn, known: MysqlColumn, cells: Cells) -> pa.Array:
    kind, form = sent.kind, known.form
    if kind in _INTEGERS or kind in (wire.INT24, wire.YEAR, wire.BIT):
        integers = _integers(buffer, sent, known, cells)
        return (values.other_numbers if known.other_number else values.integers)(integers, form)
    match kind:
        case wire.FLOAT | wire.DOUBLE:
            numbers = buffer.numbers(cells.at, "<f4" if kind == wire.FLOAT else "<f8")
            return values.floats(_array(numbers, cells), form)
        case wire.NEWDECIMAL:
            if known.other_number:
                return values.other_numbers(_decimal_texts(buffer, sent, cells), form)
            if form.logical != "string" and sent.meta // 256 <= _SMALL:
                return _small_decimals(buffer, sent, cells)
            return values.decimals(_decimal_texts(buffer, sent, cells), form)
        case wire.DATE_OLD:
            return values.dates(_date(buffer, cells), cells.valid, form)
        case wire.DATETIME2:
            return values.datetimes(_datetime(buffer, sent, cells), cells.valid, form)
        case wire.TIMESTAMP2:
            seconds = buffer.numbers(cells.at, ">u4").astype(np.int64)
            clock = values.Clock.of(seconds, _fraction(buffer, cells.at + 4, sent.meta))
            return values.datetimes(clock, cells.valid, form)
        case wire.TIME2:
            return values.times(*_time(buffer, sent, cells), cells.valid, form)
        case wire.VARCHAR | wire.STRING | wire.BLOB | wire.GEOMETRY | wire.VECTOR:
            return values.octets(_padded(buffer.pieces(cells), known), form)
        case _:
            raise UnknownEvent(f"the server sent a column of the old type {kind}")


def _array(numbers: NDArray[np.generic], cells: Cells) -> pa.Array:
    return pa.array(numbers, mask=None if cells.valid is None else ~cells.valid)


def _integers(buffer: Buffer, sent: MapColumn, known: MysqlColumn, cells: Cells) -> pa.Array:
    if sent.kind == wire.YEAR:
        raw = buffer.bytes[cells.at].astype(np.int64)
        return _array(np.where(raw == 0, 0, raw + 1900), cells)
    if sent.kind == wire.BIT:
        return _array(_big_endian(buffer, cells.at, (sent.meta + 7) // 8), cells)
    if sent.kind == wire.INT24:
        raw = buffer.numbers(cells.at, "<u4").astype(np.int64) & 0xFFFFFF
        return _array(raw if known.type.unsigned else raw - ((raw >> 23) << 24), cells)
    return _array(buffer.numbers(cells.at, _INTEGERS[sent.kind][known.type.unsigned]), cells)


def _unsigned(buffer: Buffer, cells: Cells, size: int) -> NDArray[np.uint64]:
    found = np.zeros(len(cells.at), np.uint64)
    for i in range(size):
        found |= buffer.bytes[cells.at + i].astype(np.uint64) << np.uint64(8 * i)
    return found


def _big_endian(buffer: Buffer, at: Places, size: int) -> NDArray[np.uint64]:
    found = np.zeros(len(at), np.uint64)
    for i in range(size):
        found = found << np.uint64(8) | buffer.bytes[at + i].astype(np.uint64)
    return found


def _labels(numbers: NDArray[np.uint64], kind: int, known: MysqlColumn, cells: Cells) -> pa.Array:
    """An enum's number 0 is the empty text, which an invalid value became."""
    known_rows = numbers if cells.valid is None else np.where(cells.valid, numbers, np.uint64(0))
    distinct, places = np.unique(known_rows, return_inverse=True)
    labels = known.type.labels
    names = [_enum(n, labels) if kind == wire.ENUM else _set(n, labels) for n in distinct.tolist()]
    return pa.array(names, pa.string()).take(_array(places.astype(np.int64), cells))


def _enum(number: int, labels: tuple[str, ...]) -> str:
    if number > len(labels):
        raise UnknownEvent("the server sent an enum value that its column does not have")
    return labels[number - 1] if number else ""


def _set(bits: int, labels: tuple[str, ...]) -> str:
    if bits >> len(labels):
        raise UnknownEvent("the server sent a set value that its column does not have")
    text = ""
    for i, label in enumerate(labels):
        if bits >> i & 1:
            text = f"{text},{label}" if text else label  # as the server: no comma behind an empty label that is first
    return text


def _padded(raw: pa.Array, known: MysqlColumn) -> pa.Array:
    """binary(n) and a uuid come without their trailing zero bytes."""
    size = _UUID if known.type.name == "uuid" else known.type.length
    if known.type.name not in ("binary", "uuid") or not size:
        return raw
    return pa.array([None if v is None else v.ljust(size, b"\0") for v in raw.to_pylist()], pa.binary())


def _uuid(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw.ljust(_UUID, b"\0")))


def _inet6(raw: bytes) -> str:
    """The address in the usual form, but the server also shortens one group of zeros that stands alone."""
    text = socket.inet_ntop(socket.AF_INET6, raw.ljust(16, b"\0"))
    groups = text.split(":")
    if "" in groups or "0" not in groups:
        return text
    first = groups.index("0")
    return ":".join(groups[:first]) + "::" + ":".join(groups[first + 1 :])


_OWN_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": _uuid,
    "inet4": lambda raw: socket.inet_ntop(socket.AF_INET, raw.ljust(4, b"\0")),
    "inet6": _inet6,
}
"""MariaDB's own types, which come as bytes without their trailing zeros."""


def _fraction(buffer: Buffer, at: Places, digits: int) -> values.Ints:
    """Microseconds of so many digits, two to a byte."""
    size = (digits + 1) // 2
    found: values.Ints = _big_endian(buffer, at, size).astype(np.int64) * 100 ** (3 - size)
    return found


def _date(buffer: Buffer, cells: Cells) -> values.Clock:
    packed = buffer.numbers(cells.at, "<u4").astype(np.int64) & 0xFFFFFF
    none = np.zeros(len(packed), np.int64)
    return values.Clock(packed >> 9, packed >> 5 & 15, packed & 31, none, none, none, none)


def _datetime(buffer: Buffer, sent: MapColumn, cells: Cells) -> values.Clock:
    packed = _big_endian(buffer, cells.at, 5).astype(np.int64) - _DATE_BASE
    month = packed >> 22
    micros = _fraction(buffer, cells.at + 5, sent.meta)
    day, hour, minute, second = packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63
    return values.Clock(month // 13, month % 13, day, hour, minute, second, micros)


def _time(
    buffer: Buffer, sent: MapColumn, cells: Cells
) -> tuple[NDArray[np.bool_], values.Ints, tuple[values.Ints, values.Ints, values.Ints]]:
    """A negative one is the complement of all its bytes together."""
    size = (sent.meta + 1) // 2
    packed = _big_endian(buffer, cells.at, 3 + size).astype(np.int64) - (_TIME_BASE << 8 * size)
    negative = packed < 0
    packed = np.abs(packed)
    micros = (packed & ((1 << 8 * size) - 1)) * 100 ** (3 - size)
    packed >>= 8 * size
    return negative, packed >> 12 & 1023, (packed >> 6 & 63, packed & 63, micros)


def _small_decimals(buffer: Buffer, sent: MapColumn, cells: Cells) -> pa.Array:
    """Arrow's, without a way through text."""
    precision, scale = divmod(sent.meta, 256)
    unscaled = np.zeros(len(cells.at), np.int64)
    for digits, group in _digit_groups(buffer, sent, cells):
        unscaled = unscaled * 10**digits + group
    unscaled = np.where(_negative(buffer, cells), -unscaled, unscaled)
    wide = np.stack([unscaled, unscaled >> 63], axis=1)
    buffers = [_bitmap(cells), pa.py_buffer(np.ascontiguousarray(wide))]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(unscaled), buffers)


def _decimal_texts(buffer: Buffer, sent: MapColumn, cells: Cells) -> pa.Array:
    """The decimals as the server writes them. Arrow would write a small one with an exponent."""
    spelled = [np.char.zfill(group.astype(str), digits) for digits, group in _digit_groups(buffer, sent, cells)]
    joined = spelled[0]
    for part in spelled[1:]:
        joined = np.char.add(joined, part)
    rows = zip(_negative(buffer, cells).tolist(), joined.tolist(), strict=True)
    texts = [("-" if minus else "") + _pointed(digits, sent.meta % 256) for minus, digits in rows]
    return pa.array(texts, pa.string(), mask=None if cells.valid is None else ~cells.valid)


def _negative(buffer: Buffer, cells: Cells) -> NDArray[np.bool_]:
    negative: NDArray[np.bool_] = buffer.bytes[cells.at] < 0x80
    return negative


def _digit_groups(buffer: Buffer, sent: MapColumn, cells: Cells) -> list[tuple[int, values.Ints]]:
    """(digits, number) of each group of up to nine, the highest first. The first bit is the sign, inverted; in
    negative numbers all others are, too."""
    precision, scale = divmod(sent.meta, 256)
    whole, groups, first, at = precision - scale, list[tuple[int, values.Ints]](), True, cells.at
    inverted = np.where(_negative(buffer, cells), 0xFFFFFFFF, 0).astype(np.int64)
    for digits in [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]:
        if not digits:
            continue
        size = (digits + 1) // 2 if digits < 9 else 4
        raw = _big_endian(buffer, at, size).astype(np.int64)
        if first:
            raw ^= 0x80 << 8 * (size - 1)
        groups.append((digits, raw ^ (inverted & ((1 << 8 * size) - 1))))
        at, first = at + size, False
    too_large = np.any([group >= 10**digits for digits, group in groups], axis=0)
    if (too_large if cells.valid is None else too_large & cells.valid).any():
        raise UnknownEvent("the server sent a decimal with more digits than its column has")
    return groups


def _pointed(digits: str, scale: int) -> str:
    whole = digits[: len(digits) - scale].lstrip("0") or "0"
    return f"{whole}.{digits[-scale:]}" if scale else whole


def _bitmap(cells: Cells) -> pa.Buffer | None:
    return None if cells.valid is None else pa.py_buffer(np.packbits(cells.valid, bitorder="little"))
