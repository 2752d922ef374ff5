"""The result for each key of one part: its new row, a hole or nothing, and the chunk rows that are overruled.

Most keys stand alone: their newest values come from arrays (`fold.newest`). The few whose rows depend on others' (the
slow ones) are worked by the plain rule (`fold.moved_keys`). Rows underneath the log's are asked of the target: which
keys have one, and, of the slow keys alone, their values.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.fold.chunk_keys import KEY_ONLY, ChunkRows
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, Mask, words
from tailrace.fold.moved_keys import Underneath, apply_rule, moving, value_rows
from tailrace.fold.newest import FROM_BASE, KeyedRows, Newest, newest
from tailrace.fold.numbered import NumberedKeys


class BaseRows(Protocol):
    """The target's live rows of the touched keys, as the batch finds them."""

    def present(self) -> Ints:
        """Numbers of the keys that have one, in any order."""

    def rows(self, wanted: Mask) -> Iterator[tuple[Ints, Iterable[pa.Table]]]:
        """Yields whole rows, under source names, of wanted keys (by number): the key of each row, and the rows."""


@dataclass(frozen=True)
class OutputRows:
    """Rows to write: their keys' numbers and, by column, rows of the pool, or `FROM_BASE` for the row underneath."""

    key: Ints
    values: list[Ints]

    def filter(self, chosen: Ints | Mask) -> "OutputRows":
        return OutputRows(self.key[chosen], [column[chosen] for column in self.values])

    @property
    def over(self) -> Mask:
        """Rows that lack a value, which the row underneath has."""
        lacking = np.zeros(len(self.key), np.bool_)
        for column in self.values:
            lacking |= column == FROM_BASE
        return lacking


@dataclass(frozen=True)
class Folded:
    """The result for the part's keys. The target's own rows of all touched keys go."""

    rows: OutputRows
    """To be written."""
    holes: Mask
    """True, by key number, if the key's row stays withheld."""
    pool: list[pa.Table]
    """The tables that `rows` points into: the log's rows, then those that were read for the slow keys."""
    overruled: Mask
    """True, by row of `ChunkKeys`, for a chunk's row that another chunk, a later change or a TRUNCATE overrules."""
    slow: Mask
    """True, by key number, if the key was worked by the plain rule."""
    under: Mapping[int, int]
    """The pool rows of the target's own rows of the slow keys, by key number."""


def decide(work: FoldInput, numbered: NumberedKeys, base: BaseRows, chunks: ChunkRows) -> Folded:
    changes = numbered.changes
    counts = changes.seq >= numbered.choice.low[numbered.key]
    plain = newest(KeyedRows(numbered.key, changes.op, changes.unchanged, len(work.names)), counts)
    slow = _slow_keys(work, numbered, plain)
    rows, holes = _plain_rows(numbered, plain, slow, _has_base(numbered, base))
    pool, under = _Pool(changes.rows), Underneath({}, {})
    if slow.any():
        under = Underneath(_of_target(pool, slow, base), _of_chunks(work, pool, numbered, slow, chunks))
        solved = apply_rule(work, numbered, slow, under)
        held = np.fromiter(solved.rows, np.int64, len(solved.rows))
        more = value_rows(list(solved.rows.values()), len(work.names))
        values = [np.concatenate(pair) for pair in zip(rows.values, more, strict=True)]
        rows = OutputRows(np.concatenate([rows.key, held]), values)
        holes[slow] = False
        holes[np.fromiter(solved.holes, np.int64, len(solved.holes))] = True
    return Folded(rows, holes, pool.tables, _overruled(numbered, slow), slow, under.target)


class _Pool:
    """Rows in memory under one numbering: the log's first."""

    def __init__(self, rows: pa.Table) -> None:
        self.tables = [rows]
        self._count = rows.num_rows

    def add(self, labels: Ints, tables: Iterable[pa.Table]) -> dict[int, int]:
        """The pool row of each label, for which `tables` have the rows."""
        self.tables.extend(tables)
        first, self._count = self._count, self._count + len(labels)
        return dict(zip(labels.tolist(), range(first, self._count), strict=True))


def _slow_keys(work: FoldInput, numbered: NumberedKeys, plain: Newest) -> Mask:
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


def _has_base(numbered: NumberedKeys, base: BaseRows) -> Mask:
    """Keys with a row underneath the log's: in the chunk that decides them, else in the target."""
    found = np.zeros(numbered.count, np.bool_)
    found[base.present()] = True
    found[numbered.choice.in_chunk] = False
    return found | _chunk_base(numbered)


def _of_target(pool: _Pool, slow: Mask, base: BaseRows) -> dict[int, int]:
    """The pool rows of the slow keys' own rows, by key number, read now: their values may go to any other key."""
    found: dict[int, int] = {}
    for keys, tables in base.rows(slow):
        found.update(pool.add(keys, tables))
    return found


def _of_chunks(work: FoldInput, pool: _Pool, numbered: NumberedKeys, slow: Mask, chunks: ChunkRows) -> dict[int, int]:
    """The pool rows of the slow keys' chunk rows, by row of `ChunkKeys`."""
    chunk_keys, found = numbered.chunk_keys, dict[int, int]()
    held = (chunk_keys.position != KEY_ONLY) & slow[numbered.chunk_key]
    for number in np.unique(chunk_keys.chunk[held]).tolist():
        rows = np.flatnonzero(held & (chunk_keys.chunk == number))
        found.update(pool.add(rows, chunks.rows(work.slice.chunks[number], chunk_keys.position[rows])))
    return found


def _plain_rows(numbered: NumberedKeys, plain: Newest, slow: Mask, has_base: Mask) -> tuple[OutputRows, Mask]:
    """Rows of the keys that stand alone, and the holes that stay; an update that finds no row writes nothing."""
    lost = plain.partial & (plain.reset | ~has_base[plain.keys])
    written = ~plain.deleted & ~slow[plain.keys] & numbered.touched[plain.keys] & ~lost
    values = [column[written] for column in plain.values]
    return OutputRows(plain.keys[written], values), numbered.hole & ~numbered.touched


def _overruled(numbered: NumberedKeys, slow: Mask) -> Mask:
    chunk_keys, choice = numbered.chunk_keys, numbered.choice
    later = np.zeros(numbered.count, np.bool_)
    later[numbered.key[numbered.changes.seq >= choice.low[numbered.key]]] = True
    over = later | slow | choice.emptied
    gone: Mask = over[numbered.chunk_key] | (choice.row[numbered.chunk_key] != np.arange(chunk_keys.count))
    gone &= chunk_keys.position != KEY_ONLY
    return gone
