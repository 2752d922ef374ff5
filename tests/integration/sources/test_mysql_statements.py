"""Statements in the binary log that stand for changes without row events: DDL in every quoting, row changes as text."""

import select
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import PATIENCE, LogRun, by_chunk
from support.versions import turns
from tailrace.databases.mysql.connect import execute
from tailrace.errors import Retry
from tailrace.sources.mysql.log_end import log_end
from tailrace.sources.mysql.position import OWN

TABLE = "CREATE TABLE d.t (id int PRIMARY KEY, v int)"
ROWS = "INSERT INTO d.t VALUES (1, 1), (2, 2)"


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script("CREATE DATABASE d", TABLE)
        yield running


def stop_of(run: LogRun, name: str = "d.t") -> str | None:
    stopped = run.table(name).stopped
    return None if stopped is None else stopped.error


def read_to_the_end(run: LogRun, server: MysqlServer) -> None:
    """Without a look at the catalog."""
    end, until = log_end(run._connection, OWN), time.monotonic() + PATIENCE
    while run.stream.position < end:
        assert time.monotonic() < until
        select.select([run.stream.fileno()], [], [], 0.2)
        run.stream.read(1 << 24, 1.0)


def test_a_rename_in_another_quoting_mode_begins_the_table_anew(server: MysqlServer, tmp_path: Path) -> None:
    server.script("CREATE TABLE d.n LIKE d.t")
    with LogRun(server, tmp_path, include="d.t") as run:
        server.script(ROWS)
        run.catch_up()
        before = run.table("d.t").added_record
        rename = 'RENAME TABLE "t" TO "o", "n" TO "t"'
        server.script("SET SESSION sql_mode = 'ANSI_QUOTES'", "USE d", rename)
        run.catch_up()
        assert run.table("d.t").added_record > before and run.table("d.t").initial_snapshot


@pytest.mark.parametrize(
    "statement",
    [
        "/*!50000 ALTER TABLE d.t ADD COLUMN c int DEFAULT 5 */",
        "ALTER TABLE d.t ADD COLUMN c SERIAL",
        "ALTER TABLE d.t ADD COLUMN c varchar(9) DEFAULT 'c:\\\\'",
    ],
)
def test_a_statement_that_is_not_understood_has_the_table_read_again(
    server: MysqlServer, tmp_path: Path, statement: str
) -> None:
    with LogRun(server, tmp_path) as run:
        server.script(ROWS, statement)
        run.catch_up()
        table = run.table("d.t")
        there = server.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'd' AND table_name = 't'"
        )
        assert {c.name for c in table.schema.columns} == {str(name) for (name,) in there}
        assert table.stopped is None and table.reread_record > 0


def test_a_new_column_of_a_lagging_stream_is_in_what_is_read_again_also_after_a_restart(
    server: MysqlServer, tmp_path: Path
) -> None:
    """The statement is recorded before the stream comes to where the catalog can be trusted."""
    with LogRun(server, tmp_path) as run:
        server.script(
            ROWS, "ALTER TABLE d.t ADD COLUMN n int NOT NULL DEFAULT 7", "CREATE TABLE d.u (id int PRIMARY KEY)"
        )
        read_to_the_end(run, server)
        run.stream.cut()
        first = run.table("d.t").reread_record
        assert first > 0
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        newest = run.table("d.t").schemas[-1]
        assert [c.name for c in newest.table.columns] == ["id", "v", "n"] and newest.reread


@pytest.mark.parametrize("first", ["ADD COLUMN a int DEFAULT 5", "MODIFY v smallint"])
def test_each_row_of_a_lagging_stream_has_the_columns_that_it_has_in_the_log(
    server: MysqlServer, tmp_path: Path, first: str
) -> None:
    """The catalog shows the second column already where the first statement has it looked at."""
    with LogRun(server, tmp_path) as run:
        server.script(
            "INSERT INTO d.t VALUES (1, 1)",
            f"ALTER TABLE d.t {first}",
            "INSERT INTO d.t (id, v) VALUES (2, 2)",
            "ALTER TABLE d.t ADD COLUMN b int",
            "INSERT INTO d.t (id, v, b) VALUES (3, 3, 7)",
        )
        run.catch_up()
        assert run.table("d.t").stopped is None
        assert run.rows("d.t")[-1]["b"] == 7


IN_PLACE = [{"match": "d.*", "onSchemaChange": "EvolveAdditive"}]
"""A table that cannot be followed stops: one that starts over would hide that it was not followed."""


@pytest.mark.parametrize(
    ("later", "values"),
    [
        (("ALTER TABLE d.u ADD COLUMN c int FIRST",), {1: None, 2: 7}),
        (
            (
                "ALTER TABLE d.u ADD COLUMN c int NOT NULL DEFAULT 5",
                "UPDATE d.u SET id = 3",
                "ALTER TABLE d.u MODIFY v bigint, ADD COLUMN e text",
            ),
            {3: 5, 2: 7},
        ),
    ],
)
def test_a_table_that_is_changed_before_capture_comes_to_its_creation_is_followed(
    server: MysqlServer, tmp_path: Path, later: tuple[str, ...], values: dict[int, int | None]
) -> None:
    """The catalog shows it as it is in the end, and its first rows have fewer columns, or others."""
    with LogRun(server, tmp_path, options=IN_PLACE) as run:
        first = "CREATE TABLE d.u (id int PRIMARY KEY, v int)", "INSERT INTO d.u VALUES (1, 1)"
        server.script(*first, *later, "INSERT INTO d.u (id, v, c) VALUES (2, 2, 7)")
        run.stream.poll_catalog()
        run.catch_up()
        table = run.table("d.u")
        assert table.stopped is None and table.initial_snapshot
        assert table.reread_record >= table.added_record
        assert {c.name for c in table.schema.columns} == set(by_chunk(server, "d.u")[0])
        assert {row["id"]: row["c"] for row in run.rows("d.u")} == values


@pytest.mark.parametrize("last", ["bigint", "text"])
def test_a_new_column_that_is_changed_before_capture_comes_to_it_is_followed(
    server: MysqlServer, tmp_path: Path, last: str
) -> None:
    with LogRun(server, tmp_path, options=IN_PLACE) as run:
        server.script(
            "INSERT INTO d.t VALUES (1, 1)",
            "ALTER TABLE d.t ADD COLUMN a int, ADD COLUMN b int",
            "INSERT INTO d.t VALUES (2, 2, 2, 2)",
            f"ALTER TABLE d.t MODIFY a {last}, ADD COLUMN c int",
            "INSERT INTO d.t VALUES (3, 3, 3, 3, 3)",
        )
        added = run.table("d.t").added_record
        read_to_the_end(run, server)
        run.stream.cut()
    with LogRun(server, tmp_path, options=IN_PLACE) as run:
        run.catch_up()
        table = run.table("d.t")
        assert table.stopped is None and table.added_record == added
        assert [c.name for c in table.schema.columns] == ["id", "v", "a", "b", "c"]
        read = next(s.record for s in table.schemas if len(s.table.columns) == 5)
        assert table.reread_record >= read


def test_a_column_that_came_between_two_looks_is_not_expected_of_rows_before_it(
    server: MysqlServer, tmp_path: Path
) -> None:
    with LogRun(server, tmp_path) as run:
        server.script("INSERT INTO d.t VALUES (1, 1)", "ALTER TABLE d.t ADD COLUMN a int")
        run.stream.poll_catalog()
        read_to_the_end(run, server)
        server.script("INSERT INTO d.t VALUES (2, 2, 2)", "ALTER TABLE d.t ADD COLUMN b int")
        run.stream.poll_catalog()
        run.catch_up()
        assert run.table("d.t").stopped is None
        assert run.rows("d.t")[-1]["a"] == 2


KEYLESS = (
    "CREATE TABLE d.k (a int NOT NULL, b int NOT NULL, c int NOT NULL, UNIQUE ab (a, b))",
    "INSERT INTO d.k VALUES (1, 1, 1), (1, 2, 2)",
)


@pytest.mark.parametrize("key", ["ALTER TABLE d.k ADD UNIQUE x (c)", "CREATE UNIQUE INDEX x ON d.k (c)"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_unique_index_that_becomes_the_better_key_is_another_key(
    server: MysqlServer, tmp_path: Path, key: str, restarts: bool
) -> None:
    with LogRun(server, tmp_path, options=IN_PLACE) as run:
        server.script(*KEYLESS)
        run.catch_up()
        if not restarts:
            server.script(key, "INSERT INTO d.k VALUES (1, 3, 3)")
            run.catch_up()
    if restarts:
        server.script(key, "INSERT INTO d.k VALUES (1, 3, 3)")
        with LogRun(server, tmp_path, options=IN_PLACE) as run:
            run.catch_up()
    stop = run.table("d.k").stopped
    assert stop is not None and "the key of d.k changed" in stop.message


@pytest.mark.parametrize("again", ["ALTER TABLE d.k ADD UNIQUE ab (a, b)", "CREATE UNIQUE INDEX ab ON d.k (a, b)"])
def test_a_key_that_was_away_for_a_moment_has_the_table_read_again(
    server: MysqlServer, tmp_path: Path, again: str
) -> None:
    """Meanwhile two rows had the same key: for the log alone the delete of one would be that of both."""
    with LogRun(server, tmp_path, options=IN_PLACE) as run:
        server.script(*KEYLESS)
        run.catch_up()
        away = "DROP INDEX ab ON d.k", "INSERT INTO d.k VALUES (1, 1, 3)", "DELETE FROM d.k WHERE c = 1"
        server.script(*away, again)
        run.catch_up()
        table = run.table("d.k")
        assert table.stopped is None and table.reread_record > table.added_record


def test_a_new_unique_index_of_a_table_with_a_primary_key_means_nothing(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path) as run:
        server.script(ROWS, "CREATE UNIQUE INDEX x ON d.t (v)", "ALTER TABLE d.t ADD w int, ADD UNIQUE (w)")
        run.catch_up()
        assert stop_of(run) is None and run.table("d.t").reread_record < 0


def test_a_truncated_partition_is_read_again_although_capture_restarts(server: MysqlServer, tmp_path: Path) -> None:
    parts = "PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (99)"
    server.script("CREATE TABLE d.u (id int PRIMARY KEY)", f"ALTER TABLE d.t PARTITION BY RANGE (id) ({parts})")
    with LogRun(server, tmp_path) as run:
        server.script(ROWS)
        run.catch_up()
        before = run.table("d.t").reread_record
        server.script("ALTER TABLE d.t TRUNCATE PARTITION p0", "INSERT INTO d.u VALUES (1)")
        read_to_the_end(run, server)
        run.stream.cut()
    with LogRun(server, tmp_path) as run:
        run.catch_up()
        assert run.table("d.t").reread_record > before


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE t SET v = 3", "RENAME TABLE t TO o, n TO t"),
        ("UPDATE t SET v = 3", "SET SESSION binlog_format = STATEMENT", "UPDATE t SET v = 99"),
        ("UPDATE t SET v = 3", "DROP TABLE t"),
    ],
)
def test_what_a_statement_means_is_recorded_before_it_is_passed(
    server: MysqlServer, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    """The SQL connection breaks at the look that the statement leads to."""
    server.script("CREATE TABLE d.n LIKE d.t")
    with LogRun(server, tmp_path, include="d.t") as run:
        server.script(ROWS)
        run.catch_up()
        before = run.table("d.t").added_record
        server.script("USE d", *statements)
        ((session,),) = execute(run._connection, "SELECT CONNECTION_ID()")
        server.execute(f"KILL {session}")
        with pytest.raises(Retry):
            while True:
                select.select([run.stream.fileno()], [], [], 0.2)
                run.stream.read(1 << 24, 1.0)
                run.stream.poll_catalog()
    with LogRun(server, tmp_path, include="d.t") as run:
        run.catch_up()
        table = run.table("d.t")
        assert table.added_record > before or table.removed or stop_of(run) or table.reread_record > 0


@pytest.mark.parametrize(
    "statement",
    ["UPDATE w SET v = 99 WHERE id = 1", "-- name: Add :exec\nINSERT INTO l VALUES (5)", "SELECT f()"],
)
def test_a_row_change_as_text_that_names_another_object_stops_the_table(
    server: MysqlServer, tmp_path: Path, statement: str
) -> None:
    server.script(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        "USE d",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE TABLE l (id int PRIMARY KEY)",
        "CREATE TRIGGER g AFTER INSERT ON l FOR EACH ROW UPDATE t SET v = v + 1000",
        "CREATE FUNCTION f() RETURNS int BEGIN UPDATE t SET v = v + 1; RETURN 1; END",
    )
    with LogRun(server, tmp_path, include="d.t") as run:
        server.script(ROWS)
        run.catch_up()
        server.script("SET SESSION binlog_format = STATEMENT", "USE d", statement)
        run.catch_up()
        assert stop_of(run) == "LogIncomplete"


def test_row_changes_of_temporary_tables_as_text_stop_nothing(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path) as run:
        server.script(
            "SET SESSION binlog_format = STATEMENT",
            "USE d",
            "CREATE TEMPORARY TABLE x (id int, v int)",
            "INSERT INTO x VALUES (1, 1)",
            "INSERT INTO x SELECT id, v FROM t",
            "UPDATE x SET v = 2 WHERE id = 1",
            "DROP TEMPORARY TABLE x",
        )
        server.script(ROWS)
        run.catch_up()
        assert stop_of(run) is None and len(run.rows("d.t")) == 2


def test_what_a_statement_says_of_a_namesake_leaves_the_captured_table_its_rows(
    server: MysqlServer, tmp_path: Path
) -> None:
    """A temporary table that was made before capture connected, and a table that is not made because it is there."""
    with closing(server.connect(database="d")) as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("CREATE TEMPORARY TABLE t (id int)")
        cursor.execute("FLUSH LOGS")
        with LogRun(server, tmp_path) as run:
            server.script(ROWS)
            run.catch_up()
            before = run.table("d.t").added_record
            cursor.execute("TRUNCATE TABLE t")
            server.script("CREATE TABLE IF NOT EXISTS d.t (id int PRIMARY KEY, v int)")
            run.catch_up()
            table = run.table("d.t")
            assert (stop_of(run), table.added_record, list(table.truncates)) == (None, before, [])
            assert len(run.rows("d.t")) == 2


def test_a_load_as_text_stops_the_table_and_not_capture(server: MysqlServer, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("501\n502\n")
    server.script("CREATE TABLE d.l (id int)")
    with LogRun(server, tmp_path, include="d.t") as run:
        load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE d.l"
        server.script("SET SESSION binlog_format = STATEMENT", load, local_infile=True)
        run.catch_up()
        assert stop_of(run) == "LogIncomplete"


def test_a_deeply_nested_view_is_passed_over(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path) as run:
        nested = "IF(id=1,1," * 60 + "0" + ")" * 60
        server.script(f"CREATE VIEW d.w AS SELECT {nested} AS x FROM d.t", ROWS)
        run.catch_up()
        assert len(run.rows("d.t")) == 2


def test_names_in_another_case_or_character_set_are_found(tmp_path: Path) -> None:
    with MysqlServer(MARIADB_NEWEST, lower_case_table_names=1) as server:
        server.script("CREATE DATABASE d", TABLE, "CREATE TABLE d.té (id int PRIMARY KEY)", charset="utf8mb4")
        with LogRun(server, tmp_path) as run:
            server.script(ROWS, "TRUNCATE TABLE D.T")
            server.script("TRUNCATE TABLE d.té", charset="latin1")
            run.catch_up()
            assert run.table("d.t").reread_record > 0 and len(list(run.table("d.té").truncates)) == 1
