"""One batch of one table into one commit, with arrays: what `batch.rule` says, key by key, for millions of keys.

A lake table calls `build` with a slice and its live files. `do_part` works one part of the keys in four steps: number
them (`fold.numbered`), locate their rows (`engine.marks`), decide what becomes of each (`fold.decide`), write. Parts
are worked in the driver or, above bounds of rows and bytes, by Spark tasks (`engine.spread`); `build` merges their
results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.changelog import keys
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key
from tailrace.fold.chunk_keys import read_chunk_keys
from tailrace.fold.decide import OutputRows, decide
from tailrace.fold.fold_input import MovedKeys
from tailrace.fold.key_columns import Ints, flat
from tailrace.fold.log_rows import unpacked_size
from tailrace.fold.moved_keys import find_moved_keys
from tailrace.fold.numbered import NumberedKeys, number_keys
from tailrace.targets.lake.engine.chunk_files import ChunkFiles
from tailrace.targets.lake.engine.concerned import concerned_rows
from tailrace.targets.lake.engine.divide import ShuffledKeys
from tailrace.targets.lake.engine.few import build_few
from tailrace.targets.lake.engine.marks import base_rows, dead_rows, locate_rows
from tailrace.targets.lake.engine.output import Base, write_rows
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.engine.snapshot_end import Candidates, ScannedKeys, find_deletions
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import CACHE, note_keys
from tailrace.targets.lake.model import NewFile, TableCommit

PART_ROWS = 400_000
PART_BYTES = 128 << 20
"""Log rows, and their bytes before compression, that one part may have on average: keys are divided by a hash. A part
needs about four times as many bytes of memory. Each part makes a data file or more: smaller ones are not better."""

UNPACKED = 3
"""Bytes of a row in memory for each of its bytes in a data file, roughly."""

Spread = Callable[[PartInput], Iterable[PartResult] | None]
"""None: no executor processes them."""


def parts_for(rows: int, size: int) -> int:
    return max(1, -(-rows // PART_ROWS), -(-size // PART_BYTES))


def held_size(work: PartInput, moved_keys: MovedKeys) -> int:
    """The approximate number of bytes under keys whose values may move to other keys, or that wait to be read again:
    those rows are held whole; what is under all others is read while they are written."""
    keys = len(moved_keys.words) + len(work.slice.applied.holes)
    rows, size = sum(file.rows for file in work.files), sum(file.size for file in work.files)
    return UNPACKED * keys * size // max(1, rows)


def build(work: PartInput, spread: Spread | None = None) -> TableCommit:
    """The commit of the batch. `spread` works the parts elsewhere when there is more than one, if it can."""
    few = build_few(work, CACHE)
    if few is not None:
        return few
    work = replace(work, concerned=concerned_rows(work, CACHE))
    new = work.slice.new_segments
    rows = sum(segment.rows for segment in new) + sum(chunk_rows(work, chunk) for chunk in work.slice.chunks)
    moved_keys = find_moved_keys(work.fold)
    size = unpacked_size(work.fold, new) + held_size(work, moved_keys)
    for finished in work.slice.finished:
        # Only their keys are held, a fraction of a row.
        rows += sum(file.rows for file in work.files if file.path not in finished.own) // 4
    parts = parts_for(rows, size)
    if parts > 1:
        # Divided, the keys of a finished snapshot arrive all at once; one part streams them.
        rows += sum(chunk.rows for finished in work.slice.finished for chunk in finished.chunks) // 4
        parts = parts_for(rows, size)
    part = replace(work.slice, earlier=())  # the parts do without
    work = replace(work, fold=replace(work.fold, slice=part, parts=parts, moved_keys=moved_keys))
    results = spread(work) if parts > 1 and spread is not None else None
    if results is None:
        results = (do_part(work, part) for part in range(parts))
    return merge(work, list(results))


def chunk_rows(work: PartInput, chunk: ChunkRegistered) -> int:
    """The number of its rows that the parts decide about."""
    concerned = work.concerned.get(chunk.path or "")
    return chunk.rows if concerned is None else len(concerned[0])


def merge(work: PartInput, results: Sequence[PartResult]) -> TableCommit:
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
    return TableCommit(
        work.slice.applied_after(frozenset[Key]().union(*(result.holes for result in results))),
        [*(file for file in adopted if len(file.dead) < file.rows), *(f for o in results for f in o.added)],
        {} if work.slice.clear else marks,
        work.slice.clear,
        evolve=work.slice.evolve,
        before=work.slice.before,
    )


def do_part(work: PartInput, part: int, cache: IndexCache = CACHE, divided: ShuffledKeys | None = None) -> PartResult:
    """Work the keys of one part; `divided`: what has arrived for it, where the batch was divided (`engine.divide`)."""
    chunks = ChunkFiles(work)
    if divided is None:
        numbered = number_keys(work.fold, part, read_chunk_keys(work.fold, part, chunks))
    else:
        numbered = number_keys(work.fold, part, divided.chunk_keys(), divided.segment_rows())
    located = locate_rows(work, numbered, cache, divided)
    folded = decide(work.fold, numbered, located, chunks)
    base, dead = base_rows(work, numbered, folded, located), dead_rows(work, numbered, folded, located)
    rows, holes = folded.rows, np.flatnonzero(folded.holes).astype(np.int64)
    if work.slice.finished:
        source = ScannedKeys(work, part) if divided is None else divided
        gone = find_deletions(work, source, Candidates(numbered.keys(rows.key), numbered.keys(holes)), dead)
        rows, holes, dead = rows.filter(~gone.rows), holes[~gone.holes], gone.dead
    return write_part(work, numbered, (rows, base, folded.pool), (holes, dead), cache)


def write_part(
    work: PartInput,
    numbered: NumberedKeys,
    found: tuple[OutputRows, Sequence[Base], Sequence[pa.Table]],
    gone: tuple[Ints, Mapping[str, BitMap64]],
    cache: IndexCache = CACHE,
) -> PartResult:
    """Write the rows, in the order of their keys. `found`: them, what is underneath, and the pool; `gone`: the numbers
    of keys that are withheld, and positions to mark."""
    (rows, base, pool), (holes, dead) = found, gone
    written = pa.table(numbered.keys(rows.key), names=work.fold.key)
    by = [(place, "ascending") for place in range(written.num_columns)]  # a name such as `.id` is a path to Arrow
    order = np.asarray(pc.sort_indices(written, sort_keys=by))
    added = write_rows(work, rows.filter(order), base, pool) if len(order) else ()
    if len(added) == 1 and not base:
        note_keys(added[0].path, work.layout, [flat(column).take(pa.array(order)) for column in written.columns], cache)
    withheld = frozenset(keys.keys(numbered.keys(holes))) if len(holes) else frozenset[Key]()
    return PartResult({p: d for p, d in dead.items() if len(d)}, added, withheld)
