"""The session of a warehouse, whose definitions belong to no transaction: what a batch changes is collected, and sent
as one transaction at its end. A part of `TargetSession`; products add the rest.

Tables of a batch, and the rows in them, are made at once, beside the transaction. The transaction insists on the
records that the driver has read, and is rolled back otherwise. All else is run at once, in an order in which dying
between two statements leaves what the next driver finds and finishes.
"""

import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra
from tailrace.errors import TailraceError, TargetRefused
from tailrace.targets.sql.described import DescribedTable, mark
from tailrace.targets.sql.session import Alteration, Definitions, Place, WantedColumn, nothing

_INTO = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\S+)")
_DEFINES = re.compile(r"(?:CREATE|DROP) ")
NO_COPY = "If another program put a table there, rename it. A copy that was dropped is created again within a minute."


@dataclass(frozen=True)
class CollectedChange:
    """A statement of a batch."""

    statement: str
    values: Sequence[object]
    one: "OneRow | None" = None
    """The row that the statement must find."""
    table_id: int | None = None
    """The table that it belongs to; None: to none."""


@dataclass(frozen=True)
class OneRow:
    table: str
    where: str
    values: Sequence[object]


class CollectedSession:
    """See `targets.sql.session.TargetSession`."""

    row_key = ""
    keeps_rows = reads_changes = enforces_keys = False
    late_keys = upserts = wire = None
    usable = True
    product: str
    described: type[DescribedTable]

    def __init__(self) -> None:
        self._script: list[CollectedChange] | None = None
        """Changes of a batch so far; None: there is none."""
        self._about: int | None = None
        """The table that the changes belong to; None: to none."""
        self._temporary: set[str] = set()

    # ---- what differs between products ----

    @abstractmethod
    def _commit(self, script: Sequence[CollectedChange]) -> None:
        """Run the statements as one transaction. `Retry`: one of them did not find its row, and nothing is changed.
        `TableFailed`: one that belongs to a table failed, and nothing is changed."""

    @abstractmethod
    def _run_now(self, statement: str, values: Sequence[object]) -> int:
        """The number of rows that it changed."""

    @abstractmethod
    def _files(self, columns: Definitions, rows: Iterable[pa.Table]) -> Iterator[bytes]: ...

    @abstractmethod
    def _load_file(self, table: str, columns: Definitions, file: bytes) -> None: ...

    @abstractmethod
    def relation(self, place: Place) -> int | None: ...

    @abstractmethod
    def _make_temporary(self, name: str, columns: str) -> str:
        """Make a table of this name; returns what statements call it. What a killed driver leaves goes by itself."""

    @abstractmethod
    def _drop_made(self, table: str) -> None: ...

    @abstractmethod
    def _copy(self, place: Place) -> DescribedTable | None:
        """None: there is no table, or it is no copy."""

    @abstractmethod
    def _read(self, name: str) -> str:
        """The name that a column in the warehouse stands for."""

    @abstractmethod
    def check_place(self) -> None:
        """`TargetRefused`: copies cannot be made where the manifest says."""

    @abstractmethod
    def lacks_schema(self, name: str) -> bool: ...

    @abstractmethod
    def hidden_policies(self) -> TargetRefused | None:
        """The refusal to tell the policies that people have put on copies; None: they are told, or there are none."""

    def require_lists(self, place: Place, schema: TableSchema) -> None:
        """`UnfitColumn`: a column with lists has another type in the copy of this schema than a new copy would get, as
        the manifest has changed since."""

    @abstractmethod
    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def quote(self, name: str) -> str: ...

    # ---- transactions ----

    @contextmanager
    def transaction(self, define: Callable[[], None] = nothing) -> Iterator[None]:
        define()
        yield

    @contextmanager
    def batch(self, define: Callable[[], None]) -> Iterator[None]:
        define()
        self._script = []
        try:
            yield
            if self._script:
                self._commit(self._script)
        finally:
            self._script = None
            for name in list(self._temporary):
                self.drop_temporary(name)

    @contextmanager
    def about(self, table_id: int) -> Iterator[None]:
        self._about = table_id
        try:
            yield
        finally:
            self._about = None

    def by_key(self) -> AbstractContextManager[None]:
        return nullcontext()  # a warehouse has no indexes

    @contextmanager
    def still(self) -> Iterator[None]:
        yield

    def alone(self) -> None:
        return  # what two create at once is there once

    def end_left_open(self, copies: Collection[Place]) -> list[str]:
        return []  # no transaction waits for its client

    def run(self, statement: str, *values: object) -> int:
        if self._script is None or self._is_at_once(statement):
            return self._run_now(statement, values)
        self._script.append(CollectedChange(statement, values, table_id=self._about))
        return 0

    def run_one(self, table: str, assigned: str, where: str, *values: object) -> bool:
        statement = f"UPDATE {table} SET {assigned} WHERE {where}"
        if self._script is None:
            return self._run_now(statement, values) == 1
        row = OneRow(table, where, values[len(values) - where.count("%s") :])
        self._script.append(CollectedChange(statement, values, row, self._about))
        return True

    def _is_at_once(self, statement: str) -> bool:
        """Definitions, and rows of tables that this batch alone has."""
        into = _INTO.match(statement)
        return bool(_DEFINES.match(statement)) or (into is not None and into[1] in self._temporary)

    def load(self, table: str, columns: Definitions, rows: Iterable[pa.Table]) -> int:
        """Into a copy by way of a table for this batch: nothing of it is there before the transaction's end."""
        staged, size, into = self._script is not None and table not in self._temporary, 0, table
        for file in self._files(columns, rows):
            if staged and not size:
                into = self.temporary("_tailrace_loaded", ", ".join(f"{name} {kind}" for name, kind in columns))
            self._load_file(into, columns, file)
            size += len(file)
        if staged and size:
            listed = ", ".join(name for name, _ in columns)
            self.run(f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {into}")
        return size

    def temporary(self, name: str, columns: str, key: Sequence[str] = ()) -> str:
        made = self._make_temporary(f"{name.removeprefix('_')}_{secrets.token_hex(8)}", columns)
        self._temporary.add(made)
        return made

    def drop_temporary(self, table: str) -> None:
        if self._script is not None:
            return  # the transaction reads it
        self._temporary.discard(table)
        with suppress(TailraceError):  # it goes by itself
            self._drop_made(table)

    def listed(self, columns: Definitions, rows: pa.Table) -> str | None:
        return None

    # ---- names, types ----

    def mark(self, column: Column, kind: str) -> str:
        return mark(column.id)

    def noted(self, kind: str) -> str:
        return kind

    def readable(self, column: Column, alias: str) -> str:
        return f"{alias}.{self.quote(column.name)}"

    def sorting(self, table: str, column: str) -> str:
        return ""

    def cast(self, expression: str, kind: str) -> str:
        return f"CAST(NULL AS {kind})" if expression == "NULL" else expression

    # ---- tables ----

    def columns(self, place: Place) -> Mapping[int, tuple[str, str]]:
        copy = self._copy(place)
        return {} if copy is None else {c.id: (self._read(c.name), c.kind) for c in copy.columns}

    def create(
        self, place: Place, definitions: str, note: Callable[[int], None], *, keyed: bool, opened: Definitions
    ) -> None:
        copy = self.described.of_definitions(secrets.randbits(62) | 1, definitions)
        note(copy.number)
        self.run(copy.created(self._table(place)))

    def alter(self, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        copy = self._copy(place)
        if copy is None:
            raise TargetRefused(f"table {'.'.join(place)} of the target is gone, or is no copy", NO_COPY)
        self._alter(copy, place, change, admit)

    @abstractmethod
    def _alter(self, copy: Any, place: Place, change: Alteration, admit: Callable[[], None]) -> None:
        """Change the columns of a copy, which is at the place."""

    def settle(self, where: Place, relation: int, stored: str) -> bool:
        return False

    def _table(self, place: Place) -> str:
        return f"{self.quote(place[0])}.{self.quote(place[1])}"

    def delete(self, table: str, where: str) -> None:
        self.run(f"DELETE FROM {table} t WHERE {where}")

    def update_from(self, table: str, values: Mapping[str, str], using: str, on: str) -> None:
        assigned = ", ".join(f"{name} = {value}" for name, value in values.items())
        self.run(f"UPDATE {table} t SET {assigned} FROM {using} WHERE {on}")

    def unmoved(self, schema: TableSchema) -> dict[str, str]:
        return {}

    # ---- what warehouses do not have ----

    def wanted(self, name: str, schema: TableSchema, columns: str) -> NoReturn:
        raise self._needs_key(schema.name)

    def alike(self, schema: TableSchema) -> NoReturn:
        raise self._needs_key(schema.name)

    def written(self, schema: TableSchema, alias: str) -> NoReturn:
        raise self._needs_key(schema.name)

    def digest(self, text: str) -> NoReturn:
        raise self._needs_key(text)

    def delete_some(self, table: str, wanted: str, on: str) -> NoReturn:
        raise self._needs_key(table)

    def _needs_key(self, what: str) -> TargetRefused:
        return TargetRefused(f"{what}: {self.product} as a target needs a key", "Add a key, or exclude the table.")

    def counters(self, tables: Collection[Place]) -> list[Counter]:
        return []

    def numbering(self, place: Place, column: str) -> str:
        return ""

    def extras(self, tables: Collection[Place]) -> list[Extra]:
        return []

    def statement(self, extra: Extra, place: Place) -> str:
        return ""

    def advance(self, counter: Counter, number: int) -> None:
        return

    def check_deferred(self, place: Place, *, of_others: bool) -> None:
        return

    def is_undisturbed(self, place: Place, relation: int | None) -> bool:
        return self.relation(place) == relation

    def misfits(self, place: Place, columns: Sequence[WantedColumn]) -> Iterable[tuple[str, str]]:
        return [(f"{self.product}'s tables are not taken over", "")]

    def adopt(
        self,
        place: Place,
        marks: Mapping[str, str],
        note: Callable[[int], None],
        *,
        keyed: bool,
        opened: Definitions,
    ) -> None:
        raise TargetRefused(f"table {'.'.join(place)} of the target is not taken over", "Rename it.")
