"""Find live rows of a table without a key in its data files, by all their values.

Apply asks before a commit: of each row that was deleted, as many as are to go. An index of a file's digests is kept in
the cache that `locate` uses for keys; a file that does not fit is read through. Files whose bounds exclude all of the
rows are not touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.changelog.parquet_batches import batch_rows
from tailrace.fold.row_digests import Digests, digests, numbered_within
from tailrace.targets.lake.files.access import FileAccess, parquet
from tailrace.targets.lake.files.index import NO_ROWS, FileIndex, Matches, Span, search_once
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import CACHE, Found, in_layout, is_disjoint, live
from tailrace.targets.lake.model import DataFile

Counts = npt.NDArray[np.int64]
_ROW_BYTES = 32
"""Bytes of an index for each row."""


@dataclass(frozen=True)
class WantedRows:
    """Rows of which some are to be found."""

    rows: Digests
    counts: Counts
    """How many of each, at most."""
    spans: Mapping[str, Span]
    """The bounds of all values, by column, where they are known."""


def locate_rows(
    access: FileAccess, files: Sequence[DataFile], layout: Layout, wanted: WantedRows, cache: IndexCache = CACHE
) -> dict[str, Found]:
    """Live rows, by file; of `Found`, `keys` are their places in `wanted.rows`."""
    keys = [pa.array(half) for half in wanted.rows]
    left, found = wanted.counts.copy(), dict[str, Found]()
    cache.begin()
    for file in files:
        if not left.any():
            break
        if any(is_disjoint(span, (file.lower.get(name), file.upper.get(name))) for name, span in wanted.spans.items()):
            continue
        rows = live(file, _search(access, file, layout, keys, cache))
        if rows is None:
            continue
        chosen = numbered_within(rows.keys) < left[rows.keys]
        if chosen.any():
            found[file.path] = Found(rows.positions[chosen], rows.keys[chosen])
            left -= np.bincount(rows.keys[chosen], minlength=len(left))
    return found


def live_digests(access: FileAccess, file: DataFile, layout: Layout) -> Iterator[Digests]:
    """Yields the digests of the file's live rows."""
    with parquet(access, file.path) as opened:
        at = 0
        for upper, lower in _digests(opened, layout):
            positions = range(at, at + len(upper))
            alive = np.fromiter((place not in file.dead for place in positions), np.bool_, len(upper))
            yield np.asarray(upper)[alive], np.asarray(lower)[alive]
            at += len(upper)


def _search(access: FileAccess, file: DataFile, layout: Layout, wanted: list[pa.Array], cache: IndexCache) -> Matches:
    # With the columns: a file that is older than one of them has other digests since.
    name = "\n".join([file.path, "", *(field.name for field in layout.arrow)])
    index = cache.get(name)
    if index is not None:
        return index.search(wanted)
    with parquet(access, file.path) as opened:
        if not cache.admits(file.rows * _ROW_BYTES):
            return _scan(opened, layout, wanted)
        columns = [pa.concat_arrays(half) for half in zip(*_digests(opened, layout), strict=True)]
    return cache.offer(name, FileIndex.build(columns)).search(wanted)


def _scan(opened: pq.ParquetFile, layout: Layout, wanted: list[pa.Array]) -> Matches:
    """Some rows at a time, nothing kept."""
    start, found = 0, [NO_ROWS]
    for halves in _digests(opened, layout):
        positions, which = search_once(halves, wanted)
        found.append((positions + start, which))
        start += len(halves[0])
    return np.concatenate([at for at, _ in found]), np.concatenate([which for _, which in found])


def _digests(opened: pq.ParquetFile, layout: Layout) -> Iterator[list[pa.Array]]:
    """Yields the digests of some rows at a time."""
    names = [column.name for column in layout.schema.columns]
    present = set(opened.schema_arrow.names)
    read = [name for name in layout.physical(names) if name in present]
    for batch in opened.iter_batches(batch_rows(opened, read), columns=read):
        if batch.num_rows:
            yield [pa.array(half) for half in digests(in_layout(pa.table(batch), layout, names))]
