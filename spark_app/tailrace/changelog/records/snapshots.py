"""The events of snapshots, from the plan to the end; their chunks."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import Closed, Key, Nulled, Position, Seq, SeqRanges, is_empty
from tailrace.errors import Where


class SnapshotPlanned(Closed):
    """A snapshot was accepted: initial (one per added table) or by SnapshotRequest."""

    kind: Literal["snapshot-planned"] = "snapshot-planned"
    snapshot_id: str
    request: str | None = None
    """Name of the SnapshotRequest; None: initial or ordered by Tailrace itself (holes, re-reads)."""
    reason: Literal["initial", "request", "schema", "repair"] = "request"
    tables: tuple[int, ...]
    where: str | None = None
    keys: tuple[Key, ...] | None = None
    """Only these keys."""
    keys_digest: str | None = None
    """A digest of the requested keys, by which the same request is recognised; None: no keys were requested."""
    replaces: tuple[tuple[str, int], ...] = ()
    """A re-read of one table, because of these chunks (snapshot, ordinal) whose files were lost before their adoption.
    Tables pass over them, and over the replacement that their snapshots would have ended with."""
    chunk_rows: int | None = None
    parallelism: int | None = None
    resync: bool = False
    """Each table is first taken in again in its present form, also one that is stopped, and its target replaced."""


class SnapshotTableStarted(Closed):
    """The range of a table's chunks is fixed. `max_key` None: one chunk, numbered 0, is the whole table."""

    kind: Literal["snapshot-table-started"] = "snapshot-table-started"
    snapshot_id: str
    table_id: int
    max_key: Key | None
    estimated_rows: int


class ChunkRegistered(Closed):
    """A chunk's rows are durable and may be applied. The key range is (`lower`, `upper`], None: open.

    `high` is the position read after the chunk; the record that holds this event ends at or after it.
    """

    kind: Literal["chunk-registered"] = "chunk-registered"
    snapshot_id: str
    table_id: int
    chunk: int
    """Ordinal inside the snapshot's table, from 0, unique."""
    lower: Key | None
    upper: Key | None
    keys: tuple[Key, ...] | None = None
    """The keys that were asked for when the chunk is a list of keys."""
    path: str | None
    """The chunk file, absolute URI in the target's location; None: no row was found."""
    rows: int
    size: int
    schema_version: int
    replay_point: Seq
    high: Position
    layout: str
    """Digest of the physical names and field ids of the file's columns: a target that has others, because it was
    replaced or re-created since, does not adopt it."""
    nulled: Nulled = Field(default=(), exclude_if=is_empty)
    """Counts of values that became NULL, as in `Segment`."""
    seen: SeqRanges = Field(default=(), exclude_if=is_empty)
    """Changes after the replay point that a chunk of a table without a key has already. Rows with a key need none:
    applying a change again makes no difference."""


class ReadFailure(Closed):
    """The reason why a snapshot could not read a table whole."""

    message: str
    """With the error's name, if it has one: `ReadRefused: no right`."""
    fix: str = ""
    where: Where
    """The part that met it."""


class SnapshotTableFinished(Closed):
    """Every chunk of the table is registered. `complete`: no row filter and no key list, so the snapshot replaces."""

    kind: Literal["snapshot-table-finished"] = "snapshot-table-finished"
    snapshot_id: str
    table_id: int
    chunks: int
    complete: bool
    error: ReadFailure | None = None
    """Set when the table failed: the snapshot brings nothing more for it."""


class SnapshotEnded(Closed):
    """The whole snapshot has ended."""

    kind: Literal["snapshot-ended"] = "snapshot-ended"
    snapshot_id: str
    outcome: Literal["completed", "failed", "stopped"]
    message: str = ""


class SnapshotSuspended(Closed):
    """Paused (or resumed: `suspended` False) by its owner."""

    kind: Literal["snapshot-suspended"] = "snapshot-suspended"
    snapshot_id: str
    suspended: bool


SnapshotEvent = (
    SnapshotPlanned | SnapshotTableStarted | ChunkRegistered | SnapshotTableFinished | SnapshotEnded | SnapshotSuspended
)
