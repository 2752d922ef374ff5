"""Newest value per key and column, with arrays: the fold of `batch.rule` for keys that stand alone. Pure.

Rows are in order of sequence. A key's values count from its last D, I or M on; in each column the newest row that
carries it wins, and where none does, the row underneath (of the target or of a chunk) keeps its value.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.log_rows import DELETE, UPDATE

FROM_BASE = -1
"""Instead of a row number: the value of the row underneath."""


@dataclass(frozen=True)
class Newest:
    """One entry for each key that has rows."""

    keys: Ints
    """Their numbers, rising."""
    deleted: Mask
    reset: Mask
    """The rows underneath do not count."""
    values: list[Ints]
    """The row that each value comes from, or `FROM_BASE`, by column."""

    @property
    def partial(self) -> Mask:
        """Keys that need the row underneath."""
        missing = np.zeros(len(self.keys), np.bool_)
        for column in self.values:
            missing |= column == FROM_BASE
        return missing & ~self.deleted


def newest(key: Ints, op: Ints, counts: Mask, unchanged: Mapping[int, Mask], columns: int) -> Newest:
    """`key` is each row's key number, `counts` the rows that matter, `unchanged` the rows without a column's value."""
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(key[rows], kind="stable")]
    keys, place = key[rows], np.arange(len(rows), dtype=np.int64)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1 if len(rows) else begins
    kinds = op[rows]
    last_reset = _last(place, kinds != UPDATE)[ends]
    reset = last_reset >= begins
    low = np.where(reset, last_reset, begins)
    deletes = kinds == DELETE
    carriers = _last(place, ~deletes)[ends] if deletes.any() else ends
    values = []
    for column in range(columns):
        held = carriers
        if column in unchanged:
            held = _last(place, ~deletes & ~unchanged[column][rows])[ends]
        values.append(np.where(held >= low, rows[np.maximum(held, 0)], FROM_BASE) if len(rows) else held)
    return Newest(keys[begins], deletes[ends], reset, values)


def _last(place: Ints, marked: Mask) -> Ints:
    """At every place the newest marked place up to it, -1 for none."""
    found: Ints = np.maximum.accumulate(np.where(marked, place, -1)) if len(place) else place
    return found
