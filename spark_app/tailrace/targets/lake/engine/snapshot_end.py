"""The end of a complete snapshot: what is in none of its chunks and has not changed since is not in the source.

Called by `engine.build` for one part of the keys. Candidates are few after an initial load (rows that the log brought)
and the whole table in a repair; they are held as keys and sorted once, everything else is streamed past them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pyroaring import BitMap64

from tailrace.batch.slice import FinishedSnapshot
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Seq
from tailrace.fold.key_columns import Columns, Ints, Mask, joined, taken
from tailrace.fold.log_rows import segment_rows
from tailrace.targets.lake.engine.chunk_files import key_batches
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.index import FileIndex

Placed = tuple[Ints, Ints, Columns]
"""Row by row: the number of the file (or segment), the position there (or the sequence), the key."""


class PartKeys(Protocol):
    """The source of a part's keys: selected from all (`ScannedKeys`), or divided before (`divide.ShuffledKeys`)."""

    def existing(self, finished: FinishedSnapshot) -> Iterator[Placed]:
        """Yields the keys of files that the snapshot may clear, by `PartInput.existing_files`; no rows that were dead
        before the batch."""
        ...

    def finished(self, finished: FinishedSnapshot) -> Iterator[Columns]:
        """Yields the keys of the snapshot's chunk files."""
        ...

    def since(self, seq: Seq) -> Iterator[Columns]:
        """Yields the keys that changed at or after this sequence."""
        ...


@dataclass(frozen=True)
class ScannedKeys:
    """Reads all the keys; those of a finished snapshot need not even be sorted out by part."""

    work: PartInput
    part: int

    def existing(self, finished: FinishedSnapshot) -> Iterator[Placed]:
        for path, number in self.work.existing_files.items():
            for at, keys in key_batches(self.work, path) if path not in finished.own else ():
                rows = np.arange(at, at + len(keys[0]), dtype=np.int64)
                mine = (self.work.fold.owner(keys) == self.part) & alive(self.work, path, rows)
                yield chosen((np.full(len(rows), number, np.int64), rows, keys), mine)

    def finished(self, finished: FinishedSnapshot) -> Iterator[Columns]:
        for path in finished.paths:
            yield from (keys for _, keys in key_batches(self.work, path))

    def since(self, seq: Seq) -> Iterator[Columns]:
        later = [segment for segment in self.work.slice.segments if segment.last_seq >= seq]
        for block in segment_rows(self.work.fold, later, columns=False, unchanged=False):
            yield block.filter(block.seq >= seq).keys


@dataclass(frozen=True)
class Candidates:
    """Keys of the rows that this batch writes, and of the holes that it leaves."""

    rows: Columns
    holes: Columns


@dataclass(frozen=True)
class Deletions:
    rows: Mask
    holes: Mask
    dead: dict[str, BitMap64]


def find_deletions(work: PartInput, source: PartKeys, written: Candidates, dead: Mapping[str, BitMap64]) -> Deletions:
    """Which candidates go; `dead` comes back with the rows of the target and of adopted chunks that go."""
    marks = {path: BitMap64(positions) for path, positions in dead.items()}
    rows = np.zeros(len(written.rows[0]), np.bool_)
    holes = np.zeros(len(written.holes[0]), np.bool_)
    for finished in work.slice.finished:
        files, positions, keys = _standing(work, source, finished, marks)
        lists = [written.rows, written.holes, keys]
        gone = ~_kept(source, finished, joined(lists, work.fold.key_types))
        ends = np.cumsum([len(found[0]) for found in lists])
        rows |= gone[: ends[0]]
        holes |= gone[ends[0] : ends[1]]
        cleared = np.flatnonzero(gone[ends[1] :])
        paths = list(work.existing_files)
        for number, here in by_place(files[cleared]):
            marks.setdefault(paths[number], BitMap64()).update(positions[cleared[here]])
    return Deletions(rows, holes, marks)


def since(work: PartInput, segment: Segment) -> bool:
    """True if the segment holds changes since the first chunk of a snapshot that ends here."""
    return any(segment.last_seq >= finished.replay_point for finished in work.slice.finished)


def alive(work: PartInput, path: str, rows: Ints) -> Mask:
    """Which of these positions, contiguous and rising, were not dead before the batch."""
    dead = work.places[path]
    living = np.ones(len(rows), np.bool_)
    if len(dead) and len(rows):
        gone = dead & BitMap64(range(int(rows[0]), int(rows[-1]) + 1))
        living[np.array(gone.to_array(), np.int64) - rows[0]] = False
    return living


def _standing(work: PartInput, source: PartKeys, finished: FinishedSnapshot, dead: Mapping[str, BitMap64]) -> Placed:
    """Live rows of the part in files that are not the snapshot's own."""
    marked = [
        code(np.int64(number), np.array(dead[path].to_array(), np.int64))
        for path, number in work.existing_files.items()
        if path in dead
    ]
    gone = np.concatenate([np.empty(0, np.int64), *marked])
    live = (chosen(placed, ~among(code(placed[0], placed[1]), gone)) for placed in source.existing(finished))
    return flattened(work, list(live))


def code(number: Ints | np.int64, position: Ints) -> Ints:
    """A place in a file as one number, rising with both."""
    return (number << np.int64(40)) | position


def chosen(placed: Placed, which: Mask) -> Placed:
    if which.all():
        return placed
    here = np.flatnonzero(which).astype(np.int64)
    return placed[0][here], placed[1][here], taken(placed[2], here)


def flattened(work: PartInput, some: Sequence[Placed]) -> Placed:
    empty = np.empty(0, np.int64)
    numbers, positions = (np.concatenate([empty, *(placed[at] for placed in some)]) for at in (0, 1))
    return numbers, positions, joined([placed[2] for placed in some], work.fold.key_types)


def by_place(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Rows of each number."""
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    found, begins = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, begins)[1:], strict=True)


def among(positions: Ints, rising: Ints) -> Mask:
    """Which positions are among the others, which rise."""
    if not len(rising):
        return np.zeros(len(positions), np.bool_)
    at = np.minimum(np.searchsorted(rising, positions), len(rising) - 1)
    found: Mask = rising[at] == positions
    return found


def _kept(source: PartKeys, finished: FinishedSnapshot, keys: Columns) -> Mask:
    """Keys that one of the snapshot's chunks has, or that changed since its smallest replay point."""
    kept: Mask = np.zeros(len(keys[0]), np.bool_)
    index = FileIndex.build(keys) if len(kept) else None
    for others in _others(source, finished):
        if index is None or kept.all():
            break
        if len(others[0]):
            kept[index.search(others)[0]] = True
    return kept


def _others(source: PartKeys, finished: FinishedSnapshot) -> Iterator[Columns]:
    yield from source.since(finished.replay_point)
    yield from source.finished(finished)
