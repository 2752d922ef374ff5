"""Slices of tables all of whose versions stay (`options[].history: Versions`): the stages that a target takes one after
the other in one commit. Pure.

Changes come first, then what was read. So a chunk adds nothing where the log has told the row already, and what it adds
does not depend on how the log is cut into batches: a batch has no change behind the record of a chunk (`ends_before`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import Key, RecordNumber, Seq
from tailrace.changelog.state import TableLog


@dataclass(frozen=True)
class VersionStage:
    slice: TableSlice
    """Changes alone, or chunks and ends of snapshots over changes that all have been taken."""
    truncated: bool = False
    """It ends with a TRUNCATE, which leaves no hole."""
    truncated_at: int | None = None
    """The time of that, microseconds since the Unix epoch; None: the log does not say."""

    @property
    def reads(self) -> bool:
        """It is of rows that were read."""
        return bool(self.slice.chunks or self.slice.finished)

    def over(self, holes: frozenset[Key]) -> "VersionStage":
        """The stage over what the one before has left."""
        applied = replace(self.slice.applied, holes=holes, applied_seq=self.slice.start_seq)
        return replace(self, slice=replace(self.slice, applied=applied))


def version_stages(part: TableSlice) -> Iterator[VersionStage]:
    """A chunk that has not seen a TRUNCATE brings nothing: the log has all rows from there on."""
    start = part.start_seq
    for seq in (seq for seq in part.truncates if start < seq):
        yield VersionStage(_changes(part, start, Seq(seq - 1)), True, part.truncated_at.get(seq))
        start = seq
    if part.new_segments:
        yield VersionStage(_changes(part, start, part.through_seq))
    chunks = tuple(chunk for chunk in part.chunks if part.emptied_at(chunk) is None)
    if chunks or part.finished:
        yield VersionStage(replace(part, start_seq=part.through_seq, chunks=chunks, truncates=()))


def _changes(part: TableSlice, start: Seq, through: Seq) -> TableSlice:
    return replace(part, start_seq=start, through_seq=through, chunks=(), finished=(), truncates=(), earlier=())


def version_ends(table: TableLog) -> Iterator[RecordNumber]:
    """Records with which a batch must end: that of a chunk which changes of the table follow, and as for rows that are
    marked, a record with a TRUNCATE is taken by itself."""
    if table.schema.history != "Versions":
        return
    for truncate in table.truncates:
        yield from (RecordNumber(truncate.record - 1), truncate.record)
    through = table.segments.last_seq_through
    for chunk, following in pairwise(table.chunks):
        if chunk.record < following.record and through(chunk.record) != through(following.record):
            yield chunk.record
    if table.chunks:
        yield table.chunks[-1].record
