"""Rows that are written over those of the same key in MySQL and MariaDB, and copies where that would be wrong."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
from typing_extensions import override

from support.conforming import LogOf, MysqlDatabase, Table
from support.lake import table_schema
from support.mysql import MysqlServer
from support.random_log import TABLE, KeyOf
from support.waiting import until
from tailrace.batch.rule import Change, Op
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import TargetRefused
from tailrace.targets.api import TableFailed
from tailrace.targets.mysql.fit import WANTED
from tailrace.targets.mysql.upserts import MysqlUpserts

SCHEMA = table_schema([("id", "string"), ("t", "string"), ("n", "int32")], ["id"], table_id=TABLE)
CHANGING = ("INSERT", "DELETE", "UPDATE")
Made = tuple[Op, KeyOf, tuple[object, ...]]


class Scripted(LogOf):
    """A log with the changes that it is told."""

    made: Sequence[Made] = ()

    @override
    def _changes(self, count: int) -> list[Change[KeyOf]]:
        return [self._add(*each) for each in self.made]

    def follow(self, *made: Made) -> None:
        """Have the copy brought to these changes."""
        self.made = made
        self.grow_by_changes(len(made))
        self.target.follow(self)


def inserted(*ids: str) -> list[Made]:
    return [("I", (id_,), (id_, f"{id_} before", 1)) for id_ in ids]


def updated(ids: Sequence[str], texts: Sequence[str]) -> list[Made]:
    return [("U", (id_,), (id_, text, 2)) for id_, text in zip(ids, texts, strict=True)]


@pytest.fixture
def server(mysql_of_module: MysqlServer) -> MysqlServer:
    for name in ("public", "_tailrace"):
        mysql_of_module.execute(f"DROP DATABASE IF EXISTS {name}")
    return mysql_of_module


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Those that were run."""
    seen: list[str] = []
    query = pymysql.Connection.query

    def noted(self: Any, sql: str | bytes, unbuffered: bool = False) -> int:
        seen.append(sql if isinstance(sql, str) else bytes(sql).decode())
        return int(query(self, sql, unbuffered))

    monkeypatch.setattr(pymysql.Connection, "query", noted)
    yield seen


def begun(server: MysqlServer, folder: Path, schema: TableSchema = SCHEMA, source: str = "postgresql") -> Scripted:
    (folder / "log").mkdir()
    table = Table(MysqlDatabase(folder, server, source=source), schema)
    return Scripted(Random(1), folder, schema, [], table)


def of_copy(statements: list[str]) -> list[str]:
    """The first words of those that have changed rows of the copy."""
    return [" ".join(each.split()[:2]) for each in statements if "`public`.`t`" in each and each.startswith(CHANGING)]


@pytest.mark.parametrize(
    "beyond",
    [
        "COMMENT = 'Nothing'",
        "ADD INDEX (t(20)), ADD FULLTEXT (t)",
        "ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED, ADD INDEX (twice)",
        "ADD COLUMN touched timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP, ADD CHECK (n > 0)",
    ],
)
def test_rows_are_written_over_those_of_the_same_key(
    server: MysqlServer, tmp_path: Path, statements: list[str], beyond: str
) -> None:
    log = begun(server, tmp_path)
    log.follow(*inserted("a", "b", "c", "a "))
    if beyond.startswith("ADD"):  # else the copy would lose its number
        server.execute(f"ALTER TABLE public.t {beyond}")
    statements.clear()
    log.follow(*updated(["c", "a"], ["1", "2"]), *inserted("d"))
    assert of_copy(statements) == ["INSERT INTO"]
    assert not any("TEMPORARY" in each for each in statements if WANTED not in each)
    rows = [("a", "2", 2), ("a ", "a  before", 1), ("b", "b before", 1), ("c", "1", 2), ("d", "d before", 1)]
    assert server.execute("SELECT id, t, n FROM public.t ORDER BY id") == rows
    if "twice" in beyond:
        assert server.execute("SELECT count(*) FROM public.t WHERE twice = n * 2") == [(5,)]
    statements.clear()
    log.follow(("D", ("b",), ()), *updated(["d"], ["3"]))
    assert of_copy(statements) == ["DELETE t", "INSERT INTO"]
    assert [row[0] for row in server.execute("SELECT id FROM public.t ORDER BY id")] == ["a", "a ", "c", "d"]


BEYOND_KEYS = (
    "ADD UNIQUE INDEX other (t(100))",
    "ADD COLUMN low varchar(99) GENERATED ALWAYS AS (left(t, 99)) STORED, ADD UNIQUE INDEX (low, n)",
    "ADD UNIQUE INDEX (n, id(99))",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id(5))",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id(99), n)",
    "DROP PRIMARY KEY, ADD UNIQUE INDEX (id(99))",
)


@pytest.mark.parametrize("beyond", BEYOND_KEYS)
def test_rows_are_deleted_and_inserted_where_another_index_allows_values_once(
    server: MysqlServer, tmp_path: Path, statements: list[str], beyond: str
) -> None:
    log = begun(server, tmp_path)
    log.follow(*inserted("a", "b", "c"))
    server.execute(f"ALTER TABLE public.t {beyond}")
    statements.clear()
    log.follow(*updated(["a", "b", "c"], ["b before", "c before", "a before"]))
    assert of_copy(statements) == ["DELETE t", "INSERT INTO"]
    rows = [("a", "b before", 2), ("b", "c before", 2), ("c", "a before", 2)]
    assert server.execute("SELECT id, t, n FROM public.t ORDER BY id") == rows


def test_an_index_that_comes_during_a_batch_waits_for_its_end(
    server: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(server, tmp_path)
    log.follow(*inserted("a", "b"))
    fit, adding, said = MysqlUpserts.fit, list[threading.Thread](), list[bool]()

    def add() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE public.t ADD UNIQUE INDEX other (t(100))")

    def followed_by_an_index(self: MysqlUpserts, *arguments: Any) -> bool:
        said.append(fit(self, *arguments))
        if not adding:
            adding.append(threading.Thread(target=add))
            adding[0].start()
            waits = "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock%'"
            until(lambda: server.execute(waits), "somebody waits for the batch")
        return said[-1]

    monkeypatch.setattr(MysqlUpserts, "fit", followed_by_an_index)
    log.follow(*updated(["a", "b"], ["1", "2"]))
    adding[0].join()
    log.follow(*updated(["a", "b"], ["2", "1"]))
    assert said == [True, False]
    assert server.execute("SELECT id, t FROM public.t ORDER BY id") == [("a", "2"), ("b", "1")]


def test_keys_that_another_collation_takes_for_one_are_refused_and_none_is_lost(
    server: MysqlServer, tmp_path: Path
) -> None:
    """A person has changed the copy: a row written over another one would be lost without a word."""
    log = begun(server, tmp_path)
    log.follow(*inserted("a"))
    server.execute(
        "ALTER TABLE public.t MODIFY id varchar(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
    )
    with pytest.raises(TableFailed, match="1062") as refused:
        log.follow(*inserted("A"))
    assert isinstance(refused.value.error, TargetRefused)
    assert server.execute("SELECT id FROM public.t") == [("a",)]


ROUNDED = {
    "datetime": ("timestamp", datetime(2026, 1, 1, 0, 0, 0, 100_000), datetime(2026, 1, 1, 0, 0, 0, 200_000)),
    "decimal(12,0)": ("decimal(12,4)", Decimal("1.1"), Decimal("1.2")),
    "float": ("float64", 1.000_000_01, 1.000_000_02),
    "char(99)": ("string", "a", "a "),
}
"""Types that a person gives the copy's key, each with that of the source and two of its keys, which become one."""


@pytest.mark.parametrize("kind", ROUNDED)
def test_keys_that_another_type_takes_for_one_are_refused_and_none_is_lost(
    server: MysqlServer, tmp_path: Path, kind: str
) -> None:
    of_source, one, other = ROUNDED[kind]
    log = begun(server, tmp_path, table_schema([("id", of_source), ("t", "string")], ["id"], table_id=TABLE))
    log.follow(("I", (one,), (one, "first")))
    server.execute(f"ALTER TABLE public.t MODIFY id {kind} NOT NULL")
    with pytest.raises(TableFailed, match="1062") as refused:
        log.follow(("I", (other,), (other, "second")))
    assert isinstance(refused.value.error, TargetRefused)
    assert server.execute("SELECT t FROM public.t") == [("first",)]


def test_a_row_that_fits_into_a_packet_only_if_it_is_inserted_is_inserted(
    server: MysqlServer, tmp_path: Path, statements: list[str]
) -> None:
    packet = 1 << 16
    ((before,),) = server.execute("SELECT @@GLOBAL.max_allowed_packet")
    server.execute(f"SET GLOBAL max_allowed_packet = {packet}")
    try:
        log = begun(server, tmp_path)
        log.follow(*inserted("a", "b", "c"))
        statements.clear()
        long = "x" * (packet - 100)
        log.follow(("D", ("b",), ()), *updated(["a", "c"], [long, "1"]))
        assert of_copy(statements) == ["DELETE t", "DELETE t", "INSERT INTO"]
        assert server.execute("SELECT id, length(t) FROM public.t ORDER BY id") == [("a", len(long)), ("c", 1)]
        with pytest.raises(TableFailed, match="max_allowed_packet"):
            log.follow(*updated(["a"], ["y" * packet]))
        assert server.execute("SELECT count(*) FROM public.t") == [(2,)]
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_keys_change_in_letters_that_are_the_same_for_the_sources_collation(
    server: MysqlServer, tmp_path: Path, statements: list[str]
) -> None:
    own = "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    key, *others = SCHEMA.columns
    schema = SCHEMA.model_copy(update={"columns": (key.model_copy(update={"behind": own}), *others)})
    log = begun(server, tmp_path, schema, "mysql")
    log.follow(*inserted("a", "b", "c"))
    statements.clear()
    log.follow(("D", ("a",), ()), *inserted("A"), ("D", ("b",), ()), ("D", ("c",), ()), *inserted("C", "d"))
    assert of_copy(statements) == ["DELETE t", "INSERT INTO"]
    log.follow(*updated(["D", "A"], ["1", "2"]))  # the log lacks the change of D's letters
    rows = [("A", "2", 2), ("C", "C before", 1), ("D", "1", 2)]
    assert server.execute("SELECT id, t, n FROM public.t ORDER BY id") == rows
