"""Rows in the binary format of PostgreSQL's COPY, which the server reads with half of the work of the text format.

Field and file layout: PostgreSQL's documentation of COPY ("Binary Format") and the types' receive functions. Fields of
fixed size that hold no null are laid out side by side by numpy; Arrow joins them with the texts.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.targets.postgresql.texts import of_text
from tailrace.targets.sql.session import Definitions
from tailrace.targets.sql.texts import content

BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
_ABSENT = pa.scalar(b"\xff\xff\xff\xff", pa.large_binary())
"""The length of a null, which is all of it."""
_NOTHING = pa.scalar(b"", pa.large_binary())
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000
"""Distance of 2000, where PostgreSQL's dates begin, from 1970, where Arrow's do."""
_BASE, _DIGITS = 10_000, 4
"""Numerics are groups of four decimal digits."""
_MODIFIER = re.compile(r"\([0-9, -]+\)")

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class _Fixed:
    """A type whose values have one size."""

    arrow: Callable[[pa.DataType], bool]
    values: Callable[[pa.Array], Values]
    """The values as the server keeps them, big-endian; whatever it likes for nulls."""


@dataclass(frozen=True)
class _Text:
    """A type that is received as a text."""

    prefix: bytes = b""


def _numbers(kind: str, stored: pa.DataType) -> Callable[[pa.Array], Values]:
    """Raises `ValueError` if a value does not fit."""
    return lambda array: array.cast(stored).fill_null(0).to_numpy(zero_copy_only=False).astype(kind)


def _since_2000(kind: str, offset: int) -> Callable[[pa.Array], Values]:
    """Moments that PostgreSQL does not have keep being none: they do not become its infinities."""
    bits = int(kind[-1]) * 8
    least, most = -(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 2

    def values(array: pa.Array) -> Values:
        plain = array.cast(pa.int32() if bits == 32 else pa.int64()).fill_null(0)
        numbers = plain.to_numpy(zero_copy_only=False).astype(np.int64)
        found: Values = np.clip(np.maximum(numbers, least + offset) - offset, least, most).astype(kind)
        return found

    return values


def _booleans(array: pa.Array) -> Values:
    values: Values = array.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    return values


def _uuids(array: pa.Array) -> Values:
    values = b"".join(bytes(16) if text is None else UUID(text).bytes for text in array.to_pylist())
    return np.frombuffer(values, "V16")


def _numerics(array: pa.Array) -> Values:
    """Groups of digits before and behind the point, as many as the type has: the server trims them."""
    kind = array.type
    behind, before = -(-kind.scale // _DIGITS), -(-(kind.precision - kind.scale) // _DIGITS)
    numbers = _unscaled(array)
    layout = [
        ("count", ">i2"),
        ("weight", ">i2"),
        ("sign", ">u2"),
        ("scale", ">i2"),
        ("groups", ">i2", behind + before),
    ]
    made = np.zeros(len(array), layout)
    made["count"], made["weight"], made["scale"] = behind + before, before - 1, kind.scale
    made["sign"] = np.where(numbers < 0, 0x4000, 0)
    rest, size = abs(numbers), 10 ** (_DIGITS - (-kind.scale) % _DIGITS)
    for group in reversed(range(behind + before)):
        last = group == behind + before - 1 and behind > 0
        by = size if last else _BASE
        rest, digits = rest // by, rest % by
        made["groups"][:, group] = digits * (_BASE // size) if last else digits
    return made.view(f"V{made.dtype.itemsize}")


def _unscaled(array: pa.Array) -> Values:
    """The digits of decimals as integers; Python's where 64 bits do not hold them."""
    words = array.type.bit_width // 64
    kept = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, words)[array.offset : array.offset + len(array)]
    kept = np.where(array.is_valid().to_numpy(zero_copy_only=False)[:, None], kept, 0)
    low = kept[:, 0]
    if np.array_equal(kept[:, 1:], np.repeat((low >> 63)[:, None], words - 1, axis=1)) and (low > -(2**63)).all():
        return low
    return np.array([int.from_bytes(row.tobytes(), "little", signed=True) for row in kept], dtype=object)


_FIXED = {
    "smallint": _Fixed(pa.types.is_int32, _numbers(">i2", pa.int16())),
    "integer": _Fixed(pa.types.is_int32, _numbers(">i4", pa.int32())),
    "bigint": _Fixed(pa.types.is_int64, _numbers(">i8", pa.int64())),
    "real": _Fixed(pa.types.is_float32, _numbers(">f4", pa.float32())),
    "double precision": _Fixed(pa.types.is_float64, _numbers(">f8", pa.float64())),
    "boolean": _Fixed(pa.types.is_boolean, _booleans),
    "date": _Fixed(pa.types.is_date32, _since_2000(">i4", _DAYS)),
    "timestamp without time zone": _Fixed(pa.types.is_timestamp, _since_2000(">i8", _MICROSECONDS)),
    "timestamp with time zone": _Fixed(pa.types.is_timestamp, _since_2000(">i8", _MICROSECONDS)),
    "time without time zone": _Fixed(pa.types.is_time64, _numbers(">i8", pa.int64())),
    "uuid": _Fixed(pa.types.is_string, _uuids),
    "numeric": _Fixed(pa.types.is_decimal, _numerics),
}
_FIXED |= {kind: _FIXED[f"{kind} without time zone"] for kind in ("time", "timestamp")}
_TEXTS = {
    "text": _Text(),
    "character varying": _Text(),
    "character": _Text(),
    "json": _Text(),
    "jsonb": _Text(b"\x01"),  # the version of its format
}
Encoding = _Fixed | _Text | None
"""None: bytes, as they are."""


def encodings(columns: Definitions, schema: pa.Schema) -> list[Encoding] | None:
    """How each column is written; None: some column has a type that is only written as text."""
    found: list[Encoding] = []
    for (_, declared), field in zip(columns, schema, strict=True):
        kind = _MODIFIER.sub("", declared)
        if kind in _FIXED and _FIXED[kind].arrow(field.type) and _of_microseconds(field.type):
            found.append(_FIXED[kind])
        elif kind in _TEXTS and pa.types.is_string(field.type):
            found.append(_TEXTS[kind])
        elif kind == "bytea" and pa.types.is_binary(field.type):
            found.append(None)
        else:
            return None
    return found


def _of_microseconds(kind: pa.DataType) -> bool:
    return not pa.types.is_timestamp(kind) or bool(kind.unit == "us")


class UnfitBinary(Exception):
    """A value that a column's type in the target does not have."""

    def __init__(self, place: int, column: str, value: object) -> None:
        super().__init__(column)
        self.place, self.column, self.value = place, column, value


def tuples(rows: pa.Table, written: Sequence[Encoding]) -> bytes:
    """The rows between `BEGIN` and `END`. Raises `UnfitValue`, `UnfitBinary`."""
    if not rows.num_rows:
        return b""
    pieces = Pieces(rows.num_rows)
    pieces.side_by_side(np.array([len(written)], ">i2"))
    for place, (name, encoding) in enumerate(zip(rows.column_names, written, strict=True)):
        column = rows.column(name).combine_chunks()
        if isinstance(encoding, _Fixed):
            values = _values(place, name, encoding, column)
            sized = [np.array([values.dtype.itemsize], ">i4"), values]
            if column.null_count:
                pieces.joined(pc.if_else(column.is_valid(), _strings(sized, rows.num_rows), _ABSENT))
            else:
                pieces.side_by_side(*sized)
            continue
        prefix = encoding.prefix if encoding is not None else b""
        bytes_of = (of_text(name, column) if encoding is not None else column).cast(pa.large_binary())
        sizes = pc.binary_length(bytes_of)
        lengths = pc.fill_null(pc.add(sizes, len(prefix)), -1).to_numpy().astype(">i4")
        pieces.side_by_side(lengths)
        if prefix:
            bytes_of = pc.binary_join_element_wise(pa.scalar(prefix, pa.large_binary()), bytes_of, _NOTHING)
        pieces.joined(bytes_of.fill_null(b""))
    return pieces.together()


def _values(place: int, name: str, encoding: _Fixed, column: pa.Array) -> Values:
    try:
        return encoding.values(column)
    except ValueError:  # Arrow's own is one
        for value in column.unique().drop_null():
            try:
                encoding.values(pa.array([value.as_py()], column.type))
            except ValueError:
                raise UnfitBinary(place, name, value.as_py()) from None
        raise


class Pieces:
    """The parts of all rows, in their order."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._open: list[Values] = []
        self._joined: list[pa.LargeBinaryArray] = []

    def side_by_side(self, *values: Values) -> None:
        """Parts that have one size in all rows; one value is that of all of them."""
        self._open.extend(values)

    def joined(self, values: pa.LargeBinaryArray) -> None:
        self._close()
        self._joined.append(values)

    def _close(self) -> None:
        if self._open:
            self._joined.append(_strings(self._open, self._rows))
            self._open = []

    def together(self) -> bytes:
        self._close()
        whole = pc.binary_join_element_wise(*self._joined, _NOTHING)
        return content(whole)


def _strings(parts: Sequence[Values], rows: int) -> pa.LargeBinaryArray:
    """The bytes of each row's parts, without gaps."""
    made = np.empty(rows, [(f"f{at}", part.dtype) for at, part in enumerate(parts)])
    for at, part in enumerate(parts):
        made[f"f{at}"] = part
    offsets = np.arange(rows + 1, dtype=np.int64) * made.dtype.itemsize
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(made)])
