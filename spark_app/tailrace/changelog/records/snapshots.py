"""The events of snapshots, from the plan to the end; their chunks."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import (
    Closed,
    Key,
    Nulled,
    Position,
    RecordNumber,
    Seq,
    SeqRanges,
    is_empty,
    is_false,
    is_none,
)
from tailrace.errors import Where


class PlannedRewind(Closed):
    """Tables that go back to a cut. No row is read, and the snapshot's own tables are none."""

    cut: str
    record: RecordNumber
    asked: str
    """The moment, as the request has it."""
    tables: tuple[int, ...]


class SnapshotPlanned(Closed):
    """A snapshot was accepted: initial (one per added table) or by SnapshotRequest. A verification is one whose chunks
    are compared with the target instead of applied to it."""

    kind: Literal["snapshot-planned"] = "snapshot-planned"
    snapshot_id: str
    request: str | None = None
    """Name of the SnapshotRequest; None: initial or ordered by Tailrace itself (holes, re-reads)."""
    reason: Literal["initial", "request", "schema", "repair", "verification"] = "request"
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
    verify: bool = Field(default=False, exclude_if=is_false)
    """The chunks are compared, and nothing is applied."""
    repair: bool = Field(default=False, exclude_if=is_false)
    """A verification after which rows that differ are read again, by snapshots of their own."""
    sample: float | None = Field(default=None, exclude_if=is_none)
    """The share of a table's ranges that a verification reads, chosen by their ordinals."""
    accepts: tuple[int, ...] = Field(default=(), exclude_if=is_empty)
    """Tables that were stopped because another program had changed their rows: what it left is taken over, since it is
    compared, and repaired where it differs."""

    rewind: PlannedRewind | None = Field(default=None, exclude_if=is_none)
    """Set in a rewind."""

    @property
    def in_background(self) -> bool:
        """Ordered by the clock (`spec.verify`), and nobody waits for it."""
        return self.reason == "verification"

    @property
    def whole(self) -> bool:
        """All rows of its tables are read, to take the place of those in the target."""
        return self.where is None and self.keys is None and not self.verify and self.rewind is None


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


class RowDifference(Closed):
    """A row of the target that is not what the source had at the same record."""

    kind: Literal["missing", "extra", "different"]
    """`missing`: the target has no such row; `extra`: the source has none, or the target has it more than once."""
    key: Key
    """A row without a key has a digest of all its values."""
    columns: tuple[str, ...] = ()
    """The columns whose values differ."""


class ComparisonResult(Closed):
    """The result of comparing rows of the target with the source, both at one record."""

    rows: int = 0
    """Rows of the source that were compared."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    undecided: int = 0
    """Rows that were changed meanwhile and that the log does not know whole, and rows that the target withholds."""
    columns: tuple[tuple[str, int], ...] = ()
    """The number of rows in which each column differs, by name."""
    examples: tuple[RowDifference, ...] = ()
    """The first differences, at most `MOST_EXAMPLES`."""

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different

    def __add__(self, other: "ComparisonResult") -> "ComparisonResult":
        columns = dict(self.columns)
        for name, count in other.columns:
            columns[name] = columns.get(name, 0) + count
        return ComparisonResult(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            extra=self.extra + other.extra,
            different=self.different + other.different,
            undecided=self.undecided + other.undecided,
            columns=tuple(sorted(columns.items())),
            examples=(*self.examples, *other.examples)[:MOST_EXAMPLES],
        )


MOST_EXAMPLES = 1000
"""Differences of a table that are named; all are counted."""


class ChunkCompared(Closed):
    """A registered chunk of a verification was compared with the target."""

    kind: Literal["chunk-compared"] = "chunk-compared"
    snapshot_id: str
    table_id: int
    chunk: int
    at_record: RecordNumber
    """The record that the target held then."""
    found: ComparisonResult


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
    at_record: RecordNumber | None = Field(default=None, exclude_if=is_none)
    """The record at which a verification made its last comparison."""
    left: ComparisonResult | None = Field(default=None, exclude_if=is_none)
    """The result of a verification beyond its chunks, above all rows of the target that are in none."""


class SnapshotEnded(Closed):
    """The whole snapshot has ended."""

    kind: Literal["snapshot-ended"] = "snapshot-ended"
    snapshot_id: str
    outcome: Literal["completed", "failed", "stopped"]
    message: str = ""
    failure: ReadFailure | None = Field(default=None, exclude_if=is_none)
    """The refusal of a rewind, which has no tables that could have it."""


class SnapshotSuspended(Closed):
    """Paused (or resumed: `suspended` False) by its owner."""

    kind: Literal["snapshot-suspended"] = "snapshot-suspended"
    snapshot_id: str
    suspended: bool


SnapshotEvent = (
    SnapshotPlanned
    | SnapshotTableStarted
    | ChunkRegistered
    | ChunkCompared
    | SnapshotTableFinished
    | SnapshotEnded
    | SnapshotSuspended
)
