"""The journal's records: what capture writes and everybody else folds. Closed models, stored as JSON.

A record ends at a transaction boundary and is a consistent cut across tables. `first_seq..last_seq` is its range of
sequences (`last_seq = first_seq - 1` when it brings none).
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tailrace.changelog.records.cuts import CutEvent
from tailrace.changelog.records.notices import NoticeEvent
from tailrace.changelog.records.signals import SignalEvent
from tailrace.changelog.records.snapshots import SnapshotEvent
from tailrace.changelog.records.tables import TableEvent
from tailrace.changelog.records.terms import Closed, Nulled, Position, RecordNumber, Seq, is_empty
from tailrace.changelog.transactions import TransactionStart
from tailrace.errors import CorruptLog

FORMAT_VERSION = 6
"""1: before the words of the records were any source's. 2: with integers for transaction ids and edges. 3: with plans
whose keys were as people wrote them, and without the part that met an error. 4: with other names of fields. 5: without
bundles. All of them are refused."""


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
    TableEvent
    | SnapshotEvent
    | CutEvent
    | SignalEvent
    | NoticeEvent
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
