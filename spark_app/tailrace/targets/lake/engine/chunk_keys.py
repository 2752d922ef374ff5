"""Which chunk row decides each key of a batch's chunks: of several the one with the greatest replay point.

The rule is in docs/dev/design.md#the-apply-rule.

Reads the key columns of the part's share of the chunk files; called by `engine.build`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.changelog.records import ChunkRegistered
from tailrace.targets.lake.engine.key_columns import Columns, Ints, Mask, joined, of_texts, taken, typed
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.access import BATCH_ROWS, parquet

KEY_ONLY = -1
"""Instead of a position: the key was looked for; the chunk may hold no row of it."""


@dataclass(frozen=True)
class ChunkKeys:
    """All keys that the part's chunks decide, chunk by chunk, a chunk's rows before the keys it was asked for."""

    chunk: Ints
    position: Ints
    keys: Columns

    @property
    def count(self) -> int:
        return len(self.chunk)


def key_batches(work: PartInput, path: str, size: int = BATCH_ROWS) -> Iterator[tuple[int, Columns]]:
    """The keys of a data or chunk file, with the position of each batch's first row."""
    with parquet(work.lake, path) as file:
        names, at = work.layout.physical(work.layout.key), 0
        for batch in file.iter_batches(size, columns=names):
            yield at, typed((batch.column(name) for name in names), work.key_types)
            at += batch.num_rows


def requested(work: PartInput, chunk: ChunkRegistered) -> Columns:
    """The keys that a chunk was to look for."""
    return of_texts(chunk.keys or (), work.key_types)


def read_chunk_keys(work: PartInput, part: int) -> ChunkKeys:
    """The part's, out of all: where they have not been divided."""
    return gathered(work, list(_own(work, part)))


def _own(work: PartInput, part: int) -> Iterator[tuple[int, Ints, Columns]]:
    def mine(number: int, position: Ints, keys: Columns) -> tuple[int, Ints, Columns]:
        rows = np.flatnonzero(work.owner(keys) == part).astype(np.int64)
        return number, position[rows], taken(keys, rows)

    for number, chunk in enumerate(work.slice.chunks):
        for at, found in key_batches(work, chunk.path) if chunk.path is not None else ():
            yield mine(number, np.arange(at, at + len(found[0]), dtype=np.int64), found)
        if chunk.keys:
            yield mine(number, np.full(len(chunk.keys), KEY_ONLY, np.int64), requested(work, chunk))


def gathered(work: PartInput, pieces: Sequence[tuple[int, Ints, Columns]]) -> ChunkKeys:
    """`pieces`: a chunk's number, positions and keys, in order."""
    empty = np.empty(0, np.int64)
    return ChunkKeys(
        np.concatenate([empty, *(np.full(len(at), number, np.int64) for number, at, _ in pieces)]),
        np.concatenate([empty, *(at for _, at, _ in pieces)]),
        joined([keys for _, _, keys in pieces], work.key_types),
    )


@dataclass(frozen=True)
class ChunkChoice:
    """The choice by key number: the deciding row among the `ChunkKeys` (-1: no chunk has the key), and the start of its
    replay."""

    row: Ints
    low: Ints
    emptied: Mask
    """A TRUNCATE that the chunk did not see removed its rows."""

    @property
    def in_chunk(self) -> Mask:
        return self.row >= 0


def choose(work: PartInput, chunk_keys: ChunkKeys, key: Ints, count: int) -> ChunkChoice:
    """`key` numbers the keys of `chunk_keys`."""
    points = np.array([chunk.replay_point for chunk in work.slice.chunks], np.int64)
    lows = np.array([work.slice.replayed_from(chunk) for chunk in work.slice.chunks], np.int64)
    gone = np.array([work.slice.emptied_at(chunk) is not None for chunk in work.slice.chunks], np.bool_)
    row = np.full(count, -1, np.int64)
    low = np.full(count, work.slice.start_seq + 1, np.int64)
    emptied = np.zeros(count, np.bool_)
    if chunk_keys.count:
        # Ascending, as the last assignment wins: the greatest replay point; of equal ones the later chunk; in a
        # chunk a row, not a question.
        order = np.lexsort((chunk_keys.position >= 0, chunk_keys.chunk, points[chunk_keys.chunk]))
        row[key[order]] = order
        decided = row >= 0
        chosen = chunk_keys.chunk[row[decided]]
        low[decided], emptied[decided] = lows[chosen], gone[chosen]
    return ChunkChoice(row, low, emptied)


def as_table(work: PartInput, keys: Columns) -> pa.Table:
    """Keys by source column name, as `locate` wants them."""
    return pa.table(keys, names=list(work.layout.key))
