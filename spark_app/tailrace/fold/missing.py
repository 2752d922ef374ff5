"""Keys that a chunk looked for and did not find, and that have not changed since: the source has no row of them.

For targets whose deleted rows stay, marked (`batch.soft_delete`).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tailrace.changelog import keys
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key
from tailrace.fold.chunk_keys import ChunkRows, requested
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, joined, taken, words
from tailrace.fold.log_rows import segment_rows


def missing_keys(work: FoldInput, asked: Sequence[ChunkRegistered], chunks: ChunkRows) -> frozenset[Key]:
    """`work`: of a slice whose chunks are those that count, `asked` among them. Of several that say something of a key
    the one with the greatest replay point decides; of equal ones the one that was registered last."""
    if not asked:
        return frozenset()
    wanted = words(joined([requested(work, chunk) for chunk in asked], work.key_types))
    lists = {(chunk.snapshot_id, chunk.chunk): keys.keys(requested(work, chunk)) for chunk in asked}
    said: dict[Key, tuple[int, int, bool]] = {}
    for number, chunk in enumerate(work.slice.chunks):
        found = {key for _, some in chunks.keys(chunk) for key in _among(some, wanted)}
        for key in found.union(lists.get((chunk.snapshot_id, chunk.chunk), ())):
            said[key] = max(said.get(key, (0, 0, False)), (chunk.replay_point, number, key in found))
    points = {key: point for key, (point, _, there) in said.items() if not there}
    for key, seq in _changes(work, wanted, min(points.values())) if points else ():
        if points.get(key, seq + 1) <= seq:
            del points[key]
    return frozenset(points)


def _among(columns: Columns, wanted: Ints) -> list[Key]:
    """Keys with one of these words."""
    return keys.keys(taken(columns, np.flatnonzero(np.isin(words(columns), wanted)).astype(np.int64)))


def _changes(work: FoldInput, wanted: Ints, first: int) -> Iterator[tuple[Key, int]]:
    later = [segment for segment in work.slice.segments if segment.last_seq >= first]
    for block in segment_rows(work, later, columns=False, unchanged=False):
        mine = block.filter(np.isin(words(block.keys), wanted))
        yield from zip(keys.keys(mine.keys), mine.seq.tolist(), strict=True)
