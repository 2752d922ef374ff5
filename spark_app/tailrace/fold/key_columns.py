"""Keys of rows: as columns, as group numbers, and their division among parts. Pure.

A key is a list of Arrow columns in key order, canonical (`fold.key_words.canonical`) and of the target's types.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog import keys
from tailrace.changelog.records.terms import Key
from tailrace.fold.key_words import canonical, key_words

Columns = list[pa.Array]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array without chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in this type; the same one if it has it already, which takes no time."""
    return column if column.type == kind else column.cast(kind)


def typed(columns: Iterable[pa.ChunkedArray | pa.Array], types: Sequence[pa.DataType]) -> Columns:
    """Key columns in the target's types, canonical."""
    return [canonical(cast(flat(column), kind)) for column, kind in zip(columns, types, strict=True)]


def joined(parts: Sequence[Columns], types: Sequence[pa.DataType]) -> Columns:
    """The keys of several lists, one after the other."""
    filled = [part for part in parts if part and len(part[0])]
    if len(filled) == 1:
        return filled[0]
    return [
        pa.concat_arrays([part[at] for part in filled]) if filled else pa.array([], kind)
        for at, kind in enumerate(types)
    ]


def taken(columns: Columns, rows: Ints) -> Columns:
    return [column.take(pa.array(rows)) for column in columns]


def of_texts(listed: Sequence[Key], types: Sequence[pa.DataType]) -> Columns:
    """The keys of holes and of chunks that are lists of keys."""
    return [canonical(column) for column in keys.columns(listed, types)]


def group(columns: Columns) -> tuple[Ints, int]:
    """Equal keys get equal numbers, from 0; and how many there are."""
    rows = len(columns[0])
    codes: Ints = np.zeros(rows, np.int64)
    count = 1 if rows else 0
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        size = max(1, len(encoded.dictionary))
        codes = codes * size + np.asarray(encoded.indices).astype(np.int64)
        count = size
        if len(columns) > 1:
            # Keep the numbers dense, so that the next column's product cannot overflow.
            values, codes = np.unique(codes, return_inverse=True)
            count = len(values)
    return codes, count if rows else 0


def words(columns: Columns) -> Ints:
    """A number per key; different keys may share one."""
    return key_words(columns).words
