"""The layout of a source table's columns in the target's data files: source name, physical name, field id, Arrow type.

Committers make the physical schema (`FormatTable.arrow_schema`); locating, reading and writing of files go by a
`Layout`, so that no other module needs to know the format's naming.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.types import arrow_type, element_of, fields_of, list_type
from tailrace.errors import SchemaChangeUnsupported
from tailrace.fold.key_columns import cast

FIELD_ID = b"PARQUET:field_id"


def physical_field(
    name: str, logical: str, field_id: int, nullable: bool = True, inner: Sequence[int] = ()
) -> pa.Field:
    """`inner`: field ids of a list's elements, or of a struct's fields."""
    kind = _numbered(logical, [{FIELD_ID: str(id_).encode()} for id_ in inner]) if inner else arrow_type(logical)
    return pa.field(name, kind, nullable, {FIELD_ID: str(field_id).encode()})


def _numbered(logical: str, numbers: Sequence[dict[bytes, bytes]]) -> pa.DataType:
    element = element_of(logical)
    if element is not None:
        return list_type(arrow_type(element), numbers[0])
    fields = zip(fields_of(logical) or (), numbers, strict=True)
    return pa.struct([pa.field(name, arrow_type(kind), metadata=number) for (name, kind), number in fields])


@dataclass(frozen=True)
class Layout:
    """A schema version of the source next to the data files' schema, column by column in the same order."""

    schema: TableSchema
    arrow: pa.Schema

    def __post_init__(self) -> None:
        if len(self.schema.columns) != len(self.arrow):
            raise SchemaChangeUnsupported(
                self.schema.name,
                f"{len(self.schema.columns)} source columns, {len(self.arrow)} in the target",
                "Report this: the target's schema was not evolved before its use.",
            )

    @cached_property
    def fields(self) -> dict[str, pa.Field]:
        """The data files' field by source column name."""
        return {column.name: field for column, field in zip(self.schema.columns, self.arrow, strict=True)}

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The type by source column name."""
        return {name: field.type for name, field in self.fields.items()}

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Source names of the key columns in key order."""
        return tuple(column.name for column in self.schema.key_columns)

    @cached_property
    def key_form(self) -> str:
        """The columns that a file is indexed by: a table whose key was dropped and made anew, or became wider, goes on
        with the files that it has."""
        return "\n" + "\n".join(f"{self.fields[name].name} {self.fields[name].type}" for name in self.key)

    @cached_property
    def digest(self) -> str:
        """The digest of the physical names and field ids: the form that a file was written for
        (`ChunkRegistered.layout`)."""
        columns = [(field.name, (field.metadata or {}).get(FIELD_ID, b"").decode()) for field in self.arrow]
        return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]

    def physical(self, names: Sequence[str]) -> list[str]:
        return [self.fields[name].name for name in names]

    def to_physical(self, table: pa.Table) -> pa.Table:
        """Source names in any order -> the data files' schema; casts lose nothing, missing columns are null."""
        present = table.column_names
        columns = [
            cast(table.column(name), field.type) if name in present else pa.nulls(table.num_rows, field.type)
            for name, field in self.fields.items()
        ]
        return pa.table(columns, schema=self.arrow)
