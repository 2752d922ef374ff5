"""Chunks whose rows are handed on as the server sends them (`databases.wire`), to a target that is PostgreSQL, too.

Called through `source`, by the chunk task. A chunk is read as `chunks` reads any; its key alone is decoded.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from tailrace.changelog.types import arrow_type, element_of
from tailrace.databases.postgresql.wire import EXACT, PRODUCT
from tailrace.databases.wire import WireForm, WireRefused, WireRows
from tailrace.errors import ValueUnsupported, met_at
from tailrace.sources.api import ChunkRead, KeyList, KeyRange
from tailrace.sources.postgresql import binary, types
from tailrace.sources.postgresql.chunks import AskedRows, Opened, read_with
from tailrace.sources.postgresql.codec import decode
from tailrace.sources.postgresql.columnar import split
from tailrace.sources.postgresql.copyout import CopyBlock
from tailrace.sources.postgresql.keys import column_binary
from tailrace.sources.postgresql.model import CatalogColumn, PgTable


@dataclass(frozen=True)
class PgWireReader:
    """See `sources.api.WireReader`."""

    opened: Opened
    table: PgTable
    columns: tuple[CatalogColumn, ...]
    """The table's columns in the order of the form."""

    @classmethod
    def of(cls, opened: Opened, table: PgTable, form: WireForm) -> "PgWireReader | None":
        named, names = {column.name: column for column in table.columns}, [name for name, _ in form.columns]
        if form.product != PRODUCT or sorted(names) != sorted(named):
            return None
        columns = tuple(named[name] for name in names)
        keys = columns[: len(table.key_columns)]
        same = all(_is_same(column, kind) for column, (_, kind) in zip(columns, form.columns, strict=True))
        decoded = all(column.key is not None and binary.reader(column) is not None for column in keys)
        return cls(opened, table, columns) if same and decoded else None

    def read(self, part: KeyRange | KeyList, where: str | None, write: Callable[[WireRows], None]) -> ChunkRead:
        def take(block: CopyBlock) -> tuple[int, Iterable[tuple[str, int]]]:
            ends = block.ends
            write(WireRows(block.data, ends, self._keys(block)))
            return len(ends), ()

        sent = sql.SQL(", ").join(map(column_binary, self.columns))
        with met_at("source"):
            return read_with(self.opened, self.table, AskedRows(part, where, sent), take)

    def _keys(self, block: CopyBlock) -> pa.RecordBatch:
        columns = self.columns[: len(self.table.key_columns)]
        parts, _ = split(block.data, block.starts, len(columns), tagged=False)
        try:
            arrays = [
                decode(part.values, c.logical, self.table.name, c.name, key=True, read=binary.reader(c))
                for part, c in zip(parts, columns, strict=True)
            ]
        except ValueUnsupported as error:
            raise WireRefused from error
        fields = [pa.field(c.name, arrow_type(c.logical), nullable=False) for c in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _is_same(column: CatalogColumn, kind: str) -> bool:
    """True if a column of this type in a target has the very values that come from there when they are read."""
    schema, name = column.base_type
    own = column.behind if column.domain else column.source_type
    # Of a logical type with limits some become NULL, or stop the table; lists lack some arrays.
    limited = types.limit(column.logical) or element_of(column.logical) is not None
    return schema == "pg_catalog" and name in EXACT and not limited and column.mask is None and kind == own
