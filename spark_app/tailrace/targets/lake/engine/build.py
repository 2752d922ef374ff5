"""One batch of one table into one commit, with arrays: what `batch.rule` says, key by key, for millions of keys.

A table's worker calls `build` with a slice and the table's live files. `do_part` works one part of the keys: fold the
log rows, decide between chunks, locate what is superseded in the target, write the new rows. Parts are worked in the
driver or, above bounds of rows and bytes, by Spark tasks (`engine.spread`); `build` merges their results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.batch.applied import AppliedState
from tailrace.targets.lake.engine.changes import Changes, read_changes, unpacked_size
from tailrace.targets.lake.engine.chunk_keys import KEY_ONLY, ChunkChoice, ChunkKeys, as_table, choose, read_chunk_keys
from tailrace.targets.lake.engine.divide import Arrived
from tailrace.targets.lake.engine.keys import Columns, Ints, Mask, from_text, group, joined, taken, to_text, words
from tailrace.targets.lake.engine.moved_keys import (
    BaseRows,
    NumberedRows,
    apply_rule,
    find_moved_keys,
    moving,
    value_rows,
)
from tailrace.targets.lake.engine.newest import Newest, newest
from tailrace.targets.lake.engine.output import Base, Rows, write_rows
from tailrace.targets.lake.engine.part import MovedKeys, PartInput, PartResult
from tailrace.targets.lake.engine.snapshot_end import Candidates, Own, PartKeys, find_deletions
from tailrace.targets.lake.files.index import IndexCache
from tailrace.targets.lake.files.locate import CACHE, Found, locate, read_rows
from tailrace.targets.lake.model import Commit, NewFile

PART_ROWS = 400_000
PART_BYTES = 128 << 20
"""Log rows, and their bytes before compression, that one part may have on average: keys are divided by a hash. A part
needs about four times as many bytes of memory. Each part makes a data file or more: smaller ones are not better."""

UNPACKED = 3
"""Bytes of a row in memory for each of its bytes in a data file, roughly."""

Spread = Callable[[PartInput], Iterable[PartResult]]


def parts_for(rows: int, size: int) -> int:
    return max(1, -(-rows // PART_ROWS), -(-size // PART_BYTES))


def held_size(work: PartInput, moved_keys: MovedKeys) -> int:
    """About how many bytes lie under keys whose values may move to other keys, or that wait to be read again: those
    rows are held whole; what lies under all others is read while they are written."""
    keys = len(moved_keys.words) + len(work.slice.applied.holes)
    rows, size = sum(file.rows for file in work.files), sum(file.size for file in work.files)
    return UNPACKED * keys * size // max(1, rows)


def build(work: PartInput, spread: Spread | None = None) -> Commit:
    """The commit of the batch. `spread` works the parts elsewhere when there is more than one."""
    new, chunks = work.slice.new_segments, work.slice.chunks
    rows = sum(segment.rows for segment in new) + sum(chunk.rows for chunk in chunks)
    moved_keys = find_moved_keys(work)
    size = unpacked_size(work, new) + held_size(work, moved_keys)
    for finished in work.slice.finished:
        # Only their keys are held, a fraction of a row.
        rows += sum(file.rows for file in work.files if file.path not in finished.own) // 4
    parts = parts_for(rows, size)
    if parts > 1:
        # Divided, the keys of a finished snapshot arrive all at once; one part streams them.
        rows += sum(chunk.rows for finished in work.slice.finished for chunk in finished.chunks) // 4
        parts = parts_for(rows, size)
    work = replace(work, parts=parts, moved_keys=moved_keys)
    if work.parts > 1 and spread is not None:
        results = list(spread(work))
    else:
        results = [do_part(work, part) for part in range(work.parts)]
    return merge(work, results)


def merge(work: PartInput, results: Sequence[PartResult]) -> Commit:
    """One commit from all parts: whole vectors of the files that are there, chunk files with their superseded rows."""
    dead: dict[str, BitMap64] = {}
    for result in results:
        for path, positions in result.dead.items():
            dead.setdefault(path, BitMap64()).update(positions)
    adopted = [
        NewFile(chunk.path, chunk.rows, chunk.size, dead.get(chunk.path, BitMap64()))
        for chunk in work.slice.chunks
        if chunk.path is not None
    ]
    marks = {file.path: file.dead | dead[file.path] for file in work.files if file.path in dead}
    before = work.slice.applied
    applied = AppliedState(
        before.log_id, work.slice.through_seq, work.slice.through_record,
        frozenset[tuple[str, ...]]().union(*(result.holes for result in results)),
        work.slice.schema.version, work.slice.table_id, work.slice.gap_left, before.generation,
    )  # fmt: skip
    return Commit(
        applied,
        [*(file for file in adopted if len(file.dead) < file.rows), *(f for o in results for f in o.added)],
        {} if work.slice.clear else marks,
        work.slice.clear,
        evolve=work.slice.evolve,
    )


def do_part(work: PartInput, part: int, cache: IndexCache = CACHE, divided: Arrived | None = None) -> PartResult:
    """Work the keys of one part; `divided`: what has arrived for it, where the batch was divided (`engine.divide`)."""
    return _Part(work, part, cache, divided).run()


class _Part:
    """The state of one part's work. Keys are numbered: log rows', then chunk rows', then holes'."""

    def __init__(self, work: PartInput, part: int, cache: IndexCache, divided: Arrived | None) -> None:
        self.work, self.part, self.cache, self.divided = work, part, cache, divided
        self.source: PartKeys = Own(work, part) if divided is None else divided
        self.chunk_keys: ChunkKeys = read_chunk_keys(work, part) if divided is None else divided.chunk_keys()
        rows = None if divided is None else divided.blocks()
        self.changes: Changes = read_changes(work, part, words(self.chunk_keys.keys), rows)
        holes = sorted(work.slice.applied.holes) if not work.slice.clear else []
        hole_keys = from_text(holes, work.key_types)
        mine = np.flatnonzero(work.owner(hole_keys) == part).astype(np.int64)
        self.keys: Columns = joined([self.changes.keys, self.chunk_keys.keys, taken(hole_keys, mine)], work.key_types)
        codes, self.count = group(self.keys)
        logged, chunked = self.changes.count, self.changes.count + self.chunk_keys.count
        self.key, self.chunk_key, hole_key = codes[:logged], codes[logged:chunked], codes[chunked:]
        self.first = np.zeros(self.count, np.int64)
        self.first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        self.hole: Mask = np.zeros(self.count, np.bool_)
        self.hole[hole_key] = True
        self.choice: ChunkChoice = choose(work, self.chunk_keys, self.chunk_key, self.count)
        self.new = self.changes.seq > work.slice.start_seq
        self.changed: Mask = np.zeros(self.count, np.bool_)
        self.changed[self.key[self.new]] = True
        self.touched = self.changed | self.choice.in_chunk
        self.pool: list[pa.Table] = [self.changes.rows]
        self.pooled = self.changes.count

    def run(self) -> PartResult:
        counts = self.changes.seq >= self.choice.low[self.key]
        plain = newest(self.key, self.changes.op, counts, self.changes.unchanged, len(self.work.names))
        found = self._located()
        slow = self._slow_keys(plain, self._target_has(found))
        base = self._base(found, plain, slow)
        rows, holes = self._plain_rows(plain, slow, base)
        if slow.any():
            numbered = NumberedRows(self.changes, self.key, self.chunk_keys, self.chunk_key, self.hole)
            solved = apply_rule(self.work, numbered, slow, self._fetch(found, slow))
            held = np.fromiter(solved.rows, np.int64, len(solved.rows))
            more = value_rows(list(solved.rows.values()), len(self.work.names))
            rows = Rows(
                np.concatenate([rows.key, held]), [np.concatenate(pair) for pair in zip(rows.values, more, strict=True)]
            )
            holes[slow] = False
            holes[np.fromiter(solved.holes, np.int64, len(solved.holes))] = True
        dead = {path: BitMap64(hits.positions) for path, hits in found.items()}
        for path, positions in self._superseded(slow).items():
            dead[path] = dead.get(path, BitMap64()) | positions
        return self._finish(rows, base, holes, dead)

    # What the target holds

    def _located(self) -> dict[str, Found]:
        """Live target rows of all touched keys; `Found.keys` are key numbers."""
        if self.work.slice.clear or not self.work.files or not self.touched.any():
            return {}
        numbers = np.flatnonzero(self.touched).astype(np.int64)
        wanted = taken(self.keys, self.first[numbers])
        found = None if self.divided is None else self.divided.located(wanted)
        if found is None:
            keys = as_table(self.work, wanted)
            found = locate(self.work.lake, self.work.files, self.work.layout, keys, self.cache)
        return {path: Found(hits.positions, numbers[hits.keys]) for path, hits in found.items()}

    def _target_has(self, found: Mapping[str, Found]) -> Mask:
        present = np.zeros(self.count, np.bool_)
        for hits in found.values():
            present[hits.keys] = True
        return present

    def _slow_keys(self, plain: Newest, target_has: Mask) -> Mask:
        """Keys for the plain rule: moved values, holes that something touches, rows a chunk leaves incomplete."""
        slow = self.hole & self.touched
        slow[self.key[moving(self.changes)]] = True
        linked, _ = self.work.moved_keys.place(words(taken(self.keys, self.first)))
        slow[linked] = True
        base = ~plain.reset & self._chunk_base()[plain.keys]
        lacking = plain.keys[plain.partial & ~base]
        slow[lacking[self.choice.in_chunk[lacking]]] = True
        return slow & self.touched

    def _chunk_base(self) -> Mask:
        """Keys under which a chunk's row lies."""
        decided = self.choice.in_chunk & ~self.choice.emptied
        rows = self.choice.row[decided]
        decided[decided] = self.chunk_keys.position[rows] != KEY_ONLY
        return decided

    def _fetch(self, found: Mapping[str, Found], slow: Mask) -> BaseRows:
        """Read the rows under the slow keys into the pool: their values may go to any other key."""
        base_rows = BaseRows({}, {})
        for path, hits in found.items():
            wanted = slow[hits.keys]
            base_rows.target.update(self._pooled(path, hits.positions[wanted], hits.keys[wanted]))
        for number, part in enumerate(self.work.slice.chunks):
            wanted = (self.chunk_keys.chunk == number) & (self.chunk_keys.position != KEY_ONLY) & slow[self.chunk_key]
            rows = np.flatnonzero(wanted)
            if part.path is not None:
                base_rows.chunk.update(self._pooled(part.path, self.chunk_keys.position[rows], rows))
        return base_rows

    def _pooled(self, path: str, positions: Ints, labels: Ints) -> dict[int, int]:
        """Add rows of a file, at rising positions, to the pool; return the pool row of each label."""
        if not len(positions):
            return {}
        for _, rows in read_rows(self.work.lake, path, positions, self.work.layout, self.work.names):
            self.pool.append(rows)
        first, self.pooled = self.pooled, self.pooled + len(positions)
        return dict(zip(labels.tolist(), range(first, self.pooled), strict=True))

    def _base(self, found: Mapping[str, Found], plain: Newest, slow: Mask) -> list[Base]:
        """Where the rows lie under the keys that stand alone and do not carry every column: read when written."""
        partial = plain.partial & ~plain.reset
        needed = np.zeros(self.count, np.bool_)
        needed[plain.keys[partial]] = True
        needed &= ~slow
        base = []
        for path, hits in found.items():
            wanted = needed[hits.keys] & ~self.choice.in_chunk[hits.keys]
            base.append(Base(path, hits.positions[wanted], hits.keys[wanted]))
        deciding = self.choice.row[self.chunk_key] == np.arange(self.chunk_keys.count)
        chosen = np.flatnonzero(needed[self.chunk_key] & deciding & (self.chunk_keys.position != KEY_ONLY))
        for number in np.unique(self.chunk_keys.chunk[chosen]).tolist():
            rows = chosen[self.chunk_keys.chunk[chosen] == number]
            path = self.work.slice.chunks[number].path
            assert path is not None  # a row with a position lies in a file
            base.append(Base(path, self.chunk_keys.position[rows], self.chunk_key[rows]))
        return [rows for rows in base if len(rows.keys)]

    # What the batch makes of it

    def _plain_rows(self, plain: Newest, slow: Mask, base: Sequence[Base]) -> tuple[Rows, Mask]:
        """Rows of the keys that stand alone; an update that finds no row writes nothing."""
        below = np.zeros(self.count, np.bool_)
        for rows in base:
            below[rows.keys] = True
        lost = plain.partial & (plain.reset | ~below[plain.keys])
        written = ~plain.deleted & ~slow[plain.keys] & self.touched[plain.keys] & ~lost
        return Rows(plain.keys[written], [column[written] for column in plain.values]), self.hole & ~self.touched

    def _superseded(self, slow: Mask) -> dict[str, BitMap64]:
        """Chunk rows that another chunk, a later change or a TRUNCATE overrules."""
        later = np.zeros(self.count, np.bool_)
        later[self.key[self.changes.seq >= self.choice.low[self.key]]] = True
        over = later | slow | self.choice.emptied
        rows = np.arange(self.chunk_keys.count)
        gone = over[self.chunk_key] | (self.choice.row[self.chunk_key] != rows)
        gone &= self.chunk_keys.position != KEY_ONLY
        # The rows stand chunk by chunk.
        chunks, at = self.chunk_keys.chunk[gone], self.chunk_keys.position[gone]
        numbers, begins = np.unique(chunks, return_index=True)
        dead: dict[str, BitMap64] = {}
        for number, positions in zip(numbers.tolist(), np.split(at, begins)[1:], strict=True):
            path = self.work.slice.chunks[number].path
            assert path is not None  # a row with a position lies in a file
            dead[path] = BitMap64(positions)
        return dead

    def _finish(self, rows: Rows, base: Sequence[Base], holes: Mask, dead: dict[str, BitMap64]) -> PartResult:
        """Let finished snapshots replace, then write."""
        open_holes = np.flatnonzero(holes).astype(np.int64)
        if self.work.slice.finished:
            written = Candidates(taken(self.keys, self.first[rows.key]), taken(self.keys, self.first[open_holes]))
            gone = find_deletions(self.work, self.source, written, dead)
            rows = rows.filter(~gone.rows)
            open_holes = open_holes[~gone.holes]
            dead = gone.dead
        texts = to_text(taken(self.keys, self.first[open_holes]))
        keys = as_table(self.work, taken(self.keys, self.first[rows.key]))
        order = np.asarray(pc.sort_indices(keys, sort_keys=[(n, "ascending") for n in keys.column_names]))
        added = write_rows(self.work, rows.filter(order), base, self.pool) if len(order) else ()
        return PartResult({p: d for p, d in dead.items() if len(d)}, added, frozenset(texts))
