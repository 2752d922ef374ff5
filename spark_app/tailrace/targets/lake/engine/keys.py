"""Keys of rows: as text (holes, lists of keys), as group numbers, and their division among parts. Pure.

A key is a list of Arrow columns in key order, canonical (`lake.files.keys.canonical`) and of the target's types.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import privacy
from tailrace.changelog.keys import Key
from tailrace.errors import CorruptLog
from tailrace.targets.lake.files.keys import canonical, key_words

Columns = list[pa.Array]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array without chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def typed(columns: Iterable[pa.ChunkedArray | pa.Array], types: Sequence[pa.DataType]) -> Columns:
    """Key columns in the target's types, canonical."""
    return [canonical(flat(column).cast(kind)) for column, kind in zip(columns, types, strict=True)]


def joined(parts: Sequence[Columns], types: Sequence[pa.DataType]) -> Columns:
    """The keys of several lists, one after the other."""
    return [
        pa.concat_arrays([part[at] for part in parts]) if parts else pa.array([], kind) for at, kind in enumerate(types)
    ]


def taken(columns: Columns, rows: Ints) -> Columns:
    return [column.take(pa.array(rows)) for column in columns]


def to_text(columns: Columns) -> list[Key]:
    """The text that the source reads back as the same value."""
    return list(zip(*(_text(column).to_pylist() for column in columns), strict=True))


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def from_text(keys: Sequence[Key], types: Sequence[pa.DataType]) -> Columns:
    """Keys from the source's text, or from `to_text`."""
    columns = zip(*keys, strict=True) if keys else ([] for _ in types)
    return [canonical(_value(list(texts), kind)) for texts, kind in zip(columns, types, strict=True)]


def readable(keys: Sequence[Key], types: Sequence[pa.DataType]) -> tuple[Key, ...]:
    """Those that have a value in the target's types: no row of a target can have another (`infinity`)."""

    def fits(some: Sequence[Key]) -> bool:
        try:
            from_text(some, types)
        except CorruptLog:
            return False
        return True

    return tuple(keys) if fits(keys) else tuple(key for key in keys if fits([key]))


def _value(texts: list[str], kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_binary(kind):
            return pa.array([bytes.fromhex(text.removeprefix("\\x")) for text in texts], kind)
        if pa.types.is_boolean(kind):
            texts = [{"t": "true", "f": "false"}.get(text, text) for text in texts]
        return pa.array(texts, pa.string()).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CorruptLog(f"a key of the change log is no {kind}: {privacy.error_text(error)}") from error


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


def contained(candidates: Columns, others: Columns) -> Mask:
    """Which candidates are among the others."""
    near = np.isin(words(others), words(candidates))
    if not near.any():
        return np.zeros(len(candidates[0]), np.bool_)
    found = taken(others, np.flatnonzero(near).astype(np.int64))
    codes, count = group([pa.concat_arrays([a, b]) for a, b in zip(candidates, found, strict=True)])
    present = np.zeros(count, np.bool_)
    present[codes[len(candidates[0]) :]] = True
    return present[codes[: len(candidates[0])]]
