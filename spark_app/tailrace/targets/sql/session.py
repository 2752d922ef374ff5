"""One connection to a database that is a target, and what differs between products, which implement `TargetSession`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from typing_extensions import override

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.databases.wire import WireRows
from tailrace.errors import STOP_FIX, SchemaChangeUnsupported, TableStop

Place = tuple[str, str]
"""Schema and name of a table of the target."""
HAS_ROWS = "it has rows"
NUMBER, COUNT = "_tailrace_n", "_tailrace_count"
"""Columns that number the rows of staged tables, and say how many rows of the target are meant."""


class UnfitValue(Exception):
    """A value that the target cannot hold."""

    fix = "Correct the value, or leave the column out (options[].columns)."

    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"{column}: {why}")
        self.column, self.why = column, why

    def of(self, table: str) -> TableStop:
        return TableStop(table, f"column {self.column!r} has {self.why}", self.fix)


class UnfitColumn(UnfitValue):
    """A change of a column for which the rows that are there do not suffice."""

    @override
    def of(self, table: str) -> TableStop:
        return SchemaChangeUnsupported(table, f"column {self.column!r} {self.why}", STOP_FIX)


def nothing() -> None:
    """Nothing to do."""


@dataclass(frozen=True)
class AlteredColumn:
    """A column that gets another name or type. Names are quoted."""

    old: str
    name: str
    kind: str | None
    """The new type; None: it stays."""
    definition: str
    """The new name, type and constraint."""


@dataclass(frozen=True)
class Alteration:
    """The way from the columns that a table has to those that it is to have."""

    dropped: Sequence[str]
    changed: Sequence[AlteredColumn]
    added: Sequence[str]
    """Definitions."""


@dataclass(frozen=True)
class WantedColumn:
    """A column that a table must have which is to become a copy."""

    name: str
    kind: str
    """The type."""
    nullable: bool
    key: bool
    definition: str
    """The definition that it has in a new copy."""


Definitions = Sequence[tuple[str, str]]
"""Names of columns, quoted, and their types."""


class LateKeys(Protocol):
    """Primary keys that are built once a copy has its rows, in the transaction that brings the last ones; and loads
    into a copy that has no key (`sql.loaded`)."""

    def drop(self, place: Place, key: Sequence[str]) -> bool:
        """Drop the key of an empty copy; False: it has rows, somebody uses it, or its key is not as `build` makes
        it."""

    def lacks(self, place: Place, key: Sequence[str]) -> bool:
        """True if the copy has neither a primary key nor a unique index of the same columns."""

    def build(self, place: Place, key: Sequence[str]) -> bool:
        """Build the key; False: not now, because somebody reads the table."""

    def enter(self, place: Place, relation: int, columns: Definitions, may: Callable[[], bool]) -> bool:
        """Have the table stay until the transaction's end. True: it is this relation with just these columns, takes any
        row and sets nothing off, and `may`, asked then, says so."""

    def transaction(self) -> str:
        """The transaction's number, by which `remove` knows its rows."""

    def hold(self, place: Place, relation: int) -> None:
        """Wait until no other transaction that has entered is under way, and have none enter until this one's end.
        `Locked`: one lasts too long."""

    def brought(self, place: Place, transactions: Sequence[str]) -> Sequence[str]:
        """A condition for each of these transactions: it has brought a row of the copy (as `t`). They are true while
        the copy is held, and found by reading it once."""

    def remove(self, place: Place, brought: Sequence[str]) -> int:
        """Delete the rows for which one of these conditions is true. Returns their number."""


class Upserts(Protocol):
    """Rows that are written over those of the same key."""

    def fit(self, table: str, schema: TableSchema, rows: pa.Table) -> bool:
        """True: each of these rows can meet only that of its own key, until the transaction's end. Called in the
        transaction of a batch."""

    def load(self, table: str, columns: Definitions, rows: pa.Table) -> None:
        """Write them. `UnfitValue`: one does not fit, or would if it were inserted; others may have been written."""


class Wire(Protocol):
    """Loads rows that a server of the same product has sent, into tables that Tailrace has made or the transaction has
    entered (`LateKeys.enter`). `WireRefused`: they are not taken, and the transaction is to be rolled back."""

    @property
    def product(self) -> str:
        """`WireForm.product`."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[WireRows]) -> int:
        """`columns`: names, quoted, in the rows' order. Returns the number of bytes."""

    def load_numbered(self, table: str, columns: Sequence[str], rows: Iterable[WireRows]) -> int:
        """Do the same with `NUMBER`, from 0 on, before the rows' own columns."""


class TargetSession(Protocol):
    """Statements of one connection. Names in them are quoted by `quote`; values stand where `%s` does.

    Where a server commits each change of a table's definition by itself, what changes one (`create`, `alter`,
    `replace`) is called before the rows are, and finds what an interrupted driver has done already."""

    binary: str
    """The type of binary values of any length."""
    text: str
    """The type of texts of any length."""
    name: str
    """The type of texts of up to 200 characters."""
    row_key: str
    """The definition of the column that tells the rows of a copy without a key apart; empty: it needs none."""

    keeps_rows: bool
    """Tables that are taken over may have rows: those of the source."""
    enforces_keys: bool
    """Tables can have a primary key."""

    @property
    def late_keys(self) -> LateKeys | None:
        """None: keys are there from the beginning, and are kept with each row."""

    @property
    def upserts(self) -> Upserts | None:
        """None: rows are deleted and inserted, which costs as much."""

    @property
    def wire(self) -> Wire | None:
        """None: rows are loaded by their values alone."""

    reads_changes: bool
    """The reads of a `batch` see what it has changed. False: only what was there before, nor does `still` see one
    moment."""

    def transaction(self, define: Callable[[], None] = nothing) -> AbstractContextManager[None]:
        """All that is run in it takes effect together at its end, or nothing does. `define`: called at first, where
        tables can be created and changed: in the transaction or, where that is not possible, before it."""

    def batch(self, define: Callable[[], None]) -> AbstractContextManager[None]:
        """A transaction whose numbers of changed rows are not asked for, except by `run_one`."""

    def about(self, table_id: int) -> AbstractContextManager[None]:
        """The changes that are run in it are of this table: `TableFailed`, if one fails only at the batch's end."""

    def by_key(self) -> AbstractContextManager[None]:
        """A part of a transaction in which joins of staged rows with a copy find its rows by their key, unless they are
        a good part of it."""

    def still(self) -> AbstractContextManager[None]:
        """A transaction in which all reads see one moment; rows are written into temporary tables only."""

    def alone(self) -> None:
        """Wait for other transactions that have called this, and let later ones wait for this: of two sessions that
        create the same schema at once, one fails, even if it is to be created only where it is missing."""

    def end_left_open(self, copies: Collection[Place]) -> list[str]:
        """End the transactions of other sessions of Tailrace that keep these copies locked while the server waits for
        their client: of a driver that was overtaken, or whose connection was lost. Those of loads stay. Returns the
        names of what was ended; nothing, if the server does not tell."""

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]: ...

    def run(self, statement: str, *values: object) -> int:
        """The number of rows that it changed."""

    def run_one(self, table: str, assigned: str, where: str, *values: object) -> bool:
        """Update one row; False: there was not one, or the transaction fails for that at its end (`Retry`). `values`:
        of the assignments, then of the condition."""

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        """Load rows in bulk; `columns`: those of the table, in the order of the rows' columns. Returns the bytes that
        were sent. Raises `UnfitValue`."""

    def quote(self, name: str) -> str: ...

    def type_of(self, schema: TableSchema, column: Column) -> str:
        """The type of a column of a copy."""

    def mark(self, column: Column, kind: str) -> str:
        """A text behind a column's definition in a copy by which `columns` finds it again."""

    def noted(self, kind: str) -> str:
        """A column's type as `columns` tells it."""

    def readable(self, column: Column, alias: str) -> str:
        """The column as an expression whose values are those of its logical type, whatever its type in the target."""

    def sorting(self, table: str, column: str) -> str:
        """The words behind values of a staging table that are to be sorted as this column's are; empty: they are."""

    def cast(self, expression: str, kind: str) -> str:
        """The expression as a value of this type, where it is about to be stored in such a column."""

    def relation(self, place: Place) -> int | None:
        """The number of the table that is there, which no other has ever had; None: nothing is there."""

    def relations(self, schemas: Collection[str]) -> Mapping[Place, int]:
        """The numbers of all tables in these schemas, by one query."""

    def counters(self, tables: Collection[Place]) -> Sequence[Counter]:
        """Sequences or AUTO_INCREMENT of these tables, as `sources.api.Session.counters`. `TargetRefused`: the user may
        not move one."""

    def numbering(self, place: Place, column: str) -> str:
        """The statement that lets a column get numbers."""

    def extras(self, tables: Collection[Place]) -> Sequence[Extra]:
        """All that these tables have beyond columns and keys, as `sources.api.Session.extras`."""

    def statement(self, extra: Extra, place: Place) -> str:
        """The statement that gives a copy what the source has; empty: there is none."""

    def advance(self, counter: Counter, number: int) -> None:
        """Let this number be the next one that a counter gives."""

    def check_deferred(self, place: Place, *, of_others: bool) -> None:
        """Have the table's constraints that wait for the end of the transaction checked, or those of other tables that
        refer to it; a row that violates one is refused."""

    def is_undisturbed(self, place: Place, relation: int | None) -> bool:
        """False if the table that rows have gone into is no longer this one, but another program's. `TargetRefused`:
        triggers, rules or foreign keys that people have put on it change rows of this session's transactions."""

    def create_schema(self, name: str) -> None:
        """Create it if it is missing."""

    def drop_schema(self, name: str) -> None:
        """Drop it if it is empty."""

    def columns(self, place: Place) -> Mapping[int, tuple[str, str]] | None:
        """Name and type of each column of a copy by its id; None: they are those of the copy's record, which has been
        written in the same transaction."""

    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        """Create a copy. `note`: keeps its `relation`; called so that no copy is ever there without it. `opened`: the
        key, and the column that is NULL in open rows, of a copy that has all versions; empty: of any other."""

    def misfits(self, place: Place, columns: Sequence[WantedColumn]) -> Iterable[tuple[str, str]]:
        """The differences of a table that Tailrace has not created from what a copy must be, each with the statement
        that removes it (empty: it has to be left out). Where it has rows, that is the only one: the statements for
        others may change them."""

    def adopt(
        self,
        place: Place,
        marks: Mapping[str, str],
        note: Callable[[int], None],
        *,
        keyed: bool,
        opened: Definitions,
    ) -> None:
        """Make a copy out of an empty table that has no misfits. `marks`: of its columns, by name; the rest as in
        `create`."""

    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        """Change a copy's columns. `admit`: called right before."""

    def replace(self, place: Place, by: Place, admit: Callable[[], None]) -> None:
        """Put a table in the place of another, which is dropped; nothing happens if that has been done. `admit`: called
        right before."""

    def discard_unfinished(self, place: Place) -> None:
        """Drop what an interrupted `alter` or `replace` has left beside the place: what of it still runs then fails."""

    def settle(self, where: Place, relation: int, stored: str) -> bool:
        """See what a driver may have begun to do to the table of a copy ended. `relation`, `stored`: number and state
        of the copy's record. True: that is another one now."""

    def temporary(self, name: str, columns: str, key: Sequence[str] = ()) -> str:
        """Create an empty table that only this session sees, and that is gone at the latest with it. `columns`: their
        definitions; `key`: those by which rows are looked for. Returns its name in statements."""

    def drop_temporary(self, table: str) -> None: ...

    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        """A few rows as an expression that stands for a table; None: they are to be loaded into a temporary one."""

    def unlogged(self, table: str, columns: str) -> None:
        """Create a table that may be empty after a crash of the server."""

    def delete(self, table: str, where: str) -> None:
        """Delete rows of `table` (as `t`)."""

    def delete_using(self, table: str, using: str, on: str, within: str = "") -> None:
        """Delete rows of `table` (as `t`) for which `using` (as `u`) has a row. `within`: a condition of `t` alone."""

    def update_from(self, table: str, values: Mapping[str, str], using: str, on: str) -> None:
        """Update rows of `table` (as `t`) from `using` (with its alias `u`): expressions by column."""

    def unmoved(self, schema: TableSchema) -> dict[str, str]:
        """Expressions by column that an UPDATE of a copy's rows (as `t`) has to name: what the server would otherwise
        change by itself stays as it is."""

    def bit(self, bits: str, number: int) -> str:
        """A condition: this bit of a binary value is set, counted from the lowest of the first byte."""

    def wanted(self, name: str, schema: TableSchema, columns: str) -> str:
        """Create a temporary table of rows that `alike` compares with those of a copy, as `w`."""

    def alike(self, schema: TableSchema) -> str:
        """A condition: all values of a row of a copy (as `t`) are written like those of `w`."""

    def same(self, column: Column) -> str:
        """A condition: the value of a row of a copy (as `t`) is written like that of `w`."""

    def written(self, schema: TableSchema, alias: str) -> str:
        """A text for a row of a copy, or one of the same columns: no other row has it."""

    def digest(self, text: str) -> str:
        """A short text for a long one."""

    def delete_some(self, table: str, wanted: str, on: str) -> None:
        """Delete, for each row of `wanted` (as `w`), as many rows of `table` (as `t`) as its column `COUNT` says, out
        of those that the condition finds."""


class TargetSessions(Protocol):
    """Connections to the target, made when they are needed. Thread-safe."""

    def session(self) -> AbstractContextManager[TargetSession]:
        """A session that nobody else uses meanwhile."""


def list_of(session: TargetSession, names: Iterable[str], alias: str = "") -> str:
    """Column names, separated by commas."""
    return ", ".join(f"{alias}{session.quote(name)}" for name in names)


def both(on: str, within: str) -> str:
    """Two conditions as one; the second may be missing."""
    return f"{on} AND {within}" if within else on


def equal(session: TargetSession, names: Iterable[str], others: Iterable[str] | None = None) -> str:
    """The condition that `t` and `u` agree in these columns; `others`: their names in `u`."""
    names = list(names)
    pairs: Iterator[tuple[str, str]] = zip(names, names if others is None else others, strict=True)
    return " AND ".join(f"t.{session.quote(one)} = u.{session.quote(other)}" for one, other in pairs)


def table(session: TargetSession, place: Place) -> str:
    """The place in statements."""
    return f"{session.quote(place[0])}.{session.quote(place[1])}"
