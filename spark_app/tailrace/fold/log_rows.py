"""Read the log rows that one part of a batch needs, promoted to the target's schema.

New rows (above `slice.start_seq`) are kept for every key of the part; older ones, which only chunks replay, for the
chunks' keys alone: files are streamed, so what stays in memory is what is needed. The rows of a large batch may come
divided by the target.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.changelog.history import (
    DELETED,
    DELETED_AT,
    IS_CURRENT,
    MARKS,
    VALID_FROM,
    VALID_TO,
    VALIDITY,
    is_marked,
    is_versioned,
)
from tailrace.changelog.paths import is_bundle
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Seq, TableSchema
from tailrace.changelog.segments import COMMIT_TS, open_segment, segment_batches
from tailrace.changelog.types import arrow_type
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, Mask, cast, flat, joined, typed, words

_MARK_NAMES = {column.id: column.name for column in (*MARKS, *VALIDITY)}

JOINED = 256
"""Segments that are read as one at most; each has a few kilobytes."""
LITTLE = 1 << 20
"""Bytes of segments that are worked without asking what they unpack to: each is small before compression, too."""
INSERT, UPDATE, DELETE, MOVE, TRUNCATE = (ord(letter) for letter in "IUDMT")


@dataclass(frozen=True)
class RowChanges:
    """Log rows in order of sequence, without TRUNCATEs. Names and types of `rows` are the target's. Where deleted rows
    stay, marked, a D is an update that sets the marks and nothing else."""

    seq: Ints
    op: Ints
    keys: Columns
    rows: pa.Table
    unchanged: dict[int, Mask]
    """The unchanged values by the column's place, where some row does not carry it."""
    deletes: Mask
    """The rows that were deletes in the log, where deleted rows stay; none anywhere else."""

    @property
    def count(self) -> int:
        return len(self.seq)


@dataclass(frozen=True)
class SegmentRows:
    """Some rows of one segment, as they are there, and their keys."""

    segment: Segment
    seq: Ints
    op: Ints
    keys: Columns
    table: pa.Table

    @classmethod
    def of(cls, work: FoldInput, segment: Segment, table: pa.Table) -> "SegmentRows":
        names = key_names(work, segment)
        keys = typed((table[name] for name in names), work.key_types)
        return cls(
            segment, np.asarray(flat(table["_seq"])).astype(np.int64, copy=False), _codes(table["_op"]), keys, table
        )

    def filter(self, mask: Mask) -> "SegmentRows":
        if mask.all():
            return self
        chosen = pa.array(mask)
        keys = [key.filter(chosen) for key in self.keys]
        return SegmentRows(self.segment, self.seq[mask], self.op[mask], keys, self.table.filter(chosen))


def segment_rows(
    work: FoldInput,
    segments: Sequence[Segment],
    columns: bool = True,
    unchanged: bool = True,
    more: Sequence[str] = (),
) -> Iterator[SegmentRows]:
    """All rows of the segments, batch by batch; without `columns` the keys only. `more`: columns of the log's own."""
    for alike in _alike(segments):
        segment = alike[0]
        version, keys = work.slice.versions[segment.schema_version], key_names(work, segment)
        wanted = ["_seq", "_op", *more, *(["_unchanged"] if unchanged and segment.unchanged else []), *keys]
        wanted += [c.name for c in version.columns if columns and c.id > 0 and c.name not in keys]
        wanted += [COMMIT_TS] if columns and (is_marked(version) or is_versioned(version)) else []
        tables = (rows for one in alike for rows in segment_batches(work.log, one, wanted))
        for rows in tables if len(alike) == 1 else (pa.concat_tables(tables).combine_chunks(),):
            block = SegmentRows.of(work, segment, rows)
            yield block.filter((block.op != TRUNCATE) & (block.seq <= work.slice.through_seq))


def _alike(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Neighbours that are parts of bundles and have the same columns come together: with a few rows each, most of what
    they cost is per table of rows. Every other segment is alone."""
    some: list[Segment] = []
    for segment in segments:
        before = _columns_of(some[0]) if some else None
        if some and (before is None or before != _columns_of(segment) or len(some) == JOINED):
            yield some
            some = []
        some.append(segment)
    if some:
        yield some


def _columns_of(segment: Segment) -> tuple[int, bool] | None:
    """None: it is a file."""
    return (segment.schema_version, segment.unchanged) if is_bundle(segment.path) else None


def _codes(column: pa.ChunkedArray) -> Ints:
    """The operation's letter as a number."""
    letters = flat(column).cast(pa.binary())
    _, offsets, values = letters.buffers()
    if not len(letters):
        return np.empty(0, np.int64)
    ends = np.frombuffer(offsets, np.int32, len(letters) + 1, 4 * letters.offset)
    assert (np.diff(ends) == 1).all(), "operations have one letter"
    return np.frombuffer(values, np.uint8, len(letters), int(ends[0])).astype(np.int64)


def unpacked_size(work: FoldInput, segments: Sequence[Segment]) -> int:
    """Bytes of the segments' rows before compression; of little data the size as it is."""
    packed = sum(segment.size for segment in segments)
    return packed if packed <= LITTLE else sum(_unpacked(work, segment) for segment in segments)


def _unpacked(work: FoldInput, segment: Segment) -> int:
    if is_bundle(segment.path):
        return segment.size
    with open_segment(work.log, segment) as file:
        assert not isinstance(file, pa.Table)
        footer = file.metadata
    return sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))


def key_names(work: FoldInput, segment: Segment) -> list[str]:
    """The key columns as the segment calls them."""
    version = work.slice.versions[segment.schema_version]
    return [_name_of(version, column.id) for column in work.slice.schema.key_columns]


def _name_of(version: TableSchema, column_id: int) -> str:
    return next(column.name for column in version.columns if column.id == column_id)


def first_needed(work: FoldInput) -> Seq:
    """The first sequence of which some part may need rows."""
    own = (Seq(work.slice.start_seq + 1), Seq(work.slice.through_seq + 1))
    return min(*own, *map(work.slice.replayed_from, work.slice.chunks))


def read_changes(
    work: FoldInput, part: int, chunk_words: Ints, rows: Iterable[SegmentRows] | None = None
) -> RowChanges:
    """The part's log rows; `chunk_words` are the words of its chunks' keys. `rows`: those at or above `first_needed`,
    where they have been divided already; None: read them from the segments."""
    first, chunk_words = first_needed(work), np.unique(chunk_words)
    kept: list[SegmentRows] = []
    start = first if len(chunk_words) else Seq(work.slice.start_seq + 1)
    for block in _own(work, part, start) if rows is None else rows:
        mine = block.seq >= first
        old = mine & (block.seq <= work.slice.start_seq)
        if old.any():
            mine &= ~old | np.isin(words(block.keys), chunk_words)
        if mine.any():
            kept.append(block.filter(mine))
    # Divided rows come segment by segment, but the segments in any order.
    kept.sort(key=lambda block: int(block.seq[0]))
    return promoted(work, kept)


def _own(work: FoldInput, part: int, first: Seq) -> Iterator[SegmentRows]:
    """Rows of the part, out of all."""
    for block in segment_rows(work, [segment for segment in work.slice.segments if segment.last_seq >= first]):
        yield block if work.parts == 1 else block.filter(work.owner(block.keys) == part)


def promoted(work: FoldInput, kept: list[SegmentRows]) -> RowChanges:
    """The rows of several blocks in the target's columns."""
    target = work.slice.schema
    columns = [
        pa.chunked_array([chunk for block in kept for chunk in _column(block, work, column.id).chunks],
                         work.types[column.name])
        for column in target.columns
    ]  # fmt: skip
    masks = {place: [_unchanged(block, work, c.id) for block in kept] for place, c in enumerate(target.columns)}
    op = np.concatenate([np.empty(0, np.int64), *(block.op for block in kept)])
    deletes = np.equal(op, DELETE) & is_marked(target)
    return RowChanges(
        np.concatenate([np.empty(0, np.int64), *(block.seq for block in kept)]),
        np.where(deletes, UPDATE, op),
        joined([block.keys for block in kept], work.key_types),
        pa.table(columns, names=work.names),
        {place: mask for place, found in masks.items() if found and (mask := np.concatenate(found)).any()},
        deletes,
    )


def _column(block: SegmentRows, work: FoldInput, column_id: int) -> pa.ChunkedArray:
    """The column by its identity: it may have had another name, or not have been there."""
    if column_id in _MARK_NAMES:
        return _marks(block, _MARK_NAMES[column_id])
    kind = next(work.types[c.name] for c in work.slice.schema.columns if c.id == column_id)
    version = work.slice.versions[block.segment.schema_version]
    name = next((column.name for column in version.columns if column.id == column_id), None)
    rows = len(block.seq)
    return cast(block.table[name], kind) if name is not None else pa.chunked_array([pa.nulls(rows, kind)])


def _marks(block: SegmentRows, name: str) -> pa.ChunkedArray:
    """The values of a column that says of each row whether, and when, it was deleted; or since when it is valid."""
    if name == VALID_FROM:
        return pa.chunked_array([flat(block.table[COMMIT_TS]).cast(arrow_type("timestamptz"))])
    if name == IS_CURRENT:
        return pa.chunked_array([pa.array(np.ones(len(block.seq), np.bool_))])
    if name == VALID_TO:
        return pa.chunked_array([pa.nulls(len(block.seq), arrow_type("timestamptz"))])
    deleted = np.equal(block.op, DELETE)
    if name == DELETED:
        return pa.chunked_array([pa.array(deleted)])
    assert name == DELETED_AT
    times = flat(block.table[COMMIT_TS]).cast(arrow_type("timestamptz"))
    return pa.chunked_array([pc.if_else(pa.array(deleted), times, pa.scalar(None, times.type))])


def _unchanged(block: SegmentRows, work: FoldInput, column_id: int) -> Mask:
    """Rows that do not carry the column; an update from before the column was added says nothing about it."""
    if column_id in _MARK_NAMES:
        return np.zeros(len(block.seq), np.bool_)
    if is_marked(work.slice.schema):
        keys = work.slice.schema.key_columns
        if len(keys) == len(work.slice.schema.columns) - len(MARKS) or all(c.id != column_id for c in keys):
            return _not_carried(block, work, column_id) | np.equal(block.op, DELETE)
    return _not_carried(block, work, column_id)


def _not_carried(block: SegmentRows, work: FoldInput, column_id: int) -> Mask:
    version = work.slice.versions[block.segment.schema_version]
    place = next((at for at, column in enumerate(version.columns) if column.id == column_id), None)
    if place is None:
        return np.equal(block.op, UPDATE)
    mask: Mask = np.zeros(len(block.seq), np.bool_)
    if "_unchanged" in block.table.column_names:
        places = flat(block.table["_unchanged"])
        rows = np.asarray(pc.list_parent_indices(places)).astype(np.int64)
        mask[rows[np.asarray(pc.list_flatten(places)) == place]] = True
    return mask
