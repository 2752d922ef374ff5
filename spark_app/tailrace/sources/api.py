"""The interface of a source database. A new product implements these protocols, and nothing else.

    Source ── session() ──────> Session       one SQL connection: tables, keys, ends of chunks
       ├───── reader() ───────> ChunkReader   travels to executors: the rows of one chunk, and what it saw
       ├───── visibility() ───> Visibility    which transactions of the change log that chunk holds; capture asks
       └───── subscription() ─> Subscription  what one change log has in the source: proven, made, continued, removed
                 └── stream() ─> ChangeStream the source's log, read by capture's one thread ──> Sink

`tailrace.sources.open` finds the product of a manifest; no other room knows one. Opaque outside of a source's folder:
the snapshot of a chunk, the edge of a table and the source's state beside a position (texts), the identity in an
origin, and a position in the source's log, an integer of which only the order counts. A key is the change log's text of
the key columns (`changelog.keys`); a source translates its own keys into this text and back.

Every error is one of `tailrace.errors`: `Retry` where another attempt may help, `TableStop` for what concerns one
table, `SourceRefused` or another `Stop` for what requires manual action. No error of a driver library leaves the
folder.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
from typing_extensions import override

from tailrace.changelog.records import Event, Origin
from tailrace.changelog.records.terms import Key, Nulled, Position, ResumePoint, Seq, TableSchema
from tailrace.changelog.state import LogState
from tailrace.changelog.transactions import TransactionStart
from tailrace.contract.resources import Replicator, TableOptions, TablesSpec
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra, TableName
from tailrace.databases.wire import WireForm, WireRows
from tailrace.errors import Retry, SourceRefused, TableStop
from tailrace.sources.findings import Examination, Writers
from tailrace.sources.visibility import Visibility


class Table(Protocol):
    """A table as the source's catalog shows it now. Picklable; only the source that made it looks inside."""

    @property
    def name(self) -> str:
        """`schema.table`, as users write it."""

    @property
    def schema(self) -> TableSchema:
        """The columns that are copied. Version 0: capture numbers the versions."""

    @property
    def stop(self) -> TableStop | None:
        """The reason why it cannot be captured; None: it can."""

    def shows(self, version: TableSchema) -> bool:
        """True if its columns are those of this version of the change log, in any order."""


@dataclass(frozen=True)
class KeyRange:
    """Keys in (lower, upper], in the order of the source's key index; None: open."""

    lower: Key | None
    upper: Key | None


@dataclass(frozen=True)
class KeyList:
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class ChunkRead:
    """The result of one chunk's transaction."""

    rows: int
    snapshot: str
    """The transaction's snapshot, in the source's form: capture decides with it which transactions the chunk holds."""
    high: Position
    """A position after everything that the transaction saw: the chunk is registered when capture has reached it."""
    columns: tuple[str, ...]
    """Names of the columns read, in order."""
    nulled: Nulled = ()


Writer = Callable[[pa.RecordBatch], None]
"""Takes the rows as they arrive: source column names, logical Arrow types."""


class ChunkReader(Protocol):
    """Reads chunks on executors, each on a separate connection. Picklable; holds no secret and no connection."""

    def kept(self) -> AbstractContextManager["ChunkReader"]:
        """A reader of many small chunks, one after the other, by one thread: they share a connection, as long as none
        fails on it. Each is a transaction with everything that is checked for one, as by `read` itself."""

    def read(self, table: Table, part: KeyRange | KeyList, where: str | None, write: Writer) -> ChunkRead:
        """Read the rows of one chunk as of one moment, ordered by key.

        `where`: the user's condition, one expression in the source's language. `TableGone`: the table no longer
        exists. `Retry`: its definition is no longer `table`'s, or the connection failed; what `write` got is then
        worthless. Takes no lock that a plain SELECT does not take, and writes nothing to the source."""

    def wire(self, table: Table, form: WireForm) -> "WireReader | None":
        """A reader of the table's rows in this form, whose values are just those that `read` finds; None: they are not
        sent so. Asks nobody."""


class WireReader(Protocol):
    def read(self, part: KeyRange | KeyList, where: str | None, write: Callable[[WireRows], None]) -> ChunkRead:
        """Read the chunk as `ChunkReader.read` does. `WireRefused`: the rows have to be read as values."""


@dataclass(frozen=True)
class TableRows:
    """Changed rows of one schema version of one table, typed, with the log's own columns (`changelog.segments`)."""

    schema: TableSchema
    rows: pa.Table
    """The rows in sequence order."""
    nulled: Nulled = ()
    """The counts of values that became NULL, without deleted rows."""
    selected: Mapping[str, int] | None = None
    """The segment's counts of rows that were filtered and masked before; None: they are the source's rows as they
    are."""


@dataclass(frozen=True)
class Changes:
    """The changes of a stretch of the source's log, numbered: the first one has the sequence that the sink asked for. A
    transaction may continue in the next stretch."""

    tables: list[TableRows]
    events: list[Event]
    """The events in log order: TRUNCATE, schema changes, tables that stop."""
    last_seq: Seq
    transactions: list[TransactionStart]
    """Each transaction that took a sequence here."""
    commit_time: tuple[int, int] | None
    """Oldest and newest commit among those transactions."""
    leaves: list[tuple[int, int]]
    """(table id, partition's id) where the log names the partition that a row belongs to."""


class Sink(Protocol):
    """The receiver of a source's changes; `tailrace.capture.recorder.Recorder` makes segments and journal records of
    them."""

    @property
    def next_seq(self) -> Seq:
        """The sequence of the next change."""

    @property
    def state(self) -> LogState:
        """The durable state: the journal's."""

    def add(self, *events: Event) -> None:
        """Put events into the next record: tables that come and go, and what the catalog says about them."""

    def rows(self, changes: Changes) -> None:
        """Add rows to the record being built."""

    def cut(self, point: ResumePoint, rows: bool = True) -> None:
        """Make a record up to this place in the log. `rows`: True if all rows so far belong to whole transactions; else
        they belong to an open one, and the record takes other events only."""


@dataclass(frozen=True)
class Distance:
    """The source's side of the lag."""

    end: Position
    """The position at which the source writes its log now."""
    behind_bytes: int | None
    """Log between a position and the end; None: the source cannot measure it."""
    retained_bytes: int | None
    """Log that the source keeps for this change log; None: unknown."""
    held_by: str | None = None
    """The reason, for people, why the source keeps log that has been read already; None: unknown."""
    waiting_for: str | None = None
    """The obstacle that keeps the log from being read, for people; None: none is known."""


@dataclass(frozen=True)
class StreamContext:
    """The objects that a stream is connected to."""

    sink: Sink
    settle: Callable[[], Position]
    """Makes all finished transactions durable, in a record if there is anything to record. Returns the position up to
    which they are."""
    nonce: str
    """A random text of this process: a marker in the log with another one was written by an earlier process."""
    scratch: Path
    """Folder for what does not fit into memory."""
    memory: int
    """Bytes that a stream may hold before they become rows of the sink, or scratch files."""


class ChangeStream(Protocol):
    """The source's log behind the journal's position, read by capture's one thread: changes go to the sink, which makes
    records of them where the stream says `cut`. A record ends where a transaction does.

    The stream alone looks at the source's catalog: tables that come, go or change become events of the sink, each at a
    place in the log where it is true of all rows before and after it."""

    def start(self) -> None:
        """Take the tables of the journal, look at the catalog, and connect behind the journal's position.
        `PositionLost`: the source does not hold all that comes after it."""

    def fileno(self) -> int:
        """A file descriptor that is readable when the source has sent something."""

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        """Take what has arrived, at most so much. True: all that had arrived."""

    @property
    def position(self) -> Position:
        """The position after the last transaction that was taken whole."""

    @property
    def pending(self) -> bool:
        """True if whole transactions wait for a record."""

    @property
    def in_transaction(self) -> bool:
        """True if the sink has rows of an open transaction: until its end no table may come, go or change."""

    def cut(self) -> None:
        """Give the sink all transactions that are whole, and have it make a record."""

    def acknowledge(self, position: Position) -> None:
        """A durable record holds everything up to here: the source may forget its log."""

    def keep_alive(self, listened: bool = True) -> None:
        """Send a sign of life; called every few seconds at least. `Retry`: the source has been silent for too long;
        without `listened` its answers may still be unread."""

    def heartbeat(self) -> None:
        """Make the source's log move without other writers: an idle source may not send its end by itself."""

    def poll_catalog(self) -> float:
        """Compares the catalog with the captured tables, not while `in_transaction`. Returns the seconds that it took
        the source: what costs more is done less often."""

    def poll_catalog_for(self, table_id: int) -> bool:
        """Look, because a chunk of the table has columns that no version has. True: the catalog has been compared at a
        place in the log behind the first such call; the call is then forgotten."""

    def is_captured(self, table_id: int) -> bool: ...

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        """The newest schema version of a captured table that has exactly these columns; None: no version does."""

    def current_snapshot(self) -> str:
        """The snapshot that a chunk would have if it were read now, in the form of `ChunkRead.snapshot`."""

    def distance(self, position: Position) -> Distance: ...

    @property
    def of_other_case(self) -> Sequence[str]:
        """Sentences about patterns that matched no table at the last look because their case is not the catalog's."""

    def close(self) -> None: ...


class Interrupted(Retry):
    """The process was asked to end before its start was complete."""


class CreatedByOther(Exception):
    """The object that `begin` was about to create was created by another client meanwhile, so Tailrace must not drop
    it."""

    def __init__(self, refusal: SourceRefused) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(frozen=True)
class Patience:
    """The handling of a step that takes long because the source must reach a quiet moment."""

    waits_for: Callable[[str | None], None]
    """Called with the obstacle that is waited for; None: there is none."""
    stopping: threading.Event
    """Set: `Interrupted`."""


NAMED_BY_USER = "it is named in the manifest"
"""The reason for keeping an object that the user has named."""


@dataclass(frozen=True)
class RemovalStep:
    """One object that a removal has reached, and its outcome."""

    what: str
    outcome: Literal["dropped", "kept", "absent", "released"]
    why: str = ""
    """The reason for keeping it."""

    @override
    def __str__(self) -> str:
        words = {"kept": f"kept: {self.why}", "absent": "there is none"}
        return f"{self.what}: {words.get(self.outcome, self.outcome)}"


@dataclass(frozen=True)
class RemovalProof:
    """The objects that may be dropped, as the change log knows them now."""

    origin: Origin | None
    """The list of what was made; None: there is no change log, so only what has this Replicator's own uid in its
    name."""
    kept: str | None
    """The reason why all of it stays; None: it may be dropped."""


class Subscription(Protocol):
    """The objects of one change log in its source that make the log readable, on one SQL connection.

    A first start calls prepare and begin (resume is not needed); every later one admit, failed_over, resume; one that a
    resync asked for admit, renew, failed_over, resume. Then stream. Dying between any two is repaired by the next
    start."""

    def admit(
        self, origin: Origin, point: ResumePoint, renewing: bool, stopping: threading.Event | None = None
    ) -> None:
        """`SourceRefused` unless this is the origin's source and the manifest's names are those of the origin;
        `PositionLost` unless its log still continues from the point (`renewing`: that is abandoned). `Interrupted`
        where that takes long and `stopping` is set."""

    def prepare(self, log_id: str, noted: Origin | None, patience: Patience) -> Origin:
        """The origin of a future change log; `made` lists what `begin` will create. `SourceRefused`: the source is not
        fit, or another client has what would be made. `noted`: a start of this change log was interrupted in `begin`;
        what it left is removed."""

    def begin(self, origin: Origin, patience: Patience) -> ResumePoint:
        """Create what the origin lists. Returns the place from which the source keeps its log. `CreatedByOther`."""

    def renew(self, origin: Origin, patience: Patience) -> tuple[dict[str, str], ResumePoint]:
        """Begin again with a log whose position is lost or abandoned: the new identity, and the place."""

    def failed_over(self, origin: Origin, point: ResumePoint) -> tuple[dict[str, str], ResumePoint] | None:
        """Checks, after `admit` or `renew`, if another server that has all that was read has taken the place of the
        origin's. Returns its identity, and the place after the point from which its log is read; None: it is the
        origin's."""

    def resume(self, origin: Origin, point: ResumePoint) -> None:
        """Before `stream`: `PositionLost` unless the source holds everything after the point. A predecessor of this
        very change log that is still connected is ended; any other client is refused."""

    def stream(self, origin: Origin, context: StreamContext) -> ChangeStream: ...

    def examine(self, origin: Origin | None, renewing: bool) -> Examination:
        """Check everything that a start would check, without changing anything. `origin`: None if there is none."""

    def check(self, origin: Origin, point: Callable[[], ResumePoint], renewing: bool) -> None:
        """Checks what `admit` and `resume` would refuse, beside a capture that may be running: `point` reads the
        journal's newest, and is called after the source was asked."""

    def check_free(self, noted: Origin | None) -> None:
        """Checks what `prepare` would refuse because it is in use."""

    def retained_bytes(self, origin: Origin) -> int | None:
        """Log that the source keeps for this change log now, with or without a running capture; None: none."""

    def remove(self, proof: Callable[[], RemovalProof]) -> Iterator[RemovalStep]:
        """Drop the objects that are proven to have been made by this change log in this very source; the log's
        reader first, because a log that is not read fills the source's disk. The proof is asked for again right
        before each thing is dropped: whatever was waited for took seconds, in which another Replicator may have
        taken the log over."""


class Session(Protocol):
    """One SQL connection to the source, for a few questions."""

    def database_id(self) -> str | None:
        """The identity of the database, the same by whatever address it is reached, as `targets.api.Target` tells it;
        None: the server tells none."""

    def extras(self, tables: Collection[TableName]) -> Sequence[Extra]:
        """All that tables have and copies are made without, for a target of the same product; empty if that is not
        known of this one."""

    def counters(self, tables: Collection[TableName]) -> Sequence[Counter]:
        """Sequences and AUTO_INCREMENT of the tables, and sequences beside them that no table uses. `SourceRefused`:
        the user may not read one."""

    def writers(self, since: str | None, stopped: bool) -> Writers:
        """Look for what may still write to the source. `since`: of the answer before; None: there is none. `stopped`:
        the user says that no program writes any more, so that the source need not be read-only."""

    def current_snapshot(self) -> str:
        """The snapshot of `ChangeStream.current_snapshot`, for who has no stream of the source's log."""

    def log_end(self) -> Position:
        """The end of the source's log now. `SourceRefused`: this server writes no log that can be followed."""

    def tables(self, patterns: TablesSpec, options: Sequence[TableOptions]) -> Sequence[Table]:
        """The tables that the patterns select now, ordered by name; what cannot be captured carries its `stop`."""

    def table(self, table_id: int, options: Sequence[TableOptions]) -> Table | None:
        """The table of the change log; None: the source no longer has it."""

    def unfollowed(self, before: Table, now: Table) -> TableStop | None:
        """The reason why a captured table cannot be continued in its new form, which other options give it; None: it
        can."""

    def obstacle(self, edge: str) -> str | None:
        """The obstacle to a table's first chunk; None: all transactions that began before `edge` have ended, so that a
        chunk sees what the log does not hold."""

    def keys(self, table: Table) -> "TableKeys": ...


class TableKeys(Protocol):
    """The keys and rows of one table, as its chunks are planned."""

    def estimated_rows(self, where: str | None) -> int:
        """The estimated number of rows, for progress only. `ReadRefused` unless `where` is one expression over the
        table."""

    def at_most(self, rows: int) -> bool:
        """True if the table has no more rows than that; costs no more than walking that many."""

    def bytes(self) -> int | None:
        """The size of the table's files, about, with its large values; None: not known without waiting."""

    def max_key(self) -> Key | None:
        """The largest key; None: the table is empty."""

    def boundary(self, after: Key | None, rows: int, max_key: Key) -> Key | None:
        """The key that ends the chunk of so many rows after `after`; None: fewer are left."""

    def normal_keys(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        """The keys as the change log has them, whatever a user wrote: its own text, or what the source takes as well.
        `ReadRefused` where one is no key of the table."""


class Source(Protocol):
    """One database as the manifest names it. Picklable; holds no secret and no connection."""

    @property
    def place(self) -> str:
        """The name of the source in messages."""

    def text(self, position: Position) -> str:
        """A position as people who run this database write it."""

    def bound_to(self, origin: Origin) -> "Source":
        """A copy that accepts only the very server that the change log belongs to, in the state in which the log knows
        it."""

    def session(self) -> AbstractContextManager[Session]: ...

    def reader(self) -> ChunkReader: ...

    def subscription(self, replicator: Replicator, root: str) -> AbstractContextManager[Subscription]:
        """The subscription of the change log at `root` (for messages)."""

    def visibility(self, snapshot: str) -> Visibility:
        """The content of a chunk, by its `ChunkRead.snapshot`; `CorruptLog` where that is no such text. `Retry`: it was
        read from another server than the one that this source is bound to."""
