"""Which chunk row decides each key of a batch's chunks: of several the one with the greatest replay point.

The rule is in docs/dev/design.md#the-apply-rule.

What a chunk holds is asked of the target (`ChunkRows`): a lake has it in files, a database in a staging table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask, joined, of_texts, taken

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


class ChunkRows(Protocol):
    """The rows of a batch's chunks, where the target has put them. A row has a position in its chunk, from 0."""

    def keys(self, chunk: ChunkRegistered) -> Iterator[tuple[Ints, Columns]]:
        """Yields positions, rising, and the keys of the rows there: all of them, or those that may decide anything."""

    def rows(self, chunk: ChunkRegistered, positions: Ints) -> Iterator[pa.Table]:
        """Yields whole rows, under source names, at rising positions."""


def requested(work: FoldInput, chunk: ChunkRegistered) -> Columns:
    """The keys that a chunk was to look for."""
    return of_texts(chunk.keys or (), work.key_types)


def read_chunk_keys(work: FoldInput, part: int, chunks: ChunkRows) -> ChunkKeys:
    """The part's, out of all: where they have not been divided."""
    return gathered(work, list(_own(work, part, chunks)))


def _own(work: FoldInput, part: int, chunks: ChunkRows) -> Iterator[tuple[int, Ints, Columns]]:
    def mine(number: int, position: Ints, keys: Columns) -> tuple[int, Ints, Columns]:
        rows = np.flatnonzero(work.owner(keys) == part).astype(np.int64)
        return number, position[rows], taken(keys, rows)

    for number, chunk in enumerate(work.slice.chunks):
        for positions, found in chunks.keys(chunk):
            yield mine(number, positions, found)
        if chunk.keys:
            yield mine(number, np.full(len(chunk.keys), KEY_ONLY, np.int64), requested(work, chunk))


def gathered(work: FoldInput, pieces: Sequence[tuple[int, Ints, Columns]]) -> ChunkKeys:
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


def choose(work: FoldInput, chunk_keys: ChunkKeys, key: Ints, count: int) -> ChunkChoice:
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
