"""The DDL proofs' targets in a warehouse's emulator: BigQuery or Snowflake."""

from collections.abc import Sequence

from psycopg import sql

from demo.compare import target_rows
from support.ddl.copies import Rows, compared, text_of
from support.warehouse_reader import Service, copies_of


class InWarehouse:
    """Copies in a data set or schema that is not there yet."""

    def __init__(self, service: Service) -> None:
        self._copies = copies_of(service)
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
