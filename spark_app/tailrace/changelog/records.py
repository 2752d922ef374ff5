"""The journal's records: what capture writes and everybody else folds. Closed models, stored as JSON.

Positions are integers that only the source makes and measures. Sequences are int64, one per row change, contiguous
from 1. A record ends at a transaction boundary and is a consistent cut across tables. `first_seq..last_seq` is the
record's range of sequences (`last_seq = first_seq - 1` when it brings none).
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, NewType

from pydantic import BaseModel, ConfigDict, Field

from tailrace.changelog.transactions import TransactionStart
from tailrace.errors import CorruptLog, Where

Seq = NewType("Seq", int)
Position = NewType("Position", int)
RecordNumber = NewType("RecordNumber", int)

Key = tuple[str, ...]
"""A row's key: the text of its key columns, in key order (`changelog.keys`)."""

FORMAT_VERSION = 6
"""1: before the words of the records were any source's. 2: with integers for transaction ids and edges. 3: with plans
whose keys were as people wrote them, and without the part that met an error. 4: with other names of fields. 5: without
bundles. All of them are refused."""


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResumePoint(NamedTuple):
    """The place from which the source's log is read."""

    position: Position
    source_state: str | None = None
    """The knowledge that the source needs beside the position to continue, such as the set of executed transactions;
    only the source reads it. None: nothing."""


class Column(Closed):
    """One column of a schema version."""

    name: str
    id: int
    """The column's identity inside its table, which survives a rename: the source's own number for it, or one made of
    that where the column has become another one under the same number (by another type)."""
    source_type: str
    """The source's own type text, `numeric(10,2)`."""
    type: str
    """Logical type in the log and the target: bool, int32, int64, float32, float64, decimal(p,s), string, binary, date,
    timestamp (no zone, microseconds), timestamptz (UTC, microseconds)."""
    nullable: bool = True
    key: int | None = None
    """Position in the row's key, from 0; None: not part of it."""
    mask: str | None = None
    """The mask that replaced its values (`tailrace.selection.masking`); None: they are the source's."""


def is_unset(where: str | None) -> bool:
    return where is None


def is_false(flag: bool) -> bool:
    return not flag


Form = tuple[frozenset[tuple[int, str, str, str | None]], str | None]


class TableSchema(Closed):
    """One schema version of one source table."""

    table_id: int
    """The source's own number for the table, which survives a rename."""
    schema_name: str
    table_name: str
    version: int
    """The version, from 1, without gaps, for each table id."""
    columns: tuple[Column, ...]
    """The columns in the source's order; the segment's columns have the same order and names."""
    where: str | None = Field(default=None, exclude_if=is_unset)
    """Only rows for which this is true are copied (`selection.conditions`, in canonical text); None: all. Absent in the
    record then, as in all older ones."""
    keyless: bool = Field(default=False, exclude_if=is_false)
    """No column is a key: a row is all its values, and as many rows are copied as the source has of each. The log has
    an update as `D` of the whole old row and `M` of the whole new one. Absent in the record where it is false."""

    @property
    def name(self) -> str:
        """`schema.table`, as users write it."""
        return f"{self.schema_name}.{self.table_name}"

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(sorted((c for c in self.columns if c.key is not None), key=lambda c: c.key or 0))

    @property
    def form(self) -> Form:
        """The form of rows: the set of columns, whatever their order. Columns are compared by id as well as by name,
        because names may have been exchanged, and by mask: a column never holds values of two."""
        return frozenset((c.id, c.name, c.type, c.mask) for c in self.columns), self.where


SeqRanges = tuple[tuple[Seq, Seq], ...]
"""First and last sequence of each, rising."""

Nulled = tuple[tuple[str, int], ...]
"""(column's name, how many of its values became NULL because its type cannot hold them), sorted by name."""


def is_empty(items: Nulled | SeqRanges) -> bool:
    return not items


def with_nulled(before: Nulled, more: Iterable[tuple[str, int]]) -> Nulled:
    """The sums; in `more` a column may have none."""
    sums = dict(before)
    for column, count in more:
        sums[column] = sums.get(column, 0) + count
    return tuple(sorted((column, count) for column, count in sums.items() if count))


class Segment(Closed):
    """Change rows of one table and one schema version, in sequence order: an immutable Parquet file, or a part of a
    bundle (`changelog.bundles`)."""

    table_id: int
    schema_version: int
    path: str
    """Relative to the log's root."""
    rows: int
    size: int
    """Bytes: the file's, or in a bundle those of the rows, before compression."""
    first_seq: Seq
    last_seq: Seq
    unchanged: bool = False
    """Some row has columns that the log did not carry."""
    moves: bool = False
    """Some row is a key change (`M`)."""
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    """Counters by operation; a key change counts as one update (its D row is not counted)."""
    nulled: Nulled = Field(default=(), exclude_if=is_empty)
    """Counts of values that became NULL, for people: nothing depends on them. Absent in the record where it is empty,
    as in all older ones."""


class Transactions(Closed):
    """The record's source transactions in commit order that changed captured tables, as parallel arrays. An id is a
    prefix and a number (`changelog.transactions`)."""

    prefixes: tuple[str, ...] = ()
    """Those that occur, once each."""
    prefix: tuple[int, ...] = ()
    """The place in `prefixes` of each transaction; empty: all have the only one."""
    numbers: tuple[int, ...] = ()
    first_seqs: tuple[int, ...] = ()

    @classmethod
    def of(cls, starts: Sequence[TransactionStart]) -> "Transactions":
        of_each, numbers, first_seqs = zip(*starts, strict=True) if starts else ((), (), ())
        prefixes = tuple(dict.fromkeys(of_each))
        places = {prefix: place for place, prefix in enumerate(prefixes)}
        prefix = tuple(map(places.__getitem__, of_each)) if len(prefixes) > 1 else ()
        return cls(prefixes=prefixes, prefix=prefix, numbers=numbers, first_seqs=first_seqs)


class TableAdded(Closed):
    """A table is captured from this record on. A chunk of it must see all that began before `edge`."""

    kind: Literal["table-added"] = "table-added"
    table: TableSchema
    edge: str
    """Only the source makes and reads it."""
    snapshot: bool = True
    """The initial snapshot is wanted (`spec.snapshot.initial`)."""
    resync: str | None = None
    """The snapshot that asked for it: the target begins a new generation, even for the same table in the same form."""
    must_hide: bool = Field(default=False, exclude_if=is_false)
    """True if the target may show values that must no longer be shown (a mask, a row filter, a column left out): it
    is emptied at once. Otherwise it stays until the table has been read. Absent in the record if false, as in older
    ones."""


class TableRemoved(Closed):
    """The include list no longer names the table, or the table is gone."""

    kind: Literal["table-removed"] = "table-removed"
    table_id: int
    reason: str
    drop: bool = Field(default=False, exclude_if=is_false)
    """The source proves that the table was dropped, and `onTableDrop` was `Drop`: its copy is to go, too. Absent in the
    record if false, as in older ones."""


class CopyRemoval(Closed):
    """The progress of deleting the copy of a table that was dropped in the source (`DroppedTable`)."""

    kind: Literal["copy-removal"] = "copy-removal"
    schema_name: str
    table_name: str
    """Its place in the target."""
    step: Literal["free", "begun", "dropped", "kept"]
    """`free`: a look after the drop found no other table of its name. `begun`: from here on it may be half deleted;
    without effect if the place is another table's by then. `dropped`: nothing is left of it. `kept`: it stays after
    all."""


class SchemaChanged(Closed):
    """A new schema version holds for rows after `seq`. `reread`: existing rows changed without row events."""

    kind: Literal["schema-changed"] = "schema-changed"
    table: TableSchema
    seq: Seq
    """The last sequence before the change."""
    reread: bool = False
    edge: str | None = None
    """The table's edge from here on; None: what held before."""


Parts = dict[str, dict[str, str]]
"""Kind of part -> item -> its value, a digest where it is long. A kind that is absent was not looked at."""
WRITTEN = "written"
"""Instead of a file's number: the log brought rows of a partition that no look has seen yet. If it is gone or empty by
the next look, nothing else reports it."""


class TableFingerprint(Closed):
    """All that gives the table's rows their meaning and that no row event reports, as the last look at the source's
    catalog found it. A later look, also one after a stop, is compared with it."""

    kind: Literal["table-fingerprint"] = "table-fingerprint"
    table_id: int
    parts: Parts


class Truncated(Closed):
    """TRUNCATE; it has a sequence of its own."""

    kind: Literal["truncated"] = "truncated"
    table_id: int
    seq: Seq
    transaction: str
    """The id's text."""


class TableStopped(Closed):
    """Capture cannot continue for this table (an error's name and text); its changes after `seq` are not in the log."""

    kind: Literal["table-stopped"] = "table-stopped"
    table_id: int
    seq: Seq
    error: str
    message: str
    fix: str
    where: Where
    """The part that met it."""


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


class Applied(Closed):
    """Advisory: how far a target table was when apply last said so (the target is the truth)."""

    kind: Literal["applied"] = "applied"
    table_id: int
    applied_seq: Seq
    applied_record: RecordNumber


class SegmentsRemoved(Closed):
    """Retention: every segment of the table that ends at or below `through_seq` is gone or going."""

    kind: Literal["segments-removed"] = "segments-removed"
    table_id: int
    through_seq: Seq


class TransactionsRemoved(Closed):
    """Retention: transactions that began at or below `through_seq` are visible to every snapshot that may still be
    registered, so no replay point can be there."""

    kind: Literal["transactions-removed"] = "transactions-removed"
    through_seq: Seq


class TableForgotten(Closed):
    """Retention: a removed table of which the log holds nothing leaves the state. Should it come back, it is a new
    table to the log."""

    kind: Literal["table-forgotten"] = "table-forgotten"
    table_id: int


class Heartbeat(Closed):
    """The source was idle for captured tables; the record moves only the position."""

    kind: Literal["heartbeat"] = "heartbeat"


class Origin(Closed):
    """Record 0 only: what this change log belongs to."""

    kind: Literal["origin"] = "origin"
    log_id: str
    format_version: int = FORMAT_VERSION
    source: str
    """The product, as `source.type` names it."""
    identity: dict[str, str]
    """The identity of the source, and of the part that is read there, in the product's words; only the source reads
    them."""
    made: tuple[str, ...] = ()
    """The objects that Tailrace created in the source, and drops on deletion, as people read them: `publication
    tailrace_shop_1f2e`."""
    owner: str
    """The owner of this change log (`tailrace.contract.ownership`)."""


class SourceRenewed(Closed):
    """The stream is restarted at the record's position, which may lie before the last one: that one was lost. What was
    captured so far has ended: every table is removed, to be added again."""

    kind: Literal["source-renewed"] = "source-renewed"
    id: str
    """The id of the request."""
    identity: dict[str, str]
    """The origin's from now on."""
    request: str
    """The request's name: the tables that the next look finds are read by one snapshot, with the request's id."""
    chunk_rows: int | None = None
    parallelism: int | None = None
    """The parallelism, as in `SnapshotPlanned`."""


class SourceMoved(Closed):
    """A change of server: the log is read from another one from the record's position on, which lies behind the last
    one: nothing is missing, and nothing comes twice. Chunks that were read before are of the other server."""

    kind: Literal["source-moved"] = "source-moved"
    identity: dict[str, str]
    """The origin's from now on."""


class EpochStarted(Closed):
    """A writer took over. Of two writers the one with the lower epoch stops."""

    kind: Literal["epoch-started"] = "epoch-started"
    owner: str | None = None
    """The new owner of this change log; None: unchanged."""
    released: bool = False
    """The owner has been deleted and left the log behind: the next Replicator that starts owns it."""


Event = Annotated[
    TableAdded
    | TableRemoved
    | SchemaChanged
    | TableFingerprint
    | Truncated
    | TableStopped
    | SnapshotPlanned
    | SnapshotTableStarted
    | ChunkRegistered
    | SnapshotTableFinished
    | SnapshotEnded
    | SnapshotSuspended
    | Applied
    | SegmentsRemoved
    | TransactionsRemoved
    | TableForgotten
    | CopyRemoval
    | Heartbeat
    | Origin
    | SourceRenewed
    | SourceMoved
    | EpochStarted,
    Field(discriminator="kind"),
]


def check_format(version: object) -> None:
    """`CorruptLog` unless it is the format of this version; asked before anything else is read of a change log."""
    if version != FORMAT_VERSION:
        raise CorruptLog(
            f"the change log has format version {version}, this is {FORMAT_VERSION}",
            "Use the version of Tailrace that wrote it, or set storage.location to an empty folder (in Kubernetes,"
            " create another Replicator).",
        )


class Record(Closed):
    """One numbered record of the journal."""

    number: RecordNumber
    epoch: int
    nonce: str
    """Random per writer process: distinguishes this writer's record from another's."""
    first_seq: Seq
    last_seq: Seq
    position: Position
    """Everything the source committed up to here is in records up to this one."""
    source_state: str | None = None
    """The knowledge that the source needs beside `position` to continue (`ResumePoint`); None: unchanged since the last
    one."""
    commit_time: tuple[int, int] | None = None
    """Oldest and newest commit, microseconds since the Unix epoch; None: no transaction."""
    written_at: int
    """Microseconds since the Unix epoch by the writer's clock; for people and for retention's ages, never for order."""
    transactions: Transactions = Transactions()
    segments: tuple[Segment, ...] = ()
    events: tuple[Event, ...] = ()
