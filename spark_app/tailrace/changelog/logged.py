"""The models of the log's state: what `tailrace.changelog.state.fold` makes of the records.

The state round-trips through JSON (roll-ups), so all of it is closed models. Values are never changed in place: `fold`
copies what a record touches. Import the names from `tailrace.changelog.state`.
"""

from collections.abc import Iterator, Sized

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from tailrace.changelog.append_list import AppendList
from tailrace.changelog.packed import PackedRows
from tailrace.changelog.records import Origin, SourceRenewed, Transactions
from tailrace.changelog.records.signals import SignalAnswered, SignalReceived
from tailrace.changelog.records.snapshots import (
    ChunkRegistered,
    ComparisonResult,
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
)
from tailrace.changelog.records.tables import Parts, ReachedRows, ReachedThrough, TableStopped
from tailrace.changelog.records.terms import (
    Closed,
    Nulled,
    Position,
    RecordNumber,
    ResumePoint,
    Seq,
    TableSchema,
    is_empty,
    is_false,
    is_none,
)
from tailrace.changelog.segment_list import LoggedSegment, SegmentList
from tailrace.changelog.snapshot_map import SnapshotMap
from tailrace.changelog.transactions import TransactionIds, TransactionStart
from tailrace.errors import Where

__all__ = ["LoggedSegment", "SegmentList"]


def is_nothing(items: Sized) -> bool:
    return not items


class LoggedChunk(Closed):
    record: RecordNumber
    chunk: ChunkRegistered


class LoggedTruncate(Closed):
    record: RecordNumber
    seq: Seq
    transaction: str
    written_at: int
    commit_time: int | None = Field(default=None, exclude_if=is_none)


class LoggedSchema(Closed):
    """`table` holds for rows after `after_seq`."""

    record: RecordNumber
    after_seq: Seq
    table: TableSchema
    reread: bool = False


class LoggedCascade(Closed):
    """The event `Cascaded`."""

    record: RecordNumber
    since: int
    """The oldest commit time in that record, in microseconds since the Unix epoch."""
    rows: tuple[ReachedRows, ...] = ()
    through: tuple[ReachedThrough, ...] = ()
    snapshots: tuple[str, ...] | None = None
    """Those that have still to read its rows; None: these were not looked for in the target yet."""
    read_record: RecordNumber | None = None
    """The record in which the last of them ended."""

    @property
    def is_looked_for(self) -> bool:
        return self.snapshots is None and bool(self.rows or self.through)


class LoggedFinish(Closed):
    """A snapshot of the table was fully registered in this record; `replay_point` is the smallest of its chunks'."""

    record: RecordNumber
    snapshot_id: str
    complete: bool
    replay_point: Seq
    chunks: tuple[LoggedChunk, ...]


class Verified(Closed):
    """The last verification of a whole table."""

    snapshot_id: str
    at_record: RecordNumber
    """The record at which its last comparison was made."""
    position: Position
    """The source's position at which the end was recorded."""
    ended_at: int
    """`written_at` of that record."""
    found: ComparisonResult


class TableLog(Closed):
    """All that the log holds of one table."""

    table_id: int
    added_record: RecordNumber
    generation: RecordNumber = RecordNumber(0)
    """The record from which on the target under this name holds this table, in this form: a target of another
    generation is replaced (`targets.lake.model.Generation`)."""
    begin_seq: Seq = Seq(0)
    """The last sequence before the generation."""
    must_hide: bool = Field(default=False, exclude_if=is_false)
    """The value of `TableAdded.must_hide`."""
    resync: str | None = None
    """The snapshot that had the table added."""
    serves: tuple[str, ...] = ()
    """The resyncs that were waiting for the table to be added: `resync` and those that it was added for as well."""
    edge: str
    initial_snapshot: bool
    schemas: tuple[LoggedSchema, ...]
    """The schemas in order of versions; never empty."""
    segments: SegmentList = SegmentList()
    truncates: AppendList[LoggedTruncate] = AppendList()
    chunks: AppendList[LoggedChunk] = AppendList()
    finishes: tuple[LoggedFinish, ...] = ()
    applied_seq: Seq = Seq(0)
    applied_record: RecordNumber = RecordNumber(0)
    """Advisory."""
    trimmed_through: Seq = Seq(0)
    """Changes up to this sequence are no longer in the log."""
    trimmed_record: RecordNumber = RecordNumber(-1)
    """Chunks up to this record were in the target and are no longer in the state."""
    reread_record: RecordNumber = RecordNumber(-1)
    """The record at which the log last called for reading the table again: since then rows may exist that no change
    reports, and a snapshot whose first chunk is not younger does not know them all."""
    read_record: RecordNumber = RecordNumber(-1)
    """The first chunk's record of a snapshot that has read the whole table, the largest of all that have."""
    unread: ReadFailure | None = None
    """The reason why the last snapshot of the whole table failed; None: it was read, or none has been requested."""
    cascades: AppendList[LoggedCascade] = AppendList()
    """Those whose rows the target may not have read again yet."""
    cascaded_seq: Seq = Seq(0)
    """The last sequence of the newest record with a `Cascaded` that names rows: chunks that are registered since have
    seen all up to it."""
    looked_seq: Seq = Seq(0)
    """The sequence when `fingerprint` was recorded."""
    fingerprint: Parts | None = None
    """The fingerprint as last recorded; None: not yet."""
    nulled: Nulled = Field(default=(), exclude_if=is_empty)
    """Sums over all segments and chunks since the table was added; what was read twice counts twice."""
    verified: Verified | None = Field(default=None, exclude_if=is_none)
    """None: it has not been, since it was added."""
    verification_planned_at: int = Field(default=0, exclude_if=is_false)
    """`written_at` of the record that planned its last verification in the background; 0: none was."""
    stopped: TableStopped | None = None
    removed: bool = False
    ended_at: int | None = None
    """The time at which it was stopped or removed: `written_at` of that record; None: it is captured."""

    @property
    @override
    def schema(self) -> TableSchema:  # type: ignore[override]  # pydantic's old class method of this name is not used
        return self.schemas[-1].table


def place_of(table: TableLog) -> tuple[str, str]:
    """The name under which the target stands."""
    first = table.schemas[0].table
    return first.schema_name, first.table_name


def converging(table: TableLog, applied_record: RecordNumber) -> list[LoggedCascade]:
    """Its `cascades` whose rows a target has not read again whose applied record this is."""
    if not table.cascades:
        return []
    ended = (f for f in table.finishes if f.complete and f.record <= applied_record)
    seen = max((f.chunks[0].record for f in ended), default=RecordNumber(-1))
    left = (c for c in table.cascades if c.record >= seen)
    return [c for c in left if c.read_record is None or c.read_record > applied_record]


class DroppedTable(Closed):
    """A table that was dropped in the source, and whose copy is to go: `tailrace.changelog.dropped`."""

    place: tuple[str, str]
    """The place of the copy."""
    table_ids: tuple[int, ...]
    """The ids of the tables that had this place and were dropped: the copy may still belong to any of them."""
    generation: RecordNumber
    """The last one of theirs: a copy of a later one belongs to another table."""
    free: bool = False
    """It is known by now whether another table has taken the name: none has, or it is captured. Before, one may have
    been created that no look has seen yet."""
    begun: bool = False
    """It may be half deleted, so the next table there waits for its end."""


class SnapshotTable(Closed):
    table_id: int
    max_key: tuple[str, ...] | None = None
    estimated_rows: int = 0
    started: bool = False
    chunks: AppendList[ChunkRegistered] = AppendList()
    """Registered so far, in order of registration; emptied when the table is finished."""
    chunk_records: AppendList[RecordNumber] = AppendList()
    """The record of each."""
    next_chunk: int = 0
    """Above all ordinals of `chunks`."""
    missing: tuple[int, ...] = ()
    """The few below it that are not registered: chunks are read side by side."""
    chunks_done: int = 0
    rows_done: int = 0
    uncompared: tuple[int, ...] = Field(default=(), exclude_if=is_nothing)
    """The chunks of a verification that are registered and not yet compared, of a table with a key."""
    found: ComparisonResult | None = Field(default=None, exclude_if=is_none)
    """The sum of a verification's comparisons."""
    finished: SnapshotTableFinished | None = None

    def ordinals_with(self, chunk: int) -> tuple[int, tuple[int, ...]] | None:
        """`next_chunk` and `missing` with one more chunk; None: it is registered. Without a look at all chunks, of
        which there may be many thousands."""
        following, missing = self.next_chunk, self.missing
        if chunk >= following:
            return chunk + 1, (*missing, *range(following, chunk))
        return (following, tuple(n for n in missing if n != chunk)) if chunk in missing else None


class SnapshotState(Closed):
    plan: SnapshotPlanned
    record: RecordNumber
    suspended: bool = False
    tables: dict[int, SnapshotTable]
    ended: SnapshotEnded | None = None

    @property
    def is_open(self) -> bool:
        return self.ended is None

    @property
    def takes_over(self) -> bool:
        """True of a verification that makes up for what another program did to some tables."""
        return bool(self.plan.accepts)

    @property
    def is_rewound(self) -> bool:
        """True of a rewind that was carried out."""
        return self.plan.rewind is not None and self.ended is not None and self.ended.outcome == "completed"

    def accepts(self, table_id: int) -> bool:
        """True while this verification is to make up for what another program did to the table's rows."""
        part = self.tables.get(table_id)
        return self.ended is None and part is not None and part.finished is None and table_id in self.plan.accepts

    def awaits(self, table: TableLog) -> bool:
        """True if the table must still be added again for this resync."""
        return self.unserved(table) and not table.removed

    def unserved(self, table: TableLog) -> bool:
        """A resync that was planned before another had the table added does not undo that one: two would take turns."""
        part = self.tables[table.table_id]
        begun = part.started or part.finished is not None
        requested = self.plan.resync and self.ended is None and not begun
        return requested and (table.resync is None or self.record > table.added_record)

    def reads(self, table: TableLog) -> bool:
        """True if its chunks are of the table as it was added last: it was planned since, or had it added, or waited
        for that, so that nothing of it can be older."""
        own = self.plan.snapshot_id
        return self.record >= table.added_record or table.resync == own or own in table.serves


class TransactionLog(Closed):
    """Known transactions in log order: the id of each, and its first sequence."""

    prefixes: tuple[str, ...] = ()
    """The prefixes of ids, in the order in which they first came."""
    rows: PackedRows = PackedRows(3)
    """(number, first sequence, place of the prefix)"""
    trimmed_through: Seq = Seq(0)
    """Transactions that began at or before this sequence are no longer known: every snapshot sees them."""

    def added(self, new: Transactions) -> "TransactionLog":
        prefixes = tuple(dict.fromkeys((*self.prefixes, *new.prefixes)))
        lines = np.zeros((len(new.numbers), 3), np.int64)
        lines[:, NUMBER], lines[:, FIRST_SEQ] = new.numbers, new.first_seqs
        if len(prefixes) > 1 and new.numbers:
            places = np.array([prefixes.index(prefix) for prefix in new.prefixes], np.int64)
            lines[:, PREFIX] = places[list(new.prefix)] if new.prefix else places[0]
        return self.model_copy(update={"prefixes": prefixes, "rows": self.rows.append(lines)})

    def removed(self, through_seq: Seq) -> "TransactionLog":
        """Without those that began at or below the sequence."""
        rows = self.rows.drop(self.begun_through(through_seq))
        prefixes = self.prefixes if len(rows) else ()
        return self.model_copy(update={"prefixes": prefixes, "rows": rows, "trimmed_through": through_seq})

    def begun_through(self, seq: Seq) -> int:
        """The number of transactions that began at or below the sequence."""
        return self.rows.find(FIRST_SEQ, seq + 1)

    def first_after(self, seq: Seq) -> Seq | None:
        """The first sequence of the first transaction that began above the sequence."""
        index = self.begun_through(seq)
        return Seq(int(self.rows.line(index)[FIRST_SEQ])) if index < len(self.rows) else None

    def pieces(self) -> Iterator[tuple[TransactionIds, NDArray[np.int64]]]:
        """Ids and first sequences, some at a time."""
        for lines in self.rows.pieces():
            yield TransactionIds(self.prefixes, lines[:, PREFIX], lines[:, NUMBER]), lines[:, FIRST_SEQ]

    @property
    def starts(self) -> list[TransactionStart]:
        lines = self.rows.lines().tolist()
        return [TransactionStart(self.prefixes[line[PREFIX]], line[NUMBER], line[FIRST_SEQ]) for line in lines]


NUMBER, FIRST_SEQ, PREFIX = range(3)


class LoggedCut(Closed):
    """A record at which every table ends a batch; the versions that hold it are kept."""

    name: str
    scheduled: bool
    """`spec.cuts` called for it, and drops it."""
    record: RecordNumber
    position: Position
    """Everything the source committed up to here is in the cut, and nothing else."""
    commit_time: int | None
    """The newest commit in it, microseconds since the Unix epoch; None: nothing was committed yet."""
    made_at: int
    """`written_at` of its record."""
    awaited: frozenset[int]
    """Tables that have not come to it."""
    versions: dict[int, int | None] = Field(default_factory=dict)
    """The version that holds it, by table id; None: the target keeps no versions."""
    without: dict[int, str] = Field(default_factory=dict)
    """The reason why a table is not in it, by table id."""


class LoggedSignal(Closed):
    """A row of the source's signal table."""

    signal: SignalReceived
    received_at: int
    """`written_at` of its record."""
    answer: SignalAnswered | None = None
    """None: it is open."""
    answered_at: int | None = None


class CopyStop(Closed):
    """Copies that are stopped, and have not resumed (`CopiesStopped`)."""

    tables: dict[int, RecordNumber]
    """The record that added the table, by table id; `RESUMED`: the end of another stop has told that it moves."""
    error: str
    where: Where
    away: bool = False


class LogState(Closed):
    """The whole state. `number` is the last folded record (-1: none)."""

    number: RecordNumber = RecordNumber(-1)
    epoch: int = -1
    nonce: str = ""
    last_seq: Seq = Seq(0)
    position: Position = Position(0)
    source_state: str | None = None
    """Beside `position` (`ResumePoint`)."""
    newest_commit: int | None = None
    """Microseconds since the Unix epoch."""
    origin: Origin | None = None
    source_since: Position = Position(0)
    """The position at which the source's present server began (`SourceMoved`)."""
    owner: str = ""
    """The owner of this change log; empty: none yet."""
    released: bool = False
    """Its owner has left it behind."""
    renewed: str | None = None
    """The last request that restarted the stream."""
    renewals: tuple[str, ...] = ()
    """The last `KEPT_RENEWALS` of these requests: each acts once, however often a start meets it again."""
    renewal: SourceRenewed | None = None
    """The newest of them, while its snapshot has not been planned."""
    tables: dict[int, TableLog] = Field(default_factory=dict)
    snapshots: SnapshotMap[SnapshotState] = Field(default_factory=SnapshotMap)
    transactions: TransactionLog = TransactionLog()
    forgotten_tables: tuple[tuple[str, str], ...] = ()
    """Schema and name under which targets stand that were written for tables since forgotten, renamed or started over:
    all that deletion needs."""
    dropped: tuple[DroppedTable, ...] = Field(default=(), exclude_if=is_nothing)
    """One for each place at most."""
    cuts: dict[str, LoggedCut] = Field(default_factory=dict, exclude_if=is_nothing)
    """Those that are kept, the oldest first."""
    signals: dict[Seq, LoggedSignal] = Field(default_factory=dict, exclude_if=is_nothing)
    """The open ones and the newest answered ones, by sequence, the oldest first."""
    notified: RecordNumber | None = Field(default=None, exclude_if=is_none)
    """All notifications about records up to this one were sent, or dropped; None: none was ever sent."""
    copy_stops: dict[str, CopyStop] = Field(default_factory=dict, exclude_if=is_nothing)
    """Those that notifications tell of, by id, the oldest first."""
    forgotten_plan: RecordNumber = RecordNumber(-1)
    """Record of the newest plan among the forgotten snapshots that Tailrace ordered itself: what called for one before
    that record has had its own."""
    commit_times: PackedRows = PackedRows(2)
    """(record, oldest commit time in it) of records that some running table may still have to apply: for lags."""
    newest_commits: PackedRows = PackedRows(2)
    """(record, newest commit time in it) of the same records; older change logs do not have it of all."""

    @property
    def resume_point(self) -> ResumePoint:
        return ResumePoint(self.position, self.source_state)

    def has_done(self, request: str) -> bool:
        """True if the request to restart the stream was carried out, or was a resync of the running process before."""
        return request == self.renewed or request in self.renewals or request in self.snapshots


KEPT_RENEWALS = 100
"""Each is requested by hand, after each loss."""
KEPT_SIGNALS = 50
"""Answered signals kept for `status`, newest last."""
RESUMED = RecordNumber(-1)
"""Stands for the record that added a table (`CopyStop.tables`): no table has it."""
KEPT_SNAPSHOTS = 50
"""Ended snapshots kept for `status`, newest last: as many of requests as of Tailrace's own, which may be frequent."""
KEPT_REWINDS = 1000
"""Rewinds that were carried out: a request of the same name, created again, must not go back again."""
