"""One connection to a database that is a target, and what differs between products, which implement `TargetSession`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from tailrace.changelog.records.terms import Column
from tailrace.errors import TableStop

Place = tuple[str, str]
"""Schema and name of a table of the target."""


class UnfitValue(Exception):
    """A value that the target cannot hold."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"{column}: {why}")
        self.column, self.why = column, why

    def of(self, table: str) -> TableStop:
        fix = "Correct the value, or leave the column out (options[].columns)."
        return TableStop(table, f"column {self.column!r} has {self.why}", fix)


class TargetSession(Protocol):
    """Statements of one connection. Names in them are quoted by `quote`; values stand where `%s` does."""

    binary: str
    """The type of binary values of any length."""
    text: str
    """The type of texts of any length."""

    def transaction(self) -> AbstractContextManager[None]:
        """All that is run in it takes effect together at its end, or nothing does."""

    def alone(self) -> None:
        """Wait for other transactions that have called this, and let later ones wait for this: of two sessions that
        create the same schema at once, one fails, even if it is to be created only where it is missing."""

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]: ...

    def run(self, statement: str, *values: object) -> int:
        """The number of rows that it changed."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[pa.Table]) -> int:
        """Load rows in bulk; `columns`: their names in the table (quoted), in the order of the rows' columns. Returns
        the bytes that were sent. Raises `UnfitValue`."""

    def quote(self, name: str) -> str: ...

    def type_of(self, column: Column) -> str:
        """The type of a column of a copy."""

    def relation(self, place: Place) -> int | None:
        """The number of the table that is there, which no other has ever had; None: nothing is there."""

    def create_schema(self, name: str) -> None:
        """Create it if it is missing."""

    def drop_schema(self, name: str) -> None:
        """Drop it if it is empty."""

    def rename(self, place: Place, to: Place) -> None:
        """Move a table to a place where nothing is."""

    def alter_type(self, table: str, column: str, kind: str) -> None: ...

    def temporary(self, name: str, columns: str) -> str:
        """Create an empty table that only this session sees, and that is gone at the latest with it. `columns`: their
        definitions. Returns its name in statements."""

    def unlogged(self, table: str, columns: str) -> None:
        """Create a table that may be empty after a crash of the server."""

    def delete_using(self, table: str, using: str, on: str) -> None:
        """Delete rows of `table` (as `t`) for which `using` (as `u`) has a row."""

    def update_from(self, table: str, assignments: str, using: str, on: str) -> None:
        """Update rows of `table` (as `t`) from `using`."""

    def bit(self, bits: str, number: int) -> str:
        """A condition: this bit of a binary value is set, counted from the lowest of the first byte."""

    def row_text(self, columns: Sequence[str]) -> str:
        """An expression: a text that rows share if all these values are written alike, and only then."""

    def delete_some(self, table: str, wanted: str, on: str) -> None:
        """Delete, for each row of `wanted` (as `w`), as many rows of `table` (as `t`) as its column `_tailrace_count`
        says, out of those that the condition finds."""


class TargetSessions(Protocol):
    """Connections to the target, made when they are needed. Thread-safe."""

    def session(self) -> AbstractContextManager[TargetSession]:
        """A session that nobody else uses meanwhile."""


def list_of(session: TargetSession, names: Iterable[str], alias: str = "") -> str:
    """Column names, separated by commas."""
    return ", ".join(f"{alias}{session.quote(name)}" for name in names)


def equal(session: TargetSession, names: Iterable[str], others: Iterable[str] | None = None) -> str:
    """The condition that `t` and `u` agree in these columns; `others`: their names in `u`."""
    names = list(names)
    pairs: Iterator[tuple[str, str]] = zip(names, names if others is None else others, strict=True)
    return " AND ".join(f"t.{session.quote(one)} = u.{session.quote(other)}" for one, other in pairs)


def table(session: TargetSession, place: Place) -> str:
    """The place in statements."""
    return f"{session.quote(place[0])}.{session.quote(place[1])}"
