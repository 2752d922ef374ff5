"""The form of an index of keys that is kept on the disk, made so that a search reads and verifies little of it.

A section holds the digests of some rows' keys in rising order, in buckets of four or so by the digests' upper bits.
Each bucket has a check of its first digests, which every search reads, and one of the rest, which matches read. So what
a search reads it has verified, without having read the whole: `Damaged` says that something else stands there.
`key_files` puts sections into files.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailrace.targets.lake.files.index import Matches

Hashes = npt.NDArray[np.uint64]
BUCKET = 4
"""Keys of a bucket on average: more are read in vain, of fewer the checks take more room."""
_STEP, _OTHER, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(32)


class Damaged(Exception):
    """The section, or the file around it, is not what was written."""


@dataclass(frozen=True)
class Digests:
    """Digests of keys, in rising order of `first`. Without `second`, equal ones of 64 bits mean equal keys."""

    first: Hashes
    second: Hashes | None
    rows: npt.NDArray[np.int64]
    """The row that each is of."""

    @classmethod
    def sorted(cls, first: Hashes, second: Hashes | None, rows: npt.NDArray[np.int64]) -> "Digests":
        order = np.argsort(first)
        return cls(first[order], None if second is None else second[order], rows[order])

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Digests":
        second = None if self.second is None else self.second[chosen]
        return Digests(self.first[chosen], second, self.rows[chosen])

    def pieces(self, count: int) -> "list[Digests]":
        """So many each."""
        second = self.second
        return [
            Digests(
                self.first[at : at + count],
                None if second is None else second[at : at + count],
                self.rows[at : at + count],
            )
            for at in range(0, len(self.first), count)
        ]


def mixed(words: Hashes) -> Hashes:
    """A permutation of all 64-bit words (the end of MurmurHash3), by which neighbours are far apart."""
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


@dataclass(frozen=True)
class Section:
    """Views of one section's arrays."""

    seed: np.uint64
    """Differs from those of all other sections: what is not of this one fails the checks."""
    buckets: npt.NDArray[np.uint32]
    """The start of each bucket, with the check of its first digests; once more at the end."""
    checks: npt.NDArray[np.uint32]
    """Checks of the rest of each bucket."""
    first: Hashes
    second: Hashes | None
    rows: npt.NDArray[np.uint32]

    @classmethod
    def made(cls, seed: int, keys: Digests) -> "Section":
        """`keys`: one or more."""
        many = -(-len(keys.first) // BUCKET)
        starts = np.searchsorted(_bucket(keys.first, many), np.arange(many + 1))
        buckets, checks = np.empty((many + 1, 2), np.uint32), np.empty(many, np.uint32)
        buckets[:, 0], rows = starts, keys.rows.astype(np.uint32)
        made = cls(np.uint64(seed), buckets, checks, keys.first, keys.second, rows)
        numbers, counts, everything = np.arange(many), np.diff(starts), np.arange(len(rows))
        buckets[:-1, 1] = made._check(keys.first, numbers, counts)
        buckets[-1, 1] = 0
        checks[:] = made._check(made._rest(everything), numbers, counts)
        return made

    @classmethod
    def read(cls, seed: int, data: memoryview, count: int, wide: bool) -> "Section":
        """`data`: as `parts` were written; `count`: of keys. Nothing is read yet."""
        many, at, views = -(-count // BUCKET), 0, []
        for length, kind in ((2 * (many + 1), "<u4"), (many, "<u4"), (count, "<u8"), (count * wide, "<u8"),
                             (count, "<u4")):  # fmt: skip
            views.append(np.frombuffer(data, kind, length, at))
            at = _padded(at + views[-1].nbytes)
        buckets, checks, first, second, rows = views
        return cls(np.uint64(seed), buckets.reshape(-1, 2), checks, first, second if wide else None, rows)

    def parts(self) -> list[bytes]:
        """The bytes to write."""
        second = b"" if self.second is None else self.second.tobytes()
        arrays = [self.buckets.tobytes(), self.checks.tobytes(), self.first.tobytes(), second, self.rows.tobytes()]
        return [array + bytes(_padded(len(array)) - len(array)) for array in arrays]

    def find(self, wanted: Digests) -> Matches:
        """Every row whose key is wanted, and the number (`wanted.rows`) of the key."""
        buckets = _bucket(wanted.first, len(self.checks))
        starts, counts = self._extent(buckets)
        at, which = _runs(starts, counts)
        words = self.first[at]
        if bool((self._check(words, buckets, counts) != self.buckets[buckets, 1]).any()):
            raise Damaged("a check of digests")
        same = np.flatnonzero(words == wanted.first[which])
        at, which = at[same], which[same]
        self._verify(np.unique(buckets[which]))
        if self.second is not None and wanted.second is not None:
            proven = self.second[at] == wanted.second[which]
            at, which = at[proven], which[proven]
        return self.rows[at].astype(np.int64), wanted.rows[which]

    def _verify(self, buckets: npt.NDArray[np.int64]) -> None:
        """That the rest of these buckets is as it was written."""
        starts, counts = self._extent(buckets)
        at, _ = _runs(starts, counts)
        if bool((self._check(self._rest(at), buckets, counts) != self.checks[buckets]).any()):
            raise Damaged("a check of rows")

    def _extent(self, buckets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        starts = self.buckets[buckets, 0].astype(np.int64)
        ends = self.buckets[buckets + 1, 0].astype(np.int64)
        if bool((starts > ends).any() or (ends > len(self.rows)).any()):
            raise Damaged("where buckets begin")
        return starts, ends - starts

    def _rest(self, at: npt.NDArray[np.int64]) -> Hashes:
        """Words of what stands beside the first digests, tied to them."""
        rows = self.rows[at].astype(np.uint64) * _OTHER
        return mixed((rows if self.second is None else rows + self.second[at]) ^ self.first[at])

    def _check(
        self, words: Hashes, buckets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """Checks of these buckets, each over its words, which stand together, and over its place."""
        totals, ends = np.concatenate([[np.uint64(0)], np.cumsum(words, dtype=np.uint64)]), np.cumsum(counts)
        sums = totals[ends] - totals[ends - counts]
        begins = self.buckets[buckets, 0].astype(np.uint64)
        places = mixed(self.seed + buckets.astype(np.uint64) * _STEP) + begins * _OTHER + counts.astype(np.uint64)
        return (mixed(sums + places) >> _SHIFT).astype(np.uint32)


def _bucket(first: Hashes, many: int) -> npt.NDArray[np.int64]:
    """Rises with the digests."""
    return (((first >> _SHIFT) * np.uint64(many)) >> _SHIFT).astype(np.int64)


def _runs(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Runs starts[i], starts[i] + 1, … of counts[i] entries each, and their i, without a loop."""
    which = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(which)) + (starts - np.cumsum(counts) + counts)[which], which


def _padded(size: int) -> int:
    return -(-size // 8) * 8
