"""Keys as numbers: every key becomes an int64 word in which equal keys have equal bits.

`locate` compares words instead of values: integers, dates and timestamps are themselves, floats lose the sign of zero
and the difference between NaNs (PostgreSQL holds those equal); strings, bytes, wide decimals and composite keys give
one 64-bit hash, whose matches are then proven against the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.fold.key_hashes import hashes

Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyWords:
    """One word per row; `valid` None: no row has a null in its key. `exact`: equal words mean equal keys."""

    words: Words
    valid: npt.NDArray[np.bool_] | None
    exact: bool


def canonical(column: pa.Array) -> pa.Array:
    """The column with one representative for every class of equal floats."""
    if pa.types.is_floating(column.type):
        zero, nan = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
        column = pc.if_else(pc.equal(column, zero), zero, column)
        return pc.if_else(pc.is_nan(column), nan, column)
    return column


def key_words(columns: Sequence[pa.Array], *, hashed: bool = True) -> KeyWords:
    """Words of a key's columns (canonical, equally long, without chunks); without `hashed` none unless they are
    exact."""
    valid: npt.NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            here = np.asarray(column.is_valid())
            valid = here if valid is None else valid & here
    numbers = [_numbers(column) for column in columns]
    if len(columns) == 1 and (words := numbers[0]) is not None:
        return KeyWords(words, valid, exact=True)
    wanted = hashed and len(columns[0]) > 0
    return KeyWords(hashes(columns, numbers).view(np.int64) if wanted else np.empty(0, np.int64), valid, exact=False)


def _numbers(column: pa.Array) -> Words | None:
    """The single word of a fixed-width value, or None when a value needs more."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        # The unscaled value lies little-endian in 16 bytes; up to 18 digits its low word holds all of it.
        if kind.precision > 18:
            return None
        wide = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
        return np.ascontiguousarray(wide[::2])
    elif pa.types.is_floating(kind):
        width = np.int64 if kind.bit_width == 64 else np.int32
        return np.asarray(_filled(column, 0.0)).view(width).astype(np.int64, copy=False)
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    return np.asarray(_filled(column, 0)).astype(np.int64, copy=False)


def _filled(column: pa.Array, value: float) -> pa.Array:
    """Without nulls. (Filling none takes longer than all the rest for a few keys.)"""
    return column.fill_null(value) if column.null_count else column
