"""What Tailrace asks of a source database. Whoever adds a product implements these protocols, and nothing else.

    Source ── session() ──> Session       one SQL connection: the source looked at, tables, keys, where chunks end
       └───── reader() ───> ChunkReader   travels to executors: the rows of one chunk, and what it saw
       └───── visibility() > Visibility   which transactions of the change log that chunk holds; capture asks

`tailrace.sources.open` finds the product of a manifest; no other room knows one. Three things are opaque outside of a
source's folder: what a chunk saw (text), the edge of a table, and a position in the source's log, an integer of which
only the order counts. A key is the source's text of the key columns, in key order, as the change log has it.

Every error is one of `tailrace.errors`: `Retry` where trying again may help, `TableStop` for what concerns one table,
`SourceRefused` or another `Stop` for what a person must put right. No error of a driver library leaves the folder.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tailrace.changelog.keys import Key
from tailrace.changelog.records import Event, Origin, TableSchema
from tailrace.changelog.state import LogState
from tailrace.contract.resources import TableOptions, Tables
from tailrace.errors import TableStop
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
        """Why it cannot be captured; None: it can."""


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
    """What one chunk's transaction brought."""

    rows: int
    snapshot: str
    """What the transaction saw, in the source's words: capture decides with it which transactions the chunk holds."""
    high: int
    """A position that lies behind everything the transaction saw: registered when capture has come so far."""
    columns: tuple[str, ...]
    """Names of the columns read, in order."""


Writer = Callable[[pa.RecordBatch], None]
"""Takes the rows as they arrive: source column names, logical Arrow types."""


class ChunkReader(Protocol):
    """Reads chunks on executors, each on a connection of its own. Picklable; holds no secret and no connection."""

    def read(self, table: Table, part: KeyRange | KeyList, where: str | None, write: Writer) -> ChunkRead:
        """Read the rows of one chunk as one moment shows them, ordered by key.

        `where`: the user's condition, one expression in the source's language. `TableGone`: the table no longer
        exists. `Retry`: its definition is no longer `table`'s, or the connection failed; what `write` got is then
        worthless. Takes no lock that a plain SELECT does not take, and writes nothing to the source."""


@dataclass(frozen=True)
class TableRows:
    """Changed rows of one schema version of one table, typed, with the log's own columns (`changelog.segments`)."""

    schema: TableSchema
    rows: pa.Table
    """In sequence order."""


@dataclass(frozen=True)
class Changes:
    """What a stretch of the source's log brings, numbered: the first change has the sequence that the sink asked for.
    A transaction may go on in the next stretch."""

    tables: list[TableRows]
    events: list[Event]
    """In log order: TRUNCATE, schema changes, tables that stop."""
    last_seq: int
    transactions: list[tuple[int, int]]
    """(transaction, first sequence) of each transaction that took a sequence here."""
    commit_time: tuple[int, int] | None
    """Oldest and newest commit among those transactions."""
    leaves: list[tuple[int, int]]
    """(table id, partition's id) where the log names the partition that a row belongs to."""


class Sink(Protocol):
    """Where a source's changes go; `tailrace.capture.recorder.Recorder` makes segments and journal records of them."""

    @property
    def next_seq(self) -> int:
        """The sequence of the next change."""

    @property
    def state(self) -> LogState:
        """What is durable: the journal's."""

    def add(self, *events: Event) -> None:
        """Put events into the next record: tables that come and go, and what the catalog says about them."""

    def rows(self, changes: Changes) -> None:
        """They belong to the record being built."""

    def cut(self, position: int, rows: bool = True) -> None:
        """Make a record up to this position. `rows`: all taken so far are of whole transactions; else they are of one
        that is still open, and only other events may go into the record."""


@dataclass(frozen=True)
class Distance:
    """The source's side of the lag."""

    insert_position: int
    """Where the source writes its log now."""
    retained_bytes: int | None
    """Log that the source keeps for us; None: it does not say."""


class Session(Protocol):
    """One SQL connection to the source, for a few questions."""

    def log_end(self) -> int:
        """The end of the source's log now. `SourceRefused`: this server writes no log that can be followed."""

    def tables(self, patterns: Tables, options: Sequence[TableOptions]) -> Sequence[Table]:
        """The tables that the patterns select now, ordered by name; what cannot be captured carries its `stop`."""

    def table(self, table_id: int, options: Sequence[TableOptions]) -> Table | None:
        """The table of the change log; None: the source no longer has it."""

    def obstacle(self, edge: int) -> str | None:
        """Who is in the way of a table's first chunk; None: all that began before `edge` has ended, so that a chunk
        sees what the log does not hold."""

    def estimated_rows(self, table: Table, where: str | None) -> int:
        """For progress only. `ReadRefused` unless `where` is one expression over the table."""

    def at_most(self, table: Table, rows: int) -> bool:
        """Whether the table has no more rows than that; costs no more than to walk so many."""

    def max_key(self, table: Table) -> Key | None:
        """None: the table is empty."""

    def boundary(self, table: Table, after: Key | None, rows: int, max_key: Key) -> Key | None:
        """The key that ends the chunk of so many rows after `after`; None: fewer are left."""

    def normal_keys(self, table: Table, asked: Sequence[Key]) -> tuple[Key, ...]:
        """The keys as the log writes them, whatever a person wrote; `ReadRefused` where one is no key of the table."""


class Source(Protocol):
    """One database as the manifest names it. Picklable; holds no secret and no connection."""

    @property
    def place(self) -> str:
        """For messages."""

    def bound_to(self, origin: Origin) -> "Source":
        """The same, but only the very server that the change log belongs to is accepted, in the state in which the
        log knows it."""

    def session(self) -> AbstractContextManager[Session]: ...

    def reader(self) -> ChunkReader: ...

    def visibility(self, seen: str) -> Visibility:
        """What a chunk holds, by its `ChunkRead.snapshot`; `CorruptLog` where that is no such text."""
