"""State = fold(records): what the journal says, as one value. Pure; every reader and the writer hold one.

`fold(state, record)` returns the next state or raises `CorruptLog`. The state round-trips through JSON (roll-ups), so
all of it is closed models. It forgets what retention removed and what every target has applied, so it stays bounded.
"""

from collections.abc import Callable

from tailrace.changelog.records import (
    Applied,
    ChunkRegistered,
    Closed,
    EpochStarted,
    Event,
    Heartbeat,
    Origin,
    Record,
    SchemaChanged,
    Segment,
    SegmentsRemoved,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotSuspended,
    SnapshotTableFinished,
    SnapshotTableStarted,
    TableAdded,
    TableRemoved,
    TableSchema,
    TableStopped,
    Truncated,
)
from tailrace.errors import CorruptLog


class LoggedSegment(Closed):
    record: int
    segment: Segment


class LoggedChunk(Closed):
    record: int
    chunk: ChunkRegistered


class LoggedTruncate(Closed):
    record: int
    seq: int


class LoggedSchema(Closed):
    """`table` holds for rows after `after_seq`."""

    record: int
    after_seq: int
    table: TableSchema
    reread: bool = False


class LoggedFinish(Closed):
    """A complete snapshot of the table ended in this record; `replay_point` is the smallest of its chunks'."""

    record: int
    snapshot_id: str
    complete: bool
    replay_point: int
    chunks: tuple[LoggedChunk, ...]


class TableLog(Closed):
    """All that the log holds of one table."""

    table_id: int
    added_record: int
    edge_xid: int
    initial_snapshot: bool
    schemas: tuple[LoggedSchema, ...]
    """In order of versions; never empty."""
    segments: tuple[LoggedSegment, ...] = ()
    truncates: tuple[LoggedTruncate, ...] = ()
    chunks: tuple[LoggedChunk, ...] = ()
    finishes: tuple[LoggedFinish, ...] = ()
    applied_seq: int = 0
    applied_record: int = 0
    """Advisory."""
    removed_through: int = 0
    """Changes up to this sequence are no longer in the log."""
    stopped: TableStopped | None = None
    removed: bool = False

    @property
    def schema(self) -> TableSchema:
        return self.schemas[-1].table

    def version(self, number: int) -> TableSchema:
        return next(s.table for s in self.schemas if s.table.version == number)


class SnapshotTable(Closed):
    table_id: int
    max_key: tuple[str, ...] | None = None
    estimated_rows: int = 0
    started: bool = False
    chunks: tuple[ChunkRegistered, ...] = ()
    """Registered so far, in order of registration; emptied when the table is finished."""
    chunks_done: int = 0
    rows_done: int = 0
    finished: SnapshotTableFinished | None = None


class SnapshotState(Closed):
    plan: SnapshotPlanned
    record: int
    suspended: bool = False
    tables: dict[int, SnapshotTable]
    ended: SnapshotEnded | None = None


class TransactionLog(Closed):
    """Known transactions in log order, as parallel arrays: 64-bit xid and first sequence."""

    xids: tuple[int, ...] = ()
    first_seqs: tuple[int, ...] = ()


class LogState(Closed):
    """The whole state. `number` is the last folded record (-1: none)."""

    number: int = -1
    epoch: int = -1
    nonce: str = ""
    last_seq: int = 0
    position: int = 0
    newest_commit: int | None = None
    """Microseconds since the Unix epoch."""
    origin: Origin | None = None
    tables: dict[int, TableLog] = {}
    snapshots: dict[str, SnapshotState] = {}
    transactions: TransactionLog = TransactionLog()
    commit_times: tuple[tuple[int, int], ...] = ()
    """(record, oldest commit time in it) of records that some running table may still have to apply: for lags."""


KEPT_SNAPSHOTS = 50
"""Ended snapshots kept for `status`, newest last."""
