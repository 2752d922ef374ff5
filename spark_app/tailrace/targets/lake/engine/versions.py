"""One batch of a table all of whose versions stay (`batch.versions`), into one commit.

Called by `LakeTable` instead of `engine.build`. Of the rows that are there, the engine sees only the open ones: at most
one for each key, as of any table. What it ends is marked, and written again with its end. Ended rows are never touched
again; another program's compaction may put them into one file with open ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.batch.versions import VersionStage, version_stages
from tailrace.changelog.history import IS_CURRENT, VALID_FROM, VALID_TO, added, named
from tailrace.changelog.parquet_batches import BATCH_BYTES, BATCH_ROWS
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.fold.chunk_keys import gathered
from tailrace.fold.decide import OutputRows, decide
from tailrace.fold.key_columns import Ints, flat, typed
from tailrace.fold.log_rows import unpacked_size
from tailrace.fold.moved_keys import find_moved_keys
from tailrace.fold.newest import FROM_BASE
from tailrace.fold.numbered import number_keys
from tailrace.fold.row_digests import digests
from tailrace.fold.versions import EndedVersions, ended_versions, real_ends
from tailrace.targets.lake.engine.build import Spread, build, held_size, merge, parts_for, write_part
from tailrace.targets.lake.engine.chunk_files import ChunkFiles
from tailrace.targets.lake.engine.marks import LocatedRows, base_rows, dead_rows, locate_rows
from tailrace.targets.lake.engine.output import joined_pool
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.engine.past_rows import ended_rows
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import CACHE, locate, read_rows
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

TIME = pa.timestamp("us", "UTC")
WIDTH = 16
"""Bytes that are counted for a value of a fixed size."""


def build_versions(work: PartInput, spread: Spread | None, now: float) -> TableCommit:
    """`work`: of a slice that `stored_slice` has made. `now`: seconds since the Unix epoch; what a reading no longer
    finds ends then, since the log does not say when it went."""
    part, holes = work.slice, work.slice.applied.holes
    ended = {file.path: ended_rows(work.lake, file, work.layout) for file in work.files}
    first = {file.path: replace(file, dead=file.dead | ended[file.path]) for file in work.files}
    joint = _Joint({path: file for path, file in first.items() if len(file.dead) < file.rows})
    for stage in version_stages(part):
        holes = _stage(joint, work, stage.over(holes), spread, round(now * 1_000_000))
    return TableCommit(
        part.applied_after(holes),
        [
            *(NewFile(file.path, file.rows, file.size, file.dead)
              for path, file in joint.files.items() if path not in first and len(file.dead) < file.rows),
            *joint.ended,
        ],
        {path: joint.files[path].dead - ended[path] for path, file in first.items()
         if path in joint.files and joint.files[path].dead != file.dead},
        evolve=part.evolve,
        before=part.before,
    )  # fmt: skip


@dataclass
class _Joint:
    """The files that the table would have."""

    files: dict[str, DataFile]
    """Those with open rows; all others of their rows count as dead."""
    ended: list[NewFile] = field(default_factory=list)

    def add(self, commit: TableCommit) -> None:
        for path, dead in commit.marks.items():
            self.files[path] = replace(self.files[path], dead=dead)
        for new in commit.add:
            self.files[new.path] = DataFile(new.path, new.rows, new.size, new.dead)

    def end(self, work: PartInput, rows: Iterable[pa.Table]) -> None:
        """Write rows that have an end."""
        self.ended += [new.file for new in write_files(work.lake, work.location, work.layout, rows)]


def _stage(joint: _Joint, work: PartInput, stage: VersionStage, spread: Spread | None, now: int) -> frozenset[Key]:
    """Bring the files forward; returns the holes that are left."""
    own = replace(work, fold=replace(work.fold, slice=stage.slice), files=tuple(joint.files.values()))
    if stage.reads:
        return _read(joint, own, spread, now)
    holes = _changed(joint, own)
    if not stage.truncated:
        return holes
    at = now if stage.truncated_at is None else stage.truncated_at
    joint.end(own, (_ended(own.slice.schema, rows, np.full(rows.num_rows, at)) for rows in _open_rows(joint, own)))
    joint.files = {path: replace(file, dead=BitMap64(range(file.rows))) for path, file in joint.files.items()}
    return frozenset()


def _open_rows(joint: _Joint, work: PartInput) -> Iterator[pa.Table]:
    for path, file in joint.files.items():
        yield from _whole(work, path, _places(BitMap64(range(file.rows)) - file.dead))


def _places(rows: BitMap64) -> Ints:
    """Without a Python number for each: a file may have millions of rows."""
    return np.array(rows.to_array(), np.int64)


def _changed(joint: _Joint, work: PartInput) -> frozenset[Key]:
    """Take the log's changes."""
    new = work.slice.new_segments
    moved_keys = find_moved_keys(work.fold)
    size = unpacked_size(work.fold, new) + held_size(work, moved_keys)
    parts = parts_for(sum(segment.rows for segment in new), size)
    work = replace(work, fold=replace(work.fold, parts=parts, moved_keys=moved_keys))
    results = list[PartResult]()
    for part in range(parts):
        numbered = number_keys(work.fold, part, gathered(work.fold, []))
        located = locate_rows(work, numbered, CACHE, None)
        folded = decide(work.fold, numbered, located, ChunkFiles(work))
        ended = ended_versions(work.fold, numbered, folded, located.present())
        joint.end(work, _ended_rows(work, located, ended, folded.pool))
        base, dead = base_rows(work, numbered, folded, located), dead_rows(work, numbered, folded, located)
        holes = np.flatnonzero(folded.holes).astype(np.int64)
        results.append(write_part(work, numbered, (folded.rows, base, folded.pool), (holes, dead)))
    commit = merge(work, results)
    joint.add(commit)
    return commit.applied.holes


def _ended_rows(
    work: PartInput, located: LocatedRows, ended: EndedVersions, pool: Sequence[pa.Table]
) -> Iterator[pa.Table]:
    """The target's rows that the changes have ended, and the versions that began and ended in the batch."""
    columns = [joined_pool(pool, at, work.layout.fields[name].type) for at, name in enumerate(work.fold.names)]
    over, sizes = ended.rows.over, [_sizes(column) for column in columns]
    whole = np.flatnonzero(~over)
    for some in _pieces(_sum_of_sizes(sizes, [rows[whole] for rows in ended.rows.values])):
        at = whole[some]
        values = (
            pool_column.take(pa.array(rows[at])) for pool_column, rows in zip(columns, ended.rows.values, strict=True)
        )
        yield _ended(work.slice.schema, pa.table(list(values), names=work.fold.names), ended.ends[at])
    lacking = np.flatnonzero(over)
    lacking = lacking[np.argsort(ended.rows.key[lacking], kind="stable")]
    for path, hits in located.files.items():
        for before, rows in read_rows(work.lake, path, hits.positions, work.layout, work.fold.names):
            keys = hits.keys[before : before + rows.num_rows]
            yield _ended(work.slice.schema, rows, ended.first[keys])
            yield from _over(work, ended, lacking, (keys, rows), (columns, sizes))


def _over(
    work: PartInput,
    ended: EndedVersions,
    lacking: Ints,
    below: tuple[Ints, pa.Table],
    pool: tuple[Sequence[pa.Array], Sequence[Ints]],
) -> Iterator[pa.Table]:
    """Versions over these rows of the target, which have the values that the log did not carry. `lacking`: their
    places, by key. `pool`: its columns, and the sizes of their values."""
    keys = ended.rows.key[lacking]
    lows, highs = np.searchsorted(keys, below[0], "left"), np.searchsorted(keys, below[0], "right")
    counts = highs - lows
    if not counts.any():
        return
    under = np.repeat(np.arange(len(counts)), counts)
    at = lacking[np.repeat(lows, counts) + np.arange(len(under)) - np.repeat(np.cumsum(counts) - counts, counts)]
    size = _sum_of_sizes(pool[1], [rows[at] for rows in ended.rows.values])
    for column in below[1].columns:
        size += _sizes(flat(column))[under]
    for piece in _pieces(size):  # many versions of one key repeat its long values
        some, rows = at[piece], below[1].take(pa.array(under[piece]))
        joined = _joined(work, OutputRows(ended.rows.key, ended.rows.values).filter(some), rows, pool[0])
        yield _ended(work.slice.schema, joined, ended.ends[some])


def _sizes(values: pa.Array) -> Ints:
    """The bytes of each value, roughly."""
    kind, types = values.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64) + WIDTH
    nested = values.nbytes // max(1, len(values)) if types.is_nested(kind) else 0
    return np.full(len(values), nested + WIDTH, np.int64)


def _sum_of_sizes(sizes: Sequence[Ints], rows: Sequence[Ints]) -> Ints:
    """The bytes of output rows, of whose columns each has the place of its value in the pool; `FROM_BASE`: none."""
    total = np.zeros(len(rows[0]), np.int64)
    for size, places in zip(sizes, rows, strict=True):
        own = places != FROM_BASE
        total[own] += size[places[own]]
    return total


def _pieces(sizes: Ints) -> Iterator[slice]:
    """Runs of rows that are neither too many nor too large together; a row is never divided."""
    through, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = through[start - 1] if start else 0
        end = int(np.searchsorted(through, before + BATCH_BYTES, "right"))
        end = min(max(end, start + 1), start + BATCH_ROWS)
        yield slice(start, end)
        start = end


def _joined(work: PartInput, rows: OutputRows, below: pa.Table, pool: Sequence[pa.Array]) -> pa.Table:
    columns = []
    for at, name in enumerate(work.fold.names):
        missing = rows.values[at] == FROM_BASE
        column = pool[at].take(pa.array(rows.values[at], mask=missing))
        if missing.any():
            column = pc.if_else(pa.array(missing), flat(below.column(name)).cast(column.type), column)
        columns.append(column)
    return pa.table(columns, names=work.fold.names)


def _begins(schema: TableSchema, rows: pa.Table) -> Ints:
    column = flat(rows.column(named(schema, VALID_FROM)))
    return np.asarray(column.cast(TIME).cast(pa.int64())).astype(np.int64)


def _ended(schema: TableSchema, rows: pa.Table, ends: Ints) -> pa.Table:
    """The rows with their ends, without those that `real_ends` leaves out."""
    begins = _begins(schema, rows)
    kept, ends = real_ends(begins, ends)
    rows = rows.filter(pa.array(kept))
    for known, values in ((VALID_TO, pa.array(ends, TIME)), (IS_CURRENT, pa.repeat(False, len(ends)))):
        name = named(schema, known)
        rows = rows.set_column(rows.column_names.index(name), name, values.cast(rows.schema.field(name).type))
    return rows


def _read(joint: _Joint, work: PartInput, spread: Spread | None, now: int) -> frozenset[Key]:
    """Take what was read: a row that is as it was adds nothing, and any other ends the row before."""
    commit = build(work, spread)
    before = {path: joint.files[path].dead for path in commit.marks}
    joint.add(commit)
    new = _NewRows([joint.files[file.path] for file in commit.add], IndexCache(CACHE.most))
    gone = {path: _places(dead - before[path]) for path, dead in commit.marks.items()}
    joint.end(work, chain.from_iterable(_replaced(joint, work, places, new, now) for places in gone.items()))
    return commit.applied.holes


@dataclass
class _NewRows:
    """Rows that a reading brought. The indexes of these files are no part of those that are kept of the whole table."""

    files: Sequence[DataFile]
    indexes: IndexCache


def _replaced(joint: _Joint, work: PartInput, gone: tuple[str, Ints], new: _NewRows, now: int) -> Iterator[pa.Table]:
    """Yields the rows at these places of a file that have ended; those that are as they were stay open, and their new
    rows go."""
    path, positions = gone
    for before, rows in read_rows(work.lake, path, positions, work.layout, work.fold.names):
        ends, same = np.full(rows.num_rows, now), np.zeros(rows.num_rows, np.bool_)
        old = _digests(work.slice.schema, rows)
        there = [joint.files[file.path] for file in new.files]
        keys = pa.table(typed((rows.column(name) for name in work.fold.key), work.fold.key_types), names=work.fold.key)
        for other, hits in locate(work.lake, there, work.layout, keys, new.indexes).items():
            found = pa.concat_tables(_whole(work, other, hits.positions))
            begins = _begins(work.slice.schema, found)
            fresh = _digests(work.slice.schema, found)
            equal = np.logical_and(*(one[hits.keys] == two for one, two in zip(old, fresh, strict=True)))
            ends[hits.keys], same[hits.keys] = begins, equal
            dead = BitMap64(hits.positions[equal])
            joint.files[other] = replace(joint.files[other], dead=joint.files[other].dead | dead)
        kept = BitMap64(positions[before + np.flatnonzero(same)])
        joint.files[path] = replace(joint.files[path], dead=joint.files[path].dead - kept)
        changed = np.flatnonzero(~same)
        yield _ended(work.slice.schema, rows.take(pa.array(changed)), ends[changed])


def _digests(schema: TableSchema, rows: pa.Table) -> tuple[Ints, Ints]:
    """Digests of the source's columns."""
    own = {column.name for column in added(schema)}
    return digests([rows.column(name) for name in rows.column_names if name not in own])


def _whole(work: PartInput, path: str, positions: Ints) -> Iterator[pa.Table]:
    return (rows for _, rows in read_rows(work.lake, path, positions, work.layout, work.fold.names))
