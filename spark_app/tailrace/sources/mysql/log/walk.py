"""Walks row events by column: row j of every event of one form at once, so that numpy does the work.

Called by `rows` with many row events of one kind and one form in one buffer. Out come, for each column of each image,
where its values stand. An event that ends inside a row, or whose rows do not end where it does, is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.events import UnknownEvent
from tailrace.sources.mysql.log.table_map import MapColumn

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]
Layout = list[tuple[int | None, int]]
"""The width of each column, or None and the bytes of its length."""
PARTIAL_JSON = 1
"""The only known option of a row's image: it says of each JSON column of the table whether it is partial."""
SLACK = 64
"""Bytes behind the last event, so that numbers can be read wider than they are."""
_FIXED = {
    wire.TINY: 1,
    wire.SHORT: 2,
    wire.INT24: 3,
    wire.LONG: 4,
    wire.LONGLONG: 8,
    wire.FLOAT: 4,
    wire.DOUBLE: 8,
    wire.YEAR: 1,
    wire.DATE_OLD: 3,
    wire.TIME_OLD: 3,
    wire.TIMESTAMP_OLD: 4,
    wire.DATETIME_OLD: 8,
}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of so many digits of a decimal."""
_FRACTIONAL = {wire.TIMESTAMP2: 4, wire.DATETIME2: 5, wire.TIME2: 3}


@dataclass(frozen=True)
class Cells:
    """One column of one image."""

    at: Places
    """The place where each value begins, behind its length."""
    length: Places
    valid: NDArray[np.bool_] | None
    """Rows that are not NULL; None: all."""
    partial: Flags | None = None
    """Rows of which there are only the differences to the document before; None: none."""


@dataclass(frozen=True)
class Walked:
    event: Places
    """The event of each row, as an index into those that were given; rows are in the events' order."""
    images: list[list[Cells]]
    """One image, or of an update the one before and the one after; of each, the columns that it has."""


def decimal_bytes(precision: int, scale: int) -> int:
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def width(column: MapColumn) -> int | None:
    """Bytes of a value; None: it begins with its length."""
    kind, meta = column.kind, column.meta
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _FRACTIONAL:
        return _FRACTIONAL[kind] + (meta + 1) // 2
    if kind == wire.NEWDECIMAL:
        return decimal_bytes(*divmod(meta, 256))
    if kind == wire.BIT:
        return (meta + 7) // 8
    if kind in (wire.ENUM, wire.SET):
        return meta
    if kind in (wire.VARCHAR, wire.STRING, wire.BLOB, wire.JSON, wire.GEOMETRY, wire.VECTOR):
        return None
    raise UnknownEvent(f"the server sent a column of the unknown type {kind}")


def length_bytes(column: MapColumn) -> int:
    """Bytes of the length with which a value begins."""
    if column.kind in (wire.VARCHAR, wire.STRING):
        return 1 if column.meta < 256 else 2
    return column.meta


@dataclass(frozen=True)
class Documents:
    """The JSON columns of a table, of which an image may have parts."""

    numbers: dict[int, int]
    """The number of each that the image has, by its place in the image."""
    count: int


def walk(
    buffer: Bytes,
    starts: Places,
    ends: Places,
    images: Sequence[Sequence[MapColumn]],
    documents: Documents | None = None,
) -> Walked:
    """`starts`: of each event's first row; `images`: the columns that each image of a row has. `buffer` has SLACK bytes
    behind the last event. `documents`: the image after begins with options, and may have parts of these."""
    return _Walk(buffer, images, documents).run(starts, ends)


class _Walk:
    def __init__(self, buffer: Bytes, images: Sequence[Sequence[MapColumn]], documents: Documents | None) -> None:
        self._buffer, self._documents = buffer, documents
        self._layouts = [[(width(c), length_bytes(c) if width(c) is None else 0) for c in image] for image in images]
        self._found: list[list[list[Cells]]] = [[[] for _ in image] for image in images]

    def run(self, starts: Places, ends: Places) -> Walked:
        active = np.arange(len(starts))
        at, end = starts.astype(np.int64), ends
        if (at > end).any():
            raise _torn()
        rounds: list[Places] = []
        while len(going := np.flatnonzero(at < end)):
            if len(going) < len(active):
                active, at, end = active[going], at[going], end[going]
            rounds.append(active)
            for layout, found in zip(self._layouts, self._found, strict=True):
                partial = dict[int, Flags]()
                if self._documents is not None and found is self._found[-1]:
                    at, partial = self._options(self._documents, at, end)
                at = self._image(layout, found, at, end, partial)
        if (at != end).any():
            raise _torn()
        return self._ordered(rounds, len(starts))

    def _options(self, documents: Documents, at: Places, end: Places) -> tuple[Places, dict[int, Flags]]:
        """The place behind them, and which rows are partial, by the document's place in the image."""
        options = self._buffer[at]
        if (options > PARTIAL_JSON).any():
            raise UnknownEvent("the server sent a row with unknown options")
        size = (documents.count + 7) // 8
        bits = [self._buffer[np.minimum(at + 1 + i, end)] for i in range(size)]
        marked = {place: (options & bits[bit >> 3] >> (bit & 7)) == 1 for place, bit in documents.numbers.items()}
        return at + 1 + size * options.astype(np.int64), marked

    def _image(
        self, layout: Layout, found: list[list[Cells]], at: Places, end: Places, partial: dict[int, Flags]
    ) -> Places:
        nulls = (len(layout) + 7) // 8
        bits = [self._buffer[np.minimum(at + i, end)] for i in range(nulls)]
        at = at + nulls
        for i, (fixed, prefix) in enumerate(layout):
            null = (bits[i >> 3] >> (i & 7)) & 1
            valid = None if not null.any() else null == 0
            length: Places = np.full(len(at), fixed or 0, np.int64) if fixed is not None else self._length(at, prefix)
            if valid is not None:
                length = length * valid
            begins = at + prefix if valid is None else at + prefix * valid
            at = begins + length
            # Checked before the next column: a damaged length must not send it beyond the buffer.
            if (at > end).any():
                raise _torn()
            found[i].append(Cells(begins, length, valid, partial.get(i)))
        return at

    def _length(self, at: Places, prefix: int) -> Places:
        length = self._buffer[at].astype(np.int64)
        for i in range(1, prefix):
            length |= self._buffer[at + i].astype(np.int64) << 8 * i
        return length

    def _ordered(self, rounds: list[Places], events: int) -> Walked:
        """Rows in the events' order: they were found round by round."""
        if not rounds:
            return Walked(np.zeros(0, np.int64), [])
        event = np.concatenate(rounds)
        order = None if len(rounds) == 1 else np.argsort(event, kind="stable")
        images = [[_joined(found, order) for found in image] for image in self._found]
        return Walked(event if order is None else event[order], images)


def _joined(found: list[Cells], order: Places | None) -> Cells:
    if order is None:
        return found[0]
    at = np.concatenate([c.at for c in found])[order]
    length = np.concatenate([c.length for c in found])[order]
    valid = _flags([c.valid for c in found], found, order, missing=True)
    return Cells(at, length, valid, _flags([c.partial for c in found], found, order, missing=False))


def _flags(flags: list[Flags | None], found: list[Cells], order: Places, missing: bool) -> Flags | None:
    if all(one is None for one in flags):
        return None
    whole = [np.full(len(c.at), missing) if one is None else one for one, c in zip(flags, found, strict=True)]
    joined: Flags = np.concatenate(whole)[order]
    return joined


def _torn() -> UnknownEvent:
    return UnknownEvent("the server sent a row event that ends inside a row")
