"""Source against target, or stopped by name: the verdict over one `InProcess` at rest.

The source is read through psycopg, each column by its own text where the target keeps text (`demo.compare`), a table
without its inheriting ones. Every table that the patterns select must be equal, or the journal or the driver must say
of this very table why not, and how to go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from demo.compare import is_text, matched, plain, target_rows
from support.ddl import copies
from support.ddl.in_process import InProcess
from tailrace.changelog.state import LogState, TableLog
from tailrace.sources.patterns import options_of, selected
from tailrace.sources.postgresql import publication
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.stops import starts_over

TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text,
       ARRAY(SELECT attname::text FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
              AND attgenerated = '' ORDER BY attnum),
       ARRAY(SELECT attname::text FROM pg_attribute a JOIN pg_index i ON i.indrelid = c.oid AND indisprimary
              AND attnum = ANY (indkey::int2[]) WHERE attrelid = c.oid ORDER BY attnum)
  FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE relkind IN ('r', 'p') AND NOT relispartition AND relpersistence <> 't' ORDER BY 2, 3
"""


@dataclass(frozen=True)
class Verdict:
    """What is wrong, and what is stopped by name."""

    wrong: tuple[str, ...]
    stopped: dict[str, str]
    """Reason by table."""


@dataclass(frozen=True)
class Found:
    oid: int
    schema: str
    table: str
    partitioned: bool
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


def _published(in_process: InProcess, table: PgTable) -> bool:
    """Whether a publication that the manifest names brings the table as it is now."""
    given = in_process.replicator.spec.source.postgresql.publication
    found = None if given is None else publication.look(in_process.session("verify"), given)
    return found is None or found.stop(table) is None


def verify(in_process: InProcess, state: LogState) -> Verdict:
    """After `settle`."""
    wrong: list[str] = []
    stopped: dict[str, str] = {}
    spec = in_process.replicator.spec
    there = discover(in_process.session("verify"), spec.tables, spec.read_options)
    fit = {table.oid: table.schema for table in there if table.stop is None and _published(in_process, table)}
    for table in selected_tables(in_process):
        log = state.tables.get(table.oid)
        said = _said(in_process, table, log)
        if said is not None and in_process.copies is not None and said.startswith("TargetRefused:"):
            wrong.append(f"{table.name} has not followed its source: {said}")
        elif said is not None and log is not None and table.oid in fit and starts_over(log, spec, fit[table.oid]):
            wrong.append(f"{table.name} does not start over: {said}")
        elif said is not None:
            stopped[table.name] = said
        elif log is None or log.removed:
            wrong.append(f"{table.name} is not captured, and nothing says so")
        else:
            wrong += _different(in_process, table)
    return Verdict(tuple(wrong), stopped)


def selected_tables(in_process: InProcess) -> list[Found]:
    tables = in_process.replicator.spec.tables
    rows = in_process.session("verify").execute(TABLES.encode()).fetchall()
    found = [Found(r[0], r[1], r[2], r[3] == "p", tuple(r[4]), tuple(r[5])) for r in rows]
    return [t for t in found if selected(tables, t.schema, t.table)]


def _said(in_process: InProcess, table: Found, log: TableLog | None) -> str | None:
    """Why the table is stopped."""
    if log is not None and not log.removed and log.stopped is not None:
        return f"{log.stopped.error}: {log.stopped.message}"
    assert in_process.driver is not None
    progress = in_process.driver.progress.all().get(table.oid)
    if progress is not None and progress.stopped and progress.fault is not None:
        return f"{progress.fault.name}: {progress.fault.message}"
    return None


def _different(in_process: InProcess, table: Found) -> Iterator[str]:
    options = options_of(in_process.replicator.spec.options, table.schema, table.table)
    wanted = [
        c for c in table.columns
        if options is None or options.columns is None or c in options.columns or c in table.key
    ]  # fmt: skip
    key = table.key or tuple(wanted)
    if in_process.copies is not None:
        at = (table.schema, table.table)
        yield from copies.differences(in_process.copies, in_process.session("verify"), at, wanted, table.key)
        return
    target = in_process.lake.table(table.schema, table.table).rows()
    missing = [c for c in wanted if c not in target.column_names]
    if missing:
        yield f"{table.name}: the target has no column {', '.join(missing)}"
        return
    yield from compare(in_process.session("verify"), table, target.select(wanted), [wanted.index(k) for k in key])


def _value(field: pa.Field) -> sql.Composed:
    """The column, or its text. (A composite value with an empty field is neither NULL nor NOT NULL.)"""
    name = sql.Identifier(field.name)
    if is_text(field.type):
        return sql.SQL("CASE WHEN num_nulls(t.{0}) = 0 THEN pg_catalog.format('%s', t.{0}) END").format(name)
    return sql.SQL("t.{}").format(name)


def compare(connection: psycopg.Connection, table: Found, target: pa.Table, key: list[int]) -> list[str]:
    """As of `demo.compare.matched`."""
    columns = sql.SQL(", ").join(_value(field) for field in target.schema)
    only = sql.SQL("" if table.partitioned else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{} t").format(columns, only, sql.Identifier(table.schema, table.table))
    source = (tuple(plain(value) for value in found) for found in connection.execute(query).fetchall())
    return matched(table.name, target.column_names, key, source, target_rows(target))
