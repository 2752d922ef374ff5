"""How many rows of each kind a batch of changes leaves, where rows have no key. Arrays only.

Changes of equal rows are worked in their order: a delete takes what an insert before it has brought, else a row of the
target. One that finds neither (the table has not been read yet) takes none, and later inserts stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.row_digests import Digests, numbered_within


@dataclass(frozen=True)
class RowCounts:
    """Changes in order of sequence; those of equal rows are a group."""

    removes: Mask
    """True for each change that is a delete."""
    order: Ints
    """The changes group by group, in each by sequence."""
    group: Ints
    """The group of each change in that order."""
    writes: Ints
    """The rows that each group leaves, instead of those of the target that it takes."""
    groups_to_delete: Ints
    """Groups whose deletes want rows of the target,"""
    digests: Digests
    """the digest of each,"""
    counts: Ints
    """and how many."""

    @classmethod
    def of(cls, blocks: Iterable[tuple[Mask, Ints, Ints]]) -> "RowCounts":
        """`blocks`: whether each change is a delete, and the halves of its row's digest."""
        empty = (np.empty(0, np.bool_), np.empty(0, np.int64), np.empty(0, np.int64))
        removes, high, low = map(np.concatenate, zip(empty, *blocks, strict=True))
        order = np.lexsort((low, high)).astype(np.int64)  # stable
        high, low, steps = high[order], low[order], np.where(removes[order], -1, 1)
        new = np.ones(len(order), np.bool_)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        begins, group = np.flatnonzero(new), np.cumsum(new) - 1
        after = np.cumsum(steps)
        after -= (after[begins] - steps[begins])[group]
        if not len(begins):
            return cls(removes, order, group, group, group, (high, low), group)
        lowest = np.minimum(np.minimum.reduceat(after, begins), 0)
        total = after[np.append(begins[1:], len(order)) - 1]
        groups = np.flatnonzero(lowest < 0).astype(np.int64)
        at = begins[groups]
        return cls(removes, order, group, total - lowest, groups, (high[at], low[at]), -lowest[groups])

    def settled(self, there: Ints) -> tuple[Mask, Ints]:
        """`there`: how many rows the target has, of `digests`. Which changes are to be written, and how many rows of
        each group of `groups_to_delete` are to be marked: what would be marked and written again just stays."""
        taken = np.zeros(len(self.writes), np.int64)
        taken[self.groups_to_delete] = np.minimum(there, self.counts)
        inserts = np.flatnonzero(~self.removes[self.order])
        group = self.group[inserts]
        behind = np.bincount(group, minlength=len(taken))[group] - 1 - numbered_within(group)
        written: Mask = np.zeros(len(self.removes), np.bool_)
        written[self.order[inserts[behind < (self.writes - taken)[group]]]] = True
        return written, np.maximum(taken - self.writes, 0)[self.groups_to_delete]
