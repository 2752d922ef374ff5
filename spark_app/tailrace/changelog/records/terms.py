"""The words that all records share: sequences, positions, keys, and the form of a table's rows.

Positions are integers that only the source makes and measures. Sequences are int64, one per row change, contiguous
from 1.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, NewType

from pydantic import BaseModel, ConfigDict, Field

Seq = NewType("Seq", int)
Position = NewType("Position", int)
RecordNumber = NewType("RecordNumber", int)

Key = tuple[str, ...]
"""A row's key: the text of its key columns, in key order (`changelog.keys`)."""


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResumePoint(NamedTuple):
    """The place from which the source's log is read."""

    position: Position
    source_state: str | None = None
    """The knowledge that the source needs beside the position to continue, such as the set of executed transactions;
    only the source reads it. None: nothing."""


def is_unset(text: str | None) -> bool:
    return text is None


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
    behind: str | None = Field(default=None, exclude_if=is_unset)
    """The type for a target of the source's product, where `source_type` does not say it all: the one behind a domain,
    or with character set and collation; None: there is none, its values come in another form, or another target."""


def is_false(flag: bool | int) -> bool:
    return not flag


def is_none(value: object) -> bool:
    return value is None


def is_underscore(text: str) -> bool:
    return text == "_"


History = Literal["Changes", "SoftDelete", "Versions"]
PartitionBy = Literal["day"]
Choice = tuple[str | None, History | None, str, PartitionBy | None]
"""The row filter of a table, its history, how the names of that begin, and by what it is partitioned."""
Form = tuple[frozenset[tuple[int, str, str, str | None]], Choice]


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
    history: History | None = Field(default=None, exclude_if=is_none)
    """`Changes`: the copy has a row for each change; `SoftDelete`: its deleted rows stay, marked; `Versions`: all
    versions of its rows stay (`changelog.history`).
    None: it has the rows as they are; absent in the record then, as in all older ones."""
    history_prefix: str = Field(default="_", exclude_if=is_underscore)
    """The beginning of the names of the columns that the history adds. Absent in the record where it is `_`."""
    partition_by: PartitionBy | None = Field(default=None, exclude_if=is_none)
    """The copy, with a row for each change, is partitioned by the days of the commits; absent in the record where it is
    not."""

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
        return frozenset((c.id, c.name, c.type, c.mask) for c in self.columns), self.choice

    @property
    def choice(self) -> Choice:
        """The manifest's choice for all its rows: a copy with another one starts over."""
        return self.where, self.history, self.history_prefix, self.partition_by


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
