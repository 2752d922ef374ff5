"""Copies in a database, made by all of Tailrace in one process."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from pymysql.cursors import DictCursor
from typing_extensions import override

from support.conforming import Database, MysqlDatabase, Table
from support.counted_log import SCHEMA, TABLE, CountedLog
from support.mysql import MysqlServer
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from tailrace import sources
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.manifest import load
from tailrace.contract.resources import Replicator
from tailrace.errors import Retry
from tailrace.targets.api import TableFailed, WrittenChunk

SHOP = """
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, code text NOT NULL, price numeric(9,2), amount numeric, tags text[],
    doc jsonb, stay interval, span int4range, at timestamptz, "odd ""name%s" text, raw bytea, big text);
ALTER TABLE shop.item ALTER big SET STORAGE EXTERNAL;
INSERT INTO shop.item SELECT n, 'c' || n, n / 7.0, n / 7.0, ARRAY['a', NULL, '"{}\\'], '{"a": [1, null]}', '1 day 2 h',
    int4range(n, n + 3), '2020-02-29 12:00+00', E'tab\\tline\\n\\\\N', '\\x00ff', repeat('x', 3000)
    FROM generate_series(1, 50) n;
CREATE TABLE shop.visit (a int, b text);
ALTER TABLE shop.visit REPLICA IDENTITY FULL;
INSERT INTO shop.visit SELECT n % 3, CASE WHEN n % 2 = 0 THEN 'x' END FROM generate_series(1, 30) n;
"""
STEPS = (
    "UPDATE shop.item SET price = price + 1, tags = NULL WHERE id % 5 = 0",
    "UPDATE shop.item SET id = id + 1000 WHERE id <= 3",
    "UPDATE shop.item SET id = CASE id WHEN 10 THEN 11 ELSE 10 END WHERE id IN (10, 11)",
    "DELETE FROM shop.item WHERE id = 20; INSERT INTO shop.item (id, code) VALUES (20, 'again')",
    "ALTER TABLE shop.item ADD COLUMN extra int; UPDATE shop.item SET extra = id WHERE id < 9",
    "ALTER TABLE shop.item RENAME COLUMN code TO label; UPDATE shop.item SET label = 'l' || id WHERE id > 40",
    "ALTER TABLE shop.item DROP COLUMN span; DELETE FROM shop.item WHERE id = 30",
    "DELETE FROM shop.visit WHERE ctid IN (SELECT ctid FROM shop.visit WHERE a = 1 LIMIT 3)",
    "UPDATE shop.visit SET b = NULL WHERE a = 2",
    "TRUNCATE shop.visit; INSERT INTO shop.visit VALUES (7, 'z'), (7, 'z'), (NULL, NULL)",
)
DEFERRED = (
    "ALTER TABLE shop.item DROP CONSTRAINT item_pkey; ALTER TABLE shop.item ADD PRIMARY KEY (id) DEFERRABLE;"
    " ALTER TABLE shop.item REPLICA IDENTITY FULL"
)
"""Keys may be exchanged by one statement."""
TABLES = ("item", "visit")


def place_of(server: PostgresServer | MysqlServer, username: str | None = None) -> dict[str, object]:
    """The server as a manifest names it."""
    place: dict[str, object] = {"host": server.host, "port": server.port}
    if isinstance(server, MysqlServer):
        return place | {"type": "mysql", "username": username or server.user}
    return place | {"type": "postgresql", "username": username or "postgres", "database": "copy"}


def begin(
    source: dict[str, object],
    server: PostgresServer | MysqlServer,
    folder: Path,
    username: str | None = None,
    chunk_rows: int | None = None,
    **target: Any,
) -> Pipeline:
    """`target`: more of its fields; with `initial=False` nothing is read."""
    reads, include = bool(target.pop("initial", True)), str(target.pop("include", "shop.*"))
    snapshot = {"snapshot": {"initial": reads, **({} if chunk_rows is None else {"chunkRows": chunk_rows})}}
    document = document_of(
        "copies",
        source=source,
        storage={"location": (folder / "log").as_uri()},
        tables={"include": [include]},
        target=place_of(server, username) | target,
        **snapshot,
    )
    replicator = Replicator.model_validate(document)
    tables = lake(replicator, cast(Any, None))
    return Pipeline(document, sources.open(replicator.spec.source, "tailrace test"), folder, tables)


def of_manifest(path: Path, folder: Path) -> Pipeline:
    """The Replicator of a manifest, to be run in this process."""
    replicator = load(path).replicator(None)
    source = sources.open(replicator.spec.source, "tailrace test")
    document = replicator.model_dump(mode="json", by_alias=True)
    return Pipeline(document, source, folder, lake(replicator, cast(Any, None)))


def settle(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(end)
    assert not copy.driver.faults()


class LogOfCopies(CountedLog):
    """A log of a table without a key whose chunks are staged in the target."""

    def __init__(self, rnd: Random, folder: Path, table: Table) -> None:
        self.target = table
        super().__init__(rnd, folder)

    @property
    @override
    def form(self) -> str:
        return self.target.unit.chunk_writer(SCHEMA).form

    @override
    def put(self, name: str, rows: pa.Table) -> WrittenChunk | None:
        return self.target.unit.chunk_writer(SCHEMA).write(name, 0, [rows])


def overtaken(subject: Database | MysqlDatabase, folder: Path, together: bool) -> None:
    """Two drivers apply the same change: it counts once, even where the change log has not told the late one of the
    other."""
    (folder / "log").mkdir()
    table, late = Table(subject, SCHEMA), Table(subject, SCHEMA)
    log = LogOfCopies(Random(1), folder / "log", table)
    for known in (table, late) if together else ():
        known.unit = subject.units(lambda: None).group() or known.unit
        known.open()
    log.record, log.seq = 1, 1
    log._segment([(1, "I", 1, "a")])
    part = cut(log.state, TABLE, table.applied, RecordNumber(1))
    assert part is not None
    table.apply(part)
    with pytest.raises((Retry, TableFailed)):
        late.apply(part)
    late.open()
    assert late.applied == table.applied


CASTS = {"boolean": "int", **dict.fromkeys(("interval", "int4range", "ARRAY", "jsonb", "double precision"), "text")}
"""The source's columns in the form that their copies in MySQL have."""


def of_postgres(server: PostgresServer, name: str) -> list[list[str]]:
    """Rows as texts, by names of columns, that a copy in MySQL has as well."""
    schema, table = name.split(".")
    kinds = server.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        ' ORDER BY column_name COLLATE "C"',
        [schema, table],
    )
    quoted = ('"' + column.replace('"', '""') + '"' for column, _ in kinds)
    casts = (f"::{CASTS[kind]}" if kind in CASTS else "" for _, kind in kinds)
    names = ", ".join(map("".join, zip(quoted, casts, strict=True)))
    return _texts([column for column, _ in kinds], server.execute(f"SELECT {names or 1} FROM {name}"))


def of_mysql(server: MysqlServer, name: str) -> list[list[str]]:
    """The rows of a table that is there."""
    with closing(server.connect(charset="utf8mb4")) as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute(f"SELECT * FROM {name}")
        names = sorted(column[0] for column in cursor.description or ())
        return _texts(names, ([row[column] for column in names] for row in cursor.fetchall()))


def _texts(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    return [list(names), *sorted([_text(value) for value in row] for row in rows)]


def _text(value: Any) -> str:
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else str(value)
