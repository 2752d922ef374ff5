"""A sorted index of one data file's keys, and the LRU cache that keeps such indexes. Used by `locate` only."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.targets.lake.files.key_words import Words, key_words

MANY_FILES = 10_000
"""The number of files that are remembered as too large for an index."""
Matches = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Row positions, and the number of the key that each row matches."""


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
        rows = 0 if self.rows is None else self.rows.nbytes
        return int(self.words.nbytes + rows + sum(column.nbytes for column in self.values))

    def search(self, wanted: Sequence[pa.Array]) -> Matches:
        """Every row whose key is one of `wanted` (canonical, without nulls)."""
        keys = key_words(wanted).words
        first = np.searchsorted(self.words, keys, "left")
        counts = np.searchsorted(self.words, keys, "right") - first
        which = np.repeat(np.arange(len(keys), dtype=np.int64), counts)
        # Runs first[i], first[i] + 1, … of counts[i] entries each, without a loop over the keys.
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(first, counts) + offsets
        rows = at.astype(np.int64) if self.rows is None else self.rows[at].astype(np.int64)
        if self.values and len(rows):
            same = self._proven(wanted, rows, which)
            rows, which = rows[same], which[same]
        return rows, which

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


class IndexCache:
    """Least recently used out, bounded in bytes. A pass over more files than fit does not flush itself: an entry used
    since the last `begin` is never dropped for another one of the same pass."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._too_large: OrderedDict[str, None] = OrderedDict()
        self._entries: OrderedDict[str, tuple[FileIndex, int]] = OrderedDict()
        self._size = 0
        self._pass = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return self._size

    @property
    def most(self) -> int:
        """Bytes of keys of which one index is made: several are made at the same time, each from a copy or two."""
        return self._limit // 4

    def too_large(self, path: str) -> bool:
        """True if the file was found to have more than that."""
        return path in self._too_large

    def note_too_large(self, path: str) -> None:
        with self._lock:
            self._too_large[path] = None
            if len(self._too_large) > MANY_FILES:
                self._too_large.popitem(last=False)

    def begin(self) -> None:
        """A new pass (one `locate`) starts."""
        with self._lock:
            self._pass += 1

    def get(self, path: str) -> FileIndex | None:
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                return None
            self._entries[path] = (entry[0], self._pass)
            self._entries.move_to_end(path)
            return entry[0]

    def admits(self, size: int) -> bool:
        """True if an entry of about this size would be kept; asked before the file is read."""
        with self._lock:
            pinned = sum(index.size for index, used in self._entries.values() if used == self._pass)
            return pinned + size <= self._limit

    def offer(self, path: str, index: FileIndex) -> FileIndex:
        """Keep the index if it fits; returns it either way."""
        with self._lock:
            for old in [key for key, (_, used) in self._entries.items() if used != self._pass]:
                if self._size + index.size <= self._limit:
                    break
                self._size -= self._entries.pop(old)[0].size
            if self._size + index.size <= self._limit and path not in self._entries:
                self._entries[path] = (index, self._pass)
                self._size += index.size
        return index
