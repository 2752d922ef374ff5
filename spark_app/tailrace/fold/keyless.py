"""One batch of a table without a key, whatever the target: its changes, and the rows over which they are counted.

All values of a row together tell it apart.
A chunk is the whole table: what was there goes, and the chunk with the changes that it did not see is the table from
then on. Else the target's own rows are what changes are counted over. Either way each change counts once: an insert is
one more row that is equal to it, a delete one less, whichever of the equal ones
(docs/decisions/0047-tables-without-a-key.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import Seq, SeqRanges
from tailrace.errors import REPAIR, ForeignChange
from tailrace.fold.counted import RowCounts
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Ints, Mask
from tailrace.fold.log_rows import DELETE, INSERT, MOVE, RowChanges, promoted, segment_rows
from tailrace.fold.row_digests import digests

HELD_BYTES = 128 << 20
"""Bytes of change rows that are kept from counting to writing; more are read a second time."""


@dataclass(frozen=True)
class CountedSlice:
    """The changes of a batch that count, and the rows that they are counted over."""

    slice: TableSlice
    """The chunks of one reading, which takes the place of the target's rows; or none, and the target's rows stay."""
    first: Seq
    """The changes begin here,"""
    seen: SeqRanges = ()
    """without these."""
    whole: bool = False
    """It has every row that the changes delete."""

    @classmethod
    def of(cls, part: TableSlice) -> "CountedSlice":
        if not part.chunks:
            return cls(part, Seq(part.start_seq + 1), whole=part.whole)
        # Each reading is the whole table, and exact with the changes that it did not see: any of them would do.
        newest = part.chunks[-1]
        own = tuple(chunk for chunk in part.chunks if chunk.snapshot_id == newest.snapshot_id)
        first = newest.replay_point
        unseen = [s for s in part.truncates if s >= first and not any(low <= s <= high for low, high in newest.seen)]
        if unseen:
            own, first = (), Seq(max(unseen) + 1)
        whole = newest.schema_version == part.schema.version
        return cls(replace(part, chunks=own, clear=True), first, newest.seen, whole)

    def counts(self, seq: Ints) -> Mask:
        mask: Mask = seq >= self.first
        for first, last in self.seen:
            mask &= (seq < first) | (seq > last)
        return mask

    def check(self, counts: RowCounts, there: Ints) -> None:
        """`there`: how many of the rows that the changes delete are in the target."""
        if self.whole and (there < counts.counts).any():
            name = self.slice.schema.name
            what = f"the log deletes rows of {name} that the target does not have"
            raise ForeignChange(name, what, f"Keep other writers out, then {REPAIR}.")


class CountedChanges:
    """The batch's changes in order of sequence."""

    def __init__(self, work: FoldInput, part: CountedSlice) -> None:
        self._work, self._part = work, part
        self._segments = [s for s in work.slice.segments if s.last_seq >= part.first]
        self._held: list[RowChanges] | None = None

    @property
    def only_inserts(self) -> bool:
        return not any(segment.updates or segment.deletes for segment in self._segments)

    def counts(self, deleted: Callable[[pa.Table], None]) -> RowCounts:
        """`deleted` is called with the rows of deletes."""
        blocks, held, size = [], list[RowChanges](), 0
        for block in self.blocks():
            removes = block.op == DELETE
            blocks.append((removes, *digests(block.rows.columns)))
            deleted(block.rows.filter(pa.array(removes)))
            size += block.rows.nbytes
            held = [*held, block] if size <= HELD_BYTES else []
        self._held = held if size <= HELD_BYTES else None
        return RowCounts.of(blocks)

    def rows(self, written: Mask | None = None) -> Iterator[pa.Table]:
        """Yields, of all changes, the rows to write; None: all."""
        at = 0
        for block in self.blocks() if self._held is None else self._held:
            end = at + block.count
            yield block.rows if written is None else block.rows.filter(pa.array(written[at:end]))
            at = end

    def blocks(self) -> Iterator[RowChanges]:
        """Yields the changes that count."""
        for found in segment_rows(self._work, self._segments, unchanged=False):
            block = found.filter(self._part.counts(found.seq))
            known = np.isin(block.op, (INSERT, MOVE, DELETE))
            assert known.all(), "an update of a table without a key is a delete and a move"
            if len(block.seq):
                yield promoted(self._work, [block])
