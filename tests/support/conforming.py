"""What `integration/targets/test_conformance` needs of a target: to be opened, to be read, to lose a chunk."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa
from psycopg.rows import dict_row
from pymysql.cursors import DictCursor
from pyspark.sql import SparkSession
from typing_extensions import override

from demo.compare import READERS
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from support.random_log import KeyOf, RandomLog
from support.scripted_target import MemoryDatabase, MemoryUnits
from tailrace import targets
from tailrace.batch.applied import FIRST, AppliedState, Generation
from tailrace.batch.rule import ApplyRule, TargetState
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import StorageLocation, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.api import ChunkWriter, Opening, Runtime, Unit, UnitBatch, Units, WrittenChunk

LOG = "log-1"
Rows = list[dict[str, Any]]


class Subject(Protocol):
    """A target under test, empty at first."""

    @property
    def lacking(self) -> frozenset[str]:
        """Types that it does not have: a manifest that asks for them is refused."""

    @property
    def unfit(self) -> frozenset[str]:
        """Types of which it refuses a value, with its table and its column: a text with the character U+0000, an
        infinite number."""

    def units(self, admit: Callable[[], None]) -> Units: ...

    def rows(self, schema: TableSchema) -> Rows:
        """What a reader sees of a table, whose first version this is."""

    def lose(self, path: str) -> None:
        """A chunk is gone."""

    def holds(self, path: str) -> bool:
        """True if the chunk is there."""


@dataclass(frozen=True)
class Lake:
    format: str
    folder: Path
    spark: SparkSession
    unfit: frozenset[str] = frozenset()

    @property
    def lacking(self) -> frozenset[str]:
        return frozenset({"time"}) if self.format == "delta" else frozenset()

    def units(self, admit: Callable[[], None]) -> Units:
        spec = TargetSpec.model_validate({"type": self.format, "location": (self.folder / "lake").as_uri()})
        run = Runtime(log_of(self.folder), admit, lambda: self.spark, "postgresql")
        return targets.open(spec).units(replace(run, scratch=self.folder / "scratch", scratch_size=1 << 30))

    def rows(self, schema: TableSchema) -> Rows:
        found: pa.Table = READERS[self.format](self.folder / "lake" / schema.schema_name / schema.table_name)
        rows: Rows = found.to_pylist()
        return rows

    def lose(self, path: str) -> None:
        Path(path.removeprefix("file://")).unlink()

    def holds(self, path: str) -> bool:
        return Path(path.removeprefix("file://")).exists()


@dataclass(frozen=True)
class InMemory:
    folder: Path
    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def units(self, admit: Callable[[], None]) -> Units:
        return MemoryUnits(self.database, log_of(self.folder), admit)

    def rows(self, schema: TableSchema) -> Rows:
        table = self.database.tables[schema.table_id]
        names = [column.name for column in table.schema.columns]
        return [dict(zip(names, row, strict=True)) for row in self.database.rows(schema.table_id).values()]

    def lose(self, path: str) -> None:
        del self.database.staged[path]

    def holds(self, path: str) -> bool:
        return path in self.database.staged


@dataclass(frozen=True)
class Database:
    """A database server, out of another product."""

    folder: Path
    server: PostgresServer
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset({"string"})
    source: str = "mysql"
    """The product that the rows come from; PostgreSQL's types are kept."""
    database: str = "postgres"

    def units(self, admit: Callable[[], None]) -> Units:
        spec = {"type": "postgresql", "host": self.server.host, "port": self.server.port, "username": "postgres"}
        target = targets.open(TargetSpec.model_validate({**spec, "database": self.database}))
        return target.units(Runtime(log_of(self.folder), admit, no_spark, self.source))

    def rows(self, schema: TableSchema) -> Rows:
        with self.server.connect(self.database) as connection, connection.cursor(row_factory=dict_row) as cursor:
            connection.execute("SET TimeZone = 'UTC'")
            rows = cursor.execute(f'SELECT * FROM "{schema.schema_name}"."{schema.table_name}"').fetchall()
        types = {column.name: arrow_type(column.type) for column in schema.columns}
        return [{k: pa.scalar(v, types[k]).as_py() if k in types else v for k, v in row.items()} for row in rows]

    def lose(self, path: str) -> None:
        self.server.execute(f"TRUNCATE _tailrace.{path}", dbname=self.database)

    def holds(self, path: str) -> bool:
        return bool(self.server.execute(f"SELECT 1 FROM _tailrace.{path} LIMIT 1", dbname=self.database))


@dataclass(frozen=True)
class MysqlDatabase:
    """A MySQL or MariaDB server, out of another product."""

    folder: Path
    server: MysqlServer
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset({"float64"})
    source: str = "postgresql"

    def units(self, admit: Callable[[], None]) -> Units:
        spec = {"type": "mysql", "host": self.server.host, "port": self.server.port, "username": self.server.user}
        target = targets.open(TargetSpec.model_validate(spec))
        return target.units(Runtime(log_of(self.folder), admit, no_spark, self.source))

    def rows(self, schema: TableSchema) -> Rows:
        return mysql_rows(self.server, schema)

    def lose(self, path: str) -> None:
        self.server.execute(f"TRUNCATE _tailrace.{path}")

    def holds(self, path: str) -> bool:
        return bool(self.server.execute(f"SELECT 1 FROM _tailrace.{path} LIMIT 1"))


def mysql_rows(server: MysqlServer, schema: TableSchema) -> Rows:
    """The rows of a copy, as values of the columns' types; columns that the schema does not have as the client gives
    them."""
    kinds = {column.name: arrow_type(column.type) for column in schema.columns}
    place = f"`{schema.schema_name}`.`{schema.table_name}`"
    # The text of a FLOAT has six digits.
    floats = "".join(f", CAST(`{name}` AS DOUBLE) AS `={name}`" for name, kind in kinds.items() if kind == pa.float32())
    with closing(server.connect(charset="utf8mb4")) as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute(f"SELECT *{floats} FROM {place}")
        rows = cursor.fetchall()
    return [
        {name: mysql_value(row.get(f"={name}", row[name]), kinds.get(name)) for name in row if not name.startswith("=")}
        for row in rows
    ]


def mysql_value(value: Any, kind: pa.DataType | None) -> Any:
    if value is None or kind is None:
        return value
    if pa.types.is_nested(kind):
        return json.loads(value)
    if pa.types.is_boolean(kind):
        return bool(value)
    if pa.types.is_time(kind):
        return (datetime.min + value).time()
    if pa.types.is_timestamp(kind) and kind.tz:
        value = value.replace(tzinfo=UTC)
    return pa.scalar(value, kind).as_py()


def no_spark() -> SparkSession:
    raise AssertionError("no JVM is needed")


def log_of(folder: Path) -> Storage:
    return Storage.open(StorageLocation.model_validate({"location": (folder / "log").as_uri()}))


@dataclass
class Table:
    """One table of a subject, in a unit of its own, as a driver would move it."""

    subject: Subject
    schema: TableSchema
    generation: Generation = FIRST
    log_id: str = LOG
    admit: Callable[[], None] = lambda: None
    unit: Unit = field(init=False)
    applied: AppliedState = field(init=False)
    replacing: bool = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another driver begins."""
        self.unit = self.subject.units(self.admit).alone()
        self.open()

    def open(self) -> None:
        table_id = self.schema.table_id
        (opened,) = self.unit.open({table_id: Opening(self.schema, self.generation)}, self.log_id).values()
        self.applied, self.replacing = opened.applied, opened.replacing

    def apply(self, part: TableSlice) -> None:
        table_id = self.schema.table_id
        self.applied = self.unit.apply(UnitBatch(part.through_record, frozenset({table_id}), {table_id: part}))[
            table_id
        ]

    def publish(self) -> None:
        table_id = frozenset({self.schema.table_id})
        self.unit.apply(UnitBatch(self.applied.applied_record, table_id, {}, table_id))
        self.open()

    def follow(self, log: RandomLog) -> TableSlice | None:
        """All that the log has beyond what the target holds."""
        part = cut(log.state, self.schema.table_id, self.applied, log.record)
        if part is not None:
            self.apply(part)
        return part


class LogOf(RandomLog):
    """A log whose chunks are written by the target, once that has the schema version."""

    def __init__(self, rnd: Random, folder: Path, schema: TableSchema, keys: list[KeyOf], table: Table) -> None:
        self.target = table
        super().__init__(rnd, folder / "log", schema, keys)

    @override
    def _chunk(self) -> None:
        if self.schema.version <= self.target.applied.schema_version:
            super()._chunk()

    @property
    def writer(self) -> ChunkWriter:
        return self.target.unit.chunk_writer(self.schema)

    @property
    @override
    def form(self) -> str:
        return self.writer.form

    @override
    def put(self, number: int, rows: pa.Table) -> WrittenChunk | None:
        return self.writer.write("s", number, [rows])


class LogOfWholeRows(LogOf):
    """Its changes carry whole rows, and are few."""

    @override
    def _carried(self, key: KeyOf) -> tuple[object, ...]:
        return self._row(key)

    @override
    def grow_by_changes(self, rows: int) -> None:
        self.record = RecordNumber(self.record + 1)
        self._segment(rows, bundled=True)


def rows_of(log: LogOf, target: TargetState[KeyOf]) -> Rows:
    names = [column.name for column in log.schema.columns]
    return [dict(zip(names, row, strict=True)) for row in target.rows.values()]


def equal(found: Rows, wanted: Rows) -> None:
    assert sorted(map(repr, (sorted(row.items()) for row in found))) == sorted(
        map(repr, (sorted(row.items()) for row in wanted))
    )


def by_rule(log: LogOf, target: TargetState[KeyOf], part: TableSlice | None) -> TargetState[KeyOf]:
    columns = len(log.schema.columns)
    rows = {key: (*row, *[None] * (columns - len(row))) for key, row in target.rows.items()}
    before = TargetState(rows, target.applied_seq, target.applied_record, target.holes)
    return ApplyRule[KeyOf](columns).apply(before, log.batch(bool(part and part.repair)))
