"""A sorted index of one data file's keys. Used by `locate` only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.fold.key_words import Words, key_words

OBJECTS = 1024
"""Bytes of an index besides its keys, and of each column of values that it keeps."""
FEW_ROWS, PLACE = 32, 120
"""Rows of an index, and keys, up to which each key is looked up by itself, and what that takes of memory for a row."""
Matches = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Row positions, and the number of the key that each row matches."""


NO_ROWS: Matches = np.empty(0, np.int64), np.empty(0, np.int64)

Span = tuple[pa.Scalar, pa.Scalar] | None
"""Smallest and largest value; None: they say nothing."""


def span_of(column: pa.Array) -> Span:
    """The smallest and the largest value; None: they say nothing (a NaN is outside all statistics)."""
    kind = column.type
    if not len(column) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return None
    ends = pc.min_max(column)
    return ends["min"], ends["max"]


@dataclass(frozen=True)
class WantedKeys:
    """Keys that are searched for in one file after another: their words are made once."""

    columns: Sequence[pa.Array]
    """Canonical, without nulls."""
    words: Words
    """Words in rising order."""
    numbers: npt.NDArray[np.int64]
    """The number of the key that each word is of."""
    exact: bool
    """True if equal words mean equal keys."""

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> "WantedKeys":
        keyed = key_words(columns)
        order = np.argsort(keyed.words, kind="stable")
        return cls(columns, keyed.words[order], order, keyed.exact)

    @cached_property
    def listed(self) -> list[tuple[int, int]]:
        """Words and numbers."""
        return list(zip(self.words.tolist(), self.numbers.tolist(), strict=True))

    @cached_property
    def span(self) -> Span:
        """The span of the first key column."""
        return span_of(self.columns[0])


@dataclass(frozen=True)
class FileIndex:
    """Key words in rising order with the rows they stand at (`rows` None: the file itself is in that order).

    `values` keeps the key columns when words are hashes: a match of hashes is proven by comparing them.
    """

    words: Words
    rows: npt.NDArray[np.int32] | None
    values: tuple[pa.Array, ...]

    @classmethod
    def build(cls, columns: Sequence[pa.Array]) -> "FileIndex":
        """Builds the index from canonical key columns in file order."""
        keyed = key_words(columns)
        words, rows = keyed.words, None
        if keyed.valid is not None:
            rows = np.flatnonzero(keyed.valid).astype(np.int32)
            words = words[rows]
        if len(words) > 1 and not bool(np.all(words[:-1] <= words[1:])):
            order = np.argsort(words, kind="stable").astype(np.int32)
            words, rows = words[order], order if rows is None else rows[order]
        # A view would keep the whole table that it was read with.
        return cls(np.array(words), rows, () if keyed.exact else tuple(columns))

    @property
    def size(self) -> int:
        """Bytes in memory. Of a file of one row the objects take a hundred times as much as what they hold."""
        rows = 0 if self.rows is None else self.rows.nbytes
        rows += PLACE * len(self.words) if len(self.words) <= FEW_ROWS else 0
        held = self.words.nbytes + rows + sum(column.nbytes for column in self.values)
        return int(held) + OBJECTS * (1 + len(self.values))

    def meets(self, wanted: "WantedKeys") -> bool:
        """False if all its words are below the wanted ones, or above them."""
        some = len(self.words) and len(wanted.words)
        return bool(some and self.words[0] <= wanted.words[-1] and wanted.words[0] <= self.words[-1])

    def search(self, wanted: Sequence[pa.Array]) -> Matches:
        """Every row whose key is one of `wanted` (canonical, without nulls)."""
        return self.find(WantedKeys.of(wanted))

    @cached_property
    def places(self) -> dict[int, list[int]]:
        """The rows of each word."""
        rows = range(len(self.words)) if self.rows is None else self.rows.tolist()
        found: dict[int, list[int]] = {}
        for word, row in zip(self.words.tolist(), rows, strict=True):
            found.setdefault(word, []).append(row)
        return found

    def find(self, wanted: "WantedKeys") -> Matches:
        """Every row whose key is wanted."""
        few = len(self.words) <= FEW_ROWS and len(wanted.words) <= FEW_ROWS
        rows, which = self._looked_up(wanted) if few else self._searched(wanted)
        if self.values and len(rows):
            same = self._proven(wanted.columns, rows, which)
            rows, which = rows[same], which[same]
        return rows, which

    def _looked_up(self, wanted: "WantedKeys") -> Matches:
        """Row by row: arrays take longer to call than to search."""
        places = self.places
        found = [(row, number) for word, number in wanted.listed for row in places.get(word, ())]
        if not found:
            return NO_ROWS
        rows, which = np.array(found, np.int64).T
        return rows, which

    def _searched(self, wanted: "WantedKeys") -> Matches:
        if not self.meets(wanted):
            return NO_ROWS
        low = wanted.words.searchsorted(self.words[0], "left")
        high = wanted.words.searchsorted(self.words[-1], "right")
        keys = wanted.words[low:high]
        first = self.words.searchsorted(keys, "left")
        counts = self.words.searchsorted(keys, "right") - first
        if not counts.any():
            return NO_ROWS
        which = np.repeat(wanted.numbers[low:high], counts)
        # Runs first[i], first[i] + 1, … of counts[i] entries each, without a loop over the keys.
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(first, counts) + offsets
        return at.astype(np.int64) if self.rows is None else self.rows[at].astype(np.int64), which

    def _proven(
        self, wanted: Sequence[pa.Array], rows: npt.NDArray[np.int64], which: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        same = np.ones(len(rows), np.bool_)
        for column, keys in zip(self.values, wanted, strict=True):
            have, want = column.take(pa.array(rows)), keys.take(pa.array(which))
            equal = pc.equal(have, want)
            if pa.types.is_floating(column.type):
                equal = pc.or_(equal, pc.and_(pc.is_nan(have), pc.is_nan(want)))
            same &= np.asarray(equal.fill_null(False))
        return same


def search_once(columns: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> Matches:
    """Searches without keeping an index: only rows whose word is one of the keys' are sorted."""
    words, keys = key_words(columns).words, key_words(wanted).words
    rows = np.flatnonzero(np.asarray(pc.is_in(pa.array(words), value_set=pa.array(keys))))
    positions, which = FileIndex.build([column.take(pa.array(rows)) for column in columns]).search(wanted)
    return rows[positions].astype(np.int64), which
