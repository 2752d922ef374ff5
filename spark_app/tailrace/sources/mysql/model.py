"""The catalog's facts about one table: made by `catalog`, used by the log, the chunk reader and preflight."""

import hashlib
from dataclasses import dataclass

from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import TableStop
from tailrace.sources.mysql.types import NUMBERS, ColumnType, Form


def number_of(name: str) -> int:
    """The number of a table, by its `identity`, or of a column: MySQL has none that survives everything that a name
    survives (an online schema change replaces a table by another one, TRUNCATE gives it another id)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


def number_in(name: str, version: int) -> int:
    """The number of a column that came, or became another one, with a version of its table: one of the same name may
    have been there before."""
    return number_of(f"{name}\0{version}")


def identity(schema: str, table: str) -> str:
    """The text that tells tables apart: table `c` of schema `a.b` is not table `b.c` of schema `a`."""
    between = "\0" if "." in schema else "."
    return f"{schema}{between}{table}"


@dataclass(frozen=True)
class MysqlColumn:
    """One column, copied or not."""

    name: str
    type: ColumnType
    form: Form
    """How its values are written."""
    native: str | None
    """Logical type without `as`; None: the type is unknown."""
    nullable: bool
    key: int | None
    """Position in the row's key, from 0; None: not part of it."""
    generated: bool
    """Computed by the server from other columns."""
    copied: bool
    mask: str | None = None
    """The mask, as in `changelog.records.terms.Column`."""
    own: str | None = None
    """The type for a target of the same product, as in `changelog.records.terms.Column.behind`."""
    of_session: bool = False
    """Computed by each session that reads or writes the row, and not by all alike: never copied."""

    @property
    def id(self) -> int:
        return number_of(self.name)

    @property
    def other_number(self) -> bool:
        """Its values become other numbers than they are (`as`)."""
        return self.type.name in NUMBERS and self.form.logical not in ("string", self.native)


@dataclass(frozen=True)
class MysqlTable:
    """One table as the catalog shows it now."""

    schema_name: str
    table_name: str
    columns: tuple[MysqlColumn, ...]
    """All of them, in the order of the rows in the log."""
    key_index: str
    """Name of the index that the key is of; empty: there is no key."""
    schema: TableSchema
    """The schema of the columns that are copied. Version 0: capture numbers the versions."""
    stop: TableStop | None
    """Why the table cannot be captured; None: it can."""
    engine: str | None = None
    options: TableOptions | None = None
    """The options that were in force."""
    alone: bool = False
    """The key's index is the only unique one."""

    @property
    def id(self) -> int:
        return self.schema.table_id

    @property
    def name(self) -> str:
        """`schema.table`, as users write it."""
        return f"{self.schema_name}.{self.table_name}"

    def shows(self, version: TableSchema) -> bool:
        """True if it has these columns, by name: the catalog does not have the numbers that versions give them."""
        forms = [{(c.name, c.type, c.mask) for c in schema.columns} for schema in (version, self.schema)]
        return forms[0] == forms[1] and version.choice == self.schema.choice

    @property
    def copied(self) -> tuple[MysqlColumn, ...]:
        return tuple(c for c in self.columns if c.copied)

    @property
    def key_columns(self) -> tuple[MysqlColumn, ...]:
        return tuple(sorted((c for c in self.columns if c.key is not None), key=lambda c: c.key or 0))

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema_name)}.{quoted(self.table_name)}"


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"


def lock_right(table: MysqlTable) -> str:
    """The statement that lets a user lock it, up to whom: the right is of a whole database."""
    return f"GRANT LOCK TABLES ON {quoted(table.schema_name)}.*"
