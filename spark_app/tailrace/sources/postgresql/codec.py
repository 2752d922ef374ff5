"""Text of PostgreSQL's output functions -> typed Arrow, exactly.

Called after `columnar.split` by capture and by the chunk reader: one codec for both, so a value comes out equal either
way. What the Arrow type and the lake formats cannot hold exactly raises `ValueUnsupported` and names the way out, or
becomes NULL.
The text must have been made under the session settings of `connect.SETTINGS`.
"""

import binascii
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.types import arrow_type, element_of, fields_of
from tailrace.errors import RESYNC, STOP_FIX, SchemaChangeUnsupported, TableStop, ValueUnsupported, privacy
from tailrace.sources import numerals
from tailrace.sources.numerals import NoSuchNumber, all_true
from tailrace.sources.postgresql import arrays, composites
from tailrace.sources.unrepresentable import or_null, way_out, without_unrepresentable

_UUID = "^{}$".format("-".join(f"([0-9a-f]{{{digits}}})" for digits in (8, 4, 4, 4, 12)))
Reader = Callable[[pa.LargeBinaryArray, str], pa.Array]
_YEARS = "its years are 0001 to 9999, without infinity"


def decode(
    values: pa.LargeBinaryArray,
    type: str,
    table: str,
    column: str,
    *,
    key: bool = False,
    sets_null: bool = False,
    read: Reader | None = None,
) -> pa.Array:
    """The values in the logical `type`'s Arrow type; nulls stay null. `sets_null`: what the type cannot hold becomes
    null, unless it is of a `key`. `read` makes the values from another form than their text (`binary`).

    `table`, `column` and `key` are for the message of `ValueUnsupported`; `SchemaChangeUnsupported`: a struct's value
    has other fields.
    """
    read = read or _decode
    try:
        return read(values, type)
    except (pa.ArrowInvalid, NoSuchNumber):
        if sets_null and not key:
            return read(without_unrepresentable(values, lambda some: _fits(some, type, read)), type)
        bad = _first_bad(values, type, read)
    raise _unsupported(bad, type, table, column, key)


def _fits(values: pa.LargeBinaryArray, type: str, read: Reader) -> bool:
    try:
        read(values, type)
    except (pa.ArrowInvalid, NoSuchNumber):
        return False
    return True


class _Unfit(NoSuchNumber):
    """Some value does not fit; which one is found afterwards."""


def _decode(values: pa.LargeBinaryArray, type: str) -> pa.Array:
    element = element_of(type)
    if element is not None:
        parts = arrays.split(values)
        return arrays.lists(parts, _decode(parts.elements, element), values)
    fields = fields_of(type)
    if fields is not None:
        found = composites.split(values, len(fields))
        decoded = [_decode(texts, kind) for texts, (_, kind) in zip(found, fields, strict=True)]
        return composites.structs(decoded, [name for name, _ in fields], values)
    if type == "binary":
        return _binary(values)
    if type == "bool":
        return _bool(values)
    text = values.cast(pa.large_string())  # checks that it is UTF-8
    if type.startswith("float"):
        return numerals.double(text, type)
    if type in ("date", "timestamp", "timestamptz"):
        return _moment(text, type)
    if type == "time":
        return _time(text)
    return numerals.decimal(text, type) if type.startswith("decimal") else text.cast(arrow_type(type))


def _bool(values: pa.LargeBinaryArray) -> pa.Array:
    true = pc.equal(values, pa.scalar(b"t", pa.large_binary()))
    if not all_true(pc.or_(true, pc.equal(values, pa.scalar(b"f", pa.large_binary())))):
        raise _Unfit
    return true


def _time(text: pa.LargeStringArray) -> pa.Array:
    """`24:00:00` is no time of a day."""
    if not all_true(pc.match_substring_regex(text, r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$")):
        raise _Unfit
    moment = pc.binary_join_element_wise(pa.scalar("1970-01-01", text.type), text, pa.scalar(" ", text.type))
    return moment.cast(pa.timestamp("us")).cast(arrow_type("time"))


def _moment(text: pa.LargeStringArray, type: str) -> pa.Array:
    # Four-digit years only: Arrow reads no others, but it would read a year 0000, which PostgreSQL never writes.
    if pc.any(pc.starts_with(text, "0000")).as_py():
        raise _Unfit
    return text.cast(arrow_type(type))


def _binary(values: pa.LargeBinaryArray) -> pa.Array:
    """`\\x` and hexadecimal digits, or a uuid; all rows are converted in one call."""
    present = values.drop_null()
    if not all_true(pc.starts_with(present, pattern=b"\\x")):
        present = pc.replace_substring_regex(present, _UUID, r"\\x\1\2\3\4\5")
        if not all_true(pc.starts_with(present, pattern=b"\\x")):
            raise _Unfit
    # Not pc.binary_slice: it fails on short arrays with nulls (pyarrow 26, "Negative buffer resize").
    offsets, data = content(present)
    digits = np.ones(len(data), dtype=np.bool_)
    digits[offsets[:-1]] = False
    digits[offsets[:-1] + 1] = False
    sizes, odd = np.divmod(np.diff(offsets) - 2, 2)
    try:
        raw = binascii.unhexlify(data[digits].tobytes())
    except binascii.Error:
        raise _Unfit from None
    if odd.any():
        raise _Unfit
    return _assembled(values, sizes, raw)


def content(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets from 0 and the bytes of an array without nulls."""
    if not len(values):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    every = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return offsets - offsets[0], every[offsets[0] : offsets[-1]]


def _assembled(like: pa.LargeBinaryArray, sizes: npt.NDArray[np.int64], raw: bytes) -> pa.Array:
    """`raw` cut into values of `sizes`, null where `like` is."""
    lengths = np.zeros(len(like), dtype=np.int64)
    valid = like.is_valid().to_numpy(zero_copy_only=False)
    lengths[valid] = sizes
    offsets = np.zeros(len(like) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [pa.array(valid).buffers()[1] if like.null_count else None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(like), buffers).cast(pa.binary())


def _first_bad(values: pa.LargeBinaryArray, type: str, read: Reader) -> bytes | None:
    """Find one value that does not decode, by halves."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(values.slice(low, middle - low), type, read):
            low = middle
        else:
            high = middle
    found: bytes | None = values[low].as_py() if low < len(values) else None
    return found


def _altered(bad: bytes | None, type: str) -> bool:
    """True for a value of a composite type with another number of attributes."""
    fields = fields_of(type)
    if fields is None:
        return False
    try:
        composites.split(pa.array([bad], pa.large_binary()), len(fields))
    except composites.NoStruct:
        return True
    return False


def _unsupported(bad: bytes | None, type: str, table: str, column: str, key: bool) -> TableStop:
    if _altered(bad, type):
        what = f"column {column!r} of {table} has a value with other fields than {type}: its type was altered"
        return SchemaChangeUnsupported(table, what, STOP_FIX)
    shown = privacy.shown(bad or b"", type)
    if type == "string":
        return ValueUnsupported(
            table,
            f"column {column!r} of {table} has text that is not UTF-8 ({shown})",
            f"Correct the row; a SQL_ASCII database does not check its text.{or_null(table, key)}",
        )
    why = f"; {_YEARS}" if type in ("date", "timestamp", "timestamptz") else ""
    if fields_of(type) is not None:  # as many fields as it should have: nothing proves that they are others
        why = f"; if an attribute of its type was replaced by another since, it is enough to {RESYNC}"
    return ValueUnsupported(
        table,
        f"column {column!r} of {table} has the value {shown}, which {type} cannot hold exactly{why}",
        way_out(table, column, key),
    )
