"""Columns that become wider are followed in place: no row is read again where log and catalog agree on it."""

from collections.abc import Iterator
from pathlib import Path

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
        one_server.script("ALTER TABLE d.t MODIFY v varchar(301)")
        run.catch_up()
        assert run.table("d.t").reread_record > before


@pytest.mark.parametrize("seed", [0, 1])
def test_copies_are_equal_after_random_changes(tmp_path: Path, server: MysqlServer, seed: int) -> None:
    """More seeds: `tests/soak/test_soak_mysql_ddl.py`."""
    played = Round(server, tmp_path, seed)
    fault = played.fault(turns=4)
    assert fault is None, "\n".join([*played.trace, fault])
    assert played.compared


@pytest.fixture(scope="module")
def one_server() -> Iterator[MysqlServer]:
    with MysqlServer(MARIADB_NEWEST) as server:
        yield server
