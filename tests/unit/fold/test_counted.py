"""Counted rows against plain code: a list of rows, from which each delete takes one."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.fold.counted import RowCounts

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30)


def plain(rows: Counter[int], changes: list[tuple[bool, int]]) -> Counter[int]:
    """One after the other; a delete that finds no row takes none."""
    rows = rows.copy()
    for removes, row in changes:
        rows[row] = max(0, rows[row] - 1) if removes else rows[row] + 1
    return +rows


@given(st.lists(st.integers(0, 3), max_size=10), CHANGES)
def test_as_many_rows_are_left_as_by_one_change_after_the_other(
    before: list[int], changes: list[tuple[bool, int]]
) -> None:
    target = Counter(before)
    removes = np.array([r for r, _ in changes], np.bool_)
    rows = np.array([row for _, row in changes], np.int64)
    counts = RowCounts.of([(removes[:4], rows[:4], -rows[:4]), (removes[4:], rows[4:], -rows[4:])])
    high, low = (half.tolist() for half in counts.digests)
    assert high == [-half for half in low]
    there = np.minimum([target[row] for row in high], counts.counts).astype(np.int64)
    written, marks = counts.settled(there)
    left = target.copy()
    left.subtract(dict(zip(high, marks.tolist(), strict=True)))
    assert min(left.values(), default=0) >= 0
    assert not (written & removes).any()
    left.update(rows[written].tolist())
    assert +left == plain(target, changes)
    missed = any(there < counts.counts)
    assert missed == (
        Counter(row for r, row in changes if not r) + target - plain(target, changes)
        != Counter(row for r, row in changes if r)
    )


@given(st.lists(st.integers(0, 3), max_size=10), CHANGES)
def test_nothing_is_marked_and_written_again(before: list[int], changes: list[tuple[bool, int]]) -> None:
    target = Counter(before)
    removes, rows = np.array([r for r, _ in changes], np.bool_), np.array([row for _, row in changes], np.int64)
    counts = RowCounts.of([(removes, rows, rows)])
    sought = counts.digests[0].tolist()
    written, marks = counts.settled(np.minimum([target[row] for row in sought], counts.counts).astype(np.int64))
    marked = {row for row, count in zip(sought, marks.tolist(), strict=True) if count}
    assert not marked & set(rows[written].tolist())
