"""The comparison of a lake's files with what a verification has read: `fold.comparison`, with rows out of files.

`LakeLook` calls `compare` with a slice that is not applied: one chunk (`slice.since_chunk`), or all of a snapshot
(`slice.since_chunks`). In the driver, or as one Spark task. Of a copy with a history, what it claims of the present is
compared: the slice is of the source's columns, and rows of the past count as dead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.fold.comparison import Compared, compared, counted, superfluous, withheld
from tailrace.fold.key_columns import joined
from tailrace.fold.keyless import CountedChanges, CountedSlice
from tailrace.fold.log_rows import DELETE
from tailrace.fold.replayed import KeyStates, logged_rows, replay_alone, replayed
from tailrace.fold.row_digests import Digests, digests
from tailrace.targets.lake.engine.chunk_files import ChunkFiles, whole_rows
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.engine.past_rows import past_rows
from tailrace.targets.lake.engine.snapshot_end import Candidates, ScannedKeys, find_deletions
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import locate, read_rows
from tailrace.targets.lake.files.locate_rows import live_digests
from tailrace.targets.lake.model import DataFile

PART_ROWS = 2_000_000
"""Rows of the target whose keys are held at once."""


def compare(work: PartInput) -> Compared:
    if work.slice.schema.keyless:
        return Compared(counted(*_keyless(work)))
    past = ((file, past_rows(work.lake, file, work.layout)) for file in work.files)
    present = (replace(file, dead=file.dead | rows) if rows else file for file, rows in past)
    work = replace(work, files=tuple(file for file in present if len(file.dead) < file.rows))
    cache = IndexCache(0)  # each file is met once or twice
    if work.slice.finished:
        return _rest(work, cache)
    (chunk,) = work.slice.chunks
    return _states(work, replayed(work.fold, chunk, ChunkFiles(work)), cache)


def _states(work: PartInput, states: KeyStates, cache: IndexCache) -> Compared:
    keys = pa.table(states.keys, names=work.fold.key)
    found = locate(work.lake, work.files, work.layout, keys, cache) if keys.num_rows else {}
    at = np.concatenate([np.empty(0, np.int64), *(hits.keys for hits in found.values())])
    tables = [rows for path, hits in found.items() for rows in whole_rows(work, path, hits.positions)]
    held = withheld(states.keys, work.slice.applied.holes, work.fold.key_types)
    return compared(states, held, at, _joined(work, tables), work.layout.types)


def _joined(work: PartInput, tables: Iterable[pa.Table]) -> pa.Table:
    """Older files may have narrower types."""
    none = pa.table([pa.array([], work.layout.types[name]) for name in work.fold.names], names=work.fold.names)
    wide = (pa.table([t.column(n).cast(none.schema.field(n).type) for n in t.column_names], names=t.column_names)
            for t in tables)  # fmt: skip
    return pa.concat_tables([none, *wide])


def _rest(work: PartInput, cache: IndexCache) -> Compared:
    """Rows of the target that no chunk has, and the rows that changes alone decide."""
    parts = max(1, -(-sum(file.rows for file in work.files) // PART_ROWS))
    work, found = replace(work, fold=replace(work.fold, parts=parts)), Compared(counted([], []))
    for part in range(parts):
        none = joined([], work.fold.key_types)
        gone = find_deletions(work, ScannedKeys(work, part), Candidates(none, none), {})
        for path, positions in gone.dead.items():
            rising = np.fromiter(positions, np.int64, len(positions))
            for _, rows in read_rows(work.lake, path, rising, work.layout, work.fold.key):
                found += superfluous([rows.column(name).combine_chunks() for name in work.fold.key])
        alone = replay_alone(work.fold, part)
        shown = np.flatnonzero(alone.present & alone.known)
        rows = logged_rows(work.fold, alone, shown)
        states = _states(work, KeyStates(alone.keys, alone.present, alone.known, rows), cache)
        found += states.beyond_chunks()
    return found


def _keyless(work: PartInput) -> tuple[list[Digests], list[Digests]]:
    """The rows that there should be, and those that there are; a deleted row is one more that should not be."""
    part = CountedSlice.of(work.slice)
    work = replace(work, fold=replace(work.fold, slice=part.slice))
    changes = CountedChanges(work.fold, part)
    chunks = (DataFile(chunk.path, chunk.rows, chunk.size) for chunk in part.slice.chunks if chunk.path is not None)
    expected = [*_digests(work, chunks)]
    there = [*_digests(work, work.files)]
    for block in changes.blocks():
        removes = block.op == DELETE
        upper, lower = digests(block.rows.columns)
        expected.append((upper[~removes], lower[~removes]))
        there.append((upper[removes], lower[removes]))
    return expected, there


def _digests(work: PartInput, files: Iterable[DataFile]) -> Iterator[Digests]:
    for file in files:
        yield from live_digests(work.lake, file, work.layout)
