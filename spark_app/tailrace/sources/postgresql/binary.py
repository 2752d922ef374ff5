"""Values in PostgreSQL's binary form -> typed Arrow, equal to what `codec` makes of their text.

Called by the chunk reader for the types below; all others are read as text. The server spends a third of the time on a
row of numbers, and so does the reader: https://www.postgresql.org/docs/current/sql-copy.html (binary format), and the
types' own send functions. What a type cannot hold raises as in `codec`.
"""

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.changelog.types import arrow_type, decimal_parts
from tailrace.sources.numerals import NoSuchNumber
from tailrace.sources.postgresql.codec import Reader, content
from tailrace.sources.postgresql.model import CatalogColumn

EPOCH_DAYS = 10_957
"""Days from 1970 to 2000, where PostgreSQL counts from."""
EPOCH = EPOCH_DAYS * 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The years 0001 to 9999, in days from 1970. Infinity is outside of them."""
DAY = 86_400_000_000
MOST_DIGITS = 18
"""Digits of a decimal whose value fits into 64 bits, as all values on the way to it do."""
TENS = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
NEGATIVE = 0x4000
"""The sign of a number below zero; 0 stands for others, and what is neither is NaN or infinite."""


def reader(column: CatalogColumn) -> Reader | None:
    """A function from values in binary form to Arrow, given the logical type; None: the column is read as text."""
    schema, name = column.base_type
    if schema != "pg_catalog":
        return None
    if name == "numeric":
        precision, _ = decimal_parts(column.logical) or (MOST_DIGITS + 1, 0)
        return _decimal if precision <= MOST_DIGITS else None
    return READERS.get((name, column.logical))


def _fixed(values: pa.LargeBinaryArray, kind: str) -> npt.NDArray[np.generic]:
    """Values of one width, big-endian, in the machine's order of bytes; zero where the value is null."""
    offsets, data = content(values.drop_null())
    dtype = np.dtype(kind)
    if not (np.diff(offsets) == dtype.itemsize).all():
        raise NoSuchNumber
    read = data.view(dtype.newbyteorder(">")).astype(dtype)
    if not values.null_count:
        return read
    every = np.zeros(len(values), dtype)
    every[_valid(values)] = read
    return every


def _valid(values: pa.LargeBinaryArray) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _masked(read: npt.NDArray[np.generic], values: pa.LargeBinaryArray) -> pa.Array:
    return pa.array(read, mask=~_valid(values) if values.null_count else None)


def _number(kind: str) -> Reader:
    return lambda values, type: _masked(_fixed(values, kind), values).cast(arrow_type(type))


def _float(kind: str) -> Reader:
    def read(values: pa.LargeBinaryArray, type: str) -> pa.Array:
        numbers = _fixed(values, kind)
        numbers[np.isnan(numbers.astype(np.float64))] = np.nan  # of its many forms the one that its text has
        return _masked(numbers, values)

    return read


def _bool(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    return _masked(_fixed(values, "u1").astype(np.bool_), values)


def _date(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    days = _fixed(values, "i4").astype(np.int64) + EPOCH_DAYS
    if ((days < FIRST_DAY) | (days > LAST_DAY)).any():
        raise NoSuchNumber
    return _masked(days.astype(np.int32), values).cast(pa.date32())


def _moment(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    since = _fixed(values, "i8").astype(np.int64)
    if ((since < FIRST_DAY * DAY - EPOCH) | (since >= (LAST_DAY + 1) * DAY - EPOCH)).any():
        raise NoSuchNumber
    return _masked(since + EPOCH, values).cast(arrow_type(type))


def _time(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    since = _fixed(values, "i8").astype(np.int64)
    if (since >= DAY).any():
        raise NoSuchNumber
    return _masked(since, values).cast(arrow_type(type))


def _text(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    return values.cast(pa.large_string()).cast(pa.string())


def _bytes(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    return values.cast(pa.binary())


def _uuid(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    """Text of 36 characters."""
    present = values.drop_null()
    offsets, data = content(present)
    if not (np.diff(offsets) == 16).all():
        raise NoSuchNumber
    digits = np.frombuffer(binascii.hexlify(data.tobytes()), np.uint8).reshape(-1, 32)
    text = np.full((len(present), 36), ord("-"), np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, at : at + end - begin] = digits[:, begin:end]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(_valid(values) * 36, out=ends[1:])
    validity = pa.array(_valid(values)).buffers()[1] if values.null_count else None
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(text.tobytes()), validity)


def _decimal(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    """Decimals from groups of four digits: their number, the first one's power of 10,000, the sign, a display scale."""
    precision, scale = decimal_parts(type) or (0, 0)
    offsets, data = content(values.drop_null())
    words, at = data.view(">i2").astype(np.int64), offsets[:-1] // 2
    groups, weight, sign = words[at] & 0xFFFF, words[at + 1], words[at + 2]  # more than 32,767 groups are too many
    if ((sign != 0) & (sign != NEGATIVE)).any():
        raise NoSuchNumber
    total = np.zeros(len(at), np.int64)
    for number in range(int(groups.max(initial=0))):
        rows = np.flatnonzero(groups > number)
        power = 4 * (weight[rows] - number) + scale
        digits, below = np.divmod(words[at[rows] + 4 + number], TENS[np.clip(-power, 0, 4)])
        wide = (power > MOST_DIGITS) | (digits * 10.0 ** np.clip(power, 0, MOST_DIGITS) >= 10.0**MOST_DIGITS)
        if below.any() or (wide & (digits > 0)).any():
            raise NoSuchNumber
        total[rows] += digits * TENS[np.clip(power, 0, MOST_DIGITS)]
    if (total >= TENS[precision]).any():
        raise NoSuchNumber
    pairs = np.zeros((len(values), 2), np.int64)
    signed = np.where(sign == NEGATIVE, -total, total)
    pairs[_valid(values)] = np.stack([signed, signed >> 63], axis=1)
    validity = pa.array(_valid(values)).buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(arrow_type(type), len(values), [validity, pa.py_buffer(pairs)])


READERS: dict[tuple[str, str], Reader] = {
    ("bool", "bool"): _bool,
    ("int2", "int32"): _number("i2"),
    ("int4", "int32"): _number("i4"),
    ("int8", "int64"): _number("i8"),
    ("float4", "float32"): _float("f4"),
    ("float8", "float64"): _float("f8"),
    ("date", "date"): _date,
    ("timestamp", "timestamp"): _moment,
    ("timestamptz", "timestamptz"): _moment,
    ("time", "time"): _time,
    ("bytea", "binary"): _bytes,
    ("text", "string"): _text,
    ("varchar", "string"): _text,
    ("bpchar", "string"): _text,
    ("uuid", "string"): _uuid,
    ("uuid", "binary"): _bytes,
}
"""Readers by the type's name and the logical type. (`name`, enums and all others: their text is not slower.)"""
