"""Brings one target table forward: refresh, cut, build, commit, again until it holds what the journal holds.

One worker per table, owned by the applier, entered by one thread at a time. Dying anywhere here is safe: the target's
own applied record says where to continue, and nothing at or below it is applied again.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator, Set
from dataclasses import replace
from heapq import merge
from itertools import groupby, islice, takewhile
from operator import itemgetter
from threading import RLock

from tailrace.apply.progress import Progress, TableProgress, add
from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog import triggers
from tailrace.changelog.records import ChunkRegistered, Key, RecordNumber, TableSchema
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.status import TableCounters
from tailrace.errors import met_at
from tailrace.snapshot.planner import replaced_chunks
from tailrace.targets.api import ChunkWriter, NeededChunks, TargetTable

log = logging.getLogger(__name__)

MAX_ROWS = 400_000
"""Change rows that one batch takes at most, unless a single record has more: bounds memory and the time to a commit."""
MAX_BYTES = 128 << 20
"""The bound for the segments' bytes."""
MAX_CHUNK_ROWS = 4_000_000
"""The bound for the rows of chunks, of which only the keys are read."""
MAX_CHUNKS = 400
"""The bound for their files: each is examined before it is adopted."""
PATIENCE = 50
"""Batches for which a new copy that is complete waits for rows that are withheld."""


class TableWorker:
    """`target` is the table's copy; the worker opens it."""

    def __init__(
        self, table_id: int, target: TargetTable, progress: Progress, generation: RecordNumber = RecordNumber(0)
    ) -> None:
        self.table_id = table_id
        self.generation = generation
        """The generation of the journal's table that this worker brings forward; it ends with it."""
        self._target = target
        self._progress = progress
        self._lock = RLock()
        self._applied: AppliedState | None = None
        self.found_record: RecordNumber | None = None
        """The applied record of the target when this worker first opened it; None: it has not yet."""
        self._writers: dict[int, ChunkWriter] = {}
        self._withheld: frozenset[Key] | None = None
        """Keys that a new copy, otherwise complete, still lacks; None: it is not complete."""
        self._waits = 0
        """The number of batches for which it has waited for them."""

    def advance(self, state: LogState, through: RecordNumber) -> bool:
        """One batch; False: there is nothing more up to record `through`. Raises what the target raises; afterwards the
        target is read again, so that whatever did happen counts."""
        with self._lock:
            log_table = state.tables.get(self.table_id)
            if log_table is None or log_table.generation != self.generation:
                return False
            try:
                with met_at("target"):  # what the change log's storage does not say of itself
                    return self._step(state, log_table, through)
            except BaseException:
                self._applied = None
                raise

    @property
    def opened(self) -> bool:
        """True if the target is known right now; takes no lock, so that it may be called while a batch runs."""
        return self._applied is not None

    @property
    def settled(self) -> bool:
        """True if the target is known and lacks nothing: where there is a gap, every batch checks which snapshot will
        fill it."""
        applied = self._applied
        return applied is not None and applied.gap is None

    def chunk_writer(self, schema: TableSchema) -> ChunkWriter | None:
        """A writer for chunks of this schema version; None: the target is not open, or does not have this version yet
        (its columns' ids are known only once it does). Waits for no batch once it is known."""
        known, applied = self._writers.get(schema.version), self._applied
        if known is not None or applied is None or schema.version > applied.schema_version:
            return known
        with self._lock:
            if self._applied is None:
                return None
            return self._writers.setdefault(schema.version, self._target.chunk_writer(schema))

    def tidy(self, state: LogState, now: float) -> None:
        """Upkeep of the target; only between batches."""
        with self._lock:
            applied, log_table = self._applied, state.tables.get(self.table_id)
            if log_table is None or log_table.generation != self.generation:
                return
            schemas = {logged.table.version: logged.table for logged in log_table.schemas}
            if applied is None or applied.schema_version not in schemas:
                return  # not open, or the table has come back with a version that the target lacks
            try:
                needed = needed_chunks(log_table, state, applied)
                with met_at("target"):
                    self._target.tidy(schemas[applied.schema_version], applied, needed, now)
            except BaseException:
                self._applied = None
                raise

    def _step(self, state: LogState, log_table: TableLog, through: RecordNumber) -> bool:
        applied = self._applied or self._open(state, log_table)
        covered = max(applied.applied_record, self._progress.of(self.table_id).applied_record)
        if covered >= through:
            self._put(self._published(state, log_table, applied), covered, TableCounters())
            return False
        end = batch_end(log_table, covered, through)
        part = without_lost_chunks(state, cut(state, self.table_id, applied, end))
        if part is not None:
            applied = self._applied = self._target.apply(part)
            log.debug("applied to record %d", end, extra={"table": log_table.schema.name, "record": end})
        applied = self._published(state, log_table, applied)
        self._put(applied, end, TableCounters() if part is None else counted(part))
        return end < through

    def _open(self, state: LogState, log_table: TableLog) -> AppliedState:
        assert state.origin is not None
        first = log_table.schemas[0].table
        self._writers = {}
        generation = Generation(log_table.generation, log_table.begin_seq, keeps=not log_table.must_hide)
        self._applied = self._target.open(first, state.origin.log_id, generation)
        if self.found_record is None:
            self.found_record = self._applied.applied_record
        # What was covered without a commit is known only to this process; the target's record alone counts now.
        self._progress.put(
            self.table_id, replace(self._progress.of(self.table_id), applied_record=self._applied.applied_record)
        )
        return self._applied

    def _published(self, state: LogState, log_table: TableLog, applied: AppliedState) -> AppliedState:
        """A new copy that is complete takes the place of what readers see: one commit, after which the target says the
        same of itself. Rows that are withheld then are waited for, but for those of later changes, and not forever."""
        if not self._target.replacing or not read_whole(log_table, state, applied):
            self._withheld, self._waits = None, 0
            return applied
        self._withheld = applied.holes if self._withheld is None else self._withheld & applied.holes
        self._waits += 1
        if self._withheld and self._waits < PATIENCE:
            return applied
        self._target.publish()
        return self._open(state, log_table)

    def _put(self, applied: AppliedState, covered: RecordNumber, more: TableCounters) -> None:
        before = self._progress.of(self.table_id)
        self._progress.put(
            self.table_id,
            TableProgress(
                applied.applied_seq,
                covered,
                applied.applied_record,
                applied.holes,
                add(before.counters, more),
                replacing=self._target.replacing,
            ),
        )


def read_whole(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True if the table's rows have been read since its generation began, the target holds all that was read, and
    nothing calls for another reading."""
    read = table.read_record > max(table.added_record, table.reread_record) and table.unread is None
    if not read or applied.gap is not None or any(True for _ in triggers.pending(state, table)):
        return False
    ends = any(finish.complete and finish.record > applied.applied_record for finish in table.finishes)
    return not ends and not any(_reads(snapshot, table) for snapshot in state.snapshots.values())


def _reads(snapshot: SnapshotState, table: TableLog) -> bool:
    """True if it is reading the whole table."""
    part, plan = snapshot.tables.get(table.table_id), snapshot.plan
    under_way = part is not None and part.finished is None and snapshot.ended is None
    return under_way and plan.where is None and plan.keys is None


def snapshot_open(table: TableLog, state: LogState, applied: AppliedState) -> bool:
    """True if a snapshot of the table has not ended, or the target does not hold its end yet."""
    running = any(s.ended is None and table.table_id in s.tables for s in state.snapshots.values())
    return running or any(finish.record > applied.applied_record for finish in table.finishes)


def needed_chunks(table: TableLog, state: LogState, applied: AppliedState) -> NeededChunks:
    """Chunks that the target's upkeep must leave alone: those that a batch will still take, and all of them until the
    target holds the end of their snapshot, which reads their keys once more."""
    named = [*table.chunks, *(chunk for finish in table.finishes for chunk in finish.chunks)]
    paths = (logged.chunk.path for logged in named)
    return NeededChunks(frozenset(path for path in paths if path is not None), snapshot_open(table, state, applied))


def without_lost_chunks(state: LogState, part: TableSlice | None) -> TableSlice | None:
    """Leave out chunks that the journal orders to be read again, and the replacement of the snapshots they belong to,
    as if they had never been registered. The snapshot that reads them again brings their rows; until its end the target
    has a gap."""
    if part is None:
        return None
    lost = replaced_chunks(state, part.table_id)
    incomplete = {snapshot_id for snapshot_id, _ in lost}
    chunks = tuple(c for c in part.chunks if (c.snapshot_id, c.chunk) not in lost)
    if part.schema.keyless:  # its files are one reading
        chunks = tuple(c for c in chunks if c.snapshot_id not in incomplete)
    finished = tuple(f for f in part.finished if f.snapshot_id not in incomplete)
    if len(chunks) == len(part.chunks) and len(finished) == len(part.finished):
        return part
    ended = {f.snapshot_id for f in part.finished} & incomplete
    gaps = [*_awaited(state, part, ended), *([part.applied.applied_record] if len(chunks) < len(part.chunks) else ())]
    gap = min(gaps, default=None) if part.gap is None else part.gap
    return replace(part, chunks=chunks, finished=finished, gap=gap)


def _awaited(state: LogState, part: TableSlice, incomplete: Set[str]) -> Iterator[RecordNumber]:
    """Yields, for each snapshot that replaces these and whose end the target does not hold yet, a gap that it fills: it
    may have been planned before what the target holds, and may have ended before the one that lost the files."""
    applied = part.applied.applied_record
    to_come = {f.snapshot_id for f in state.tables[part.table_id].finishes if f.record > applied}
    for snapshot in state.snapshots.values():
        mine = snapshot.tables.get(part.table_id)
        if mine is None or not any(snapshot_id in incomplete for snapshot_id, _ in snapshot.plan.replaces):
            continue
        if mine.finished is None or mine.finished.error is not None or snapshot.plan.snapshot_id in to_come:
            yield min(applied, RecordNumber(snapshot.record - 1))


def batch_end(table: TableLog, after: RecordNumber, through: RecordNumber) -> RecordNumber:
    """The last record of the next batch: as many as the bounds allow, at least one. A record that is above a bound by
    itself is one batch: a transaction is applied whole, and capture registers no more chunks in a record than are read
    at the same time. The end of a complete snapshot is a batch's last record: what it removes must not be a row that a
    later snapshot has read."""
    through = next((f.record for f in table.finishes if f.complete and after < f.record < through), through)
    bounds = (MAX_ROWS, MAX_BYTES, MAX_CHUNK_ROWS, MAX_CHUNKS)
    taken, last = [0] * len(bounds), after
    record: RecordNumber
    for record, some in groupby(_parts(table, after, through), itemgetter(0)):
        for part in some:
            taken = [so_far + more for so_far, more in zip(taken, part[1:], strict=True)]
        if any(so_far > bound for so_far, bound in zip(taken, bounds, strict=True)):
            return max(RecordNumber(record - 1), last) if last > after else record
        last = record
    return through


def _parts(table: TableLog, after: RecordNumber, through: RecordNumber) -> Iterator[tuple[int, ...]]:
    """(record, change rows, their bytes, chunk rows, chunks) of what may be applied, in order of records."""
    segments = ((s.record, s.segment.rows, s.segment.size, 0, 0) for s in table.segments.after_record(after))
    first = bisect_right(table.chunks, after, key=lambda logged: logged.record)
    chunks = ((c.record, 0, 0, c.chunk.rows, 1) for c in islice(table.chunks, first, None))
    return takewhile(lambda part: part[0] <= through, merge(segments, chunks))


def counted(part: TableSlice) -> TableCounters:
    """The changes of the batch, by operation. A segment of a record is applied whole or not at all."""
    new = part.new_segments
    return TableCounters(
        inserts=sum(s.inserts for s in new),
        updates=sum(s.updates for s in new),
        deletes=sum(s.deletes for s in new),
        truncates=sum(t > part.applied.applied_seq for t in part.truncates),
        schema_changes=int(part.evolve is not None and part.applied.schema_version > 0),
        snapshot_rows=sum(_rows(c) for c in part.chunks),
    )


def _rows(chunk: ChunkRegistered) -> int:
    return chunk.rows
