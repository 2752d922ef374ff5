"""The rows of a copy that are of the past: ended versions, and rows that are marked as deleted.

Which they are is read from the columns that the copy has beside the source's (`changelog.history`), not from names of
files: another program's compaction may put them into one file with rows of the present.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.changelog.history import DELETED, VALID_TO, is_marked, is_versioned, named
from tailrace.changelog.parquet_batches import BATCH_ROWS
from tailrace.targets.lake.files.access import FileAccess, footer_of, parquet
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import DataFile

KEPT_BYTES = 64 << 20
"""Memory for what is known of the ended rows of files: a number for each run of them, or a bit for each row."""
SMALL_BYTES = 100
"""Bytes that an entry of it takes beside."""


class _Cache:
    """The rows of files of which some are kept in memory: a file never changes."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[BitMap64, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> BitMap64 | None:
        with self._lock:
            if path not in self._known:
                return None
            self._known.move_to_end(path)
            return self._known[path][0]

    def put(self, path: str, rows: BitMap64) -> BitMap64:
        rows.run_optimize()
        size = len(path) + len(rows.serialize()) + SMALL_BYTES
        with self._lock:
            if path not in self._known:
                self._known[path] = rows, size
                self._bytes += size
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._known.popitem(last=False)[1][1]
        return rows


_KNOWN = _Cache()


def past_rows(access: FileAccess, file: DataFile, layout: Layout) -> BitMap64:
    """The positions of rows, of those that are not dead, that the source had once. None: the copy has the source's rows
    as they are."""
    if is_versioned(layout.schema):
        return ended_rows(access, file, layout)
    return _deleted_rows(access, file, layout) if is_marked(layout.schema) else BitMap64()


def ended_rows(access: FileAccess, file: DataFile, layout: Layout) -> BitMap64:
    """The positions of rows that have an end. Most files have only such rows or none, and say so in their footers."""
    name = layout.fields[named(layout.schema, VALID_TO)].name

    def by_footer(columns: Sequence[pq.ColumnChunkMetaData | None], rows: Sequence[int]) -> bool | None:
        stats = [None if column is None else column.statistics for column in columns]
        nulls = [None if one is None or not one.has_null_count else one.null_count for one in stats]
        return False if nulls == [*rows] else True if all(count == 0 for count in nulls) else None

    return _known(access, file, name, by_footer, lambda values: values.is_valid())


def _deleted_rows(access: FileAccess, file: DataFile, layout: Layout) -> BitMap64:
    """The positions of rows that are marked: NULL, which another program may have written, is no mark."""
    name = layout.fields[named(layout.schema, DELETED)].name

    def by_footer(columns: Sequence[pq.ColumnChunkMetaData | None], rows: Sequence[int]) -> bool | None:
        stats = [None if column is None else column.statistics for column in columns]
        unmarked = (one is not None and one.has_min_max and one.max is False for one in stats)
        return False if all(unmarked) else None

    return _known(access, file, name, by_footer, lambda values: pc.fill_null(values, False))


def _known(
    access: FileAccess,
    file: DataFile,
    name: str,
    by_footer: Callable[[Sequence[pq.ColumnChunkMetaData | None], Sequence[int]], bool | None],
    chosen: Callable[[pa.Array], pa.Array],
) -> BitMap64:
    """`by_footer`: whether a column chunk of each row group, with the groups' rows, tells that all rows of the file are
    of the past, or none is; None: it does not. `chosen`: which of the column's values are."""
    known = _KNOWN.get(file.path)
    if known is None:
        footer = footer_of(access, file.path)
        at = next((number for number, column in enumerate(footer.schema.names) if column == name), None)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        told = by_footer([None if at is None else g.column(at) for g in groups], [g.num_rows for g in groups])
        if told is None:
            known = _read(access, file.path, name, chosen)
        else:
            known = BitMap64(range(file.rows)) if told else BitMap64()
        known = _KNOWN.put(file.path, known)
    return known - file.dead


def _read(access: FileAccess, path: str, name: str, chosen: Callable[[pa.Array], pa.Array]) -> BitMap64:
    found, start = BitMap64(), 0
    with parquet(access, path) as opened:
        for batch in opened.iter_batches(BATCH_ROWS, columns=[name]):
            found |= BitMap64(np.flatnonzero(np.asarray(chosen(batch.column(0)))) + start)
            start += batch.num_rows
    return found
