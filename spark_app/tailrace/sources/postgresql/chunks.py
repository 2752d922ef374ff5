"""Chunks: where they end, and reading one exactly as docs/dev/design.md#the-chunk-rule asks.

Called through `source`: by the steps of a snapshot (`PgKeys`, `edge_passed`) and, on executors, by its task
(`read_chunk`). Takes no lock that a plain SELECT does not take, and writes nothing to the source.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from tailrace.changelog.records.terms import Key, Nulled, Position, with_nulled
from tailrace.changelog.types import arrow_type
from tailrace.databases.kept import KeptConnection
from tailrace.databases.postgresql.connect import (
    Connection,
    PgConfig,
    connect,
    error_text,
    source_errors,
    take_unchecked_text,
)
from tailrace.errors import RESYNC, Locked, ReadRefused, Retry, SourceRefused, TableGone, ValueUnsupported
from tailrace.seams import seam
from tailrace.sources.api import ChunkRead, KeyList, KeyRange, Writer
from tailrace.sources.postgresql import binary, locks
from tailrace.sources.postgresql.catalog import table_by_oid
from tailrace.sources.postgresql.codec import Reader, decode
from tailrace.sources.postgresql.columnar import split
from tailrace.sources.postgresql.copyout import CopyBlock, copy_out
from tailrace.sources.postgresql.key_text import canonical
from tailrace.sources.postgresql.keys import (
    column_binary,
    column_text,
    columns_text,
    in_list,
    in_range,
    key_order,
    normal_statement,
)
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.oldest import oldest
from tailrace.sources.postgresql.sizes import sizes
from tailrace.sources.postgresql.too_large import LIMIT, SHORTEN, too_large
from tailrace.sources.unrepresentable import sets_null


@dataclass(frozen=True)
class PgKeys:
    connection: Connection
    table: PgTable

    def at_most(self, rows: int) -> bool:
        """True if the table is read at once: it has no key, or no more than `rows` rows, which a walk of so many
        entries along the key's index shows."""
        beyond = sql.SQL("OFFSET {} LIMIT 1").format(sql.Literal(rows))
        return self.table.schema.keyless or self._one(key_statement(self.table, sql.SQL("true"), beyond)) is None

    def bytes(self) -> int | None:
        """The size of its files, TOAST included; None: a lock is in the way."""
        return sizes(self.connection, [self.table])[self.table.oid].bytes

    def max_key(self) -> Key | None:
        """The table's greatest key by its index's order; None: the table is empty."""
        return self._one(key_statement(self.table, sql.SQL("true"), sql.SQL("LIMIT 1"), descending=True))

    def boundary(self, after: Key | None, rows: int, max_key: Key) -> Key | None:
        """The key that ends the chunk of `rows` rows after `after`; None: the chunk ends at `max_key`."""
        return self._one(boundary_statement(self.table, after, rows, max_key))

    def normal_keys(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        """The keys as the log writes them; `ReadRefused` where one is no key of the table."""
        if not asked:
            return ()
        with _table_errors(self.connection, self.table):
            found = self.connection.execute(normal_statement(self.table, asked)).fetchall()
        widths = [column.padded for column in self.table.key_columns]
        padded = [[_padded(str(v), width) for v, width in zip(row, widths, strict=True)] for row in found]
        return canonical(self.table.key_columns, padded)

    def estimated_rows(self, where: str | None = None) -> int:
        """The planner's estimate, which follows the table's present size."""
        explain = sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {} AS t WHERE {}")
        with _table_errors(self.connection, self.table):
            check_filter(self.connection, self.table, where)
            row = self.connection.execute(explain.format(self.table.relation, _filter(where))).fetchone()
        assert row is not None
        return int(row[0][0]["Plan"]["Plan Rows"])

    def _one(self, statement: sql.Composed) -> Key | None:
        with _table_errors(self.connection, self.table):
            row = self.connection.execute(statement).fetchone()
        return None if row is None else canonical(self.table.key_columns, [[str(v) for v in row]])[0]


def boundary_statement(table: PgTable, after: Key | None, rows: int, max_key: Key) -> sql.Composed:
    """A walk along the key's index: `rows` entries from `after`, whatever is before."""
    skip = sql.SQL("OFFSET {} LIMIT 1").format(sql.Literal(rows - 1))
    return key_statement(table, in_range(table, after, max_key), skip)


def key_statement(
    table: PgTable, where: sql.Composable, limit: sql.Composable, descending: bool = False
) -> sql.Composed:
    return sql.SQL("SELECT {} FROM {} AS t WHERE {} ORDER BY {} {}").format(
        columns_text(table.key_columns), table.relation, where, key_order(table, descending), limit
    )


def _padded(text: str, width: int | None) -> str:
    return text if width is None else text.rstrip(" ").ljust(width)


def check_filter(connection: Connection, table: PgTable, where: str | None) -> None:
    """`ReadRefused` unless the user's condition is one expression over the table.

    In a chunk it stands in parentheses. Here it stands in none, so a `)` of its own that would close ours, and whatever
    it put behind, is a syntax error. binary: the protocol that takes one statement only.
    """
    if where is None:
        return
    bare = sql.SQL("EXPLAIN SELECT FROM {} AS t WHERE CASE WHEN {}\nTHEN true END").format(
        table.relation,
        sql.SQL(where),
    )
    with _table_errors(connection, table):
        connection.execute(bare, binary=True)


def edge_passed(connection: Connection, edge: str) -> str | None:
    """None: every transaction older than the edge has ended, chunks may be read. Else who stands in the way.

    `pg_snapshot_xmin(now) > edge`: what older transactions wrote before capture began is not in the log, so every
    chunk must see it.
    """
    found = oldest(connection)
    return found.named() if found.xid <= int(edge) else None


Opened = Callable[[], AbstractContextManager[Connection]]
"""Gives a connection for one chunk."""


def kept_connection(config: PgConfig) -> KeptConnection[Connection]:
    """A connection for many chunks; none whose text is no longer checked (`take_unchecked_text`) is used twice."""
    return KeptConnection(lambda: connect(config), lambda used: used.info.encoding == "utf-8")


def read_chunk(  # noqa: PLR0917  # as `ChunkReader.read`
    config: PgConfig,
    table: PgTable,
    part: KeyRange | KeyList,
    where: str | None,
    writer: Writer,
    opened: Opened | None = None,
) -> ChunkRead:
    """Read one chunk on a connection, by default its own, and hand its rows to `writer` as they arrive.

    What it saw is `pg_current_snapshot()`, `xmin:xmax:xip,…`.

    `TableGone`: the table no longer exists. `Retry`: its definition is no longer `table`'s (look it up again), or the
    connection failed; whatever `writer` got is then worthless. `ReadRefused`, `ValueUnsupported` name what is wrong.
    """

    def own() -> AbstractContextManager[Connection]:
        # closing, not psycopg's own `with`: after a fault in mid-COPY there is nothing to roll back, only to hang up.
        return closing(connect(config))

    def read(opened: Opened, writer: Writer, as_text: bool) -> ChunkRead:
        columns = _columns_read(table, as_text)
        return read_with(opened, table, AskedRows(part, where, columns), _values(table, writer, as_text))

    try:
        return read(opened or own, writer, as_text=False)
    except ValueUnsupported:
        # Read again up to that value, for a message that has it as the log would.
        read(own, lambda _: None, as_text=True)
        raise


@dataclass(frozen=True)
class AskedRows:
    """The rows and columns of one chunk."""

    part: KeyRange | KeyList
    where: str | None
    columns: sql.Composable


Take = Callable[[CopyBlock], tuple[int, Iterable[tuple[str, int]]]]
"""Takes rows of a chunk; returns their number and the counts of values that became NULL."""


def read_with(opened: Opened, table: PgTable, asked: AskedRows, take: Take) -> ChunkRead:
    """Read a chunk under the chunk rule, block by block."""
    with opened() as connection, _table_errors(connection, table):
        snapshot = _open_snapshot(connection, table)
        seam("chunk.after-snapshot")
        check_filter(connection, table, asked.where)
        command = _statement(table, asked).as_bytes(connection)
        take_unchecked_text(connection)
        rows, nulled = 0, Nulled(())
        for block in copy_out(connection, command):
            count, lost = take(block)
            rows, nulled = rows + count, with_nulled(nulled, lost)
        seam("chunk.after-read")
        connection.execute("COMMIT")
        # After the transaction, so that everything it saw lies below.
        high = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert high is not None
    return ChunkRead(rows, snapshot, Position(int(high[0])), tuple(c.name for c in table.columns), nulled)


def _open_snapshot(connection: Connection, table: PgTable) -> str:
    """Begin, lock, snapshot, and prove that the snapshot shows the very table that was planned."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    # What any SELECT takes, but before the snapshot: else a TRUNCATE or a rewrite slips in between, and the snapshot
    # would see an empty table whose rows the log says are still there.
    try:
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(table.relation))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.WrongObjectType):
        connection.execute("ROLLBACK")
        _gone_or_renamed(connection, table)
    seam("chunk.before-snapshot")
    row = connection.execute("SELECT pg_current_snapshot()::text, pg_is_in_recovery()").fetchone()
    assert row is not None
    if row[1]:
        # A standby's snapshot does not list running transactions.
        raise SourceRefused(
            "chunks are read on the primary, this server is a standby", "Set source.host to the primary."
        )
    found = table_by_oid(connection, table.oid, (table.options,) if table.options else ())
    if found is None or found.identifier != table.identifier:
        _gone_or_renamed(connection, table)
    if _shape(found) != _shape(table):
        raise Retry(f"the definition of {table.name} changed before a chunk was read")
    return str(row[0])


def _gone_or_renamed(connection: Connection, table: PgTable) -> NoReturn:
    found = connection.execute("SELECT FROM pg_class WHERE oid = %s::int8::oid", (table.oid,)).fetchone()
    if found is None:
        raise TableGone(
            table.name,
            f"{table.name} (oid {table.oid}) was dropped",
            "Nothing to do; a new table with this name is captured as a new table.",
        )
    raise Retry(f"{table.name} (oid {table.oid}) was renamed before a chunk was read")


def _shape(table: PgTable) -> Sequence[object]:
    """The properties that decide how the rows read as columns."""
    columns = [(c.attnum, c.name, c.source_type, c.base_type, c.logical, c.key, c.mask) for c in table.columns]
    return [table.schema.keyless, *columns]


def _values(table: PgTable, writer: Writer, as_text: bool) -> Take:
    readers = _readers(table, as_text)

    def take(block: CopyBlock) -> tuple[int, Iterable[tuple[str, int]]]:
        batch, lost = _batch(table, block, readers)
        writer(batch)
        return batch.num_rows, lost

    return take


def _statement(table: PgTable, asked: AskedRows) -> sql.Composable:
    part, where = asked.part, asked.where
    if table.schema.keyless:
        if part != KeyRange(None, None) or where is not None:
            raise Retry(f"{table.name} has lost its key since its snapshot was planned")
        return sql.SQL("COPY (SELECT {} FROM {} AS t) TO STDOUT (FORMAT binary)").format(asked.columns, table.relation)
    keys = in_list(table, part.keys) if isinstance(part, KeyList) else in_range(table, part.lower, part.upper)
    return sql.SQL("COPY (SELECT {} FROM {} AS t WHERE {} AND {} ORDER BY {}) TO STDOUT (FORMAT binary)").format(
        asked.columns, table.relation, keys, _filter(where), key_order(table)
    )


def _readers(table: PgTable, as_text: bool) -> list[Reader | None]:
    """The readers of the columns that are read in binary form; None: text."""
    return [None if as_text else binary.reader(column) for column in table.columns]


def _columns_read(table: PgTable, as_text: bool) -> sql.Composable:
    columns = zip(table.columns, _readers(table, as_text), strict=True)
    return sql.SQL(", ").join(column_text(c) if reader is None else column_binary(c) for c, reader in columns)


def _filter(where: str | None) -> sql.Composable:
    """The user's condition; the line end closes a comment in it."""
    return sql.SQL("true") if where is None else sql.SQL("({}\n)").format(sql.SQL(where))


def _batch(
    table: PgTable, block: CopyBlock, readers: Sequence[Reader | None]
) -> tuple[pa.RecordBatch, list[tuple[str, int]]]:
    columns, ends = split(block.data, block.starts, len(table.columns), tagged=False)
    if not np.array_equal(ends, block.ends):
        raise Retry(f"a row of {table.name} from COPY does not have {len(table.columns)} columns")
    nulls = sets_null(table.options)
    arrays = [
        decode(part.values, c.logical, table.name, c.name, key=c.key is not None, sets_null=nulls, read=reader)
        for part, c, reader in zip(columns, table.columns, readers, strict=True)
    ]
    read = zip(table.columns, columns, arrays, strict=True)
    lost = [(c.name, typed.null_count - part.values.null_count) for c, part, typed in read]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(table)), lost


def arrow_schema(table: PgTable) -> pa.Schema:
    """Source column names, logical types: what `writer` gets."""
    may = sets_null(table.options)
    null = [c.nullable or (may and c.key is None) for c in table.columns]
    return pa.schema([pa.field(c.name, arrow_type(c.logical), n) for c, n in zip(table.columns, null, strict=True)])


@contextmanager
def _table_errors(connection: Connection, table: PgTable) -> Iterator[None]:
    """Faults of one table (rights, filter, key text) stop that table, not the process, and a lock is waited for; the
    rest is as everywhere."""
    with source_errors(f"reading {table.name}"):
        try:
            yield
        except psycopg.errors.LockNotAvailable:
            raise _locked(connection, table) from None
        except psycopg.Error as error:
            if too_large(error.sqlstate or "", str(error)):
                raise _unsendable(table, error) from None
            ours = (error.sqlstate or "")[:2] in ("42", "22") and not isinstance(error, psycopg.errors.UndefinedTable)
            if not ours:
                raise
            raise _refused(table, error) from None


def _unsendable(table: PgTable, error: psycopg.Error) -> ValueUnsupported:
    what = f"a row of {table.name} cannot be read: {LIMIT} ({error_text(error)}, SQLSTATE {error.sqlstate})"
    return ValueUnsupported(table.name, what, f"{SHORTEN} Then {RESYNC}.")


def _locked(connection: Connection, table: PgTable) -> Locked:
    connection.rollback()
    connection.execute("SET client_encoding = 'UTF8'")  # see `take_unchecked_text`
    return Locked(f"a lock on {table.name}: {locks.holder(connection, table.oid, locks.AGAINST_READING)}")


def _refused(table: PgTable, error: psycopg.Error) -> ReadRefused:
    text = error_text(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        right = sql.SQL("GRANT SELECT ON {} TO …").format(table.identifier).as_string(None)
        fix = f"Run `{right}`; grant USAGE on its schemas, and BYPASSRLS where row-level security hides rows."
    else:
        fix = "Correct the condition or the keys; qualify names outside pg_catalog with their schema."
    return ReadRefused(table.name, f"reading {table.name}: {text} (SQLSTATE {error.sqlstate})", fix)
