"""The DDL proofs' targets in a warehouse's emulator: BigQuery or Snowflake."""

from collections.abc import Sequence

from psycopg import sql

from demo.compare import target_rows
from support.ddl.copies import Rows, compared, text_of
from support.ddl.fuzz import CopiedTables
from support.warehouse_reader import Service, copies_of

OF_ARRAYS = CopiedTables(
    made=(
        "CREATE TABLE s.listed (id int PRIMARY KEY, tags text[] NOT NULL, n int[] NOT NULL, a text);"
        " ALTER TABLE s.listed ALTER tags SET STORAGE EXTERNAL",
        "INSERT INTO s.listed SELECT g, ARRAY['', repeat('t', 3000)], ARRAY[g], 'a' FROM generate_series(1, 15) g",
    ),
    options=({"match": "s.listed", "as": {"tags": "list", "n": "list"}},),
)
"""With a table of arrays, which are columns of BigQuery's (`target.bigquery.lists`)."""


class InWarehouse:
    """Copies in a data set or schema that is not there yet."""

    def __init__(self, service: Service, **more: object) -> None:
        """`more`: fields of the target's block."""
        self._copies = copies_of(service, **more)
        self.target = self._copies.target

    def columns(self, schema: str, table: str) -> list[str]:
        return list(self._copies.kinds(table))

    def key(self, schema: str, table: str) -> list[str]:
        return self._copies.key(table)

    def rows(self, schema: str, table: str, columns: Sequence[str]) -> Rows:
        found = self._copies.read(table).select(columns)
        return (tuple(map(compared, row)) for row in target_rows(found))

    def shown(self, schema: str, table: str, column: str) -> sql.Composed:
        kind = self._copies.kinds(table)[column]
        if kind in ("STRING", "VARCHAR"):
            return text_of(column)
        return sql.SQL("t.{}::float8" if kind == "FLOAT" else "t.{}").format(sql.Identifier(column))

    def drop(self) -> None:
        self._copies.drop()
