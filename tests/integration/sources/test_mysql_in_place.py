"""Columns that become wider are followed in place: no row is read again where log and catalog agree on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mysql_packages import RELEASES
from support.mysql import MARIADB_NEWEST, MysqlServer
from support.mysql_ddl import Round
from support.mysql_log import LogRun, by_chunk
from support.versions import turns

CREATED = (
    "DROP DATABASE IF EXISTS d",
    "CREATE DATABASE d",
    "CREATE TABLE d.t (id int PRIMARY KEY, v varchar(20), e enum('a','b'), n tinyint, u tinyint unsigned NOT NULL,"
    " l varchar(9) CHARACTER SET latin1, b varbinary(5) DEFAULT 'x', x int)",
)
ROW = "INSERT INTO d.t VALUES ({}, 'é', 'b', -1, 255, 'é', x'00ff', 1)"


@pytest.fixture(params=turns(*RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, explicit_defaults_for_timestamp="ON") as server:
        yield server


@pytest.mark.parametrize("restart", [False, True])
def test_wider_columns_are_followed_without_reading_the_table_again(
    server: MysqlServer, tmp_path: Path, restart: bool
) -> None:
    server.script(*CREATED)
    with LogRun(server, tmp_path) as run:
        server.execute(ROW.format(1))
        run.catch_up()
        edge = run.table("d.t").reread_record
        for number, change in enumerate(
            (
                "MODIFY v varchar(300) COMMENT 'it''s longer'",
                "MODIFY e enum('a','b','c, d') FIRST, MODIFY COLUMN n smallint",
                "MODIFY u smallint unsigned NULL, MODIFY b varbinary(50)",
                "MODIFY n int DEFAULT 5",
            ),
            2,
        ):
            server.script(f"UPDATE d.t SET x = {number}", f"ALTER TABLE d.t {change}")
            run.read()
            server.execute(f"INSERT INTO d.t (id, v, u, x) VALUES ({number}, REPEAT('v', 19), 255, 7)")
            run.read()
    with LogRun(server, tmp_path) as again:
        if restart:
            server.execute("ALTER TABLE d.t MODIFY v varchar(400)")
            again.read()
        server.execute("UPDATE d.t SET v = REPEAT('é', 100), e = 'c, d', n = 300, u = 300, b = REPEAT('b', 50)")
        again.catch_up()
        table = again.table("d.t")
        assert (table.stopped, table.reread_record) == (None, edge)
        assert again.rows("d.t") == by_chunk(server, "d.t")
        types = {column.name: column.source_type.partition("(")[0] for column in table.schema.columns}
        assert types == {"id": "int", "v": "varchar", "e": "enum", "n": "int", "l": "varchar", "b": "varbinary"} | {
            "u": "smallint unsigned" if types["u"].endswith("d") else "smallint",
            "x": "int",
        }
        assert not any(version.reread for version in table.schemas)


@pytest.mark.parametrize(
    "change",
    [
        "MODIFY v varchar(5)",
        "MODIFY v varchar(300) NOT NULL",
        "MODIFY v varchar(300) CHARACTER SET utf8mb4",
        "MODIFY l varchar(20)",
        "MODIFY v varchar(300), MODIFY x smallint",
        "MODIFY v varchar(300), ADD INDEX (x)",
        "MODIFY v varchar(300), MODIFY n bigint AUTO_INCREMENT, ADD KEY (n)",
        "MODIFY e enum('b','a','c')",
        "MODIFY e enum('a','c','d')",
        "MODIFY n tinyint",
        "MODIFY u smallint NOT NULL",
        "MODIFY id bigint",
        "MODIFY v varchar(300), ALGORITHM = COPY",
        "MODIFY x bigint",
    ],
)
def test_other_changes_of_a_type_have_the_table_read_again_or_begin_again(
    one_server: MysqlServer, tmp_path: Path, change: str
) -> None:
    one_server.script(*CREATED)
    with LogRun(one_server, tmp_path) as run:
        run.catch_up()
        one_server.script("SET SESSION sql_mode = ''", f"ALTER TABLE d.t {change}")
        run.catch_up()
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and (table.reread_record > 0 or table.added_record > 1)


def test_a_change_that_the_catalog_may_not_show_alone_has_the_table_read_again(
    one_server: MysqlServer, tmp_path: Path
) -> None:
    one_server.script(*CREATED)
    with LogRun(one_server, tmp_path) as run:
        run.catch_up()
        one_server.script("ALTER TABLE d.t MODIFY v varchar(5)", "ALTER TABLE d.t MODIFY v varchar(300)")
        run.catch_up()
        assert run.table("d.t").stopped is None and run.table("d.t").reread_record > 0
        one_server.script("ALTER TABLE d.t ADD COLUMN s int AS (LENGTH(v)) STORED")
        run.catch_up()
        before = run.table("d.t").reread_record
        one_server.script("ALTER TABLE d.t DROP COLUMN b")
        run.catch_up()
        assert run.table("d.t").reread_record == before
        one_server.script("ALTER TABLE d.t MODIFY v varchar(301)")
        run.catch_up()
        assert run.table("d.t").reread_record > before


IN_PLACE = (
    ("DROP COLUMN l, DROP b",),
    ("RENAME COLUMN x TO y",),
    ("RENAME COLUMN v TO l, RENAME COLUMN l TO v",),
    ("CHANGE x y int",),
    ("CHANGE v w varchar(300) FIRST", "CHANGE w v varchar(400)"),
    ("CHANGE e f enum('a','b','c'), DROP b, MODIFY COLUMN n smallint AFTER v, ADD y varchar(9) NULL",),
    ("DROP x, ADD x int NULL",),
    ("ADD COLUMN y int NULL, DROP x", "RENAME COLUMN y TO x"),
    ("DROP x, RENAME COLUMN n TO x, LOCK = SHARED",),
    ("DROP x", "ADD x int", "DROP x", "ADD x int"),
    ("DROP X, RENAME COLUMN N TO y",),
    ("CHANGE `x` `i``s` int COMMENT 'it''s'",),
)
"""Changes of the table one after the other, with rows in between."""


@pytest.mark.parametrize("changes", IN_PLACE)
def test_columns_are_dropped_and_renamed_in_place(
    one_server: MysqlServer, tmp_path: Path, changes: tuple[str, ...]
) -> None:
    one_server.script(*CREATED)
    with LogRun(one_server, tmp_path) as run:
        one_server.script(ROW.format(1), ROW.format(2))
        run.catch_up()
        begun = run.table("d.t").added_record, run.table("d.t").reread_record
        for number, change in enumerate(changes, 10):
            one_server.script("UPDATE d.t SET u = u - 1 WHERE id = 1", f"ALTER TABLE d.t {change}")
            run.read()
            one_server.script(f"INSERT INTO d.t (id, u) VALUES ({number}, 9)", "UPDATE d.t SET u = u - 1 WHERE id > 2")
    with LogRun(one_server, tmp_path) as again:
        again.catch_up()
        table = again.table("d.t")
        assert (table.stopped, table.added_record, table.reread_record) == (None, *begun)
        assert {c.name for c in table.schema.columns} == {row[0] for row in one_server.execute("SHOW COLUMNS FROM d.t")}
        assert again.rows("d.t") == by_chunk(one_server, "d.t")


@pytest.mark.parametrize(
    "change",
    ["MODIFY x bigint", "CHANGE x y varchar(9), DROP n", "CHANGE v w varchar(5)", "DROP n, ADD y int DEFAULT 3"],
)
def test_a_column_with_another_type_comes_back_in_that_and_the_others_stay(
    one_server: MysqlServer, tmp_path: Path, change: str
) -> None:
    one_server.script(*CREATED)
    with LogRun(one_server, tmp_path) as run:
        one_server.script("SET SESSION sql_mode = ''", ROW.format(1), ROW.format(2))
        run.catch_up()
        before, u = run.table("d.t"), {c.name: c.id for c in run.table("d.t").schema.columns}
        one_server.script("SET SESSION sql_mode = ''", f"ALTER TABLE d.t {change}")
        run.read()
        one_server.script("UPDATE d.t SET u = 3 WHERE id = 1")
        run.catch_up()
        table = run.table("d.t")
        assert (table.stopped, table.added_record) == (None, before.added_record)
        assert table.reread_record > before.reread_record
        assert {c.id for c in table.schema.columns if c.name in ("id", "u")} == {u["id"], u["u"]}
        copied, asked = run.rows("d.t"), by_chunk(one_server, "d.t")
        assert copied[0] == asked[0]
        assert [(row["id"], row["u"], row["e"]) for row in copied] == [(row["id"], row["u"], row["e"]) for row in asked]
        assert {c.name for c in table.schema.columns} == set(asked[0])


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("RENAME COLUMN x TO y", {"where": "x > 0"}),
        ("RENAME COLUMN v TO w", {"mask": [{"column": "v", "method": "Redact"}]}),
        ("RENAME COLUMN v TO w, RENAME COLUMN l TO v", {"mask": [{"column": "v", "method": "Redact"}]}),
        ("RENAME COLUMN x TO y", {"columns": ["x", "v"]}),
        ("RENAME COLUMN n TO x, RENAME COLUMN x TO n", {"columns": ["x", "v"]}),
        ("RENAME COLUMN x TO y", {"as": {"x": "text"}}),
        ("RENAME COLUMN id TO y", {}),
        ("RENAME COLUMN x TO X", {}),
        ("DROP PRIMARY KEY, DROP id, ADD id int PRIMARY KEY", {}),
        ("DROP x, ALGORITHM = COPY", {}),
        ("DROP x", {"onSchemaChange": "EvolveAdditive"}),
    ],
)
def test_what_the_options_know_by_name_is_not_followed_in_place(
    one_server: MysqlServer, tmp_path: Path, change: str, options: dict[str, Any]
) -> None:
    one_server.script(*CREATED)
    with LogRun(one_server, tmp_path, options=[{"match": "d.t", **options}]) as run:
        one_server.script(ROW.format(1))
        run.catch_up()
        before = run.table("d.t")
        one_server.script(f"ALTER TABLE d.t {change}")
        run.catch_up()
        run.catch_up()
        table = run.table("d.t")
        begun = table.added_record > before.added_record or table.reread_record > before.reread_record
        assert table.stopped is not None or begun


def test_an_alter_of_mariadb_that_is_logged_when_it_begins_is_not_followed_in_place(tmp_path: Path) -> None:
    """It may fail, and has not happened yet."""
    with MysqlServer(MARIADB_NEWEST) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, x int)")
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            server.execute("ALTER TABLE d.t DROP COLUMN IF EXISTS y, DROP IF EXISTS x, ADD x int")
            run.read()
            assert run.table("d.t").schema.version == 2 and run.table("d.t").reread_record < 0
            server.script("SET SESSION binlog_alter_two_phase = ON", "ALTER TABLE d.t DROP x, ADD x int")
            run.read()
            assert run.table("d.t").reread_record > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_copies_are_equal_after_random_changes(tmp_path: Path, server: MysqlServer, seed: int) -> None:
    """More seeds: `tests/soak/test_soak_mysql_ddl.py`."""
    played = Round(server, tmp_path, seed)
    fault = played.fault(turns=4)
    assert fault is None, "\n".join([*played.trace, fault])
    assert played.compared


@pytest.fixture(scope="module", params=turns(*RELEASES))
def one_server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param, explicit_defaults_for_timestamp="ON") as server:
        yield server
