"""How large tables are, by the catalog's estimates and the files' sizes. Called for `tailrace doctor`."""

from collections.abc import Mapping, Sequence

import psycopg

from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.sources.findings import TableSize
from tailrace.sources.postgresql.model import PgTable

_ROWS = "SELECT oid::int8, reltuples::float8 FROM pg_catalog.pg_class WHERE oid = ANY(%s::oid[])"
_FILES = """
SELECT o, pg_catalog.pg_table_size(o::oid::regclass)::int8, pg_catalog.pg_relation_size(o::oid::regclass)::int8
  FROM unnest(%s::int8[]) AS o
"""
"""A query for the size of a table with its TOAST values, and of its rows alone."""


def sizes(connection: Connection, tables: Sequence[PgTable]) -> Mapping[int, TableSize]:
    """The sizes by the table's oid; a partitioned table has that of its partitions together."""
    files = sorted({file for table in tables for file, _ in table.storage})
    with source_errors("looking at the sizes of tables"):
        rows: dict[int, float] = dict(connection.execute(_ROWS, (files,)).fetchall())
        measured = _measured(connection, files)
    return {table.oid: _size([file for file, _ in table.storage], rows, measured) for table in tables}


def _measured(connection: Connection, files: Sequence[int]) -> Mapping[int, tuple[int, int]] | None:
    """It opens the tables, so another session's lock can be in the way: then None."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '200ms'")
            found = connection.execute(_FILES, (files,)).fetchall()
    except psycopg.errors.LockNotAvailable:
        return None
    return {oid: (whole or 0, rows or 0) for oid, whole, rows in found}


def _size(files: Sequence[int], rows: Mapping[int, float], measured: Mapping[int, tuple[int, int]] | None) -> TableSize:
    # -1: never analyzed, nor vacuumed; there are rows unless the file is empty.
    unknown = any(rows.get(file, 0) < 0 and (measured is None or measured[file][1]) for file in files)
    return TableSize(
        rows=None if unknown else int(sum(max(rows.get(file, 0), 0) for file in files)),
        bytes=None if measured is None else sum(measured[file][0] for file in files),
    )
