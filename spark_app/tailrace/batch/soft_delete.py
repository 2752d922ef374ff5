"""Slices of tables whose deleted rows stay, marked (`options[].history: SoftDelete`): the stages that a target takes
one after the other in one commit. Pure.

Deletes are updates that set the marks (`fold.log_rows`), so one stage is a slice as of any table, without a TRUNCATE.
What else takes rows away has a stage's end mark those that are not marked yet: a TRUNCATE all of them, with its time; a
list of keys that a chunk looked for, and the end of a complete snapshot, those that the source lacks, without a time:
when they went is not in the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tailrace.batch.slice import FinishedSnapshot, TableSlice
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key, RecordNumber, Seq
from tailrace.changelog.state import TableLog


@dataclass(frozen=True)
class Stage:
    slice: TableSlice
    """Without snapshots' ends, TRUNCATEs and questions for keys."""
    truncated: bool
    """It ends with a TRUNCATE, which leaves no hole."""
    truncated_at: int | None
    """The time of that, microseconds since the Unix epoch; None: the log does not say."""
    asked: tuple[ChunkRegistered, ...]
    """Chunks that were lists of keys. A key that its chunk lacks, and that has not changed since, is to be marked."""
    finished: tuple[FinishedSnapshot, ...]

    def over(self, holes: frozenset[Key]) -> "Stage":
        """The stage over what the one before has left."""
        applied = replace(self.slice.applied, holes=holes, applied_seq=self.slice.start_seq)
        return replace(self, slice=replace(self.slice, applied=applied))


def stages(part: TableSlice) -> Iterator[Stage]:
    """`part`: of a record with TRUNCATEs, or of records without (`ends_before`). A chunk that has not seen a TRUNCATE
    of its own record, or of one before, brings nothing: the log has all rows from there on."""
    start = part.start_seq
    for seq in (seq for seq in part.truncates if start < seq):
        own = replace(part, start_seq=start, through_seq=Seq(seq - 1), chunks=(), finished=(), truncates=(), earlier=())
        yield Stage(own, True, part.truncated_at.get(seq), (), ())
        start = seq
    seeing = tuple(chunk for chunk in part.chunks if part.emptied_at(chunk) is None)
    asked = tuple(chunk for chunk in seeing if chunk.keys)
    chunks = tuple(chunk.model_copy(update={"keys": ()}) if chunk.keys else chunk for chunk in seeing)
    last = replace(part, start_seq=start, chunks=chunks, finished=(), truncates=())
    yield Stage(last, False, None, asked, part.finished)


def ends_before(table: TableLog) -> Iterator[RecordNumber]:
    """Records with which a batch must end, so that `stages` takes a record with TRUNCATEs by itself: what a chunk or a
    snapshot's end brings in an earlier one comes before them, however the log is cut into batches."""
    if table.schema.history == "SoftDelete":
        for truncate in table.truncates:
            yield from (RecordNumber(truncate.record - 1), truncate.record)
