"""The end of a complete snapshot: what is in none of its chunks and has not changed since is not in the source.

Called by `apply.engine` for one part of the keys. Candidates are few after an initial load (rows that the log brought)
and the whole table in a repair; they are held as keys, everything else is streamed past them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap64

from tailrace.apply.changes import blocks
from tailrace.apply.covered import key_batches
from tailrace.apply.keys import Columns, Ints, Mask, contained, joined, taken
from tailrace.apply.slice import FinishedSnapshot
from tailrace.apply.work import Work


@dataclass(frozen=True)
class Candidates:
    """Keys of the rows that this batch writes, and of the holes that it leaves."""

    rows: Columns
    holes: Columns


@dataclass(frozen=True)
class Gone:
    rows: Mask
    holes: Mask
    dead: dict[str, BitMap64]


def replaced(work: Work, part: int, written: Candidates, dead: Mapping[str, BitMap64]) -> Gone:
    """Which candidates go; `dead` comes back with the rows of the target and of adopted chunks that go."""
    marks = {path: BitMap64(positions) for path, positions in dead.items()}
    rows = np.zeros(len(written.rows[0]), np.bool_)
    holes = np.zeros(len(written.holes[0]), np.bool_)
    for finished in work.slice.finished:
        standing = _standing(work, part, finished, marks)
        lists = [written.rows, written.holes, *(keys for _, _, keys in standing)]
        keys = joined(lists, work.key_types)
        gone = ~_kept(work, finished, keys)
        ends = np.cumsum([len(found[0]) for found in lists])
        rows |= gone[: ends[0]]
        holes |= gone[ends[0] : ends[1]]
        for (path, positions, _), end in zip(standing, ends[2:], strict=True):
            here = gone[end - len(positions) : end]
            marks[path] = marks.get(path, BitMap64()) | BitMap64(positions[here])
    return Gone(rows, holes, marks)


def _standing(
    work: Work, part: int, finished: FinishedSnapshot, dead: Mapping[str, BitMap64]
) -> list[tuple[str, Ints, Columns]]:
    """Live rows of the part in files that are not the snapshot's own: path, positions, keys."""
    files = {} if work.slice.clear else {file.path: file.dead for file in work.files}
    adopted = [chunk.path for chunk in work.slice.chunks if chunk.path is not None]
    found = []
    for path in [*files, *adopted]:
        if path not in finished.paths:
            gone = files.get(path, BitMap64()) | dead.get(path, BitMap64())
            for at, keys in key_batches(work, path):
                here = np.flatnonzero((work.owner(keys) == part) & _alive(gone, at, len(keys[0]))).astype(np.int64)
                if len(here):
                    found.append((path, here + at, taken(keys, here)))
    return found


def _alive(dead: BitMap64, at: int, rows: int) -> Mask:
    alive = np.ones(rows, np.bool_)
    gone = dead & BitMap64(range(at, at + rows)) if len(dead) else dead
    alive[np.array(gone.to_array(), np.int64) - at] = False
    return alive


def _kept(work: Work, finished: FinishedSnapshot, keys: Columns) -> Mask:
    """Keys that one of the snapshot's chunks has, or that changed since its smallest replay point."""
    kept: Mask = np.zeros(len(keys[0]), np.bool_)
    for others in _others(work, finished):
        if kept.all():
            break
        left = np.flatnonzero(~kept).astype(np.int64)
        kept[left] = contained(taken(keys, left), others)
    return kept


def _others(work: Work, finished: FinishedSnapshot) -> Iterator[Columns]:
    since = [s for s in work.slice.segments if s.last_seq >= finished.replay_point]
    for block in blocks(work, since, columns=False, unchanged=False):
        later = block.filter(block.seq >= finished.replay_point)
        if len(later.seq):
            yield later.keys
    for path in finished.paths:
        for _, keys in key_batches(work, path):
            yield keys
