"""Hashes of keys, a column at a time: for the few keys of a small batch as for those of a whole file.

`key_words` asks for one 64-bit hash per row. Equal keys have equal hashes, in every process of one release; none is
stored. A query for them costs more than a millisecond however few keys there are, so numpy hashes what most keys are
made of: numbers, times, and texts and bytes of usual length. DuckDB hashes the rest.
"""

import threading
from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

_local = threading.local()

Hashes = npt.NDArray[np.uint64]

LONGEST = 128
"""Bytes of a text that is hashed word by word: each word is a few calls, so a longer one is left to DuckDB."""
AT_ONCE = 8 * 1024
"""Rows that are hashed in one step: their arrays fit into the processor's cache."""
_FACTOR, _LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SHIFT, _NULL = np.uint64(29), np.uint64(0xD6E8FEB86659FD93)
_TAILS = np.array([(1 << 8 * size) - 1 for size in range(8)], np.uint64)
"""Masks of a text's last word, by the number of its bytes."""


def hashing_connection() -> duckdb.DuckDBPyConnection:
    """One per thread: opening costs milliseconds, sharing would serialise the tables' threads."""
    if not hasattr(_local, "connection"):
        _local.connection = duckdb.connect(config={"threads": "1"})
    connection: duckdb.DuckDBPyConnection = _local.connection
    return connection


def hashes(columns: Sequence[pa.Array], numbers: Sequence[npt.NDArray[np.int64] | None]) -> Hashes:
    """A hash per row of equally long columns. `numbers`: the one word of each value of a column, if it has one."""
    found = [_of_column(column, number) for column, number in zip(columns, numbers, strict=True)]
    known = [hashed for hashed in found if hashed is not None]
    if len(known) < len(columns):
        return _asked(columns)
    if len(known) == 1:
        return known[0]
    out = np.zeros(len(columns[0]), np.uint64)
    for hashed in known:  # its order counts: each step is another function of the columns before it
        out = _mixed(out, hashed)
    return out


def _of_column(column: pa.Array, number: npt.NDArray[np.int64] | None) -> Hashes | None:
    """Returns None if only DuckDB hashes values of this type."""
    kind = column.type
    if number is not None:
        hashed = _mixed(np.zeros(len(column), np.uint64), number.view(np.uint64))
    elif pa.types.is_decimal128(kind):
        halves = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset)
        hashed = _mixed(_mixed(np.zeros(len(column), np.uint64), halves[::2]), halves[1::2])
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashed = _of_texts(column, np.int32)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        hashed = _of_texts(column, np.int64)
    else:
        return None
    if column.null_count:
        hashed[~np.asarray(column.is_valid())] = _NULL
    return hashed


def _mixed(hashed: Hashes, words: Hashes) -> Hashes:
    """Each hash with one further word. Of one word, different ones stay different."""
    out = hashed ^ words
    out *= _FACTOR
    shifted = out >> _SHIFT
    out ^= shifted
    out *= _LAST
    np.right_shift(out, _SHIFT, out=shifted)
    out ^= shifted
    return out


def _of_texts(column: pa.Array, offset: type[np.int32] | type[np.int64]) -> Hashes:
    _, starts, data = column.buffers()
    at = np.frombuffer(starts, offset, len(column) + 1, column.offset * np.dtype(offset).itemsize).astype(np.int64)
    first, size = int(at[0]), int(at[-1] - at[0])
    at -= first
    padded = np.zeros(size + 8, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8, size, first)
    # The eight bytes from every byte on.
    words = np.ndarray((size + 1,), "<u8", padded, strides=(1,))
    out = np.empty(len(column), np.uint64)
    for begin in range(0, len(column), AT_ONCE):
        part = at[begin : begin + AT_ONCE + 1]
        out[begin : begin + AT_ONCE] = _of_words(words, part[:-1], np.diff(part))
    long = np.flatnonzero(np.diff(at) > LONGEST)
    if len(long):
        out[long] = _asked([column.take(pa.array(long))])
    return out


def _of_words(words: Hashes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Hashes:
    """Hashes texts by up to `LONGEST` of their bytes."""
    sizes = np.minimum(sizes, LONGEST)
    out, whole = sizes.view(np.uint64) * _LAST, sizes >> 3
    least = int(whole.min())
    for number in range(int(whole.max())):
        if number < least:
            out = _mixed(out, words[starts + 8 * number])
        else:
            some = np.flatnonzero(whole > number)
            out[some] = _mixed(out[some], words[starts[some] + 8 * number])
    return _mixed(out, words[starts + 8 * whole] & _TAILS[sizes & 7])


def _asked(columns: Sequence[pa.Array]) -> Hashes:
    """Hashes by a query."""
    names = [f"k{number}" for number in range(len(columns))]
    connection = hashing_connection()
    connection.register("key_rows", pa.table(list(columns), names=names))
    try:
        hashed = connection.execute(f"SELECT hash({', '.join(names)}) AS h FROM key_rows").fetchnumpy()["h"]
    finally:
        connection.unregister("key_rows")
    return np.asarray(hashed, np.uint64)
