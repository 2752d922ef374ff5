"""The captured tables of a stream, and their schema versions: the base of both products' `log.tables`.

Used by the decoder, by the look at the catalog, and by capture for the version that a chunk was read in.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tailrace.changelog.records.terms import TableSchema


@dataclass
class StreamTable:
    """One captured table."""

    schema: TableSchema
    stopped: bool = False
    history: list[TableSchema] = field(default_factory=list, kw_only=True)
    """Older versions, for chunks read before a change."""

    def evolve(self, schema: TableSchema) -> None:
        """A new version is in force."""
        # One for each set of columns, the newest: a table that is read again often would else fill memory.
        self.history = [s for s in self.history if not same_columns(s, self.schema)] + [self.schema]
        self.schema = schema


T = TypeVar("T", bound=StreamTable)


class StreamTables(Generic[T]):
    """All tables of the journal that are captured or stopped."""

    def __init__(self) -> None:
        self.known: dict[int, T] = {}

    def remove(self, table_id: int) -> None:
        del self.known[table_id]

    def stop(self, table_id: int) -> None:
        """The table's later changes are not captured."""
        self.known[table_id].stopped = True

    def is_known(self, table_id: int) -> bool:
        """Captured or stopped."""
        return table_id in self.known

    def is_captured(self, table_id: int) -> bool:
        """Captured and not stopped."""
        return table_id in self.known and not self.known[table_id].stopped

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        """The newest schema version that has exactly these columns; None: no version does."""
        table, wanted = self.known[table_id], set(columns)
        for schema in (table.schema, *reversed(table.history)):
            if {c.name for c in schema.columns} == wanted:
                return schema.version
        return None


def same_columns(one: TableSchema, other: TableSchema) -> bool:
    return {(c.id, c.name) for c in one.columns} == {(c.id, c.name) for c in other.columns}
