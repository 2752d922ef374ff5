"""The keys of one part of a batch, numbered: what the log, the chunks and the holes say of each.

The first step of the fold; the second decides what becomes of each key (`fold.decide`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tailrace.fold.chunk_keys import ChunkChoice, ChunkKeys, choose
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask, group, joined, of_texts, taken, words
from tailrace.fold.log_rows import RowChanges, SegmentRows, read_changes


@dataclass(frozen=True)
class NumberedKeys:
    """Each distinct key of the part has a number, from 0. Arrays go by log row, by chunk row or by number."""

    changes: RowChanges
    """The log rows, in order of sequence."""
    chunk_keys: ChunkKeys
    """The chunk rows, chunk by chunk."""
    key: Ints
    """The number of each log row's key."""
    chunk_key: Ints
    """The number of each chunk row's key."""
    hole: Mask
    """True, by key number, if the key was a hole before the batch."""
    choice: ChunkChoice
    """The chunk row that decides the key, by key number."""
    touched: Mask
    """True, by key number, if a new change or a chunk concerns the key. Others are here because a chunk might have."""
    values: Columns
    """The keys by their numbers."""

    @property
    def count(self) -> int:
        return len(self.hole)

    def keys(self, numbers: Ints) -> Columns:
        return taken(self.values, numbers)


def number_keys(
    work: FoldInput, part: int, chunk_keys: ChunkKeys, rows: Iterable[SegmentRows] | None = None
) -> NumberedKeys:
    """`chunk_keys`: the part's. `rows`: the log's, where they have been divided already (`read_changes`)."""
    changes = read_changes(work, part, words(chunk_keys.keys), rows)
    holes = _holes(work, part)
    listed = joined([changes.keys, chunk_keys.keys, holes], work.key_types)
    numbers, count = group(listed)
    key, chunk_key, hole_key = np.split(numbers, [changes.count, changes.count + chunk_keys.count])
    choice = choose(work, chunk_keys, chunk_key, count)
    touched = choice.in_chunk
    touched[key[changes.seq > work.slice.start_seq]] = True
    hole = np.zeros(count, np.bool_)
    hole[hole_key] = True
    first = np.zeros(count, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return NumberedKeys(changes, chunk_keys, key, chunk_key, hole, choice, touched, taken(listed, first))


def _holes(work: FoldInput, part: int) -> Columns:
    """The part's."""
    if work.slice.clear or not work.slice.applied.holes:
        return joined([], work.key_types)
    holes = sorted(work.slice.applied.holes)
    keys = of_texts(holes, work.key_types)
    return taken(keys, np.flatnonzero(work.owner(keys) == part).astype(np.int64))
