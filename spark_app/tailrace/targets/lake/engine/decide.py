"""The result for each key of one part: its new row, a hole or nothing, and the existing rows that are superseded.

The second of three steps in which `engine.build` works a part. Most keys stand alone: their newest values come from
arrays (`engine.newest`). The few whose rows depend on others' (the slow ones) are worked by the plain rule
(`engine.moved_keys`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tailrace.targets.lake.engine.chunk_keys import KEY_ONLY, as_table
from tailrace.targets.lake.engine.divide import ShuffledKeys
from tailrace.targets.lake.engine.key_columns import Ints, Mask, words
from tailrace.targets.lake.engine.moved_keys import BaseRows, apply_rule, moving, value_rows
from tailrace.targets.lake.engine.newest import Newest, newest
from tailrace.targets.lake.engine.numbered import NumberedKeys
from tailrace.targets.lake.engine.output import Base, OutputRows
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.index import IndexCache
from tailrace.targets.lake.files.locate import Found, locate, read_rows

Located = Mapping[str, Found]
"""Live rows of the target by file; `Found.keys` are key numbers."""


@dataclass(frozen=True)
class Decided:
    rows: OutputRows
    """To be written."""
    base: Sequence[Base]
    """The rows underneath those that do not carry every column: read when they are written."""
    holes: Mask
    """True, by key number, if the key's row stays withheld."""
    dead: dict[str, BitMap64]
    """Superseded rows, by file."""
    pool: list[pa.Table]
    """The tables that `rows` points into: the log's rows, then those that were read for the slow keys."""


def decide(work: PartInput, numbered: NumberedKeys, located: Located) -> Decided:
    changes = numbered.changes
    counts = changes.seq >= numbered.choice.low[numbered.key]
    plain = newest(numbered.key, changes.op, counts, changes.unchanged, len(work.names))
    slow = _slow_keys(work, numbered, plain)
    base = _base(work, numbered, located, plain, slow)
    rows, holes = _plain_rows(numbered, plain, slow, base)
    pool = _Pool(work, changes.rows)
    if slow.any():
        solved = apply_rule(work, numbered, slow, _fetch(pool, numbered, located, slow))
        held = np.fromiter(solved.rows, np.int64, len(solved.rows))
        more = value_rows(list(solved.rows.values()), len(work.names))
        values = [np.concatenate(pair) for pair in zip(rows.values, more, strict=True)]
        rows = OutputRows(np.concatenate([rows.key, held]), values)
        holes[slow] = False
        holes[np.fromiter(solved.holes, np.int64, len(solved.holes))] = True
    dead = {path: BitMap64(hits.positions) for path, hits in located.items()}
    for path, positions in _superseded(work, numbered, slow).items():
        dead[path] = dead.get(path, BitMap64()) | positions
    return Decided(rows, base, holes, dead, pool.tables)


def locate_rows(work: PartInput, numbered: NumberedKeys, cache: IndexCache, divided: ShuffledKeys | None) -> Located:
    """Live target rows of all touched keys."""
    if work.slice.clear or not work.files or not numbered.touched.any():
        return {}
    numbers = np.flatnonzero(numbered.touched).astype(np.int64)
    wanted = numbered.keys(numbers)
    found = None if divided is None else divided.located(wanted)
    if found is None:
        found = locate(work.lake, work.files, work.layout, as_table(work, wanted), cache)
    return {path: Found(hits.positions, numbers[hits.keys]) for path, hits in found.items()}


class _Pool:
    """Rows in memory under one numbering: the log's first."""

    def __init__(self, work: PartInput, rows: pa.Table) -> None:
        self.work = work
        self.tables = [rows]
        self._count = rows.num_rows

    def add(self, path: str, positions: Ints, labels: Ints) -> dict[int, int]:
        """Rows of a file, at rising positions; the pool row of each label."""
        if not len(positions):
            return {}
        for _, rows in read_rows(self.work.lake, path, positions, self.work.layout, self.work.names):
            self.tables.append(rows)
        first, self._count = self._count, self._count + len(positions)
        return dict(zip(labels.tolist(), range(first, self._count), strict=True))


def _slow_keys(work: PartInput, numbered: NumberedKeys, plain: Newest) -> Mask:
    """Keys for the plain rule: moved values, holes that something touches, rows a chunk leaves incomplete."""
    slow = numbered.hole & numbered.touched
    slow[numbered.key[moving(numbered.changes)]] = True
    linked, _ = work.moved_keys.place(words(numbered.values))
    slow[linked] = True
    base = ~plain.reset & _chunk_base(numbered)[plain.keys]
    lacking = plain.keys[plain.partial & ~base]
    slow[lacking[numbered.choice.in_chunk[lacking]]] = True
    return slow & numbered.touched


def _chunk_base(numbered: NumberedKeys) -> Mask:
    """Keys that have a chunk's row underneath."""
    decided = numbered.choice.in_chunk & ~numbered.choice.emptied
    rows = numbered.choice.row[decided]
    decided[decided] = numbered.chunk_keys.position[rows] != KEY_ONLY
    return decided


def _fetch(pool: _Pool, numbered: NumberedKeys, located: Located, slow: Mask) -> BaseRows:
    """Read the rows under the slow keys into the pool: their values may go to any other key."""
    base_rows = BaseRows({}, {})
    for path, hits in located.items():
        wanted = slow[hits.keys]
        base_rows.target.update(pool.add(path, hits.positions[wanted], hits.keys[wanted]))
    chunk_keys = numbered.chunk_keys
    for number, part in enumerate(pool.work.slice.chunks):
        wanted = (chunk_keys.chunk == number) & (chunk_keys.position != KEY_ONLY) & slow[numbered.chunk_key]
        rows = np.flatnonzero(wanted)
        if part.path is not None:
            base_rows.chunk.update(pool.add(part.path, chunk_keys.position[rows], rows))
    return base_rows


def _base(work: PartInput, numbered: NumberedKeys, located: Located, plain: Newest, slow: Mask) -> list[Base]:
    """The places of the rows under the keys that stand alone and do not carry every column."""
    partial = plain.partial & ~plain.reset
    needed = np.zeros(numbered.count, np.bool_)
    needed[plain.keys[partial]] = True
    needed &= ~slow
    base = []
    for path, hits in located.items():
        wanted = needed[hits.keys] & ~numbered.choice.in_chunk[hits.keys]
        base.append(Base(path, hits.positions[wanted], hits.keys[wanted]))
    chunk_keys, chunk_key = numbered.chunk_keys, numbered.chunk_key
    deciding = numbered.choice.row[chunk_key] == np.arange(chunk_keys.count)
    chosen = np.flatnonzero(needed[chunk_key] & deciding & (chunk_keys.position != KEY_ONLY))
    for number in np.unique(chunk_keys.chunk[chosen]).tolist():
        rows = chosen[chunk_keys.chunk[chosen] == number]
        path = work.slice.chunks[number].path
        assert path is not None  # a row with a position lies in a file
        base.append(Base(path, chunk_keys.position[rows], chunk_key[rows]))
    return [rows for rows in base if len(rows.keys)]


def _plain_rows(numbered: NumberedKeys, plain: Newest, slow: Mask, base: Sequence[Base]) -> tuple[OutputRows, Mask]:
    """Rows of the keys that stand alone, and the holes that stay; an update that finds no row writes nothing."""
    below = np.zeros(numbered.count, np.bool_)
    for rows in base:
        below[rows.keys] = True
    lost = plain.partial & (plain.reset | ~below[plain.keys])
    written = ~plain.deleted & ~slow[plain.keys] & numbered.touched[plain.keys] & ~lost
    values = [column[written] for column in plain.values]
    return OutputRows(plain.keys[written], values), numbered.hole & ~numbered.touched


def _superseded(work: PartInput, numbered: NumberedKeys, slow: Mask) -> dict[str, BitMap64]:
    """Chunk rows that another chunk, a later change or a TRUNCATE overrules."""
    chunk_keys, choice = numbered.chunk_keys, numbered.choice
    later = np.zeros(numbered.count, np.bool_)
    later[numbered.key[numbered.changes.seq >= choice.low[numbered.key]]] = True
    over = later | slow | choice.emptied
    gone = over[numbered.chunk_key] | (choice.row[numbered.chunk_key] != np.arange(chunk_keys.count))
    gone &= chunk_keys.position != KEY_ONLY
    # The rows stand chunk by chunk.
    chunks, at = chunk_keys.chunk[gone], chunk_keys.position[gone]
    numbers, begins = np.unique(chunks, return_index=True)
    dead: dict[str, BitMap64] = {}
    for number, positions in zip(numbers.tolist(), np.split(at, begins)[1:], strict=True):
        path = work.slice.chunks[number].path
        assert path is not None  # a row with a position lies in a file
        dead[path] = BitMap64(positions)
    return dead
