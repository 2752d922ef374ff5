"""Cut from the log what one batch of one table consists of (docs/dev/design.md#the-apply-rule). Pure.

A table's worker calls `cut` with the folded log and the target's applied state; the target turns the slice into a
commit. A slice is defined by file names and sequences, so cutting again after a crash gives the same rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from tailrace.batch.applied import AppliedState
from tailrace.changelog import triggers
from tailrace.changelog.logged import converging
from tailrace.changelog.records import Segment
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedFinish, LoggedSchema, LogState, TableLog
from tailrace.errors import CorruptLog, LogTrimmed


@dataclass(frozen=True)
class FinishedSnapshot:
    """A complete snapshot that ends in this slice and replaces the table's rows."""

    snapshot_id: str
    replay_point: Seq
    planned: RecordNumber
    """Its plan's record."""
    chunks: tuple[ChunkRegistered, ...]
    """All its chunks, also those that earlier commits brought."""
    alone: bool = False
    """True if a row that one of its chunks brought is in the target unless a change of the log, from `replay_point` on,
    concerns it: nothing else can have removed it."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(chunk.path for chunk in self.chunks if chunk.path is not None)

    @cached_property
    def own(self) -> frozenset[str]:
        return frozenset(self.paths)


@dataclass(frozen=True)
class TableSlice:
    applied: AppliedState
    """The target before the batch."""
    table_id: int
    schema: TableSchema
    """The schema of the target after the batch; rows of older versions are promoted to it."""
    versions: Mapping[int, TableSchema]
    start_seq: Seq
    """New changes begin after it: the applied sequence, or the last TRUNCATE after that."""
    through_seq: Seq
    through_record: RecordNumber
    clear: bool
    """A TRUNCATE removed what the target holds, holes included."""
    segments: tuple[Segment, ...]
    """The segments in order; also those at or below `start_seq` that a chunk or a finished snapshot replays."""
    truncates: tuple[Seq, ...]
    chunks: tuple[ChunkRegistered, ...]
    finished: tuple[FinishedSnapshot, ...]
    repair: bool
    """A complete snapshot is under way, or called for: the target's rows may be stale, so a move takes nothing from
    them."""
    gap: RecordNumber | None = None
    """The gap as in `AppliedState`, before the snapshots that end here; set also by the slice that passes over
    something."""
    whole: bool = False
    """The target was read whole and is not under repair: it has every row that the log changes."""
    earlier: tuple[ChunkRegistered, ...] = ()
    """Chunks of the same readings that the target has already."""
    truncated_at: Mapping[Seq, int | None] = field(default_factory=dict)
    """The commit times of the TRUNCATEs, microseconds since the Unix epoch."""

    @property
    def gap_left(self) -> RecordNumber | None:
        """The gap after the batch: a complete snapshot that was planned after it has read everything again."""
        gap = self.gap
        return gap if gap is None or all(finish.planned <= gap for finish in self.finished) else None

    def applied_after(self, holes: frozenset[Key]) -> AppliedState:
        """The target's state once it holds the batch, which leaves these holes."""
        return replace(
            self.applied,
            applied_seq=self.through_seq,
            applied_record=self.through_record,
            holes=holes,
            schema_version=self.schema.version,
            table_id=self.table_id,
            gap=self.gap_left,
        )

    @property
    def evolve(self) -> TableSchema | None:
        return self.schema if self.schema.version != self.applied.schema_version else None

    @property
    def before(self) -> TableSchema | None:
        """The schema of the target before the batch; None: the log has forgotten it, or the target is new."""
        return self.versions.get(self.applied.schema_version)

    @property
    def new_segments(self) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.last_seq > self.start_seq)

    def emptied_at(self, chunk: ChunkRegistered) -> Seq | None:
        """The last TRUNCATE that the chunk did not see; None: there was none."""
        return max((seq for seq in self.truncates if seq >= chunk.replay_point), default=None)

    def replayed_from(self, chunk: ChunkRegistered) -> Seq:
        """The first sequence whose changes count over the chunk's rows."""
        emptied = self.emptied_at(chunk)
        return chunk.replay_point if emptied is None else Seq(emptied + 1)


def cut(log: LogState, table_id: int, applied: AppliedState, through_record: RecordNumber) -> TableSlice | None:
    """The batch that brings the table from its applied record to `through_record`; None: it brings nothing.

    Raises `LogTrimmed` when the log no longer holds what the table or one of its chunks needs.
    """
    table = log.tables.get(table_id)
    if table is None:
        raise CorruptLog(f"table {table_id} is not in the change log")
    if through_record > log.number:
        raise ValueError(f"record {through_record} is asked for, and the state ends at {log.number}")
    if through_record <= applied.applied_record or through_record < table.added_record:
        return None
    if applied.applied_record < table.added_record:
        # The table came back since, perhaps with another key: the snapshot that it begins with reads every row.
        applied = replace(applied, holes=frozenset())
    through_seq = _end(log, table, through_record, applied)
    emptying = [t for t in table.truncates if t.record <= through_record and t.seq <= through_seq]
    known = [t.seq for t in emptying]
    schema = _schema(table, through_record)
    keeps = schema.table.history is not None  # a TRUNCATE is one more change there
    new = [] if keeps else [seq for seq in known if seq > applied.applied_seq]
    start = max(new, default=applied.applied_seq)
    chunks = tuple(c.chunk for c in table.chunks if applied.applied_record < c.record <= through_record)
    readings = {chunk.snapshot_id for chunk in chunks}
    known_chunks = (c for c in table.chunks if c.record <= applied.applied_record) if readings else ()
    finished = tuple(_finished(log, table, applied, through_record))
    result = TableSlice(
        applied=applied,
        table_id=table_id,
        schema=schema.table,
        versions={s.table.version: s.table for s in table.schemas},
        start_seq=start,
        through_seq=through_seq,
        through_record=through_record,
        clear=bool(new),
        segments=(),
        truncates=tuple(known),
        chunks=chunks,
        finished=finished,
        repair=_under_repair(log, table, applied),
        earlier=tuple(c.chunk for c in known_chunks if c.chunk.snapshot_id in readings),
        truncated_at={t.seq: t.commit_time for t in emptying},
    )
    result = _kept(log, table, result)
    read = table.read_record > max(table.added_record, table.reread_record)
    result = replace(result, whole=read and not result.repair and result.gap is None)
    segments = _segments(table, result)
    brings = any(s.last_seq > start for s in segments) or new or result.chunks or result.finished or result.evolve
    emptied = keeps and any(seq > start for seq in known)
    return replace(result, segments=segments) if brings or emptied else None


@dataclass(frozen=True)
class Held:
    """The content of the target: the state of a table's copy."""

    applied: AppliedState
    through: RecordNumber
    """The record up to which it lacks nothing: the applied one, or a later one that brought the table nothing."""


def since_chunk(log: LogState, table_id: int, held: Held, *chunks: ChunkRegistered) -> TableSlice:
    """A chunk that is not applied, and the changes from its replay point up to what the target holds: together, the
    rows that the target should have of the chunk's keys. Of a table without a key: all chunks of one reading."""
    part = _held_slice(log, table_id, held)
    return _looked(log.tables[table_id], replace(part, chunks=chunks), part.start_seq)


def since_chunks(log: LogState, table_id: int, held: Held, finish: FinishedSnapshot) -> TableSlice:
    """All chunks of a snapshot that is not applied, and the changes from its smallest replay point up to what the
    target holds: together, all keys that the target may have. The changes count as new; those before the last TRUNCATE
    do not."""
    part = _held_slice(log, table_id, held)
    emptied = (seq for seq in part.truncates if seq >= finish.replay_point)
    start = max([Seq(finish.replay_point - 1), *emptied])
    return _looked(log.tables[table_id], replace(part, finished=(finish,)), start)


def _held_slice(log: LogState, table_id: int, held: Held) -> TableSlice:
    table, applied = log.tables[table_id], held.applied
    truncates = (t.seq for t in table.truncates if t.record <= held.through and t.seq <= applied.applied_seq)
    versions = {s.table.version: s.table for s in table.schemas}
    return TableSlice(
        applied=applied,
        table_id=table_id,
        schema=versions[applied.schema_version],
        versions=versions,
        start_seq=applied.applied_seq,
        through_seq=applied.applied_seq,
        through_record=held.through,
        clear=False,
        segments=(),
        truncates=tuple(truncates),
        chunks=(),
        finished=(),
        repair=False,
    )


def _looked(table: TableLog, part: TableSlice, start: Seq) -> TableSlice:
    points = _needed(part)
    if min(points) <= table.trimmed_through:
        what = f"changes from sequence {min(points)} on are needed, those up to {table.trimmed_through} are gone"
        raise LogTrimmed(table.schema.name, what, "Verify it again.")
    return replace(part, start_seq=start, segments=_segments(table, part))


def _segments(table: TableLog, cut: TableSlice) -> tuple[Segment, ...]:
    """All that the rows, the chunks and the snapshots' ends of the batch are made of."""
    first = min(_needed(cut))
    return tuple(
        s.segment
        for s in takewhile(lambda s: s.record <= cut.through_record, table.segments.ending_from(first))
        if s.segment.first_seq <= cut.through_seq
    )


def last_record(table: TableLog) -> RecordNumber:
    """The last record that may bring the table something: `cut` finds nothing after it."""
    parts = (table.truncates, table.chunks, table.finishes, table.schemas)
    written = table.segments.last_record or RecordNumber(0)
    return max(table.added_record, table.trimmed_record, written, *(part[-1].record for part in parts if part))


def _needed(result: TableSlice) -> list[Seq]:
    """The sequences from which the log is needed: for the table, for each chunk, for each end of a snapshot."""
    points = [*map(result.replayed_from, result.chunks), *(finish.replay_point for finish in result.finished)]
    return [Seq(result.start_seq + 1), *points]


def _end(log: LogState, table: TableLog, through_record: RecordNumber, applied: AppliedState) -> Seq:
    """The last sequence of the record; of an older one, the last that concerns the table: nothing is between. What the
    log no longer has is passed over in this batch, with a gap: the next one must not take it for a gap of its own,
    which a snapshot that began before that batch would not fill."""
    if through_record >= log.number:
        end = log.last_seq
    else:
        last = table.segments.last_seq_through(through_record)
        seqs = [] if last is None else [last]
        seqs += [t.seq for t in table.truncates if t.record <= through_record]
        end = max([applied.applied_seq, *seqs])
    end = end if table.stopped is None else max(applied.applied_seq, min(end, table.stopped.seq))
    return max(end, table.trimmed_through)


def _schema(table: TableLog, through_record: RecordNumber) -> LoggedSchema:
    known = [s for s in table.schemas if s.record <= through_record]
    if not known:
        raise CorruptLog(f"table {table.schema.name} has no schema at record {through_record}")
    return known[-1]


def _finished(
    log: LogState, table: TableLog, applied: AppliedState, through_record: RecordNumber
) -> Iterator[FinishedSnapshot]:
    for finish in _finishes(table, applied):
        if finish.record <= through_record:
            chunks = tuple(c.chunk for c in finish.chunks)
            alone = _alone(log, table, finish)
            yield FinishedSnapshot(finish.snapshot_id, finish.replay_point, _planned(log, finish), chunks, alone)


def _alone(log: LogState, table: TableLog, finish: LoggedFinish) -> bool:
    """See `FinishedSnapshot.alone`."""
    planned, table_id = _planned(log, finish), table.table_id
    others = (s for s in log.snapshots.values() if table_id in s.tables and s.plan.snapshot_id != finish.snapshot_id)
    return (
        planned >= 0
        and table.reread_record <= planned
        and table.cascaded_seq < finish.replay_point
        and not any(truncate.seq >= finish.replay_point for truncate in table.truncates)
        and not any(s.record > planned or s.ended is None for s in others if not s.plan.verify)
    )


def _finishes(table: TableLog, applied: AppliedState) -> Iterator[LoggedFinish]:
    """Ends of complete snapshots that the target does not hold yet."""
    return (f for f in table.finishes if f.complete and f.record > applied.applied_record)


def _planned(log: LogState, finish: LoggedFinish) -> RecordNumber:
    """-1: the log has forgotten it."""
    snapshot = log.snapshots.get(finish.snapshot_id)
    return RecordNumber(-1) if snapshot is None else snapshot.record


def _under_repair(log: LogState, table: TableLog, applied: AppliedState) -> bool:
    """True if a complete snapshot of the table began, or is about to, whose end the target does not hold; or one of the
    rows that foreign keys have reached."""
    if converging(table, applied.applied_record):
        return True
    return any(True for _ in _finishes(table, applied)) or any(True for _ in _complete_running(log, table))


def _complete_running(log: LogState, table: TableLog) -> Iterator[RecordNumber]:
    """Records in which complete, unfinished snapshots of the table were planned, or at the earliest will be: one that
    the log calls for is ordered in the next step, so batches do not stop in between."""
    yield from (RecordNumber(log.number + 1) for _ in triggers.pending(log, table))
    for snapshot in log.snapshots.values():
        if snapshot.ended is not None:
            continue
        part = snapshot.tables.get(table.table_id)
        if part is not None and snapshot.plan.whole and part.finished is None:
            yield snapshot.record


def _kept(log: LogState, table: TableLog, result: TableSlice) -> TableSlice:
    """The slice without chunks and ends of snapshots whose replay has left the log, and with the gap: the record after
    which the target lacks something. That is allowed only while a complete snapshot, none of whose chunks was applied
    before the gap, reads everything again, and until the target holds its end; else `LogTrimmed`."""
    applied, removed, name = result.applied.applied_record, table.trimmed_through, table.schema.name
    whole = [f for f in _finishes(table, result.applied) if f.replay_point > removed]
    rereads = [*(_planned(log, f) for f in whole), *_complete_running(log, table)]
    fix = f"Read it again: `tailrace snapshot -f <manifest> --tables {name}`, or a SnapshotRequest without where."
    if table.trimmed_record > max(applied, *rereads, -1):
        what = f"the target holds the table up to record {applied}, and the log has forgotten the chunks up to record"
        what += f" {table.trimmed_record}, which it held before: it was deleted, emptied or put back"
        raise LogTrimmed(name, what, fix)
    short = [seq for seq in _needed(result) if seq <= removed]
    chunks = tuple(chunk for chunk in result.chunks if result.replayed_from(chunk) > removed)
    finished = tuple(finish for finish in result.finished if finish.replay_point > removed)
    gap = None if result.clear else _gap(table, result.applied, bool(short))  # a TRUNCATE removes what is lacking
    if gap is not None and not any(record > gap for record in rereads):
        what = "the target lacks rows that are no longer in the log, and no snapshot that was planned after record"
        what += f" {gap} has brought them or is bringing them"
        if short:
            what = f"changes from sequence {min(short)} on are needed, those up to {removed} are no longer in the log"
        raise LogTrimmed(name, what, fix)
    return replace(result, chunks=chunks, finished=finished, gap=gap)


def _gap(table: TableLog, applied: AppliedState, short: bool) -> RecordNumber | None:
    """The record after which a snapshot must have been planned to bring all that the target lacks."""
    before = applied.applied_record
    gaps = [] if applied.gap is None else [applied.gap]
    if short:
        gaps.append(before)
    if 0 < before < table.added_record:
        # Not captured for a while, and chunks from before it are gone.
        gaps.append(RecordNumber(table.added_record - 1))
    if table.trimmed_record > before:
        gaps.append(table.trimmed_record)
    return max(gaps, default=None)
