"""Text of PostgreSQL's arrays -> the text of their elements, all values in one pass.

Called by the codec, which decodes the elements. The form is that of `array_out` (PostgreSQL's documentation, "Array
Input and Output Syntax"): elements between commas in braces, in quotes where they need them, with backslashes before
quotes and backslashes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.changelog.types import list_type
from tailrace.sources.numerals import NoSuchNumber

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH = b'{},"\\'
_NULL = np.frombuffer(b"NULL", dtype=np.uint8)
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class NoList(NoSuchNumber):
    """Some value is no array of one dimension that begins at 1; which one is found afterwards."""


@dataclass(frozen=True)
class Elements:
    elements: pa.LargeBinaryArray
    """The elements of all values, one after the other."""
    counts: Numbers
    """How many of them each value has that is not null."""


def split(values: pa.LargeBinaryArray) -> Elements:
    """Raises `NoList`."""
    present = values.drop_null()
    if not len(present):
        return Elements(pa.array([], pa.large_binary()), np.zeros(0, np.int64))
    offsets = np.frombuffer(present.buffers()[1], np.int64)[present.offset : present.offset + len(present) + 1]
    text = np.frombuffer(present.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    dropped, outside = _quoting(text)
    marks = np.flatnonzero(outside & ((text == _OPEN) | (text == _CLOSE) | (text == _COMMA)))
    if not (
        np.array_equal(marks[text[marks] == _OPEN], starts) and np.array_equal(marks[text[marks] == _CLOSE], ends - 1)
    ):
        raise NoList
    before, after = marks[:-1], marks[1:]
    here = (text[before] != _CLOSE) & ~((text[before] == _OPEN) & (text[after] == _CLOSE) & (after - before == 1))
    before, after = before[here], after[here]
    null = _null(text, before, after)
    kept = ~dropped
    kept[marks] = False
    kept[(before[null, None] + np.arange(1, len(_NULL) + 1)).ravel()] = False
    places = np.flatnonzero(dropped)
    sizes = after - before - 1 - (np.searchsorted(places, after) - np.searchsorted(places, before))
    sizes[null] = 0
    counts = np.bincount(np.searchsorted(starts, before, side="right") - 1, minlength=len(starts))
    return Elements(_assembled(sizes, text[kept], null), counts)


def lists(parts: Elements, elements: pa.Array, like: pa.LargeBinaryArray) -> pa.ListArray:
    """`elements`, decoded, as one list for each value; null where `like` is."""
    lengths = np.zeros(len(like), np.int64)
    lengths[like.is_valid().to_numpy(zero_copy_only=False)] = parts.counts
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(offsets, elements, type=list_type(elements.type), mask=mask)


def _quoting(text: Bytes) -> tuple[Flags, Flags]:
    """Which bytes are quotes, or backslashes that take the meaning from the next byte; which stand outside of quotes.
    (Values end there, or are no arrays.)"""
    places = np.flatnonzero(text == _BACKSLASH)
    begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    in_run = np.arange(len(places)) - np.repeat(begins, np.diff(begins, append=len(places)))
    escaping, escaped = np.zeros(len(text), np.bool_), np.zeros(len(text) + 1, np.bool_)
    escaping[places[in_run % 2 == 0]] = True
    escaped[1:] = escaping
    quote = (text == _QUOTE) & ~escaped[:-1]
    outside = ~(np.logical_xor.accumulate(quote) | quote | escaped[:-1])
    return escaping | quote, outside


def _null(text: Bytes, before: Numbers, after: Numbers) -> Flags:
    """Elements that are NULL without quotes."""
    null: Flags = after - before == len(_NULL) + 1
    words = text[before[null, None] + np.arange(1, len(_NULL) + 1)]
    null[null] = np.equal(words, _NULL).all(axis=1)
    return null


def _assembled(sizes: Numbers, raw: Bytes, null: Flags) -> pa.LargeBinaryArray:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [valid, pa.py_buffer(offsets), pa.py_buffer(raw)]
    )
