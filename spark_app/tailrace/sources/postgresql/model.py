"""The catalog's facts about one table: made by discovery, used by capture, chunk readers and preflight."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from psycopg import sql

from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import TableStop


@dataclass(frozen=True)
class Operators:
    """The comparison operators of a key column, from the key index's operator class, as (schema, name)."""

    less: tuple[str, str]
    at_most: tuple[str, str]
    equal: tuple[str, str]
    at_least: tuple[str, str]
    greater: tuple[str, str]


@dataclass(frozen=True)
class CatalogColumn:
    """A column that is published (not dropped, not generated)."""

    name: str
    attnum: int
    source_type: str
    """`numeric(10,2)`, schema-qualified where the type is not built in."""
    base_type: tuple[str, str]
    """(schema, name) of the type behind any domains."""
    domain: bool
    """The declared type is a domain over the base type."""
    output: tuple[str, str]
    """(schema, name) of the output function."""
    logical: str
    """Logical type in the log and the target."""
    native: str
    """Logical type without `as`: tells a doctor what the option changes."""
    nullable: bool
    key: int | None
    operators: Operators | None
    """The operators of a key column."""
    collation: tuple[str, str] | None
    """The collation of a key column whose index has another one than the column."""
    has_default: bool
    """New rows get a value of their own accord."""
    has_missing: bool
    """Rows older than the column show a constant that the log never carried: a column added so needs a re-read."""
    mask: str | None = None
    """The mask, as in `changelog.records.terms.Column`."""
    behind: str | None = None
    """The type behind a domain, as in `changelog.records.terms.Column`."""
    padded: int | None = None
    """Length of a `character(n)`, or of a domain over one: its values are filled up with blanks."""
    nested: str | None = None
    """Logical type as a list (arrays) or a struct (composite types); None: its type is neither."""


_TYPES = 1 << 16
"""Above every attnum. A column that gets another type keeps its attnum, and is another column to everybody else."""


def number(column: Column) -> int:
    """The attnum of a column of the change log."""
    return column.id % _TYPES


def retyped(column: Column, now: Column) -> Column:
    """The column of the change log as the catalog has it now, under an id of its own if it has another type there."""
    return now.model_copy(update={"id": column.id if column.type == now.type else column.id + _TYPES})


FileNodes = tuple[tuple[int, int], ...]
"""(oid, relfilenode) of each file."""


class AlteredType(NamedTuple):
    """An enum or a composite type that was altered after it was made."""

    oid: str
    by: int
    """The last transaction that did, as the catalog has it: 32 bits."""


@dataclass(frozen=True)
class PgTable:
    """One table as the catalog shows it now."""

    oid: int
    schema_name: str
    table_name: str
    partitioned: bool
    owner: str
    storage: FileNodes
    """(oid, relfilenode) of the table, or of every leaf partition: changes with a rewrite, TRUNCATE, ATTACH, DETACH."""
    columns: tuple[CatalogColumn, ...]
    """Those that are copied, in the source's order."""
    schema: TableSchema
    """Version 0: capture numbers the versions."""
    stop: TableStop | None
    """Why the table cannot be captured; None: it can."""
    generated: tuple[str, ...] = ()
    """Names of generated columns: the log does not carry them, so they are left out."""
    names: Mapping[int, str] = field(default_factory=dict)
    """attnum -> name of every column that is not generated, copied or not."""
    stored: Mapping[int, str] = field(default_factory=dict)
    """Generated columns that are stored, in the same form: since 18 a publication may bring them."""
    whole_identity: str | None = None
    """The table, or a partition of it, whose old rows are logged whole (REPLICA IDENTITY FULL), as SQL writes it."""
    attributes: int = 0
    """Columns that it has ever had, dropped ones included: the highest attnum given so far."""
    numbers: frozenset[int] = frozenset()
    """attnums of the columns that are there, generated ones included."""
    options: TableOptions | None = None
    """The options that were in force."""
    parts: Parts = field(default_factory=dict)
    """The fingerprint, where it was asked for (see `fingerprint.look`)."""
    emptied_by: Mapping[str, int] = field(default_factory=dict)
    """File's oid -> 32-bit id of the transaction that last gave it its place, if it can have been a plain TRUNCATE."""
    altered: Mapping[str, AlteredType] = field(default_factory=dict)
    """Item of the fingerprint (an enum's label, a composite type) -> its type, if that was altered."""

    @property
    def name(self) -> str:
        """`schema.table`, as users write it."""
        return f"{self.schema_name}.{self.table_name}"

    def shows(self, version: TableSchema) -> bool:
        columns = frozenset((number(c), c.name, c.type, c.mask) for c in version.columns)
        return (columns, version.choice) == self.schema.form

    @property
    def left_out(self) -> Mapping[int, str]:
        """attnum -> name of the columns that could be copied and are not (`options[].columns`)."""
        copied = {column.attnum for column in self.columns}
        return {attnum: name for attnum, name in self.names.items() if attnum not in copied}

    def leaves_out(self, column: Column) -> bool:
        """True if the column that once had this id is left out now."""
        return number(column) in self.left_out or column.name in self.left_out.values()

    @property
    def key_columns(self) -> tuple[CatalogColumn, ...]:
        return tuple(sorted((c for c in self.columns if c.key is not None), key=lambda c: c.key or 0))

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema_name, self.table_name)

    @property
    def relation(self) -> sql.Composable:
        """The text after FROM: inheriting tables are separate tables, partitions belong to their root."""
        return self.identifier if self.partitioned else sql.SQL("ONLY ") + self.identifier
