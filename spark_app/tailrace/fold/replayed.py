"""The rows that a chunk's keys have at the end of a batch, by the chunk and the log alone, whatever the target holds.

The rule's `replay`: the chunk's row, then the key's changes from the replay point on.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.fold.chunk_keys import KEY_ONLY, ChunkRows, gathered, read_chunk_keys
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask
from tailrace.fold.newest import FROM_BASE, KeyedRows, newest
from tailrace.fold.numbered import NumberedKeys, number_keys


@dataclass(frozen=True)
class Replay:
    """The state of each key that the chunk decides; arrays go by these keys."""

    numbered: NumberedKeys
    decided: Ints
    """Their numbers."""
    base: Ints
    """The position in the chunk of the row underneath the changes; `KEY_ONLY`: there is none."""
    present: Mask
    """True if the source has a row of the key."""
    known: Mask
    """False: the row has a value that comes from another key, or from before a change that the chunk did not see."""
    values: list[Ints]
    """The row of the changes that has the value, or `FROM_BASE`, by column."""

    @property
    def keys(self) -> Columns:
        return self.numbered.keys(self.decided)

    @property
    def from_base(self) -> Mask:
        """True by key and column where the row underneath has the value."""
        return np.stack([column == FROM_BASE for column in self.values], axis=1)


@dataclass(frozen=True)
class KeyStates:
    """The state of each key that the chunk decides."""

    keys: Columns
    present: Mask
    """True if the source has a row of the key."""
    known: Mask
    """False: the row has a value that comes from another key, or from before a change that the chunk did not see."""
    rows: pa.Table
    """The rows that are present and known, in the order of the keys, under source names."""


def replay(work: FoldInput, chunk: ChunkRegistered, chunks: ChunkRows) -> Replay:
    """`chunk`: one of the slice's."""
    work = replace(work, slice=replace(work.slice, chunks=(chunk,)), parts=1)
    numbered = number_keys(work, 0, read_chunk_keys(work, 0, chunks))
    choice = numbered.choice
    counts = choice.in_chunk[numbered.key] & (numbered.changes.seq >= choice.low[numbered.key])
    return _replay(work, numbered, choice.in_chunk, _base(numbered), counts)


def replay_alone(work: FoldInput, part: int = 0) -> Replay:
    """The state of each key of the part that has new changes, by these alone: known only if they name the whole row."""
    numbered = number_keys(work, part, gathered(work, []))
    counts = numbered.changes.seq > work.slice.start_seq
    decided = np.zeros(numbered.count, np.bool_)
    decided[numbered.key[counts]] = True
    none = np.full(numbered.count, KEY_ONLY, np.int64)
    return _replay(work, numbered, decided, none, counts)


def _replay(work: FoldInput, numbered: NumberedKeys, chosen: Mask, base: Ints, counts: Mask) -> Replay:
    present, known = base != KEY_ONLY, np.ones(numbered.count, np.bool_)
    values = [np.full(numbered.count, FROM_BASE, np.int64) for _ in work.names]
    changes = numbered.changes
    found = newest(KeyedRows(numbered.key, changes.op, changes.unchanged, len(work.names)), counts)
    lost = found.partial & (found.reset | ~present[found.keys])
    present[found.keys], known[found.keys] = ~found.deleted, ~lost
    for column, newer in zip(values, found.values, strict=True):
        column[found.keys] = newer
    decided = np.flatnonzero(chosen).astype(np.int64)
    columns = [column[decided] for column in values]
    return Replay(numbered, decided, base[decided], present[decided], known[decided], columns)


def replayed(work: FoldInput, chunk: ChunkRegistered, chunks: ChunkRows) -> KeyStates:
    """`chunk`: one of the slice's."""
    found = replay(work, chunk, chunks)
    shown = np.flatnonzero(found.present & found.known)
    under = _Under(chunk, chunks, found.base[shown])
    rows = _rows(work, found.numbered, [column[shown] for column in found.values], under)
    return KeyStates(found.keys, found.present, found.known, rows)


def logged_rows(work: FoldInput, found: Replay, shown: Ints) -> pa.Table:
    """The rows of these places, all of whose values the changes have."""
    changes = found.numbered.changes.rows
    columns = [changes.column(at).take(pa.array(rows[shown])) for at, rows in enumerate(found.values)]
    return pa.table(columns, names=work.names)


def _base(numbered: NumberedKeys) -> Ints:
    """The position in the chunk of the row underneath the changes, by key number."""
    choice = numbered.choice
    base = np.full(numbered.count, KEY_ONLY, np.int64)
    held = choice.in_chunk & ~choice.emptied
    base[held] = numbered.chunk_keys.position[choice.row[held]]
    return base


@dataclass(frozen=True)
class _Under:
    """The chunk's rows underneath some keys."""

    chunk: ChunkRegistered
    chunks: ChunkRows
    positions: Ints

    def columns(self, wanted: Mask, empty: pa.Table) -> pa.Table:
        """The rows of the wanted keys, in their order."""
        order = np.argsort(self.positions[wanted], kind="stable")
        rising = self.positions[wanted][order]
        found = pa.concat_tables([empty, *(self.chunks.rows(self.chunk, rising) if len(rising) else ())])
        return found.take(pa.array(np.argsort(order)))


def _rows(work: FoldInput, numbered: NumberedKeys, values: list[Ints], under: _Under) -> pa.Table:
    """Values of the changes and, where they lack one, of the chunk."""
    lacking = np.zeros(len(under.positions), np.bool_)
    for column in values:
        lacking |= column == FROM_BASE
    changes, below = numbered.changes.rows, under.columns(lacking, numbered.changes.rows.slice(0, 0))
    # Rows of the chunk stand behind those of the log.
    place = changes.num_rows + np.cumsum(lacking) - 1
    pool = pa.concat_tables([changes, below])
    chosen = [np.where(column == FROM_BASE, place, column) for column in values]
    columns = [pool.column(at).take(pa.array(rows)) for at, rows in enumerate(chosen)]
    return pa.table(columns, names=work.names)
