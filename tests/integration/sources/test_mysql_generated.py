"""Virtual columns that each session computes in its own way: MySQL's log has what the writer's session computed, and a
chunk would have what ours does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mysql import MysqlServer
from support.mysql_log import LogRun, by_chunk, exactly, table_of
from support.versions import turns
from tailrace.sources.findings import TableSize
from tailrace.sources.mysql.support import describe


@pytest.fixture(scope="module", params=turns("mysql-8.0", "mysql-9"))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        yield running


SESSION = ("SET time_zone = '+05:00'",)
COLUMNS = (
    "id int PRIMARY KEY, made timestamp NULL, dt datetime, doc json,"
    " day date AS (DATE(made)), after_noon bool AS (HOUR(made) > 12), no bool AS (NOT after_noon), f time AS"
    " (FROM_UNIXTIME(id)), name varchar(20) AS (DAYNAME(dt)), words varchar(20) AS (DATE_FORMAT(dt, '%a, %Y')),"
    " again timestamp AS (dt), kept date AS (DATE(made)) STORED, month varchar(9) AS (DATE_FORMAT(dt, '%Y-%m')),"
    " found varchar(20) AS (doc->>'$.made'), twice int AS (id * 2), next int AS (twice + 1)"
)
LEFT_OUT = ["day", "after_noon", "no", "f", "name", "words", "again"]


def test_only_what_all_sessions_compute_alike_is_copied(server: MysqlServer, tmp_path: Path) -> None:
    server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", f"CREATE TABLE d.t ({COLUMNS})")
    with LogRun(server, tmp_path) as run:
        values = """1, '2024-03-04 02:00:00', '2024-03-04 02:00:00', '{"made": 5}'"""
        server.script(*SESSION, f"INSERT INTO d.t (id, made, dt, doc) VALUES ({values})")
        run.catch_up()
        assert exactly(run.rows("d.t")) == exactly(by_chunk(server, "d.t"))
        (row,) = run.rows("d.t")
        assert list(row) == ["id", "made", "dt", "doc", "kept", "month", "found", "twice", "next"]
        assert (str(row["kept"]), row["month"], row["found"], row["next"]) == ("2024-03-04", "2024-03", "5", 3)


def test_a_doctor_names_those_that_are_left_out_and_what_helps(server: MysqlServer) -> None:
    server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", f"CREATE TABLE d.t ({COLUMNS})")
    table = table_of(server, "d.t")
    assert table is not None
    left_out = [found for found in describe(table, TableSize()).columns if found.support == "NO"]
    assert [found.column for found in left_out] == LEFT_OUT
    assert all("time zone" in found.reason and "STORED" in found.suggestion for found in left_out)


def test_a_table_whose_column_becomes_such_a_one_starts_over_without_it(server: MysqlServer, tmp_path: Path) -> None:
    columns = "id int PRIMARY KEY, made timestamp NULL, day int AS (id + 1)"
    server.script("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", f"CREATE TABLE d.t ({columns})")
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        server.execute("ALTER TABLE d.t MODIFY day int AS (DAY(made))")
        server.script(*SESSION, "INSERT INTO d.t (id, made) VALUES (1, '2024-03-04 02:00:00')")
        run.catch_up()
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and [c.name for c in table.schema.columns] == ["id", "made"]
