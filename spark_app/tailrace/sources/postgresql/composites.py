"""Text of PostgreSQL's composite values -> the text of their fields, all values in one pass.

Called by the codec, which decodes the fields. The form is that of `record_out` (PostgreSQL's documentation, "Composite
Type Input and Output Syntax"): fields between commas in parentheses, nothing for NULL, in quotes where they need them,
with quotes and backslashes doubled inside.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sources.numerals import NoSuchNumber

_OPEN, _CLOSE, _COMMA, _QUOTE = b'(),"'
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class NoStruct(NoSuchNumber):
    """Some value does not have so many fields; which one is found afterwards."""


def split(values: pa.LargeBinaryArray, count: int) -> list[pa.LargeBinaryArray]:
    """Returns for each of `count` fields the texts of all values that are not null. Raises `NoStruct`."""
    present = values.drop_null()
    if not len(present):
        return [pa.array([], pa.large_binary())] * count
    offsets = np.frombuffer(present.buffers()[1], np.int64)[present.offset : present.offset + len(present) + 1]
    text = np.frombuffer(present.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    outside = ~np.logical_xor.accumulate(text == _QUOTE)
    marks = np.flatnonzero(outside & ((text == _OPEN) | (text == _CLOSE) | (text == _COMMA)))
    if len(marks) != len(present) * (count + 1):
        raise NoStruct
    places = marks.reshape(len(present), count + 1)
    whole = np.array_equal(places[:, 0], starts) and np.array_equal(places[:, -1], ends - 1)
    if not (whole and (text[starts] == _OPEN).all() and (text[ends - 1] == _CLOSE).all()):
        raise NoStruct
    if not (text[places[:, 1:-1]] == _COMMA).all():
        raise NoStruct
    return [_field(text, places[:, at] + 1, places[:, at + 1]) for at in range(count)]


def structs(fields: Sequence[pa.Array], names: Sequence[str], like: pa.LargeBinaryArray) -> pa.StructArray:
    """The decoded `fields` as one struct for each value; null where `like` is."""
    kinds = [pa.field(name, field.type) for name, field in zip(names, fields, strict=True)]
    found = pa.StructArray.from_arrays(fields, fields=kinds)
    if not like.null_count:
        return found
    valid = like.is_valid().to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _field(text: Bytes, starts: Numbers, ends: Numbers) -> pa.LargeBinaryArray:
    """The texts of one field in each value; null where a value has none."""
    null = starts == ends
    quoted = ~null & (text[starts] == _QUOTE)
    if (quoted & ((ends - starts < 2) | (text[ends - 1] != _QUOTE))).any():
        raise NoStruct
    raw = _cut(text, starts + quoted, ends - quoted, null)
    if not quoted.any():
        return raw
    return pc.replace_substring(pc.replace_substring(raw, b'""', b'"'), rb"\\", b"\\")


def _cut(text: Bytes, starts: Numbers, ends: Numbers, null: npt.NDArray[np.bool_]) -> pa.LargeBinaryArray:
    change = np.bincount(starts, minlength=len(text) + 1) - np.bincount(ends, minlength=len(text) + 1)
    raw = text[np.cumsum(change)[: len(text)] > 0]
    offsets = np.append(0, np.cumsum(ends - starts)).astype(np.int64)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(raw)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts), buffers)
