"""The interface of a target, the place where the copies go. A new product implements these protocols.

    Target ── units() ────> Unit          the tables that one commit moves: opened, brought forward, tidied
       │                       ├── chunk_writer() ──> ChunkWriter    travels to executors: puts a chunk's rows there
       │                       └── look() ──> Look      compares the copy with its source
       └───── removal() ──> Removal       the tables of a Replicator that is deleted

`tailrace.targets.open` finds the product of a manifest; no other room knows one. What a target stores of Tailrace is
the applied state (`tailrace.batch.applied`), in the same commit as the rows. Two things are opaque outside of the
target's folder: the path of a chunk, and the form in which it was written.

Every error is one of `tailrace.errors`: `Retry` where another attempt may help, `TableStop` for what concerns one
table, `TargetRefused` or another `Stop` for what requires manual action.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.batch.applied import AppliedState, Generation
from tailrace.batch.limits import BatchLimits
from tailrace.batch.slice import TableSlice
from tailrace.batch.written import WrittenFiles
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Key, RecordNumber, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.databases.wire import WireForm, WireRows
from tailrace.errors import Retry
from tailrace.fold.comparison import Compared
from tailrace.storage.access import Access
from tailrace.storage.store import Storage

Admit = Callable[[], None]
"""Called right before whatever changes a table durably: raises `Fenced` when another driver owns the change log."""

TableName = tuple[str, str]
"""Schema and name of the source table when it was first captured."""


class ChunkLost(Retry):
    """The target can no longer take these registered chunks: their files are gone, or of another form. They are read
    again."""

    def __init__(self, message: str, fix: str = "", chunks: tuple[ChunkRegistered, ...] = ()) -> None:
        super().__init__(message, fix)
        self.chunks = chunks


@dataclass(frozen=True)
class NeededChunks:
    """Chunks of a table that the change log still needs, whatever the target has taken of them."""

    paths: frozenset[str] = frozenset()
    """Not applied yet, or read again at their snapshot's end."""
    reading: bool = False
    """A snapshot of the table is under way: others may be about to be registered."""


@dataclass(frozen=True)
class WrittenChunk:
    path: str
    """The location in the target's form: `ChunkRegistered.path`."""
    rows: int
    size: int
    """The size in bytes."""


class ChunkWriter(Protocol):
    """Puts chunks of one schema version of one table where the target wants them. Picklable; holds no connection."""

    @property
    def schema(self) -> TableSchema:
        """The schema of the rows that it takes."""

    @property
    def form(self) -> str:
        """The form that the chunks are written for: `ChunkRegistered.layout`. A target whose form has changed since no
        longer takes them."""

    @property
    def wire(self) -> "WireWriter | None":
        """Takes rows as a server of the target's product sends them; None: values alone are taken."""

    def possible(self, keys: Sequence[Key]) -> tuple[Key, ...]:
        """The keys without those of which the target cannot hold a row."""

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        """Write all rows, under source column names; None: there were none. Readers of the target do not see them
        before a batch adopts the chunk."""

    def discard(self, paths: Sequence[str]) -> None:
        """Delete files that it has written and that are not registered; what cannot be deleted is left to the
        clean-up."""


class WireWriter(Protocol):
    @property
    def form(self) -> WireForm:
        """The form in which it takes rows."""

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[WireRows]) -> WrittenChunk | None:
        """Write the chunk as `ChunkWriter.write` does. `WireRefused`: the rows have to come as values; none of these
        were written."""


@dataclass(frozen=True)
class FoundRows:
    applied: AppliedState
    """The state of the copy that has them."""
    rows: pa.Table
    """The columns that were asked for, by source name."""


class Look(Protocol):
    """The copy of one table, to be compared with what its source had. Used beside its unit's batches."""

    @property
    def schema(self) -> TableSchema:
        """The version that it has."""

    def find(self, columns: Sequence[str], values: Sequence[Key], take: Sequence[str], most: int) -> FoundRows:
        """The rows that have one of these values in these columns, which are no floats. If there are more than `most`,
        some of them, but more than that."""

    def compare(self, expect: Callable[[AppliedState], TableSlice]) -> Compared:
        """Compare the rows of one moment. `expect` is asked for what the copy should hold, with its state at that
        moment: a slice that is not applied (`batch.slice.since_chunk`, `since_chunks`). `ChunkLost`: a chunk is
        gone."""


@dataclass(frozen=True)
class VersionAt:
    """A version of a table that holds everything up to a record, and nothing beyond."""

    number: int | None
    """None: the target keeps no versions."""
    applied: AppliedState


@dataclass(frozen=True)
class Opening:
    """A table that the target is to hold."""

    schema: TableSchema
    """Its first version, whose name is the table's place for good."""
    generation: Generation
    namesakes: tuple[str, ...] = ()
    """Other captured tables that have its name in another schema."""
    accepts: bool = False
    """Rows that another program has changed are taken over: all of them are about to be compared with the source's."""


@dataclass(frozen=True)
class Opened:
    """The copy of a table as the target has it."""

    applied: AppliedState
    replacing: bool = False
    """True if this copy, which batches are applied to, is a new one that readers do not see yet: they see the table of
    the generation before."""
    level: bool = True
    """False: the table does not hold what the unit's last commit stands for. It is to be brought forward by itself,
    and to join the unit then."""
    version: int | None = None
    """The version's number, of a table that numbers its versions one after another; None: of others."""


@dataclass(frozen=True)
class UnitBatch:
    """One commit."""

    record: RecordNumber
    tables: frozenset[int]
    """The tables of the unit that hold everything up to `record` then, and nothing beyond: those without a slice have
    nothing that they lack."""
    slices: Mapping[int, TableSlice]
    publish: frozenset[int] = frozenset()
    """Tables whose new, complete copies take the place of what readers see. They have no slice, and must be opened
    again afterwards."""


class TableFailed(Exception):  # it names the table of an error, and is none by itself
    """One table of a unit of several fails: the others can continue without it."""

    def __init__(self, table_id: int, error: Exception) -> None:
        super().__init__(f"table {table_id}: {error}")
        self.table_id, self.error = table_id, error
        self.moved: frozenset[int] = frozenset()
        """Tables that an earlier transaction of the same batch has moved; they are opened again."""


class Unit(Protocol):
    """The tables that one commit moves: one, or several. Their single writer, entered by one thread at a time.

    An error that concerns one of several tables is raised as `TableFailed`: nothing has happened then but to those that
    it says were moved, and these and that table are opened again. Any other is one of all tables, which are opened
    again, and what did happen counts then."""

    def open(self, tables: Mapping[int, Opening], log_id: str) -> Mapping[int, Opened]:
        """Make the tables that are not there, replace those of another generation (`Generation.keeps`: begin, or
        continue, a new copy beside it); returns what is there of each. A table of another log, or one that is not
        Tailrace's, is refused, and so is one of a later generation: this writer's table has ended."""

    def forget(self, table_id: int) -> None:
        """Forget a table that leaves the unit; it stays as it is."""

    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        """Apply the batch in one atomic commit, together with the states that result, which are returned for the tables
        with a slice; refused (`Retry`) if a table was changed by others since. `ChunkLost`: the batch needs chunks that
        the target cannot take."""

    def missing(self) -> Collection[int]:
        """Opened tables whose copies have been dropped or replaced by another program. One question for all of them,
        asked every minute; a target where that is not cheap finds them with their next change."""

    def chunk_writer(self, schema: TableSchema) -> ChunkWriter:
        """The writer for this schema version, which the opened table has."""

    def look(self, schema: TableSchema, applied: AppliedState) -> Look:
        """The opened table, which has this version and this state, as it is now or at any later moment."""

    def version_at(self, table_id: int, record: RecordNumber) -> VersionAt | None:
        """The newest version of the opened table that holds nothing beyond the record, which it has come to; None: it
        is gone, or was of another generation."""

    def newest_version(self, table_id: int) -> int | None:
        """The version of the opened table that was read or made last, as readers see it; None: not known, or the target
        keeps none. Asks nobody."""

    def take_written(self, table_id: int) -> WrittenFiles | None:
        """The data files that commits have added to the opened table since this was asked last; None: its target has
        none, or does not tell. Asks nobody."""

    def keep(self, table_id: int, versions: Mapping[str, int]) -> None:
        """Keep these versions for readers, by the name of the cut that each is of, and from now on no others: whatever
        becomes of them, the opened table's upkeep is to leave their files. A name that has a version keeps it."""

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        """Maintain an opened table without changing a row, between batches and not too long: compaction, expiry of old
        versions, removal of left files. Cheap if there is nothing to do. `now`: seconds since the Unix epoch."""


@dataclass(frozen=True)
class TableOwner:
    """The owner that a table of the target names."""

    log_id: str
    """The id of the change log that wrote it."""
    table_id: int | None
    """The id of the source table; None: an older format does not name it."""
    generation: RecordNumber | None
    """The generation of the source table; None: an older format does not name it."""
    altered: bool
    """True if another program may have changed its rows since, or put another table in its place."""


class TargetRemoval(Protocol):
    """Deletes whole tables of the target, by the names that their source tables had first."""

    def location(self, name: TableName) -> str:
        """The table's place, for messages."""

    def exists(self, name: TableName) -> bool:
        """True if anything exists there."""

    def in_catalog(self, name: TableName) -> bool:
        """True if the target knows a table of this name; what `exists` finds may be in use under another one."""

    def owner(self, name: TableName) -> TableOwner | None:
        """The owner by the state that the table carries; None: it carries none that can be read."""

    def drop(self, name: TableName, admit: Admit | None = None) -> None:
        """Delete the table; the proof of its owner is deleted last, so that the next call can finish an interrupted
        one. `admit`: asked before each step, where another driver may be at work by now."""

    def finish(self, log_id: str) -> None:
        """Called after the last table of the change log: removes what else is its, and the place if it is empty."""


class Handover(Protocol):
    """The end of copies that become the tables which programs write to. Every step may be repeated."""

    def done(self, log_id: str) -> str | None:
        """The report that `finish` has kept; None: the change log's copies are copies."""

    def lacking(self, counters: Sequence[Counter]) -> Sequence[tuple[str, str]]:
        """Name what the copies lack of these counters of the source, each with its fix. Tables have the names under
        which they were first captured."""

    def advance(self, counters: Sequence[Counter]) -> Sequence[Counter]:
        """Let no number be given again; none is ever moved back. Returns the copies' own, as they are then."""

    def finish(self, log_id: str, report: str) -> None:
        """Keep the report and forget the copies, in one transaction: from then on no driver with this change log can
        change or drop them. `Retry`: one of them is being replaced."""

    def tidy(self, log_id: str) -> None:
        """Remove what a `finish` that died has left of staged rows."""


@dataclass(frozen=True)
class DriverJvm:
    """The JVM of a driver, in which a session may run."""

    gateway: Any
    """py4j's."""
    hadoop: Any
    """Hadoop's configuration for its file systems, with what `Target.prepare` sets."""


@dataclass(frozen=True)
class SparkNeeds:
    """The settings with which a session must be started."""

    jars: tuple[str, ...]
    """Names of sets, see `tailrace.spark.artifacts`."""
    settings: Mapping[str, str]


class Units(Protocol):
    """Makes units without tables."""

    def alone(self) -> Unit:
        """A unit for one table."""

    def group(self) -> Unit | None:
        """The unit for all tables that are level; None: a commit cannot move more than one."""


@dataclass(frozen=True)
class Runtime:
    """The surroundings of a target in a driver."""

    log: Storage
    """The change log, in which segments are."""
    admit: Admit
    spark: Callable[[], SparkSession]
    """The session, which is started if there is none yet."""
    source: str
    """The source's type, as the manifest names it: a target of the same product gives columns their own types."""
    require_other_database: Callable[[], None] = lambda: None
    """Raises unless the target is known not to be the source; called before a database is written to at first."""
    scratch: Path | None = None
    """Folder on the driver's disk for what can be made again, kept by a restart; it need not exist yet. None: there is
    none."""
    scratch_size: int = 0
    """Bytes that the target may use of it."""
    jvm: Callable[[], DriverJvm] | None = None
    """The JVM, which is started if there is none yet, and is there before the session; None: the session's."""


class FormerVersion(Protocol):
    """A table, opened, and one of its former versions, which is whole."""

    @property
    def present(self) -> AppliedState:
        """The state of the table as readers see it."""

    @property
    def former(self) -> AppliedState:
        """The state of that version."""

    def restore(self) -> None:
        """Make it the present version, in one commit."""


class Rewinding(Protocol):
    def find(self, opening: Opening, log_id: str, version: int) -> FormerVersion:
        """Changes nothing. `RewindRefused`: the table, or the version, is gone, or is another's."""


@dataclass(frozen=True)
class Obstacle:
    """Something in the target that stands in the way of copies, or may do so later."""

    level: Literal["warn", "fail"]
    message: str
    fix: str
    table: str | None = None
    """Set when it concerns one table only: the others can continue."""


class Target(Protocol):
    """The place that the manifest names. Holds no connection; made without a JVM."""

    @property
    def limits(self) -> BatchLimits:
        """The most that a batch may take."""

    @property
    def place(self) -> str:
        """The name of the target in messages."""

    @property
    def folder(self) -> Access | None:
        """The part of a storage that is the target's alone; None: it is on no storage."""

    def examine(self) -> bool:
        """True if a small file that is written comes back the same, and can be deleted again; of a database, if its
        server has what a target needs and gives the rights. Needs no JVM: Spark's settings are checked, but not
        tried."""

    def database_id(self) -> str | None:
        """The identity of the database, the same by whatever address it is reached; None: it is none, or tells none."""

    def obstacles(self, schemas: Sequence[TableSchema], log_id: str | None) -> Sequence[Obstacle]:
        """Look, without changing anything, for what `open` would refuse of these tables, and what may stop them later.
        `log_id`: of the Replicator's change log; None: there is none yet."""

    def lacking(self, names: Collection[TableName], log_id: str) -> Collection[TableName]:
        """Those of which there is no copy of this change log; none where only a session of Spark could tell."""

    def lacked(self, extras: Sequence[Extra], schemas: Sequence[TableSchema]) -> Mapping[str, Sequence[str]]:
        """The statements that create what a source of the same product has and the copies lack, by table; only for
        copies that are there."""

    def shown(self, schema: TableSchema) -> TableSchema:
        """The table under the names that its columns have in the target: others than in the source where its readers
        reserve them, or cannot tell them apart. Raises `TableStop`, as `Unit` does, for what the target cannot
        hold. Without a JVM."""

    def spark(self) -> SparkNeeds: ...

    def prepare(self, hadoop: Any) -> None:
        """Called in each JVM before a table is opened: sets secrets in Hadoop's configuration."""

    def units(self, run: Runtime) -> Units:
        """Nothing is read before a unit's `open`."""

    def handover(self) -> Handover | None:
        """None: programs do not write to copies of this kind."""

    def show_cut(self, log_id: str, name: str, document: Mapping[str, Any] | None) -> None:
        """Show readers a cut of this change log beside the tables, where they find its versions in no other way. None:
        it is gone."""

    def rewinding(self, run: Runtime) -> Rewinding | None:
        """None: the target keeps no versions."""

    def shown_cuts(self, log_id: str) -> Collection[str]:
        """The names of the change log's cuts that are shown."""

    def removal(self, session: Callable[[], SparkSession]) -> TargetRemoval:
        """The removal of whole tables. `session` starts Spark if the target cannot be reached in another way."""
