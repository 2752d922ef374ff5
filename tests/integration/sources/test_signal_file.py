"""The statements of Debezium's documentation, written into the file of signals, against real servers."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.changelog.records.terms import Position
from tailrace.changelog.state import SnapshotState
from tailrace.contract.resources import SourceSpec
from tailrace.driver.asking.signal_acts import PREFIX, SignalNotices
from tailrace.driver.asking.signal_file import SignalFile

TABLES = (
    "CREATE TABLE schema1.table1 (id int PRIMARY KEY, color varchar(20), quantity int)",
    "CREATE TABLE schema1.table2 (id int PRIMARY KEY, color varchar(20), quantity int)",
    *(f"INSERT INTO schema1.table{t} VALUES (1, 'blue', 5), (2, 'red', 50), (3, 'blue', 500)" for t in (1, 2)),
)
COLLECTIONS = ["schema1.table1", "schema1.table2"]
BLUE = {"data-collection": "schema1.table1", "filter": "color='blue' AND quantity>10"}
FEW = {"data-collection": "schema1.table2", "filter": "quantity > 50"}
BLOCKING = [
    {"data-collection": "schema1.table1", "filter": "SELECT * FROM [schema1].[table1] WHERE id > 1 ORDER BY id DESC"},
    {"data-collection": "schema1.table2", "filter": "SELECT * FROM [schema1].[table2] WHERE quantity > 50"},
]
MISSING = {"data-collection": "schema1.table1", "filter": "no_such_column = 1"}
STATEMENTS: tuple[tuple[dict[str, Any], dict[str, int]], ...] = (
    ({"data-collections": COLLECTIONS, "type": "incremental"}, {"table1": 3, "table2": 3}),
    ({"data-collections": ["schema1.table.*"], "type": "INCREMENTAL"}, {"table1": 3, "table2": 3}),
    ({"data-collections": COLLECTIONS, "additional-conditions": [BLUE]}, {"table1": 1, "table2": 3}),
    ({"data-collections": COLLECTIONS, "additional-conditions": [BLUE, FEW]}, {"table1": 1, "table2": 1}),
    ({"data-collections": ["schema1\\.table1"], "additional-condition": "color='blue'"}, {"table1": 2}),
    (
        {"type": "blocking", "data-collections": COLLECTIONS, "additional-conditions": BLOCKING},
        {"table1": 2, "table2": 1},
    ),
    ({"data-collections": ['"schema1"."table1"', "schema1.`table2`"]}, {"table1": 3, "table2": 3}),
    ({"data-collections": ["schema1.table2"], "surrogate-key": "quantity"}, {"table2": 3}),
)
"""Data of a signal, and the rows that are read of each table."""


@pytest.fixture(params=turns(18, MYSQL, MARIADB_NEWEST))
def source(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """`spec.source` of a server with the tables."""
    if isinstance(request.param, int):
        with PostgresServer(request.param) as postgres:
            place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
            with closing(postgres.connect()) as connection:
                _create(connection, "CREATE SCHEMA schema1")
            yield {"type": "postgresql", **place}
    else:
        with MysqlServer(request.param) as mysql:
            mysql.script("CREATE DATABASE schema1", *TABLES)
            yield mysql_shop.spec(mysql)


def _create(connection: psycopg.Connection, schema: str) -> None:
    connection.autocommit = True
    for statement in (schema, *TABLES):
        connection.execute(statement.encode())


def settled(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(Position(end))


def asked(copy: Pipeline, signal: str) -> dict[str, SnapshotState]:
    """The snapshots of a signal, by table."""
    state = copy.state
    mine = [s for i, s in state.snapshots.items() if i.startswith(PREFIX) and s.plan.request == signal]
    return {state.tables[s.plan.tables[0]].schema.table_name: s for s in mine}


def test_statements_of_debeziums_documentation_read_the_rows_they_name(source: dict[str, Any], tmp_path: Path) -> None:
    document = document_of(
        source=source,
        tables={"include": ["schema1.*"]},
        target={"type": "delta", "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
    )
    spec = SourceSpec.model_validate(source)
    copy, dialect = Pipeline(document, sources.open(spec, "test"), tmp_path), sources.dialect(spec)
    path = tmp_path / "file-signals.txt"
    wrong = {"data-collections": ["schema1.table1"], "additional-conditions": [MISSING]}
    signals = [*(data for data, _ in STATEMENTS), wrong]
    try:
        copy.start()
        settled(copy)
        lines = [{"id": f"n{i}", "type": "execute-snapshot", "data": data} for i, data in enumerate(signals)]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        SignalFile(path, dialect, SignalNotices()).step(copy.driver.control)
        assert not path.exists()
        copy.stop()  # between taking the signals and carrying them out
        copy.start()
        SignalFile(path, dialect, SignalNotices()).step(copy.driver.control)
        settled(copy)
        for number, (data, rows) in enumerate(STATEMENTS):
            found = asked(copy, f"n{number}")
            assert {n: sum(t.rows_done for t in s.tables.values()) for n, s in found.items()} == rows, data
            assert {s.ended and s.ended.outcome for s in found.values()} == {"completed"}
        failed = asked(copy, f"n{len(STATEMENTS)}")["table1"]
        assert (
            failed.ended is not None and failed.ended.outcome == "failed" and "no_such_column" in failed.ended.message
        )
        assert copy.lake.table("schema1", "table1").rows().num_rows == 3
    finally:
        copy.stop()
