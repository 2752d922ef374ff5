"""Chunks: where they end, and reading one exactly as docs/dev/design.md#the-chunk-rule asks.

Called through `source`: by the steps of a snapshot (`MysqlKeys`) and, on executors, by its task (`read_chunk`). Of
tables with transactions takes no lock that a plain SELECT does not take, and writes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from tailrace.changelog import keys as key_texts
from tailrace.changelog.keys import Key
from tailrace.changelog.records.terms import Nulled, with_nulled
from tailrace.changelog.types import arrow_type
from tailrace.databases.kept import KeptConnection
from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, connect, execute, rows, source_errors
from tailrace.errors import CorruptLog, Locked, ReadRefused, Retry, TableGone
from tailrace.seams import seam
from tailrace.sources.api import ChunkRead, KeyList, KeyRange, Writer
from tailrace.sources.mysql import answer_warnings, charsets, log_end, sql
from tailrace.sources.mysql.binary_rows import to_arrow
from tailrace.sources.mysql.catalog import TRANSACTIONAL, table_by_name
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, identity, lock_right, quoted
from tailrace.sources.mysql.packets import PreparedAnswer
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.support import sizes


@dataclass(frozen=True)
class MysqlKeys:
    connection: Connection
    table: MysqlTable

    def at_most(self, rows: int) -> bool:
        """A walk of so many entries along the key's index."""
        return not self._found("TRUE", f"LIMIT 1 OFFSET {rows}")

    def bytes(self) -> int | None:
        """The size of its pages, as the server estimates it now and then."""
        found = sizes(self.connection, [self.table]).get(identity(self.table.schema_name, self.table.table_name))
        return None if found is None else found.bytes

    def max_key(self) -> Key | None:
        """The table's greatest key by its index's order; None: the table is empty."""
        return next(iter(self._found("TRUE", "LIMIT 1", descending=True)), None)

    def boundary(self, after: Key | None, rows: int, max_key: Key) -> Key | None:
        """The key that ends the chunk of `rows` rows after `after`; None: the chunk ends at `max_key`."""
        within = sql.in_range(self.table, after, max_key)
        return next(iter(self._found(within, f"LIMIT 1 OFFSET {rows - 1}")), None)

    def normal_keys(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        """The keys as the log writes them: those of rows that the server takes them for, else their canonical text."""
        normal: list[Key] = []
        for key in asked:
            normal += self._found(sql.equal(self.table, key), "") or [_canonical(self.table, key)]
        return tuple(dict.fromkeys(normal))

    def estimated_rows(self, where: str | None = None) -> int:
        """The optimizer's estimate."""
        explain = f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {_source(self.table)} WHERE {_filter(where)}"
        with _table_errors(self.table):
            check_filter(self.connection, self.table, where)
            plan = rows(self.connection, explain)
        return sum(int(step["rows"] or 0) for step in plan)

    def _found(self, where: str, limit: str, descending: bool = False) -> list[Key]:
        """The keys of these rows, as the log writes them."""
        table = self.table
        names = ", ".join(_selected(c) for c in table.key_columns)
        order = sql.key_order(table, descending)
        statement = f"SELECT {names} FROM {_source(table)} WHERE {where} ORDER BY {order} {limit}"
        with _table_errors(table):
            batches = _batches(self.connection, table, statement, table.key_columns)
            return [key for batch, _ in batches for key in key_texts.keys(batch.columns)]


def _canonical(table: MysqlTable, key: Key) -> Key:
    try:
        kinds = [arrow_type(c.form.logical) for c in table.key_columns]
        return key_texts.keys(key_texts.columns([key], kinds))[0]
    except CorruptLog:
        raise ReadRefused(
            table.name, f"a key that was asked for is no key of {table.name}", "Correct the keys of the request."
        ) from None


def check_filter(connection: Connection, table: MysqlTable, where: str | None) -> None:
    """`ReadRefused` unless the user's condition is one expression over the table.

    In a chunk it stands in parentheses. Here it stands in none, so a `)` of its own that would close ours, and whatever
    it put behind, is a syntax error."""
    if where is not None:
        with _table_errors(table):
            execute(connection, f"EXPLAIN SELECT 1 FROM {table.quoted} AS t WHERE CASE WHEN {where}\nTHEN TRUE END")


Opened = Callable[[], AbstractContextManager[Connection]]
"""Gives a connection for one chunk."""


def kept_connection(config: SourceConfig) -> KeptConnection[Connection]:
    """A connection for many chunks."""
    return KeptConnection(lambda: connect(config))


def read_chunk(  # noqa: PLR0917  # as `ChunkReader.read`
    config: SourceConfig,
    table: MysqlTable,
    part: KeyRange | KeyList,
    where: str | None,
    writer: Writer,
    opened: Opened | None = None,
) -> ChunkRead:
    """Read one chunk on a connection, by default its own, and hand its rows to `writer` as they arrive.

    `TableGone`: the table no longer exists. `Retry`: its definition is no longer `table`'s (look it up again), or the
    connection failed; whatever `writer` got is then worthless. `ReadRefused`, `ValueUnsupported` name what is wrong.
    """
    with closing(connect(config)) if opened is None else opened() as connection, _table_errors(table):
        # Before the snapshot, in a statement of its own: see `ends`.
        snapshot = log_end.current_snapshot(connection, config.numbering)
        if table.engine not in TRANSACTIONAL:
            _let_writers_end(connection, table)
        seam("chunk.before-snapshot")
        execute(connection, "START TRANSACTION READ ONLY")
        # Keeps the table's definition as it is until the end: DDL waits, as it does for any SELECT.
        execute(connection, f"SELECT 1 FROM {table.quoted} LIMIT 0")
        seam("chunk.after-snapshot")
        _require_same(connection, table)
        check_filter(connection, table, where)
        count, nulled = _copy(connection, table, part, where, writer)
        seam("chunk.after-read")
        execute(connection, "COMMIT")
        # After the transaction, so that everything it saw lies below.
        columns = tuple(c.name for c in table.copied)
        return ChunkRead(count, snapshot, log_end.log_end(connection, config.numbering), columns, nulled)


def _let_writers_end(connection: Connection, table: MysqlTable) -> None:
    """An engine without transactions shows inserted rows only at the end of their statement, which is in the executed
    set before: this lock is not given before all such statements have ended. Nothing else makes a reader wait."""
    try:
        execute(connection, f"LOCK TABLES {table.quoted} READ")
    except pymysql.MySQLError as error:
        if faults.kind(error) != "right":
            raise
        what = f"reading {table.name}, whose engine {table.engine} has no transactions: {faults.text(error)}"
        raise ReadRefused(
            table.name, what, f"Run `{lock_right(table)} TO …`, or convert the table to InnoDB."
        ) from None
    execute(connection, "UNLOCK TABLES")


def _require_same(connection: Connection, table: MysqlTable) -> None:
    found = table_by_name(connection, table.schema_name, table.table_name, table.options)
    if found is None:
        raise _gone(table)
    if (found.columns, found.key_index, found.engine) != (table.columns, table.key_index, table.engine):
        raise Retry(f"the definition of {table.name} changed before a chunk was read")


def _gone(table: MysqlTable) -> TableGone:
    return TableGone(
        table.name,
        f"{table.name} was dropped or renamed",
        "Nothing to do; a new table with this name is captured as a new table.",
    )


def _copy(
    connection: Connection, table: MysqlTable, part: KeyRange | KeyList, where: str | None, writer: Writer
) -> tuple[int, Nulled]:
    keys = sql.in_list(table, part.keys) if isinstance(part, KeyList) else sql.in_range(table, part.lower, part.upper)
    statement = (
        f"SELECT {', '.join(map(_selected, table.copied))} FROM {_source(table)} WHERE {keys} AND {_filter(where)}"
        f" ORDER BY {sql.key_order(table)}"
    )
    count, nulled = 0, Nulled(())
    for batch, lost in _batches(connection, table, statement, table.copied):
        writer(batch)
        count, nulled = count + batch.num_rows, with_nulled(nulled, lost)
    return count, nulled


def _batches(
    connection: Connection, table: MysqlTable, statement: str, columns: Sequence[MysqlColumn]
) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, int]]]]:
    """Rows, and by column how many of their values became NULL."""
    answer = PreparedAnswer(connection, statement)
    schema = pa.schema([pa.field(c.name, arrow_type(c.form.logical), c.nullable or c.form.sets_null) for c in columns])
    for block in answer.blocks():
        arrays, lost = to_arrow(block, answer.columns, columns, table.name)
        yield pa.RecordBatch.from_arrays(arrays, schema=schema), lost
    if answer.warnings:
        codes = [int(code) for _, code, _ in execute(connection, "SHOW WARNINGS")]
        answer_warnings.require_harmless(table.name, answer.warnings, codes)
    answer.close()


def _selected(column: MysqlColumn) -> str:
    """A CAST would do the same, but MariaDB's gives NULL for what is longer than `max_allowed_packet`."""
    name = sql.column(column.name)
    return f"CONVERT({name} USING binary)" if charsets.raw(column.type) else name


def _source(table: MysqlTable) -> str:
    """The key's own index gives rows in its order without sorting them."""
    return f"{table.quoted} AS t FORCE INDEX ({quoted(table.key_index)})"


def _filter(where: str | None) -> str:
    """The user's condition; the line end closes a comment in it."""
    return "TRUE" if where is None else f"({where}\n)"


@contextmanager
def _table_errors(table: MysqlTable) -> Iterator[None]:
    """Faults of one table (rights, filter, key text) stop that table, not the process, and a lock is waited for; the
    rest is as everywhere."""
    with source_errors(f"reading {table.name}"):
        try:
            yield
        except pymysql.MySQLError as error:
            match faults.kind(error):
                case "gone":
                    raise _gone(table) from None
                case "locked":
                    raise Locked(f"a lock on {table.name}") from None
                case "right":
                    fix = f"Run `GRANT SELECT ON {table.quoted} TO …`."
                    raise ReadRefused(table.name, f"reading {table.name}: {faults.text(error)}", fix) from None
                case "statement":
                    what = f"reading {table.name}: {faults.text(error)}"
                    raise ReadRefused(table.name, what, "Correct the condition or the keys.") from None
                case _:
                    raise
