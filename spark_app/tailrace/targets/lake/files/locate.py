"""Find the live rows of given keys in a table's data files, and read rows at known positions.

Apply calls `locate` before every commit (which rows are superseded?) and `take_rows` for base values. Files whose
metadata bounds exclude every key are not touched. Of the others only the key columns are read, and a sorted index of
them is kept, of large files on the disk (`key_files`), of others in an LRU cache with a bound in bytes: data files are
immutable, so neither ever goes stale. Files that do not fit, and those with very much text in their keys, are scanned
one row group at a time; groups whose statistics exclude every key are passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.changelog.parquet_batches import BATCH_BYTES, BATCH_ROWS, batch_rows, is_plain
from tailrace.errors import RESYNC, TargetChanged
from tailrace.fold.key_columns import typed
from tailrace.fold.key_words import canonical
from tailrace.storage.store import NotFound
from tailrace.targets.lake.files.access import FOOTERS, FileAccess, parquet
from tailrace.targets.lake.files.index import NO_ROWS, FileIndex, Matches, Span, WantedKeys, search_once, span_of
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.key_files import KeyFiles, identity_of, is_large
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import DataFile

Positions = npt.NDArray[np.int64]

CACHE = IndexCache(512 << 20)
"""One for the process, all tables together."""
_ROW_BYTES = 32
"""Bytes of an index for each row, roughly: the estimate for a file before it is read."""
ASKED = 8
"""Data files that are asked for at the same time, whether they are there."""
FEW = 64
"""Keys that are searched for together, without asking which of them a file's bounds exclude: that costs more."""
NOTED = 64 * 1024
"""Rows of a new file whose keys are noted."""


@dataclass(frozen=True)
class Found:
    """Rows of one file: their positions in rising order and, row by row, the index of the input key they match."""

    positions: Positions
    keys: Positions


def locate(
    access: FileAccess, files: Sequence[DataFile], layout: Layout, keys: pa.Table, cache: IndexCache = CACHE
) -> dict[str, Found]:
    """The live rows whose key is one of `keys` (columns by source name), by file; files without any are left out."""
    columns = typed([keys.column(name) for name in layout.key], [layout.fields[name].type for name in layout.key])
    return locate_keys(access, files, layout, WantedKeys.of(columns), cache)


def locate_keys(
    access: FileAccess, files: Sequence[DataFile], layout: Layout, wanted: WantedKeys, cache: IndexCache = CACHE
) -> dict[str, Found]:
    """See `locate`; the keys have the types of the layout."""
    found: dict[str, Found] = {}
    cache.begin()
    form, few = layout.key_form, len(wanted.words) <= FEW
    if cache.kept is not None:
        found, files = _kept(access, files, layout, wanted, cache.kept)
    for file in files:
        index = cache.get(file.path + form, wanted) if wanted.exact else None
        if index is None and is_disjoint(wanted.span, (file.lower.get(layout.key[0]), file.upper.get(layout.key[0]))):
            continue  # most files of a large table, for the keys of a chunk
        index = cache.get(file.path + form) if index is None and few else index
        matches = _search(access, file, layout, wanted, cache) if index is None else index.find(wanted)
        if (rows := live(file, matches)) is not None:
            _prove(access, file, file.path + form, cache)
            found[file.path] = rows
    return found


def _kept(
    access: FileAccess, files: Sequence[DataFile], layout: Layout, wanted: WantedKeys, kept: KeyFiles
) -> tuple[dict[str, Found], list[DataFile]]:
    """Rows of those files of which there is an index on the disk, or is one now; and the other files."""
    form, sought = layout.key_form, kept.seek(wanted)
    large = {file.path: identity_of(file.path, file.rows, file.size, form) for file in files if is_large(file.rows)}
    if not large:
        return {}, list(files)
    kept.keep_only(large.values())
    found, others, unproven = dict[str, Found](), list[DataFile](), list[str]()
    for file in files:
        identity = large.get(file.path)
        if identity is None:
            others.append(file)
            continue
        if is_disjoint(wanted.span, (file.lower.get(layout.key[0]), file.upper.get(layout.key[0]))):
            continue
        chosen = np.asarray(_within(wanted.columns, _bounds_of(file, layout)))
        if not len(chosen):
            continue
        matches = kept.find(identity, sought.chosen(chosen), partial(_some_keys, access, layout, file.path))
        if matches is None:
            others.append(file)
        elif (rows := live(file, matches)) is not None:
            found[file.path] = rows
            if kept.unproven(identity):
                unproven.append(file.path)
    if unproven:
        with ThreadPoolExecutor(ASKED) as pool:
            for path, there in zip(unproven, pool.map(access.exists, unproven), strict=True):
                if not there:
                    raise NotFound(f"{path} does not exist")
                kept.proven(large[path])
    return found, others


def _some_keys(access: FileAccess, layout: Layout, path: str) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yields the key columns of some rows at a time, and the number of the first. Few are decoded at once, for equal
    texts are nothing in a file; more are yielded together, for digests have a price per call."""
    with parquet(access, path) as opened:
        names, start = _key_names(opened, layout, path), 0
        held, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in opened.iter_batches(batch_rows(opened, names, not is_plain(opened, names)), columns=names):
            held, rows, size = [*held, batch], rows + batch.num_rows, size + batch.nbytes
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield start, _canonical_keys(pa.Table.from_batches(held), layout)
                held, start, rows, size = [], start + rows, 0, 0
        if rows:
            yield start, _canonical_keys(pa.Table.from_batches(held), layout)


def note_keys(path: str, layout: Layout, keys: Sequence[pa.Array], cache: IndexCache = CACHE) -> None:
    """Keep the index of a new file, of which these are the keys (canonical, in file order): the next batch looks into
    it, and need not read it."""
    few = len(keys[0]) <= NOTED and sum(column.nbytes for column in keys) <= cache.most
    if few and cache.admits(len(keys[0]) * _ROW_BYTES):
        cache.note(path + layout.key_form, FileIndex.build(keys))


def forget(files: Sequence[str]) -> None:
    """The present version of a table no longer has these data files: what memory holds of them is let go. Of a table
    that changes all the time they would be most of what is kept."""
    CACHE.forget(files)
    FOOTERS.forget(files)


def _prove(access: FileAccess, file: DataFile, name: str, cache: IndexCache) -> None:
    """Asks once for a file whose keys were noted: one that is gone would else be marked, and nobody told."""
    if cache.is_unproven(name):
        if not access.exists(file.path):
            raise NotFound(f"{file.path} does not exist")
        cache.proven(name)


def joint_span(spans: Sequence[Span]) -> Span:
    """The smallest and the largest value of all; None: one of them says nothing, or there is none."""
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return None
    ends = [span_of(pa.array([span[at].as_py() for span in known], known[0][0].type)) for at in (0, 1)]
    return None if ends[0] is None or ends[1] is None else (ends[0][0], ends[1][1])


def key_span(access: FileAccess, path: str, layout: Layout) -> Span:
    """The span of the first key column of a file of which only the footer is read."""
    kind = layout.fields[layout.key[0]].type
    with parquet(access, path) as opened:
        groups = range(opened.metadata.num_row_groups)
        bounds = [_group_bounds(opened.metadata, group, layout, layout.key[:1])[0] for group in groups]
    if any(lower is None or upper is None for lower, upper in bounds):
        return None
    try:
        return span_of(pa.array([value for ends in bounds for value in ends], kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def is_disjoint(span: Span, bounds: tuple[object | None, object | None]) -> bool:
    if span is None or bounds[0] is None or bounds[1] is None:
        return False
    if isinstance(bounds[0], str) and pa.types.is_string(span[0].type):  # the most frequent, without Arrow's overhead
        return bool(str(bounds[1]) < span[0].as_py() or bounds[0] > span[1].as_py())
    try:
        low, high = (pa.scalar(bound, span[0].type) for bound in bounds)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return bool(pc.less(high, span[0]).as_py() or pc.greater(low, span[1]).as_py())


def live(file: DataFile, matches: Matches) -> Found | None:
    """Without dead rows, in file order."""
    positions, keys = matches
    if len(positions) and len(file.dead):
        alive = np.fromiter((position not in file.dead for position in positions.tolist()), np.bool_, len(positions))
        positions, keys = positions[alive], keys[alive]
    if not len(positions):
        return None
    order = np.argsort(positions, kind="stable")
    return Found(positions[order], keys[order])


def _search(access: FileAccess, file: DataFile, layout: Layout, wanted: WantedKeys, cache: IndexCache) -> Matches:
    """Looks for the keys that the file's bounds do not exclude, and into the file only if there are any."""
    chosen = _within(wanted.columns, _bounds_of(file, layout))
    if not len(chosen):
        return NO_ROWS
    columns = wanted.columns if len(chosen) == len(wanted.words) else [column.take(chosen) for column in wanted.columns]
    index = index_of(access, file, layout, cache)
    rows, which = index.search(columns) if index is not None else _scan(access, file, layout, columns)
    return rows, np.asarray(chosen)[which].astype(np.int64)


def index_of(access: FileAccess, file: DataFile, layout: Layout, cache: IndexCache) -> FileIndex | None:
    """The kept index, or one that is made now; None: it would take too much memory."""
    name = file.path + layout.key_form
    index = cache.get(name)
    if index is None and not cache.too_large(name) and cache.admits(file.rows * _ROW_BYTES):
        with parquet(access, file.path) as opened:
            read = _all_keys(opened, layout, file.path, cache.most)
        if read is None:
            cache.note_too_large(name)
        else:
            index = cache.offer(name, FileIndex.build(read))
    return index


def _all_keys(opened: pq.ParquetFile, layout: Layout, path: str, most: int) -> list[pa.Array] | None:
    """The key columns of the whole file; None: they are more than `most` bytes. How many shows when they are decoded:
    what repeats is nothing in a file."""
    if not opened.metadata.num_row_groups:
        return _key_columns(opened, layout, [], path)
    groups: list[list[pa.Array]] = []
    for group in range(opened.metadata.num_row_groups):
        groups.append(_key_columns(opened, layout, [group], path))
        most -= sum(column.nbytes for column in groups[-1])
        if most < 0:
            return None
    return [pa.concat_arrays(column) for column in zip(*groups, strict=True)]


def _scan(access: FileAccess, file: DataFile, layout: Layout, wanted: Sequence[pa.Array]) -> Matches:
    """Row group by row group, nothing kept."""
    positions: list[Positions] = []
    keys: list[Positions] = []
    with parquet(access, file.path) as opened:
        start = 0
        for group in range(opened.metadata.num_row_groups):
            chosen = _within(wanted, _group_bounds(opened.metadata, group, layout, layout.key))
            if len(chosen):
                columns = _key_columns(opened, layout, [group], file.path)
                at, which = search_once(columns, [column.take(chosen) for column in wanted])
                positions.append(at + start)
                keys.append(np.asarray(chosen)[which].astype(np.int64))
            start += opened.metadata.row_group(group).num_rows
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *positions]), np.concatenate([empty, *keys])


def _key_columns(opened: pq.ParquetFile, layout: Layout, groups: Sequence[int], path: str) -> list[pa.Array]:
    return _canonical_keys(opened.read_row_groups(list(groups), columns=_key_names(opened, layout, path)), layout)


def _key_names(opened: pq.ParquetFile, layout: Layout, path: str) -> list[str]:
    names = layout.physical(layout.key)
    missing = set(names) - set(opened.schema_arrow.names)
    if missing:
        what = f"{path} is older than the column {sorted(missing)[0]!r}, which the key has now"
        raise TargetChanged(layout.schema.name, what, f"Nothing else brings it forward: {RESYNC}.")
    return names


def _canonical_keys(table: pa.Table, layout: Layout) -> list[pa.Array]:
    out = []
    for source, name in zip(layout.key, layout.physical(layout.key), strict=True):
        column = table.column(name).cast(layout.fields[source].type).combine_chunks()
        out.append(canonical(pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column))
    return out


Bounds = Sequence[tuple[object | None, object | None]]


def _bounds_of(file: DataFile, layout: Layout) -> Bounds:
    return [(file.lower.get(name), file.upper.get(name)) for name in layout.key]


def _within(wanted: Sequence[pa.Array], bounds: Bounds) -> pa.Array:
    """Indices of the keys that can be between the bounds; a NaN is outside all statistics, so it always can."""
    keep: Any = None
    for column, (lower, upper) in zip(wanted, bounds, strict=True):
        if lower is None or upper is None or pa.types.is_boolean(column.type):
            continue
        try:
            low, high = pa.scalar(lower, column.type), pa.scalar(upper, column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            continue
        inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
        if pa.types.is_floating(column.type):
            inside = pc.or_(inside, pc.is_nan(column))
        keep = inside if keep is None else pc.and_(keep, inside)
    if keep is None:
        return pa.array(np.arange(len(wanted[0]), dtype=np.int64))
    return pa.array(np.flatnonzero(np.asarray(keep.fill_null(True))), pa.int64())


def _group_bounds(footer: pq.FileMetaData, group: int, layout: Layout, columns: Sequence[str]) -> Bounds:
    row_group = footer.row_group(group)
    names = {row_group.column(number).path_in_schema: number for number in range(row_group.num_columns)}
    at = [names.get(name) for name in layout.physical(columns)]
    return [(None, None) if number is None else _bounds(row_group.column(number).statistics) for number in at]


def _bounds(statistics: pq.Statistics | None) -> tuple[object | None, object | None]:
    if statistics is None or not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except (OverflowError, ValueError):  # a date or timestamp outside Python's years
        return None, None


def read_rows(
    access: FileAccess, path: str, rising: Positions, layout: Layout, names: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    """The rows at these rising positions, some at a time, by source column name; a column that the file lacks is null.
    With each table comes how many rows came before it. No more is decoded at once than `access.batch_rows` allows."""
    with parquet(access, path) as opened:
        present = set(opened.schema_arrow.names)
        read = [name for name in layout.physical(names) if name in present]
        size = batch_rows(opened, read)
        start = 0
        for group in range(opened.metadata.num_row_groups):
            rows = opened.metadata.row_group(group).num_rows
            first, last = np.searchsorted(rising, [start, start + rows])
            if last > first:
                yield from _read_group(opened, group, size, read, first, rising[first:last] - start, layout, names)
            start += rows


def _read_group(  # noqa: PLR0917  # a task's function: its arguments travel by position
    opened: pq.ParquetFile,
    group: int,
    size: int,
    read: list[str],
    before: int,
    wanted: Positions,
    layout: Layout,
    names: Sequence[str],
) -> Iterator[tuple[int, pa.Table]]:
    at = done = 0
    for batch in opened.iter_batches(size, row_groups=[group], columns=read):
        last = int(np.searchsorted(wanted, at + batch.num_rows))
        if last > done:
            rows = pa.table(batch).take(pa.array(wanted[done:last] - at))
            yield before + done, pa.table(in_layout(rows, layout, names), names=list(names))
        at, done = at + batch.num_rows, last
        if done == len(wanted):
            return


def find_rows(
    access: FileAccess, files: Sequence[DataFile], layout: Layout, wanted: Mapping[str, pa.Array], take: Sequence[str]
) -> Iterator[pa.Table]:
    """Columns of the live rows that have one of the `wanted` values, given by source column. Only these columns are
    read, of files and row groups whose bounds do not exclude every value; nothing is kept."""
    values = list(wanted.values())
    spans = {name: span_of(column) for name, column in wanted.items()}
    for file in files:
        if any(is_disjoint(span, (file.lower.get(name), file.upper.get(name))) for name, span in spans.items()):
            continue
        positions = [NO_ROWS[0]]
        with parquet(access, file.path) as opened:
            start = 0
            for group in range(opened.metadata.num_row_groups):
                if len(_within(values, _group_bounds(opened.metadata, group, layout, tuple(wanted)))):
                    positions += [at + start for at in _having(opened, group, layout, wanted)]
                start += opened.metadata.row_group(group).num_rows
        found = live(file, (at := np.concatenate(positions), np.zeros(len(at), np.int64)))
        if found is not None:
            yield take_rows(access, file.path, found.positions, layout, take)


def _having(opened: pq.ParquetFile, group: int, layout: Layout, wanted: Mapping[str, pa.Array]) -> Iterator[Positions]:
    """Positions in the row group, some at a time."""
    start, present = 0, set(opened.schema_arrow.names)
    read = layout.physical(tuple(wanted))
    if not present.issuperset(read):
        return  # older than one of the columns: its rows have no value there
    for batch in opened.iter_batches(batch_rows(opened, read), row_groups=[group], columns=read):
        columns = [_one(column) for column in in_layout(pa.table(batch), layout, tuple(wanted))]
        filled = np.flatnonzero(np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns]))
        at, _ = search_once([column.take(pa.array(filled)) for column in columns], list(wanted.values()))
        yield (filled[at] + start).astype(np.int64)
        start += batch.num_rows


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def take_rows(
    access: FileAccess, path: str, positions: Positions, layout: Layout, names: Sequence[str] | None = None
) -> pa.Table:
    """The rows at these positions (any order, kept), all of them at once."""
    names = [column.name for column in layout.schema.columns] if names is None else names
    order = np.argsort(positions, kind="stable")
    parts = [rows for _, rows in read_rows(access, path, positions[order], layout, names)]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    if not parts:
        return pa.table(in_layout(None, layout, names), names=list(names))
    return pa.concat_tables(parts).take(pa.array(back))


def in_layout(table: pa.Table | None, layout: Layout, names: Sequence[str]) -> list[Any]:
    fields: Mapping[str, pa.Field] = layout.fields
    return [
        table.column(fields[name].name).cast(fields[name].type)
        if table is not None and fields[name].name in table.column_names
        else pa.nulls(table.num_rows if table is not None else 0, fields[name].type)
        for name in names
    ]
