"""What the tests of the PostgreSQL source share: tables looked up, chunks read, the table walked, the log decoded."""

import struct

import numpy as np
import pyarrow as pa
from psycopg import sql

from support.postgres import PostgresServer
from tailrace.contract.resources import TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import Connection, PgConfig
from tailrace.sources.api import KeyList, KeyRange
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.chunks import PgKeys, arrow_schema, read_chunk
from tailrace.sources.postgresql.codec import decode
from tailrace.sources.postgresql.columnar import SplitColumn, split
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.unrepresentable import sets_null


def config_of(server: PostgresServer, username: str = "postgres") -> PgConfig:
    return PgConfig(server.host, server.port, "postgres", username)


def table_of(connection: Connection, name: str, *options: TableOptions) -> PgTable:
    (table,) = discover(connection, TablesSpec(include=(name,)), options)
    assert table.stop is None, table.stop
    return table


def chunk_of(config: PgConfig, table: PgTable, part: KeyRange | KeyList, where: str | None = None) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    read = read_chunk(config, table, part, where, batches.append)
    found = pa.Table.from_batches(batches, schema=arrow_schema(table))
    assert found.num_rows == read.rows
    return found.combine_chunks()


def walk(config: PgConfig, connection: Connection, table: PgTable, rows: int) -> list[dict[str, object]]:
    """The whole table, chunk after chunk."""
    found: list[dict[str, object]] = []
    keys = PgKeys(connection, table)
    last = keys.max_key()
    lower = None
    while last is not None:
        upper = keys.boundary(lower, rows, last)
        found += chunk_of(config, table, KeyRange(lower, upper or last)).to_pylist()
        if upper is None or upper == last:
            break
        lower = upper
    return found


class LogReader:
    """A logical slot read through SQL, with the session settings of every connection of ours."""

    def __init__(self, connection: Connection, table: PgTable) -> None:
        self.connection = connection
        self.table = table
        connection.execute(sql.SQL("CREATE PUBLICATION p FOR TABLE {}").format(table.identifier))
        connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")

    def tuples(self, kind: bytes) -> list[SplitColumn]:
        """The new rows of all messages of this kind since the last call (U: without an old row)."""
        messages = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'p')"
        ).fetchall()
        wanted = [bytes(m[0]) for m in messages if bytes(m[0])[:1] == kind and bytes(m[0])[5:6] == b"N"]
        ends = np.cumsum([len(m) for m in wanted], dtype=np.int64)
        starts = ends - np.array([len(m) for m in wanted], dtype=np.int64) + 8
        count = len(self.table.columns)
        assert all(struct.unpack_from(">h", m, 6) == (count,) for m in wanted)
        columns, found = split(b"".join(wanted), starts, count, tagged=True)
        assert found.tolist() == ends.tolist()
        return columns

    def inserted(self) -> pa.Table:
        arrays = [
            decode(column.values, c.logical, self.table.name, c.name, sets_null=sets_null(self.table.options))
            for column, c in zip(self.tuples(b"I"), self.table.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=arrow_schema(self.table))
