"""The places in the lake's files of the rows that a part's keys concern: to be marked as dead, or to give values.

Between the fold, which decides about keys, and the files: `engine.build` locates the touched keys' rows here, hands
them to `fold.decide`, and marks what its result says.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tailrace.fold.chunk_keys import KEY_ONLY
from tailrace.fold.decide import Folded
from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.numbered import NumberedKeys
from tailrace.targets.lake.engine.chunk_files import whole_rows
from tailrace.targets.lake.engine.divide import ShuffledKeys
from tailrace.targets.lake.engine.output import Base
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.locate import Found, locate


@dataclass(frozen=True)
class LocatedRows:
    """Live rows of the target, by file: `fold.decide.BaseRows`."""

    work: PartInput
    files: Mapping[str, Found]
    """`Found.keys` are key numbers."""

    def present(self) -> Ints:
        return np.concatenate([np.empty(0, np.int64), *(hits.keys for hits in self.files.values())])

    def rows(self, wanted: Mask) -> Iterator[tuple[Ints, Iterable[pa.Table]]]:
        for path, hits in self.files.items():
            chosen = wanted[hits.keys]
            if chosen.any():
                yield hits.keys[chosen], whole_rows(self.work, path, hits.positions[chosen])


def locate_rows(
    work: PartInput, numbered: NumberedKeys, cache: IndexCache, divided: ShuffledKeys | None
) -> LocatedRows:
    """Live target rows of all touched keys."""
    if work.slice.clear or not work.files or not numbered.touched.any():
        return LocatedRows(work, {})
    numbers = np.flatnonzero(numbered.touched).astype(np.int64)
    wanted = numbered.keys(numbers)
    found = None if divided is None else divided.located(wanted)
    if found is None:
        found = locate(work.lake, work.files, work.layout, pa.table(wanted, names=work.fold.key), cache)
    return LocatedRows(work, {path: Found(hits.positions, numbers[hits.keys]) for path, hits in found.items()})


def dead_rows(work: PartInput, numbered: NumberedKeys, folded: Folded, located: LocatedRows) -> dict[str, BitMap64]:
    """Positions of superseded rows, of the target and of chunks."""
    dead = {path: BitMap64(hits.positions) for path, hits in located.files.items()}
    for path, rows in _by_chunk(work, numbered, np.flatnonzero(folded.overruled)):
        dead[path] = dead.get(path, BitMap64()) | BitMap64(numbered.chunk_keys.position[rows])
    return dead


def base_rows(work: PartInput, numbered: NumberedKeys, folded: Folded, located: LocatedRows) -> list[Base]:
    """The places of the rows that give what the rows to write lack: read when those are written."""
    needed = np.zeros(numbered.count, np.bool_)
    needed[folded.rows.key[folded.rows.over]] = True
    if not needed.any():
        return []
    base = []
    for path, hits in located.files.items():
        wanted = needed[hits.keys] & ~numbered.choice.in_chunk[hits.keys]
        base.append(Base(path, hits.positions[wanted], hits.keys[wanted]))
    chunk_keys, chunk_key = numbered.chunk_keys, numbered.chunk_key
    deciding = numbered.choice.row[chunk_key] == np.arange(chunk_keys.count)
    chosen = np.flatnonzero(needed[chunk_key] & deciding & (chunk_keys.position != KEY_ONLY))
    base += [Base(path, chunk_keys.position[rows], chunk_key[rows]) for path, rows in _by_chunk(work, numbered, chosen)]
    return [rows for rows in base if len(rows.keys)]


def _by_chunk(work: PartInput, numbered: NumberedKeys, rows: Ints) -> Iterator[tuple[str, Ints]]:
    """These rows of `ChunkKeys`, which have positions, by their chunk's file; a chunk's rows stand together."""
    numbers, begins = np.unique(numbered.chunk_keys.chunk[rows], return_index=True)
    for number, some in zip(numbers.tolist(), np.split(rows, begins)[1:], strict=True):
        path = work.slice.chunks[number].path
        assert path is not None  # a row with a position is in a file
        yield path, some
