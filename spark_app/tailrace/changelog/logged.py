"""The models of the log's state: what `tailrace.changelog.state.fold` makes of the records.

The state round-trips through JSON (roll-ups), so all of it is closed models. Values are never changed in place: `fold`
copies what a record touches. Import the names from `tailrace.changelog.state`.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from tailrace.changelog.grown import Grown
from tailrace.changelog.packed import Rows
from tailrace.changelog.records import (
    ChunkRegistered,
    Closed,
    Origin,
    Parts,
    Position,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotTableFinished,
    SourceRenewed,
    TableSchema,
    TableStopped,
)
from tailrace.changelog.segment_list import LoggedSegment, SegmentList

__all__ = ["LoggedSegment", "SegmentList"]


class LoggedChunk(Closed):
    record: int
    chunk: ChunkRegistered


class LoggedTruncate(Closed):
    record: int
    seq: int
    transaction: int | None = None
    """None: written by a version that did not keep it."""
    written_at: int = 0


class LoggedSchema(Closed):
    """`table` holds for rows after `after_seq`."""

    record: int
    after_seq: int
    table: TableSchema
    reread: bool = False


class LoggedFinish(Closed):
    """A snapshot of the table was fully registered in this record; `replay_point` is the smallest of its chunks'."""

    record: int
    snapshot_id: str
    complete: bool
    replay_point: int
    chunks: tuple[LoggedChunk, ...]


class TableLog(Closed):
    """All that the log holds of one table."""

    table_id: int
    added_record: int
    generation: int = 0
    """The record from which on the target under this name holds this table, in this form: a target of another
    generation is replaced (`targets.lake.model.Generation`). 0: from before generations were counted."""
    begin_seq: int = 0
    """The last sequence before the generation."""
    resync: str | None = None
    """The snapshot that had the table added."""
    serves: tuple[str, ...] = ()
    """The resyncs that were waiting for the table to be added: `resync` and those that it was added for as well."""
    edge: int
    initial_snapshot: bool
    schemas: tuple[LoggedSchema, ...]
    """In order of versions; never empty."""
    segments: SegmentList = SegmentList()
    truncates: tuple[LoggedTruncate, ...] = ()
    chunks: Grown[LoggedChunk] = Grown()
    finishes: tuple[LoggedFinish, ...] = ()
    applied_seq: int = 0
    applied_record: int = 0
    """Advisory."""
    removed_through: int = 0
    """Changes up to this sequence are no longer in the log."""
    forgotten_record: int = -1
    """Chunks up to this record were in the target and are no longer in the state."""
    unread: str | None = None
    """The error of the last snapshot of the whole table; None: it was read, or none has been asked for."""
    files: str | None = None
    """Digest of the source's files, in logs of versions without fingerprints."""
    files_seq: int = 0
    """The sequence when `files` or `fingerprint` was recorded."""
    fingerprint: Parts | None = None
    """As last recorded; None: not yet."""
    stopped: TableStopped | None = None
    removed: bool = False
    ended_at: int | None = None
    """When it was stopped or removed: `written_at` of that record; None: it is captured."""

    @property
    @override
    def schema(self) -> TableSchema:  # type: ignore[override]  # pydantic's old class method of this name is not used
        return self.schemas[-1].table


class SnapshotTable(Closed):
    table_id: int
    max_key: tuple[str, ...] | None = None
    estimated_rows: int = 0
    started: bool = False
    chunks: Grown[ChunkRegistered] = Grown()
    """Registered so far, in order of registration; emptied when the table is finished."""
    chunk_records: Grown[int] = Grown()
    """The record of each."""
    next_chunk: int | None = None
    """Above all ordinals of `chunks`; None: not yet told, as in roll-ups of versions that did not keep it."""
    missing: tuple[int, ...] = ()
    """The few below it that are not registered: chunks are read side by side."""
    chunks_done: int = 0
    rows_done: int = 0
    finished: SnapshotTableFinished | None = None

    def ordinals_with(self, chunk: int) -> tuple[int, tuple[int, ...]] | None:
        """`next_chunk` and `missing` with one more chunk; None: it is registered. Without a look at all chunks, of
        which there may be many thousands, except for the first after such a roll-up."""
        following, missing = self.next_chunk, self.missing
        if following is None:
            known = {c.chunk for c in self.chunks}
            following = max(known, default=-1) + 1
            missing = tuple(n for n in range(following) if n not in known)
        if chunk >= following:
            return chunk + 1, (*missing, *range(following, chunk))
        return (following, tuple(n for n in missing if n != chunk)) if chunk in missing else None


class SnapshotState(Closed):
    plan: SnapshotPlanned
    record: int
    suspended: bool = False
    tables: dict[int, SnapshotTable]
    ended: SnapshotEnded | None = None
    keys_digest: str | None = None
    """Of the plan's keys, which an ended snapshot no longer lists; None: it goes on, or has no keys, or ended before
    keys were left out."""

    def awaits(self, table: TableLog) -> bool:
        """Whether the table has still to be taken in again for this resync."""
        return self.unserved(table) and not table.removed

    def unserved(self, table: TableLog) -> bool:
        """A resync that was planned before another had the table added does not undo that one: two would take turns."""
        part = self.tables[table.table_id]
        begun = part.started or part.finished is not None
        asked = self.plan.resync and self.ended is None and not begun
        return asked and (table.resync is None or self.record > table.added_record)

    def reads(self, table: TableLog) -> bool:
        """Whether its chunks are of the table as it was added last: it was planned since, or had it added, or waited
        for that, so that nothing of it can be older."""
        own = self.plan.snapshot_id
        return self.record >= table.added_record or table.resync == own or own in table.serves


def keys_digest(keys: Iterable[Iterable[str]]) -> str:
    return hashlib.sha256(json.dumps([list(key) for key in keys]).encode()).hexdigest()


class TransactionLog(Closed):
    """Known transactions in log order: the source's number of each, and its first sequence."""

    rows: Rows = Rows(2)
    removed_through: int = 0
    """Transactions that began at or before this sequence are no longer known: every snapshot sees them."""

    @classmethod
    def of(cls, ids: Iterable[int], first_seqs: Iterable[int], removed_through: int = 0) -> "TransactionLog":
        return cls(removed_through=removed_through).added(ids, first_seqs)

    @model_validator(mode="before")
    @classmethod
    def _from_lists(cls, value: Any) -> Any:
        """As roll-ups had them before they were packed."""
        if isinstance(value, dict) and "ids" in value:
            lists = {"rows": pairs(value["ids"], value["first_seqs"])}
            return lists | {k: v for k, v in value.items() if k not in ("ids", "first_seqs")}
        return value

    def added(self, ids: Iterable[int], first_seqs: Iterable[int]) -> "TransactionLog":
        return self.model_copy(update={"rows": self.rows.append(pairs(ids, first_seqs).lines())})

    def removed(self, through_seq: int) -> "TransactionLog":
        """Without those that began at or below the sequence."""
        rows = self.rows.drop(self.rows.find(1, through_seq + 1))
        return self.model_copy(update={"rows": rows, "removed_through": through_seq})

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.rows.lines()[:, 0].tolist())

    @property
    def first_seqs(self) -> tuple[int, ...]:
        return tuple(self.rows.lines()[:, 1].tolist())


def pairs(one: Iterable[int], other: Iterable[int]) -> Rows:
    """`ValueError` when they are not equally many."""
    return Rows.of(np.array(list(zip(one, other, strict=True)), np.int64).reshape(-1, 2))


class LogState(Closed):
    """The whole state. `number` is the last folded record (-1: none)."""

    number: int = -1
    epoch: int = -1
    nonce: str = ""
    last_seq: int = 0
    position: Position = Position(0)
    newest_commit: int | None = None
    """Microseconds since the Unix epoch."""
    origin: Origin | None = None
    owner: str | None = None
    """Whose change log this is; None: nobody's yet."""
    released: bool = False
    """Its owner has left it behind."""
    renewed: str | None = None
    """The request by which the stream began anew last."""
    renewals: tuple[str, ...] = ()
    """The last `KEPT_RENEWALS` of these requests: each acts once, however often a start meets it again."""
    renewal: SourceRenewed | None = None
    """The newest of them, while its snapshot has not been planned."""
    tables: dict[int, TableLog] = Field(default_factory=dict)
    snapshots: dict[str, SnapshotState] = Field(default_factory=dict)
    transactions: TransactionLog = TransactionLog()
    forgotten_tables: tuple[tuple[str, str], ...] = ()
    """Schema and name under which targets stand that were written for tables since forgotten, renamed or begun anew:
    all that deletion needs."""
    forgotten_plan: int = -1
    """Record of the newest plan among the forgotten snapshots that Tailrace ordered itself: what called for one before
    that record has had its own."""
    commit_times: Rows = Rows(2)
    """(record, oldest commit time in it) of records that some running table may still have to apply: for lags."""

    @field_validator("commit_times", mode="before")
    @classmethod
    def _from_pairs(cls, value: Any) -> Any:
        """As roll-ups had them before they were packed."""
        return pairs([v[0] for v in value], [v[1] for v in value]) if isinstance(value, list | tuple) else value

    def has_done(self, request: str) -> bool:
        """Whether the request to begin anew was carried out, or was a resync of the running process before."""
        return request == self.renewed or request in self.renewals or request in self.snapshots


KEPT_RENEWALS = 100
"""Somebody asks for each by hand, after each loss."""
KEPT_SNAPSHOTS = 50
"""Ended snapshots kept for `status`, newest last: as many of requests as of Tailrace's own, which may be frequent."""
