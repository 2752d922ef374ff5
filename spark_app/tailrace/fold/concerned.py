"""The keys that something besides a batch's chunks concerns: most chunks bring rows that nothing else knows, and these
need neither be numbered nor decided.

Keys are named by their words; a word that two keys share names one too many, which is decided like any other. Called by
the targets before they number the keys of a batch.
"""

import numpy as np

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.fold.chunk_keys import requested
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, joined, of_texts, words
from tailrace.fold.log_rows import first_needed, segment_rows

MANY = 100_000
"""Rows of the log above which finding out would cost as much as it saves."""


def disjoint(one: ChunkRegistered, other: ChunkRegistered) -> bool:
    """True for two ranges of one reading, which share no key. One that was lost and read again has a bound of the
    former."""
    ranges = one.snapshot_id == other.snapshot_id and one.keys is None and other.keys is None
    return ranges and one.lower != other.lower and one.upper != other.upper


def named_words(work: FoldInput, most: int = MANY) -> Ints | None:
    """The words of all keys in the log, as far as it is needed, of holes and of chunks that are lists of keys; None:
    there are more than `most` changes."""
    first = first_needed(work)
    segments = [segment for segment in work.slice.segments if segment.last_seq >= first]
    if sum(segment.rows for segment in segments) > most:
        return None
    lists = [block.filter(block.seq >= first).keys for block in segment_rows(work, segments, False, False)]
    lists += [requested(work, chunk) for chunk in work.slice.chunks]
    if work.slice.applied.holes:
        lists.append(of_texts(sorted(work.slice.applied.holes), work.key_types))
    return np.unique(words(joined(lists, work.key_types)))
