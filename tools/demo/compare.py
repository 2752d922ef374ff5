"""Source = target, row by row and column by column, through readers that are not ours.

The source is read by psycopg, Delta by delta-rs' DataFusion engine, Iceberg by pyiceberg; neither Tailrace's codec nor
its locating code takes part. A column that the target keeps as text is compared with the source's own text of it.
Called by the demo for its verdict and by the tests' proving harness.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from psycopg import sql
from pyiceberg.table import StaticTable

Row = tuple[object, ...]

FEW = 4
"""Rows that are named of those that differ in one way."""


def read_delta(path: Path | str, options: dict[str, str] | None = None) -> pa.Table:
    """The rows that delta-rs sees; `options` are its storage options for a URI."""
    table = DeltaTable(str(path), storage_options=options)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def read_iceberg(path: Path) -> pa.Table:
    """The rows that pyiceberg sees; the table lies in a folder catalog."""
    versions = list((path / "metadata").glob("v*.metadata.json"))
    if not versions:
        raise FileNotFoundError(f"{path} holds no Iceberg table")
    newest = max(versions, key=lambda p: int(p.name.split(".")[0][1:]))
    return StaticTable.from_metadata(str(newest)).scan().to_arrow()


READERS = {"delta": read_delta, "iceberg": read_iceberg}


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def _expression(field: pa.Field) -> sql.Composed:
    name = sql.Identifier(field.name)
    if is_text(field.type):
        return sql.SQL("CASE WHEN t.{0} IS NOT NULL THEN pg_catalog.format('%s', t.{0}) END").format(name)
    return sql.SQL("t.{}").format(name)


def source_rows(connection: psycopg.Connection, name: sql.Identifier, where: str, target: pa.Schema) -> Iterator[Row]:
    """The source's rows with the target's columns in the target's order; text where the target has text."""
    columns = sql.SQL(", ").join(_expression(field) for field in target)
    with connection.transaction(), connection.cursor("compare") as cursor:
        cursor.itersize = 20_000
        query = sql.SQL("SELECT {} FROM {} t").format(columns, name).as_string(connection)
        cursor.execute(f"{query} WHERE {where}".encode())
        for row in cursor:
            yield tuple(plain(value) for value in row)


def target_rows(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=20_000):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield tuple(plain(value) for value in row)


def plain(value: object) -> object:
    """One form for both sides; NaN equals NaN, and 0.0 differs from -0.0."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _catalog_names(connection: psycopg.Connection, name: str, condition: str) -> list[str]:
    query = (
        f"SELECT attname FROM pg_catalog.pg_attribute a WHERE attrelid = %s::regclass AND {condition} ORDER BY attnum"
    )
    return [row[0] for row in connection.execute(query.encode(), (name,))]


_COLUMNS = "attnum > 0 AND NOT attisdropped AND attgenerated = ''"
_KEY = (
    "attnum = ANY ((SELECT indkey FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND indisprimary)::int2[])"
)


def differences(
    connection: psycopg.Connection, schema: str, table: str, target: pa.Table, where: str = "true"
) -> list[str]:
    """The differences, as in `compared`. `where`: of the source's rows, those that the target is to have."""
    identifier = sql.Identifier(schema, table)
    name = identifier.as_string(connection)
    columns, key = _catalog_names(connection, name, _COLUMNS), _catalog_names(connection, name, _KEY)
    return compared(f"{schema}.{table}", columns, key, partial(source_rows, connection, identifier, where), target)


def compared(
    full: str,
    expected: Sequence[str],
    key_names: Sequence[str],
    rows: Callable[[pa.Schema], Iterator[Row]],
    target: pa.Table,
) -> list[str]:
    """`full`: for the sentences. `expected`: the source's columns. `rows`: of the source, in this schema's form.
    Empty: equal."""
    actual = target.column_names
    if sorted(expected) != sorted(actual):
        return [f"{full}: columns {expected} in the source, {actual} in the target"]
    key = [actual.index(column) for column in key_names]
    return matched(full, actual, key, rows(target.schema), target_rows(target))


def matched(
    full: str, names: Sequence[str], key: Sequence[int], source: Iterable[Row], target: Iterable[Row]
) -> list[str]:
    """A line with the number of rows that differ in each way, then the first few of each; empty: equal. `key`: places
    of the key's columns; none: rows are counted."""
    if not key:
        return _counted(full, source, target)
    kinds = ("missing in the target", "not in the source", "different", "twice in the target")
    missing, extra, different, twice = told = [_Kind(f"{full}: ", kind) for kind in kinds]
    there: dict[Row, Row] = {}
    for row in target:
        here = tuple(row[i] for i in key)
        if there.setdefault(here, row) is not row:
            twice.add(f"key {here} is in the target twice")
    for row in source:
        here = tuple(row[i] for i in key)
        other = there.pop(here, None)
        if other is None:
            missing.add(f"key {here} is missing in the target")
        elif row != other:
            different.add(*_cells(names, row, other, here))
    for lost in there:
        extra.add(f"key {lost} is in the target and not in the source")
    counts = [f"{kind.rows} {kind.name}" for kind in told if kind.rows]
    return [f"{full}: rows: {', '.join(counts)}", *(line for kind in told for line in kind.first)] if counts else []


def _counted(full: str, source: Iterable[Row], target: Iterable[Row]) -> list[str]:
    ours, theirs = Counter(source), Counter(target)
    missing, extra = told = [_Kind(f"{full}: ", kind) for kind in ("missing in the target", "not in the source")]
    for kind, rows in ((missing, ours - theirs), (extra, theirs - ours)):
        for row, count in rows.items():
            kind.add(f"row {_short(row)}: {ours[row]} in the source, {theirs[row]} in the target")
            kind.rows += count - 1
    counts = [f"{kind.rows} {kind.name}" for kind in told if kind.rows]
    return [f"{full}: rows: {', '.join(counts)}", *(line for kind in told for line in kind.first)] if counts else []


@dataclass
class _Kind:
    """Rows that differ in one way."""

    subject: str
    name: str
    rows: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, *sentences: str) -> None:
        """One row."""
        self.rows += 1
        if self.rows <= FEW:
            self.first += [self.subject + sentence for sentence in sentences]


def _cells(names: Sequence[str], here: Row, there: Row, key: Row) -> Iterator[str]:
    for column, ours, theirs in zip(names, here, there, strict=True):
        if ours != theirs:
            yield f"key {key} column {column}: source {_short(ours)}, target {_short(theirs)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}… ({len(text)} characters)"


def compare_by(
    connection: psycopg.Connection,
    names: Sequence[str],
    read: Callable[[str, str], pa.Table],
    where: Mapping[str, str] | None = None,
) -> list[str]:
    """Compare the tables `schema.name` with what `read(schema, table)` finds. Of each that differs a line with the
    number of rows, then the first few; empty: all equal. `where`: by table, which of the source's rows are copied."""
    found: list[str] = []
    for full in names:
        schema, table = full.split(".", 1)
        found += differences(connection, schema, table, read(schema, table), (where or {}).get(full, "true"))
    return found


def compare(
    connection: psycopg.Connection,
    names: Sequence[str],
    location: Path,
    format: str,
    where: Mapping[str, str] | None = None,
) -> list[str]:
    """`compare_by` with the tables below a local folder."""
    return compare_by(connection, names, lambda schema, table: READERS[format](location / schema / table), where)
