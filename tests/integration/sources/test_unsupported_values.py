"""Values that their type cannot hold, as they are by default: NULL by the log and by a chunk alike, counted, and
nothing else differs. The same random rows are read by chunks in one table and by the log in another."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from typing_extensions import override

from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import exactly
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import SourceSpec

ROWS = 200


@dataclass(frozen=True)
class Kind:
    """A column's type, and values that it has and the target's type has not."""

    text: str
    bad: tuple[Any, ...]
    required: bool = False

    def good(self, random: Random) -> Any:
        moment = datetime(1971, 1, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(2_000_000_000))
        if isinstance(self.bad[0], bytes):
            if self.charset == "ascii":
                return random.choice([b"", b"plain"])
            return random.choice([b"", b"plain", "№".encode(self.charset), "жук".encode(self.charset) * 9])
        if "date" in self.text or "time" in self.text:
            shown = moment.strftime("%Y-%m-%d %H:%M:%S")
            return shown[:10] if self.text == "date" else shown
        return str(random.randrange(-(10**6), 10**6) / 100)

    @property
    def charset(self) -> str:
        return "utf-8" if self.text == "text" else self.text.split()[-1]


def random_rows(random: Random, kinds: tuple[Kind, ...]) -> list[tuple[list[Any], list[bool]]]:
    """Values, and which of them the target cannot hold."""
    rows = []
    for _ in range(ROWS):
        bad = [random.random() < 0.2 for _ in kinds]
        row = [random.choice(k.bad) if b else k.good(random) for k, b in zip(kinds, bad, strict=True)]
        for place, kind in enumerate(kinds):
            if not kind.required and random.random() < 0.1:
                row[place], bad[place] = None, False
        rows.append((row, bad))
    return rows


class Source(ABC):
    """A server of either product, with two tables of the kinds."""

    kinds: tuple[Kind, ...]

    @abstractmethod
    def spec(self) -> dict[str, Any]: ...

    @abstractmethod
    def write(self, table: str, rows: list[list[Any]]) -> None: ...

    @abstractmethod
    def run(self, statement: str) -> None: ...

    def create(self) -> None:
        columns = ", ".join(f"c{i} {k.text}{' NOT NULL' if k.required else ''}" for i, k in enumerate(self.kinds))
        for table in ("chunks", "logged"):
            self.run(f"CREATE TABLE w.{table} (id int PRIMARY KEY, {columns})")


class Postgres(Source):
    """Of an encoding that checks no text."""

    kinds = (
        Kind("date", ("infinity", "-infinity", "10000-01-01", "0044-03-15 BC")),
        Kind("date", ("infinity",), required=True),
        Kind("timestamp", ("-infinity", "294276-12-31 23:59:59.999999", "0001-12-31 00:00:00 BC")),
        Kind("timestamptz", ("infinity", "0001-01-01 00:00:00+00 BC", "10000-01-01 00:00:00.5+00"), required=True),
        Kind("numeric(10,2)", ("NaN",)),
        Kind("numeric(38,4)", ("NaN",), required=True),
        Kind("text", (b"\xff", b"A\xc3", b"\xed\xa0\x80", b"\xc0\xaf", "é".encode() + b"\xe9" * 3000)),
    )

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        with server.connect() as admin:
            admin.execute("CREATE DATABASE odd TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
        self.run("CREATE SCHEMA w")
        self.create()

    def _connect(self) -> psycopg.Connection:
        place = f"host={self.server.host} port={self.server.port} user=postgres dbname=odd client_encoding=UTF8"
        return psycopg.connect(place, autocommit=True)

    @override
    def spec(self) -> dict[str, Any]:
        place = {"host": self.server.host, "port": self.server.port, "database": "odd", "username": "postgres"}
        return {"type": "postgresql", **place}

    @override
    def run(self, statement: str) -> None:
        with closing(self._connect()) as connection:
            connection.execute(statement.encode())

    @override
    def write(self, table: str, rows: list[list[Any]]) -> None:
        marks = ["convert_from(%s, 'SQL_ASCII')" if k.text == "text" else f"%s::text::{k.text}" for k in self.kinds]
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            statement = f"INSERT INTO w.{table} VALUES (%s, {', '.join(marks)})"
            cursor.executemany(statement.encode(), [[i, *row] for i, row in enumerate(rows)])


class Mysql(Source):
    kinds: tuple[Kind, ...] = (
        Kind("date", ("0000-00-00", "2026-02-00", "2024-02-31", "0000-05-06")),
        Kind("date", ("0000-00-00",), required=True),
        Kind("datetime(3)", ("2024-02-31 00:00:00.5", "0000-00-00 00:00:00")),
        Kind("datetime", ("2023-02-29 23:59:59",), required=True),
        Kind("timestamp NULL", ("0000-00-00 00:00:00",)),
        Kind("varchar(90) CHARACTER SET cp1251", (b"\x98", b"A\x98")),
    )
    mariadb = (Kind("varchar(90) CHARACTER SET ascii", (b"\xff", b"A\xc3\xa9")),)
    """MySQL stores no such byte."""

    def __init__(self, server: MysqlServer) -> None:
        self.server = server
        self.kinds += self.mariadb if server.mariadb else ()
        self.run("CREATE DATABASE w")
        self.create()

    @override
    def spec(self) -> dict[str, Any]:
        return mysql_shop.spec(self.server)

    @override
    def run(self, statement: str) -> None:
        self.server.execute(statement)

    @override
    def write(self, table: str, rows: list[list[Any]]) -> None:
        marks = ", ".join(["%s"] * (len(self.kinds) + 1))
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO w.{table} VALUES ({marks})", [[i, *row] for i, row in enumerate(rows)])
            connection.commit()


@pytest.fixture(params=turns(14, 18, MYSQL, MARIADB_NEWEST))
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if isinstance(request.param, int):
        with PostgresServer(request.param) as postgres:
            yield Postgres(postgres)
    else:
        with MysqlServer(request.param, sql_mode="ALLOW_INVALID_DATES") as mysql:
            yield Mysql(mysql)


def pipeline(source: Source, folder: Path, *options: dict[str, Any]) -> Pipeline:
    document = document_of(
        source=source.spec(),
        tables={"include": ["w.*"]},
        options=list(options),
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 90, "parallelism": 2},
    )
    return Pipeline(document, sources.open(SourceSpec.model_validate(source.spec()), "test"), folder)


def level(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(Position(end))
    assert copy.driver.faults() == {}


def rows_of(copy: Pipeline, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = copy.lake.table("w", table).rows().sort_by("id").to_pylist()
    return found


def nulled(copy: Pipeline) -> dict[str, dict[str, int]]:
    """What the status says."""
    return {t.name: {one.column: one.values for one in t.nulled} for t in copy.driver.control.status().tables}


def test_random_rows_are_the_same_by_log_and_by_chunk_and_only_what_does_not_fit_is_null(
    source: Source, tmp_path: Path
) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    made = random_rows(Random(seed), source.kinds)
    rows = [row for row, _ in made]
    source.write("chunks", rows)
    copy = pipeline(source, tmp_path)
    with copy.running():
        level(copy)
        source.write("logged", rows[: ROWS // 2])
        level(copy)
    source.run("DELETE FROM w.logged")
    with copy.running():
        source.write("logged", rows)
        level(copy)
        by_chunk, by_log = rows_of(copy, "chunks"), rows_of(copy, "logged")
        counts = nulled(copy)
    assert exactly(by_chunk) == exactly(by_log)
    null = [[row[f"c{i}"] is None for i in range(len(source.kinds))] for row in by_log]
    assert null == [[value is None or b for value, b in zip(row, bad, strict=True)] for row, bad in made]
    expected = {f"c{i}": sum(bad[i] for _, bad in made) for i in range(len(source.kinds))}
    half = {f"c{i}": sum(bad[i] for _, bad in made[: ROWS // 2]) for i in range(len(source.kinds))}
    assert counts == {"w.chunks": expected, "w.logged": {c: n + half[c] for c, n in expected.items()}}


@pytest.mark.parametrize("source", [18, MYSQL], indirect=True)
def test_a_table_that_such_a_value_stopped_goes_on_after_a_resync_under_the_new_policy(
    source: Source, tmp_path: Path
) -> None:
    (row, _), *_ = random_rows(Random(1), source.kinds)
    bad = [kind.bad[0] if kind.required else value for kind, value in zip(source.kinds, row, strict=True)]
    copy = pipeline(source, tmp_path, {"match": "w.*", "onUnsupported": "Fail"})
    with copy.running():
        level(copy)
        source.write("logged", [bad])
        copy.until(lambda _: copy.driver.faults() == {"w.logged": "ValueUnsupported"}, work=True)
        (fault,) = (t.fault for t in copy.driver.control.status().tables if t.fault is not None)
        assert "onUnsupported: SetNull" in fault.fix
    copy.document["spec"]["options"] = []
    with copy.running():
        copy.ask("w.logged", resync=True)
        level(copy)
        source.run("UPDATE w.logged SET id = 7")
        level(copy)
        (found,) = rows_of(copy, "logged")
        required = [i for i, kind in enumerate(source.kinds) if kind.required]
        assert found["id"] == 7 and all(found[f"c{i}"] is None for i in required)
        assert all(nulled(copy)["w.logged"][f"c{i}"] == 2 for i in required)


@pytest.mark.parametrize("source", [18, MYSQL], indirect=True)
def test_a_key_never_becomes_null(source: Source, tmp_path: Path) -> None:
    kind = source.kinds[1]
    source.run(f"CREATE TABLE w.keyed (k {kind.text} PRIMARY KEY, v int)")
    copy = pipeline(source, tmp_path)
    with copy.running():
        level(copy)
        source.run(f"INSERT INTO w.keyed VALUES ('{kind.bad[0]}', 1)")
        copy.until(lambda _: copy.driver.faults() == {"w.keyed": "ValueUnsupported"}, work=True)
        (fault,) = (t.fault for t in copy.driver.control.status().tables if t.fault is not None)
        assert "A key cannot become NULL." in fault.fix and "SetNull" not in fault.fix


def test_a_composite_type_that_was_altered_is_no_value_that_a_struct_cannot_hold(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Before a look at the catalog sees the new type, its values have other fields."""
    with postgres.connect() as connection:
        connection.execute("CREATE TYPE pair AS (n int, t text)")
        connection.execute("CREATE TABLE pairs (id int PRIMARY KEY, p pair)")
        connection.execute("INSERT INTO pairs VALUES (1, (1, 'x'))")
    document = document_of(
        "pairs",
        source=postgres.source(),
        tables={"include": ["public.pairs"]},
        target={"type": "delta", "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
        options=[{"match": "*.*", "as": {"p": "struct"}, "onUnsupported": "Fail"}],
        onSchemaChange="Evolve",
    )
    source = sources.open(SourceSpec.model_validate(postgres.source()), "test")
    copy = Pipeline(document, source, tmp_path)

    def rows() -> dict[int, Any]:
        return {row["id"]: row.get("p") for row in copy.lake.table("public", "pairs").rows().to_pylist()}

    with copy.running():
        copy.until(lambda _: rows() == {1: {"n": 1, "t": "x"}}, work=True)
        copy.stop()
        with postgres.connect() as connection:
            connection.execute("ALTER TYPE pair ADD ATTRIBUTE more int")
            connection.execute("INSERT INTO pairs VALUES (2, (2, 'y', 3))")
        copy.start()
        altered = {1: {"n": 1, "t": "x", "more": None}, 2: {"n": 2, "t": "y", "more": 3}}
        copy.until(lambda _: rows() == altered, work=True)
