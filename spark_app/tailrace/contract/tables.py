"""The tables that a Replicator selects, and options for some of them."""

import re
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from tailrace.contract.base import (
    CODE,
    ColumnName,
    CopiedAs,
    FormerDefault,
    Model,
    TablePattern,
    no_expression,
    rules,
)


class TablesSpec(Model):
    """The selected tables: any include pattern and no exclude pattern."""

    model_config = rules(no_expression("include"), no_expression("exclude"))

    include: Annotated[tuple[TablePattern, ...], Field(min_length=1, max_length=1000)]
    """Patterns `schema.table`; `*` matches any run of characters, `?` one. Tables that are created
    later and match are captured, too."""
    exclude: Annotated[tuple[TablePattern, ...], Field(max_length=1000)] = ()
    """Patterns of tables to leave out."""
    confirm_removal: Annotated[str, StringConstraints(pattern=CODE, max_length=8)] | None = None
    """Confirms a change of these patterns that drops all tables from capture, or more than half of them. Without it
    such a change is refused with the list of the tables and the code to set here, eight hexadecimal digits. The code
    holds for exactly those tables, so it confirms no other change and may stay."""


OnSchemaChange = Literal["Evolve", "EvolveAdditive", "Stop"]
OnTableDrop = Literal["Keep", "Drop"]
OnUnsupported = Literal["Fail", "SetNull"]


_LENGTH = "give length with method Truncate, and only there"


class Mask(Model):
    """The replacement of one column's values."""

    model_config = rules(("has(self.length) == (self.method == 'Truncate')", _LENGTH))

    column: ColumnName
    """Name of the column. It must not be part of the table's key."""
    method: Literal["Hash", "Redact", "Truncate"]
    """`Hash`: HMAC-SHA-256 of the value's text with the key that `spec.maskKey` names, as 64 hexadecimal digits; equal
    values have equal hashes. `Redact`: `***`. `Truncate`: the first `length` characters of the value's text."""
    length: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Number of characters that `Truncate` keeps."""

    @model_validator(mode="after")
    def _measured(self) -> "Mask":
        if (self.length is not None) != (self.method == "Truncate"):
            raise ValueError(_LENGTH)
        return self


_FILTERED_HISTORY = "history: Changes has every change, and where would leave some out: remove one of them"
_PREFIX_OF_NOTHING = "historyPrefix names the columns that a history adds: set history, or remove it"
_PARTITIONED_CHANGES = "partitionBy goes with history: Changes alone"


class TableOptions(Model):
    """Options of the matching tables; the first match counts."""

    model_config = rules(
        ("!has(self.where) || !has(self.history) || self.history != 'Changes'", _FILTERED_HISTORY),
        (
            "!has(self.historyPrefix) || self.historyPrefix == '_' || (has(self.history) && self.history != 'Current')",
            _PREFIX_OF_NOTHING,
        ),
        ("!has(self.partitionBy) || (has(self.history) && self.history == 'Changes')", _PARTITIONED_CHANGES),
    )

    match: TablePattern
    """Pattern `schema.table` as in `tables`."""
    columns: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] | None = None
    """Keep only these columns (the key is always kept); unset: all."""
    as_: Annotated[dict[str, CopiedAs], Field(max_length=1600)] = Field(default_factory=dict, alias="as")
    """Columns to copy as another type, by name. `text`: their exact text, whatever their type. `decimal(p,s)`: exact;
    `double`: the nearest one, as PostgreSQL's own cast rounds, so not always exact. Both of `numeric` (in MySQL
    `decimal`) and integers, except in keys. `list`: of PostgreSQL's arrays of one dimension, except in keys; the
    elements have the type that a column of theirs would have. `struct`: of PostgreSQL's composite types, likewise with
    their fields. `binary`: of `uuid` (PostgreSQL, MariaDB), its 16 bytes.
    `time`: of `time` without a zone, except in keys, of lakes into Iceberg only: Delta has no such type, and Spark 4.1
    reads no Iceberg table that has such a column. A value outside of the type is one that it cannot hold
    (`onUnsupported`). A masked column is `string` all the same. Once a table is captured, a change of this has it start
    over (`onSchemaChange`)."""
    as_text: Annotated[tuple[ColumnName, ...], Field(max_length=1600)] = ()
    """A short form of `as` with `text` for each of these columns."""
    on_unsupported: Annotated[OnUnsupported, FormerDefault("Fail")] = "SetNull"
    """The treatment of a value that its column's type cannot hold exactly, such as a date `infinity`. `SetNull`: it is
    NULL in the target, and counted: in the status, in a metric and, in Kubernetes, by the condition `ValuesCopied`.
    `Fail`: it stops the table. A key cannot be NULL, so there it stops the table in either case."""
    mask: Annotated[
        tuple[Mask, ...],
        Field(
            max_length=100,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["column"]},
        ),
    ] = ()
    """Columns whose values are replaced before anything is written, also in the change log. In the target they are
    `string`, whatever their type; NULL stays NULL. Once a table is captured, a change of this has it
    start over (`onSchemaChange`)."""
    where: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Copy only rows for which this is true: comparisons of columns with literals (`=`, `<>`, `<`, `<=`, `>`, `>=`),
    `IN`, `BETWEEN`, `IS NULL`, `IS NOT NULL`, joined by `AND`, `OR` and `NOT`, such as `region = 'eu' AND id > 1000`.
    A row that no longer matches is deleted in the target, marked with `history: SoftDelete`, or ended with `Versions`.
    Once a table is captured, a change of this has it start over (`onSchemaChange`)."""
    history: Literal["Current", "SoftDelete", "Versions", "Changes"] = "Current"
    """The rows that the copy has. `Current`: those of the source, as they are. `SoftDelete`: also deleted ones, with
    their last values; the columns `_is_deleted` and `_deleted_at` mark them. `Versions`: every version of each row,
    with the columns `_valid_from`, `_valid_to` (NULL: it still is) and `_is_current`. `Changes`: one for each
    change, which are only ever added, with the columns `_op` (`r` read by a snapshot, `c` insert, `u` update, `d`
    delete, `t` truncate), `_seq`, `_commit_time` and `_unchanged`; takes no `where`. All but the first need a key.
    Once a table is captured, a change of this has it start over (`onSchemaChange`), which ends the history and begins
    another."""
    history_prefix: Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=32)] = "_"
    """The beginning of the names of the columns that `history` adds, instead of `_`: with `sys_`, `_is_deleted` is
    `sys_is_deleted`. Only with a history; a change of it is one of `history`."""
    partition_by: Literal["day"] | None = None
    """`day`: the copy of a table with `history: Changes` is partitioned by the day (UTC) of the commits, which an added
    column `_commit_day` has (NULL in rows that a snapshot read). In Delta and Iceberg only; unset: it is not
    partitioned. A change of this is one of `history`."""
    on_schema_change: OnSchemaChange | None = None
    """Overrides `spec.onSchemaChange` for these tables."""
    on_table_drop: OnTableDrop | None = None
    """Overrides `spec.onTableDrop` for these tables."""

    _whole: bool = PrivateAttr(default=False)

    @property
    def whole(self) -> bool:
        """True if the target can hold what the logical types of columns cannot."""
        return self._whole

    def into_same_product(self) -> "TableOptions":
        """A copy for a target of the source's own product."""
        options = self.model_copy()
        options._whole = True
        return options

    @model_validator(mode="after")
    def _named_once(self) -> "TableOptions":
        masked = [m.column for m in self.mask]
        twice = sorted({name for name in masked if masked.count(name) > 1})
        if twice:
            raise ValueError(f"mask: {', '.join(twice)} is listed twice")
        both = sorted(set(self.as_text) & self.as_.keys())
        if both:
            raise ValueError(f"asText: {', '.join(both)} is in as, too: remove it from one of them")
        return self

    @model_validator(mode="after")
    def _with_history(self) -> "TableOptions":
        if self.history == "Changes" and self.where is not None:
            raise ValueError(_FILTERED_HISTORY)
        if self.history == "Current" and self.history_prefix != "_":
            raise ValueError(_PREFIX_OF_NOTHING)
        if self.history != "Changes" and self.partition_by is not None:
            raise ValueError(_PARTITIONED_CHANGES)
        return self

    @model_validator(mode="after")
    def _scaled(self) -> "TableOptions":
        for column, kind in self.as_.items():
            digits = [int(number) for number in re.findall(r"\d+", kind)]
            if digits and digits[1] > digits[0]:
                raise ValueError(f"as: {column}: {kind} has more digits after the point than at all")
        return self
