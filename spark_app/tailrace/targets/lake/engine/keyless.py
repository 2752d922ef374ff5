"""One batch of a table without a key into one commit: rows are counted, as all their values tell them apart.

Called by `LakeTable` instead of `engine.build`. A chunk is the whole table: what was there goes, and the chunk's files
with the changes that it did not see are the table from then on. Else the target's own rows are what changes are counted
over. Either way each change counts once: an insert is one more row that is equal to it, a delete one less, whichever of
the equal ones (docs/decisions/0047-tables-without-a-key.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tailrace.changelog.records.terms import Seq, SeqRanges
from tailrace.errors import RESYNC, TargetChanged
from tailrace.fold.counted import RowCounts
from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.log_rows import DELETE, INSERT, MOVE, SegmentRows, column_of, segment_rows
from tailrace.fold.row_digests import digests, numbered_within
from tailrace.targets.lake.engine.part import PartInput
from tailrace.targets.lake.files.locate import Found, Span, span_of
from tailrace.targets.lake.files.locate_rows import WantedRows, locate_rows
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

HELD_BYTES = 128 << 20
"""Bytes of change rows that are kept from counting to writing; more are read a second time."""


@dataclass(frozen=True)
class BatchBase:
    """The rows over which the batch's changes are counted, and the changes."""

    files: tuple[DataFile, ...]
    first: Seq
    """The changes begin here,"""
    seen: SeqRanges = ()
    """without these."""
    whole: bool = False
    """It has every row that the changes delete."""
    adopted: bool = False
    """The files are a reading's, and not in the target yet."""
    replaces: bool = False
    """True if the target's rows are removed."""

    @classmethod
    def of(cls, work: PartInput) -> "BatchBase":
        part = work.slice
        if not part.chunks:
            return cls(work.files, Seq(part.start_seq + 1), whole=part.whole, replaces=part.clear)
        # Each reading is the whole table, and exact with the changes that it did not see: any of them would do.
        newest = part.chunks[-1]
        whole = newest.schema_version == part.schema.version
        unseen = [s for s in part.truncates if s >= newest.replay_point and not _among(s, newest.seen)]
        if unseen:
            return cls((), Seq(max(unseen) + 1), newest.seen, whole, adopted=True, replaces=True)
        own = (c for c in part.chunks if c.snapshot_id == newest.snapshot_id)
        files = tuple(DataFile(c.path, c.rows, c.size) for c in own if c.path is not None)
        return cls(files, newest.replay_point, newest.seen, whole, adopted=True, replaces=True)


def _among(seq: Seq, ranges: SeqRanges) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def build_keyless(work: PartInput) -> TableCommit:
    base = BatchBase.of(work)
    changes = _Changes(work, base)
    if changes.only_inserts:
        return _commit(work, base, {}, changes.rows())
    counts, spans = changes.counts()
    # The files' bounds are under the columns' names before the batch.
    wanted = WantedRows(counts.digests, counts.counts, {} if work.slice.evolve is not None else spans)
    found = locate_rows(work.lake, base.files, work.layout, wanted)
    there = _counted(found.values(), len(counts.counts))
    if base.whole and (there < counts.counts).any():
        name = work.layout.schema.name
        what = f"the log deletes rows of {name} that the target does not have"
        raise TargetChanged(name, what, f"Nothing else brings it forward: {RESYNC}.")
    written, marks = counts.settled(there)
    return _commit(work, base, _first(found, marks), changes.rows(written))


def _counted(found: Iterable[Found], groups: int) -> Ints:
    """How many rows of each group."""
    keys = np.concatenate([np.empty(0, np.int64), *(rows.keys for rows in found)])
    return np.bincount(keys, minlength=groups)


def _first(found: Mapping[str, Found], marks: Ints) -> dict[str, BitMap64]:
    """Positions of so many rows of each group."""
    left, chosen = marks.copy(), dict[str, BitMap64]()
    for path, rows in found.items():
        here = numbered_within(rows.keys) < left[rows.keys]
        if here.any():
            chosen[path] = BitMap64(rows.positions[here])
            left -= np.bincount(rows.keys[here], minlength=len(left))
    return chosen


def _commit(work: PartInput, base: BatchBase, dead: Mapping[str, BitMap64], rows: Iterable[pa.Table]) -> TableCommit:
    added = [written.file for written in write_files(work.lake, work.location, work.layout, rows)]
    chunks = base.files if base.adopted else ()
    adopted = (NewFile(file.path, file.rows, file.size, dead.get(file.path, BitMap64())) for file in chunks)
    marks = {file.path: file.dead | dead[file.path] for file in base.files if file.path in dead}
    return TableCommit(
        work.slice.applied_after(frozenset()),
        [*(file for file in adopted if len(file.dead) < file.rows), *added],
        {} if base.replaces else marks,
        base.replaces,
        evolve=work.slice.evolve,
        before=work.slice.before,
    )


@dataclass(frozen=True)
class _Block:
    """Some changes, promoted to the target's columns."""

    removes: Mask
    rows: pa.Table


class _Changes:
    """The batch's changes in order of sequence."""

    def __init__(self, work: PartInput, base: BatchBase) -> None:
        self._work, self._base = work, base
        self._segments = [s for s in work.slice.segments if s.last_seq >= base.first]
        self._xa_buffer: list[_Block] | None = None

    @property
    def only_inserts(self) -> bool:
        return not any(segment.updates or segment.deletes for segment in self._segments)

    def counts(self) -> tuple[RowCounts, Mapping[str, Span]]:
        blocks, held, spans = [], list[_Block](), _Spans()
        size = 0
        for block in self._read():
            blocks.append((block.removes, *digests(block.rows.columns)))
            spans.add(block.rows.filter(pa.array(block.removes)))
            size += block.rows.nbytes
            held = [*held, block] if size <= HELD_BYTES else []
        self._xa_buffer = held if size <= HELD_BYTES else None
        return RowCounts.of(blocks), spans.known

    def rows(self, written: Mask | None = None) -> Iterator[pa.Table]:
        """Yields, of all changes, the rows to write; None: all."""
        at = 0
        for block in self._read() if self._xa_buffer is None else self._xa_buffer:
            end = at + block.rows.num_rows
            yield block.rows if written is None else block.rows.filter(pa.array(written[at:end]))
            at = end

    def _read(self) -> Iterator[_Block]:
        for found in segment_rows(self._work.fold, self._segments, unchanged=False):
            block = found.filter(self._counts(found.seq))
            if len(block.seq):
                yield self._promoted(block)

    def _counts(self, seq: Ints) -> Mask:
        mask: Mask = seq >= self._base.first
        for first, last in self._base.seen:
            mask &= (seq < first) | (seq > last)
        return mask

    def _promoted(self, block: SegmentRows) -> _Block:
        known = np.isin(block.op, (INSERT, MOVE, DELETE))
        assert known.all(), "an update of a table without a key is a delete and a move"
        columns = [column_of(block, self._work.fold, column.id) for column in self._work.layout.schema.columns]
        return _Block(block.op == DELETE, pa.table(columns, names=self._work.fold.names))


class _Spans:
    """The bounds of all rows' values, by column; columns in which one is NULL, or says nothing, are left out."""

    def __init__(self) -> None:
        self._known: dict[str, Span] | None = None

    @property
    def known(self) -> Mapping[str, Span]:
        return self._known or {}

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        here = {
            name: span_of(column.combine_chunks())
            for name, column in zip(rows.column_names, rows.columns, strict=True)
            if column.null_count == 0 and not (pa.types.is_boolean(column.type) or pa.types.is_nested(column.type))
        }
        before = here if self._known is None else self._known
        self._known = {name: _joined(before[name], here[name]) for name in before.keys() & here.keys()}


def _joined(one: Span, other: Span) -> Span:
    if one is None or other is None:
        return None
    lower = one[0] if pc.less_equal(one[0], other[0]).as_py() else other[0]
    return lower, one[1] if pc.greater_equal(one[1], other[1]).as_py() else other[1]
