"""The driver's requests to capture, over a local Unix socket: one JSON document per line each way, many connections.

Capture is the journal's only writer, so everything that planner and apply want recorded goes through here. A request is
answered only when what it asked for is durable. The answer to a failed request is `{"error": {name, message, fix}}`.
Server: `tailrace.capture.server`. Client: `tailrace.capture.client`.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tailrace.changelog.records.cuts import CutDropped, CutHeld, CutMade
from tailrace.changelog.records.notices import CopiesResumed, CopiesStopped, Notified
from tailrace.changelog.records.signals import SignalAnswered
from tailrace.changelog.records.snapshots import (
    ChunkCompared,
    ChunkRegistered,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotSuspended,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import Applied, CascadesLooked, CopyRemoval
from tailrace.changelog.records.terms import Closed, Position, RecordNumber, Seq
from tailrace.contract.pace import LONGEST_RECORD
from tailrace.errors import Where

LONGEST_PATIENCE = 60.0
ChunkId = tuple[str, int, int]
"""Snapshot, table, ordinal."""


class GetState(Closed):
    """Answered as soon as there is a newer record than `after`, and after `patience` seconds at the latest."""

    op: Literal["state"] = "state"
    after: RecordNumber = RecordNumber(-1)
    patience: Annotated[float, Field(ge=0, le=LONGEST_PATIENCE)] = 0.0
    record_seconds: Annotated[float, Field(ge=0, le=LONGEST_RECORD)] = 0.0
    """A finished transaction need not be recorded sooner than so many seconds after it came: the tables do not keep up.
    Holds until the next such request, or for `inbox.ASKED_SECONDS`."""


class Append(Closed):
    """Record these events in order, in one record. Idempotent use is the caller's affair (ids)."""

    op: Literal["append"] = "append"
    events: tuple[
        Annotated[
            SignalAnswered
            | CopiesStopped
            | CopiesResumed
            | Notified
            | SnapshotPlanned
            | SnapshotTableStarted
            | ChunkCompared
            | SnapshotTableFinished
            | SnapshotEnded
            | SnapshotSuspended
            | CopyRemoval
            | CutMade
            | CutHeld
            | CutDropped
            | CascadesLooked,
            Field(discriminator="kind"),
        ],
        ...,
    ]
    added: dict[int, RecordNumber] = Field(default_factory=dict)
    """The record that added each of these tables, for which the events hold: where another was added since, nothing is
    recorded, and the answer is `Retry`."""


class BeginChunks(Closed):
    """Chunks are about to be read: until each is registered, or the connection ends, retention keeps what a snapshot
    taken now would have to replay."""

    op: Literal["begin-chunks"] = "begin-chunks"
    chunks: tuple[ChunkId, ...]


class RegisterChunk(Closed):
    """Hold until a durable record ends at or after `chunk.high`, compute the replay point, record it."""

    op: Literal["register-chunk"] = "register-chunk"
    chunk: ChunkRegistered
    """Capture sets `replay_point`, and as `schema_version` the newest that has the columns of the one that is sent."""
    snapshot: str
    """The snapshot of the chunk's transaction, in the source's form (`sources.api.ChunkRead`)."""
    columns: tuple[str, ...]
    """Names of the columns that were read, to be matched with a schema version."""
    further: tuple[ChunkRegistered, ...] = ()
    """More files of the same reading of a table without a key, recorded together with `chunk`."""


class ReportApplied(Closed):
    """Advisory; put into a later record. Answered at once."""

    op: Literal["applied"] = "applied"
    tables: tuple[Applied, ...] = ()
    cut_off: tuple[int, ...] | None = None
    """All tables that have failed for longer than `retry.time`: the log is not kept for them. None: as said before."""


Request = Annotated[GetState | Append | BeginChunks | RegisterChunk | ReportApplied, Field(discriminator="op")]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


class ErrorAnswer(Closed):
    name: str
    message: str
    fix: str = ""
    where: Where | None = None


class StateAnswer(Closed):
    record: RecordNumber
    """Newest durable record, now; the rest is up to a second old. -1: the journal is not open yet."""
    epoch: int
    position: Position
    behind_bytes: int | None = None
    """Bytes of the source's log between the newest record and its end when last asked; None: not yet, or it cannot be
    measured."""
    lag_seconds: float | None = None
    retained_bytes: int | None = None
    log_held_by: str | None = None
    rows_per_second: float = 0.0
    waiting_for: str | None = None
    of_other_case: str | None = None
    """The reason why patterns match no table, where only their case is to blame."""


class Recorded(Closed):
    record: RecordNumber
    replay_point: Seq | None = None
    """The replay point of a registered chunk."""


class Answer(Closed):
    """Exactly one field is set; `{}` answers what has nothing to say."""

    error: ErrorAnswer | None = None
    state: StateAnswer | None = None
    recorded: Recorded | None = None
