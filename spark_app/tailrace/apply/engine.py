"""One batch of one table into one commit, with arrays: what `apply.rule` says, key by key, for millions of keys.

A table's worker calls `build` with a slice and the table's live files. `do_part` works one part of the keys: fold the
log rows, decide between chunks, locate what is superseded in the target, write the new rows. Parts are worked in the
driver or, above bounds of rows and bytes, by Spark tasks (`apply.spread`); `build` merges their outcomes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.apply.changes import Changes, read_changes, unpacked_size
from tailrace.apply.covered import ASKED, ChunkKeys, Decision, as_table, decide, read_chunk_keys
from tailrace.apply.divide import Arrived
from tailrace.apply.keys import Columns, Ints, Mask, from_text, group, joined, taken, to_text, words
from tailrace.apply.newest import Newest, newest
from tailrace.apply.output import Base, Rows, write_rows
from tailrace.apply.replaced import Candidates, Own, PartKeys, replaced
from tailrace.apply.tangle import Knot, Under, find_tangle, moving, untangle, value_rows
from tailrace.apply.work import Outcome, Tangle, Work
from tailrace.targets.lake.index import IndexCache
from tailrace.targets.lake.locate import CACHE, Found, locate, read_rows
from tailrace.targets.lake.model import AppliedState, Commit, NewFile

PART_ROWS = 400_000
PART_BYTES = 128 << 20
"""Log rows, and their bytes before compression, that one part may have on average: keys are divided by a hash. A part
needs about four times as many bytes of memory. Each part makes a data file or more: smaller ones are not better."""

UNPACKED = 3
"""Bytes of a row in memory for each of its bytes in a data file, roughly."""

Spread = Callable[[Work], Iterable[Outcome]]


def parts_for(rows: int, size: int) -> int:
    return max(1, -(-rows // PART_ROWS), -(-size // PART_BYTES))


def held_size(work: Work, tangle: Tangle) -> int:
    """About how many bytes lie under keys whose values may move to other keys, or that wait to be read again: those
    rows are held whole; what lies under all others is read while they are written."""
    keys = len(tangle.words) + len(work.slice.applied.holes)
    rows, size = sum(file.rows for file in work.files), sum(file.size for file in work.files)
    return UNPACKED * keys * size // max(1, rows)


def build(work: Work, spread: Spread | None = None) -> Commit:
    """The commit of the batch. `spread` works the parts elsewhere when there is more than one."""
    new, chunks = work.slice.new_segments, work.slice.chunks
    rows = sum(segment.rows for segment in new) + sum(chunk.rows for chunk in chunks)
    tangle = find_tangle(work)
    size = unpacked_size(work, new) + held_size(work, tangle)
    for finished in work.slice.finished:
        # Only their keys are held, a fraction of a row.
        rows += sum(file.rows for file in work.files if file.path not in finished.own) // 4
    parts = parts_for(rows, size)
    if parts > 1:
        # Divided, the keys of a finished snapshot arrive all at once; one part streams them.
        rows += sum(chunk.rows for finished in work.slice.finished for chunk in finished.chunks) // 4
        parts = parts_for(rows, size)
    work = replace(work, parts=parts, tangle=tangle)
    if work.parts > 1 and spread is not None:
        outcomes = list(spread(work))
    else:
        outcomes = [do_part(work, part) for part in range(work.parts)]
    return merge(work, outcomes)


def merge(work: Work, outcomes: Sequence[Outcome]) -> Commit:
    """One commit from all parts: whole vectors of the files that are there, chunk files with their superseded rows."""
    dead: dict[str, BitMap64] = {}
    for outcome in outcomes:
        for path, positions in outcome.dead.items():
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
        frozenset[tuple[str, ...]]().union(*(outcome.holes for outcome in outcomes)),
        work.slice.schema.version, work.slice.table_id, work.slice.gap_left, before.generation,
    )  # fmt: skip
    return Commit(
        applied,
        [*(file for file in adopted if len(file.dead) < file.rows), *(f for o in outcomes for f in o.added)],
        {} if work.slice.clear else marks,
        work.slice.clear,
        evolve=work.slice.evolve,
    )


def do_part(work: Work, part: int, cache: IndexCache = CACHE, divided: Arrived | None = None) -> Outcome:
    """Work the keys of one part; `divided`: what has arrived for it, where the batch was divided (`apply.divide`)."""
    return _Part(work, part, cache, divided).run()


class _Part:
    """The state of one part's work. Keys are numbered: log rows', then chunk rows', then holes'."""

    def __init__(self, work: Work, part: int, cache: IndexCache, divided: Arrived | None) -> None:
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
        self.decision: Decision = decide(work, self.chunk_keys, self.chunk_key, self.count)
        self.new = self.changes.seq > work.slice.start_seq
        self.changed: Mask = np.zeros(self.count, np.bool_)
        self.changed[self.key[self.new]] = True
        self.touched = self.changed | self.decision.covered
        self.pool: list[pa.Table] = [self.changes.rows]
        self.pooled = self.changes.count

    def run(self) -> Outcome:
        counts = self.changes.seq >= self.decision.low[self.key]
        plain = newest(self.key, self.changes.op, counts, self.changes.unchanged, len(self.work.names))
        found = self._located()
        hard = self._hard(plain, self._target_has(found))
        base = self._base(found, plain, hard)
        rows, holes = self._plain_rows(plain, hard, base)
        if hard.any():
            knot = Knot(self.changes, self.key, self.chunk_keys, self.chunk_key, self.hole)
            solved = untangle(self.work, knot, hard, self._fetch(found, hard))
            held = np.fromiter(solved.rows, np.int64, len(solved.rows))
            more = value_rows(list(solved.rows.values()), len(self.work.names))
            rows = Rows(
                np.concatenate([rows.key, held]), [np.concatenate(pair) for pair in zip(rows.values, more, strict=True)]
            )
            holes[hard] = False
            holes[np.fromiter(solved.holes, np.int64, len(solved.holes))] = True
        dead = {path: BitMap64(hits.positions) for path, hits in found.items()}
        for path, positions in self._superseded(hard).items():
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

    def _hard(self, plain: Newest, target_has: Mask) -> Mask:
        """Keys for the plain rule: moved values, holes that something touches, rows a chunk leaves incomplete."""
        hard = self.hole & self.touched
        hard[self.key[moving(self.changes)]] = True
        tangled, _ = self.work.tangle.place(words(taken(self.keys, self.first)))
        hard[tangled] = True
        base = ~plain.reset & self._chunk_base()[plain.keys]
        lacking = plain.keys[plain.partial & ~base]
        hard[lacking[self.decision.covered[lacking]]] = True
        return hard & self.touched

    def _chunk_base(self) -> Mask:
        """Keys under which a chunk's row lies."""
        decided = self.decision.covered & ~self.decision.emptied
        rows = self.decision.row[decided]
        decided[decided] = self.chunk_keys.position[rows] != ASKED
        return decided

    def _fetch(self, found: Mapping[str, Found], hard: Mask) -> Under:
        """Read the rows under the hard keys into the pool: their values may go to any other key."""
        under = Under({}, {})
        for path, hits in found.items():
            wanted = hard[hits.keys]
            under.target.update(self._pooled(path, hits.positions[wanted], hits.keys[wanted]))
        for number, part in enumerate(self.work.slice.chunks):
            wanted = (self.chunk_keys.chunk == number) & (self.chunk_keys.position != ASKED) & hard[self.chunk_key]
            rows = np.flatnonzero(wanted)
            if part.path is not None:
                under.chunk.update(self._pooled(part.path, self.chunk_keys.position[rows], rows))
        return under

    def _pooled(self, path: str, positions: Ints, labels: Ints) -> dict[int, int]:
        """Add rows of a file, at rising positions, to the pool; return the pool row of each label."""
        if not len(positions):
            return {}
        for _, rows in read_rows(self.work.lake, path, positions, self.work.layout, self.work.names):
            self.pool.append(rows)
        first, self.pooled = self.pooled, self.pooled + len(positions)
        return dict(zip(labels.tolist(), range(first, self.pooled), strict=True))

    def _base(self, found: Mapping[str, Found], plain: Newest, hard: Mask) -> list[Base]:
        """Where the rows lie under the keys that stand alone and do not carry every column: read when written."""
        partial = plain.partial & ~plain.reset
        needed = np.zeros(self.count, np.bool_)
        needed[plain.keys[partial]] = True
        needed &= ~hard
        base = []
        for path, hits in found.items():
            wanted = needed[hits.keys] & ~self.decision.covered[hits.keys]
            base.append(Base(path, hits.positions[wanted], hits.keys[wanted]))
        deciding = self.decision.row[self.chunk_key] == np.arange(self.chunk_keys.count)
        chosen = np.flatnonzero(needed[self.chunk_key] & deciding & (self.chunk_keys.position != ASKED))
        for number in np.unique(self.chunk_keys.chunk[chosen]).tolist():
            rows = chosen[self.chunk_keys.chunk[chosen] == number]
            path = self.work.slice.chunks[number].path
            assert path is not None  # a row with a position lies in a file
            base.append(Base(path, self.chunk_keys.position[rows], self.chunk_key[rows]))
        return [rows for rows in base if len(rows.keys)]

    # What the batch makes of it

    def _plain_rows(self, plain: Newest, hard: Mask, base: Sequence[Base]) -> tuple[Rows, Mask]:
        """Rows of the keys that stand alone; an update that finds no row writes nothing."""
        below = np.zeros(self.count, np.bool_)
        for rows in base:
            below[rows.keys] = True
        lost = plain.partial & (plain.reset | ~below[plain.keys])
        written = ~plain.deleted & ~hard[plain.keys] & self.touched[plain.keys] & ~lost
        return Rows(plain.keys[written], [column[written] for column in plain.values]), self.hole & ~self.touched

    def _superseded(self, hard: Mask) -> dict[str, BitMap64]:
        """Chunk rows that another chunk, a later change or a TRUNCATE overrules."""
        later = np.zeros(self.count, np.bool_)
        later[self.key[self.changes.seq >= self.decision.low[self.key]]] = True
        over = later | hard | self.decision.emptied
        rows = np.arange(self.chunk_keys.count)
        gone = over[self.chunk_key] | (self.decision.row[self.chunk_key] != rows)
        gone &= self.chunk_keys.position != ASKED
        # The rows stand chunk by chunk.
        chunks, at = self.chunk_keys.chunk[gone], self.chunk_keys.position[gone]
        numbers, begins = np.unique(chunks, return_index=True)
        dead: dict[str, BitMap64] = {}
        for number, positions in zip(numbers.tolist(), np.split(at, begins)[1:], strict=True):
            path = self.work.slice.chunks[number].path
            assert path is not None  # a row with a position lies in a file
            dead[path] = BitMap64(positions)
        return dead

    def _finish(self, rows: Rows, base: Sequence[Base], holes: Mask, dead: dict[str, BitMap64]) -> Outcome:
        """Let finished snapshots replace, then write."""
        open_holes = np.flatnonzero(holes).astype(np.int64)
        if self.work.slice.finished:
            written = Candidates(taken(self.keys, self.first[rows.key]), taken(self.keys, self.first[open_holes]))
            gone = replaced(self.work, self.source, written, dead)
            rows = rows.filter(~gone.rows)
            open_holes = open_holes[~gone.holes]
            dead = gone.dead
        texts = to_text(taken(self.keys, self.first[open_holes]))
        keys = as_table(self.work, taken(self.keys, self.first[rows.key]))
        order = np.asarray(pc.sort_indices(keys, sort_keys=[(n, "ascending") for n in keys.column_names]))
        added = write_rows(self.work, rows.filter(order), base, self.pool) if len(order) else ()
        return Outcome({p: d for p, d in dead.items() if len(d)}, added, frozenset(texts))
