"""The newest value per key and column, with arrays: the fold of `batch.rule` for keys that stand alone. Pure.

Rows are in order of sequence. A key's values count from its last D, I or M on; in each column the newest row that
carries it wins, and where none does, the row underneath (of the target or of a chunk) keeps its value. A state can be
asked for after any row: after each key's last (what a copy holds), or at more stops (what a history holds).
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
    """A state of each key at each of its stops: key by key, in each in order of sequence."""

    keys: Ints
    """The keys' numbers, which do not fall."""
    rows: Ints
    """The row after which each state holds."""
    deleted: Mask
    reset: Mask
    """The rows underneath do not count."""
    values: list[Ints]
    """The row that each value comes from, or `FROM_BASE`, by column."""

    @property
    def partial(self) -> Mask:
        """States that need the row underneath."""
        missing = np.zeros(len(self.keys), np.bool_)
        for column in self.values:
            missing |= column == FROM_BASE
        return missing & ~self.deleted


@dataclass(frozen=True)
class KeyedRows:
    """Rows of changes, in order of sequence."""

    key: Ints
    """The number of each row's key."""
    op: Ints
    unchanged: Mapping[int, Mask]
    """The rows without a column's value, by the column's place."""
    columns: int


def newest(changes: KeyedRows, counts: Mask, stops: Mask | None = None) -> Newest:
    """`counts`: the rows that matter. `stops`: those of them after which a state is wanted; None: the last of each
    key."""
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(changes.key[rows], kind="stable")]
    keys, place = changes.key[rows], np.arange(len(rows), dtype=np.int64)
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1 if len(rows) else begins
    if stops is not None:
        ends = np.flatnonzero(stops[rows])
        begins = begins[np.searchsorted(begins, ends, side="right") - 1] if len(ends) else ends
    kinds = changes.op[rows]
    last_reset = _last(place, kinds != UPDATE)[ends]
    reset = last_reset >= begins
    low = np.where(reset, last_reset, begins)
    deletes = kinds == DELETE
    carriers = _last(place, ~deletes)[ends] if deletes.any() else ends
    values = []
    for column in range(changes.columns):
        held = carriers
        if column in changes.unchanged:
            held = _last(place, ~deletes & ~changes.unchanged[column][rows])[ends]
        values.append(np.where(held >= low, rows[np.maximum(held, 0)], FROM_BASE) if len(rows) else held)
    return Newest(keys[ends], rows[ends], deletes[ends], reset, values)


def _last(place: Ints, marked: Mask) -> Ints:
    """At every place the newest marked place up to it, -1 for none."""
    found: Ints = np.maximum.accumulate(np.where(marked, place, -1)) if len(place) else place
    return found
