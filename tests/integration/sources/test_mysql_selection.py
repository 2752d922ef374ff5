"""Columns that `options[].columns` leaves out while their rows go past: a statement may have announced them before."""

from pathlib import Path
from typing import Any

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun
from support.versions import turns


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
@pytest.mark.parametrize(
    ("between", "columns"), [([], ["v"]), (["ALTER TABLE d.t ADD COLUMN e int"], ["v", "e"])], ids=["alone", "another"]
)
def test_a_column_that_was_announced_and_then_left_out_is_read_once_it_is_wanted(
    name: str, between: list[str], columns: list[str], tmp_path: Path
) -> None:
    with MysqlServer(name) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int)")
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            server.execute("ALTER TABLE d.t ADD COLUMN c int, ADD INDEX (c)")
            run.read()
            server.script(*between, "INSERT INTO d.t (id, c) VALUES (1, 5)")
        with LogRun(server, tmp_path, options=[{"match": "d.t", "columns": columns}]) as run:
            run.read()
            assert [row.get("c") for row in run.rows("d.t")] == [None]
        with LogRun(server, tmp_path) as run:
            run.catch_up()
            run.catch_up()
            table: Any = run.table("d.t")
            assert "c" in {column.name for column in table.schema.columns}
            assert table.reread_record > table.added_record


@pytest.mark.parametrize("name", turns(MYSQL, MARIADB_NEWEST))
def test_a_column_that_the_user_may_not_see_while_its_rows_go_past_is_read_once_it_may(
    name: str, tmp_path: Path
) -> None:
    with MysqlServer(name) as server:
        rights = "REPLICATION SLAVE, REPLICATION CLIENT" + ("" if server.mariadb else ", XA_RECOVER_ADMIN")
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int)", "CREATE USER few")
        server.script(f"GRANT {rights} ON *.* TO few", "GRANT SELECT (id, v) ON d.t TO few")
        with LogRun(server, tmp_path, user="few") as run:
            run.catch_up()
            server.script("ALTER TABLE d.t ADD COLUMN c int", "INSERT INTO d.t VALUES (1, 1, 5)")
            run.read()
            server.execute("GRANT SELECT (c) ON d.t TO few")
            run.catch_up()
            run.catch_up()
            table: Any = run.table("d.t")
            assert "c" in {column.name for column in table.schema.columns}
            assert table.reread_record > table.added_record
