"""Rows that came without all their columns, or with parts of their documents: sessions set `binlog_row_image` and
`binlog_row_value_options` as they like, and the copy is equal to the source."""

import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun, by_chunk
from support.mysql_replicas import copy_of, level
from support.pipeline import Pipeline, lake
from support.resources import replicator as document_of
from support.versions import turns
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.snapshot import planner
from tailrace.sources.mysql.log.tables import CapturedTables

COLUMNS = (
    "id int AUTO_INCREMENT PRIMARY KEY, v int DEFAULT 7, w int, b text, c longblob, j json, k json,"
    " ts timestamp(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), st int AS (w % 3) STORED"
)
ONLY_MYSQL = ", g int AS (st + v) VIRTUAL, u int UNIQUE"
TABLES = ("wide", "triggered", "chosen", "pairs")
WHERE = "w < 5"
PATHS = (
    "$.a",
    "$.b[0]",
    "$.b[1]",
    "$.b[1].z",
    "$.b[last]",
    "$.b[last-1]",
    "$.b[last-4]",
    '$."é \\\\" x".c',
    "$.long",
    "$.b",
    "$.b[9]",
    "$",
)


def create(server: MysqlServer) -> None:
    server.script("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for name in ("wide", "triggered", "chosen"):
        server.execute(f"CREATE TABLE shop.{name} ({COLUMNS}{'' if server.mariadb else ONLY_MYSQL})")
    server.execute("CREATE TABLE shop.pairs (a int DEFAULT 0, b varchar(9), v int, t text, PRIMARY KEY (b, a))")
    server.execute(
        "CREATE TRIGGER shop.x BEFORE UPDATE ON shop.triggered FOR EACH ROW SET NEW.w = NEW.v * 2, NEW.b = 'x'"
    )
    server.execute("CREATE TRIGGER shop.y BEFORE INSERT ON shop.triggered FOR EACH ROW SET NEW.w = 5")


class Session:
    """Statements of one session, each with other settings of its log."""

    def __init__(self, server: MysqlServer, random: Random) -> None:
        self._random, self._mariadb = random, server.mariadb
        self._images = ["FULL", "MINIMAL", "NOBLOB", *["FULL_NODUP"] * (server.name == MARIADB_NEWEST)]
        self._connection = server.connect(autocommit=False)

    def transaction(self) -> None:
        r = self._random
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_row_image = {r.choice(self._images)}")
            if not self._mariadb:
                cursor.execute(f"SET SESSION binlog_row_value_options = '{r.choice(['', 'PARTIAL_JSON'])}'")
            for _ in range(r.randint(1, 5)):
                with suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                    cursor.execute(r.choice([self._row, self._row, self._pair])())
            (self._connection.rollback if r.random() < 0.1 else self._connection.commit)()

    def close(self) -> None:
        self._connection.close()

    def _row(self) -> str:
        r = self._random
        table, i = f"shop.{r.choice(['wide', 'triggered', 'chosen'])}", r.randint(1, 40)
        names = r.sample(list(self._values()), r.randint(1, 4))
        sets = ", ".join(f"{name} = {self._values(update=True)[name]}" for name in names)
        columns, values = ", ".join(names), ", ".join(self._values()[name] for name in names)
        return r.choice(
            [
                f"INSERT INTO {table} (id, {columns}) VALUES ({i}, {values})",
                f"INSERT INTO {table} (id, {columns}) VALUES ({i}, {values}) ON DUPLICATE KEY UPDATE {sets}",
                f"REPLACE INTO {table} (id, {columns}) VALUES ({i}, {values})",
                *([] if self._mariadb else [f"REPLACE INTO {table} ({columns}) VALUES ({values})"]),
                f"UPDATE {table} SET {sets} WHERE id BETWEEN {i} AND {i + 3}",
                f"UPDATE {table} SET {sets} WHERE id = {i}",
                f"UPDATE {table} SET id = {r.randint(1, 40)} WHERE id = {i}",
                f"UPDATE {table} SET id = {r.randint(1, 40)}, {sets} WHERE id = {i}",
                f"UPDATE {table} x JOIN {table} y USING (id) SET x.v = x.v + 1, y.{sets} WHERE id < {i}",
                f"DELETE FROM {table} WHERE id = {i}",
            ]
        )

    def _values(self, update: bool = False) -> dict[str, str]:
        """SQL for each column."""
        r = self._random
        whole = f"""'{{"a": {r.random()}, "b": [1, "{"é" * r.randint(1, 30)}", null],
            "é \\\\" x": {{"c": {r.randint(0, 9)}.50}}, "long": "{"x" * r.randint(1, 300)}"}}'"""
        path, value = r.choice(PATHS), r.choice(["CAST('[1, {\"z\": 2.0}]' AS JSON)", "7", "1.50", "'t\\n'", "NULL"])
        if self._mariadb:
            value = value.replace("CAST('", "JSON_COMPACT('").replace(" AS JSON", "")
        small = r.choice(
            [f"JSON_SET(%s, '{path}', {value})", f"JSON_REPLACE(%s, '{path}', {value})", f"JSON_REMOVE(%s, '{path}')"]
        )
        documents = {
            name: small % name if update and r.random() < 0.8 else r.choice([whole, whole, "NULL"]) for name in "jk"
        }
        found = {
            "v": str(r.randint(0, 99)),
            "w": r.choice(["NULL", str(r.randint(0, 9))]),
            "b": r.choice(["NULL", f"REPEAT('b', {r.randint(0, 5000)})"]),
            "c": r.choice(["NULL", f"REPEAT(x'00ff', {r.randint(0, 500)})"]),
            **documents,
        }
        return found if self._mariadb else {**found, "u": r.choice(["NULL", str(r.randint(0, 20))])}

    def _pair(self) -> str:
        r = self._random
        a, b, text = r.randint(0, 4), r.choice("xyz"), r.choice(["NULL", f"REPEAT('t', {r.randint(0, 900)})"])
        return r.choice(
            [
                f"INSERT IGNORE INTO shop.pairs (a, b, t) VALUES ({a}, '{b}', {text})",
                f"REPLACE INTO shop.pairs (a, b, v) VALUES ({a}, '{b}', {r.randint(0, 9)})",
                f"UPDATE IGNORE shop.pairs SET b = '{r.choice('xyz')}' WHERE a = {a}",
                f"UPDATE IGNORE shop.pairs SET a = {r.randint(0, 4)}, v = v + 1 WHERE b = '{b}' ORDER BY a LIMIT 1",
                f"UPDATE shop.pairs SET t = {text} WHERE a = {a}",
                f"DELETE FROM shop.pairs WHERE a = {a} AND b = '{b}'",
            ]
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.parametrize("release", turns(*RELEASES))
def test_a_copy_is_equal_whatever_sessions_leave_out_of_their_log(
    spark: SparkSession, tmp_path: Path, release: str, format: str
) -> None:
    random = Random(11)
    with MysqlServer(release) as server:
        create(server)
        sessions = [Session(server, random) for _ in range(3)]
        document = document_of(
            source=mysql_shop.spec(server),
            tables={"include": ["shop.*"]},
            target={"type": format, "location": (tmp_path / "lake").as_uri()},
            storage={"location": (tmp_path / "log").as_uri()},
            snapshot={"chunkRows": 10},
            options=[{"match": "shop.chosen", "where": WHERE}],
        )
        write(sessions, 20)
        tables = lake(Replicator.model_validate(document), spark)
        copy = Pipeline(document, mysql_shop.source(server), tmp_path, tables)
        with copy.running():
            for turn in range(30):
                write(sessions, 8)
                copy.turn()
                if turn % 10 == 5:
                    copy.ask("shop.*")
                if turn == 18:
                    copy.stop()
                    write(sessions, 8)
                    copy.start()
            with copy.source.session() as asked:
                end = asked.log_end()
            copy.settle(Position(end))
            assert copy.driver.faults() == {}
        for session in sessions:
            session.close()

        def read(name: str) -> Any:
            return READERS[format](tmp_path / "lake" / "shop" / name)

        assert not mysql_shop.differences(server, read, TABLES, {"chosen": WHERE})
        assert all(read(name).num_rows for name in TABLES)


def write(sessions: list[Session], transactions: int) -> None:
    for turn in range(transactions):
        sessions[turn % len(sessions)].transaction()


@pytest.mark.parametrize("partial", ["PARTIAL_JSON", ""])
@pytest.mark.parametrize("release", turns(MYSQL, "mysql-8.0"))
def test_documents_that_came_in_parts_are_put_together(tmp_path: Path, release: str, partial: str) -> None:
    with MysqlServer(release) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, n json, j json, k json, m int)")
        with LogRun(server, tmp_path) as run:
            whole = (
                """'{"long": "text that is long enough", "list": [1, 2, {"x": "y"}], "é.\\\\"z": 1.50, "a": null}'"""
            )
            server.script(
                f"SET SESSION binlog_row_value_options = '{partial}'",
                *(f"INSERT INTO d.t VALUES ({i}, NULL, {whole}, {whole}, 1)" for i in range(6)),
                "UPDATE d.t SET k = JSON_SET(k, '$.long', 'short', '$.new', CAST('[1.0, {}]' AS JSON)) WHERE id < 4",
                """UPDATE d.t SET k = JSON_SET(k, '$."é.\\\\"z"', 2) WHERE id < 3""",
                "UPDATE d.t SET j = JSON_REMOVE(j, '$.list[1]', '$.a'), k = JSON_SET(k, '$.list[3]', 1) WHERE id < 3",
                "UPDATE d.t SET j = JSON_SET(j, '$.list[last-7]', 3), k=JSON_REMOVE(k, '$.list[last-1]') WHERE id < 1",
                "UPDATE d.t SET id = 10, j = JSON_REPLACE(j, '$.list[1].x', 7) WHERE id = 2",
                "UPDATE d.t SET k = JSON_SET(k, '$.long', 'x'), n = '{}' WHERE id = 5",
                "UPDATE d.t SET m = 2 WHERE id = 4",
            )
            run.catch_up()
            assert run.table("d.t").stopped is None
            assert run.rows("d.t") == by_chunk(server, "d.t")
            assert all(row["_unchanged"] is None for row in run.changes("d.t"))


def logged(run: LogRun) -> list[tuple[str, list[str]]]:
    """Operation and missing columns of each row of `d.t`."""
    names = [column.name for column in run.table("d.t").schema.columns]
    return [(row["_op"], [names[i] for i in row["_unchanged"] or ()]) for row in run.changes("d.t")]


MINIMAL = "SET SESSION binlog_row_image = MINIMAL"


@pytest.mark.parametrize("release", turns(MYSQL, "mysql-8.0"))
def test_what_an_update_does_not_have_it_did_not_change(tmp_path: Path, release: str) -> None:
    with MysqlServer(release) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int, w int DEFAULT 3, j json)")
        with LogRun(server, tmp_path) as run:
            server.script(
                MINIMAL,
                "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
                """INSERT INTO d.t VALUES (1, 2, 3, '{"a": "long enough to be replaced in place"}')""",
                "INSERT INTO d.t (id, v) VALUES (2, 2)",
                "UPDATE d.t SET v = 4 WHERE id = 1",
                "UPDATE d.t SET id = 11 WHERE id = 1",
                "UPDATE d.t SET j = JSON_SET(j, '$.a', 'b') WHERE id = 11",
                "UPDATE d.t SET j = JSON_SET(j, '$.a', 'c'), id = 12 WHERE id = 11",
                "DELETE FROM d.t",
            )
            run.catch_up()
            assert run.table("d.t").stopped is None
            assert logged(run) == [
                ("I", []),
                ("I", ["w", "j"]),
                ("U", ["w", "j"]),
                *(("D", []), ("M", ["v", "w", "j"])),
                ("I", ["v", "w", "j"]),
                *(("D", []), ("I", ["v", "w", "j"])),
                *[("D", [])] * 2,
            ]


def test_an_update_that_withholds_very_many_rows_has_the_table_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "MAX_REPAIR_KEYS", 3)
    monkeypatch.setattr(planner, "MANY_HOLES", 30)
    with MysqlServer(MARIADB_NEWEST) as server:
        mysql_shop.create(server)
        server.script(*(f"INSERT INTO shop.plain VALUES ({i}, 'old', {i})" for i in range(50)))
        copy = copy_of(server, tmp_path)
        with copy.running():
            level(server, copy)
            server.script(MINIMAL, "UPDATE shop.plain SET v = 'new'")
            level(server, copy)
            repairs = [s.plan.keys for s in copy.state.snapshots.values() if s.plan.reason == "repair"]
            assert repairs == [None] and not any(t.stopped for t in copy.state.tables.values())


def test_the_first_version_of_row_events_does_not_make_a_server_mariadb(tmp_path: Path) -> None:
    with MysqlServer("mysql-8.0", log_bin_use_v1_row_events="ON") as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int, u int UNIQUE)")
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (1, 2, 3)", MINIMAL, "UPDATE d.t SET v = 4")
            run.catch_up()
            assert run.table("d.t").stopped is None and logged(run) == [("I", []), ("U", ["u"])]


def test_one_look_tells_the_indexes_of_a_table_for_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MysqlServer(MARIADB_NEWEST) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int, w int)")
        looks, look = list[int](), CapturedTables.has_one_unique_index

        def counted(tables: CapturedTables, table_id: int) -> bool | None:
            looks.append(table_id)
            return look(tables, table_id)

        with LogRun(server, tmp_path) as run:
            server.execute("INSERT INTO d.t VALUES (1, 1, 1)")
            run.catch_up()
            monkeypatch.setattr(CapturedTables, "has_one_unique_index", counted)
            server.script(MINIMAL, "UPDATE d.t SET v = 2")
            server.script(MINIMAL, "XA START 'x'", "UPDATE d.t SET w = 2", "XA END 'x'", "XA PREPARE 'x'")
            time.sleep(0.2)
            server.execute("XA COMMIT 'x'")
            run.read()
            assert [missing for _, missing in logged(run)] == [[], ["w"], ["v", "w"]]
            assert len(looks) == 1


def test_a_table_that_is_gone_is_not_to_be_resynced(tmp_path: Path) -> None:
    with MysqlServer(MARIADB_NEWEST) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int, w int)")
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (1, 1, 1)", MINIMAL, "UPDATE d.t SET v = 2")
            server.script("SET SESSION sql_log_bin = 0", "RENAME TABLE d.t TO d.u")
            run.read()
            stopped = run.table("d.t").stopped
            assert stopped is not None and stopped.error == "TableGone" and "binlog_row_image" not in stopped.fix
            run.catch_up()
            assert run.table("d.t").removed and run.table("d.u").stopped is None


@pytest.mark.parametrize("release", turns(MARIADB_NEWEST, "mariadb-10.11"))
def test_an_update_of_mariadb_may_be_a_replace(tmp_path: Path, release: str) -> None:
    """It is logged without what became a default, also in the key."""
    with MysqlServer(release) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY DEFAULT 5, v int, u int)")
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (60, 1, 50)", MINIMAL, "UPDATE d.t SET v = 2")
            run.catch_up()
            assert logged(run) == [("I", []), ("I", ["u"])]
            server.script("ALTER TABLE d.t ADD UNIQUE (u)", "INSERT INTO d.t VALUES (61, 1, 51)")
            server.script("SET SESSION binlog_row_image = NOBLOB", "REPLACE INTO d.t (u) VALUES (51)")
            run.catch_up()
            assert [(row["id"], row["u"]) for row in run.rows("d.t")] == [(5, 51), (60, None)]
            server.script(MINIMAL, "REPLACE INTO d.t (u) VALUES (50)")
            run.catch_up()
            stopped = run.table("d.t").stopped
            assert stopped is not None and (stopped.error, stopped.seq) == (
                "LogIncomplete",
                run.changes("d.t")[-1]["_seq"],
            )
            assert "without its new key" in stopped.message


def test_a_replace_under_full_nodup_is_logged_with_the_defaults_that_it_sets(tmp_path: Path) -> None:
    """What such an image leaves out has not changed: here `v` has."""
    with MysqlServer(MARIADB_NEWEST) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v int DEFAULT 7, w int, UNIQUE (w))")
        with LogRun(server, tmp_path) as run:
            replaced = [f"REPLACE INTO d.t (id, w) VALUES {row}" for row in ("(1, 3)", "(9, 2)")]
            before = "INSERT INTO d.t VALUES (1, 1, 1), (2, 1, 2)"
            server.script(before, "SET SESSION binlog_row_image = FULL_NODUP", *replaced)
            run.catch_up()
            assert [(row["id"], row["v"], row["w"]) for row in run.rows("d.t")] == server.execute("SELECT * FROM d.t")


@pytest.mark.parametrize("release", turns(*RELEASES))
def test_a_row_that_came_without_its_key_stops_the_table(tmp_path: Path, release: str) -> None:
    with MysqlServer(release) as server:
        server.script("CREATE DATABASE d", "CREATE TABLE d.t (id int DEFAULT 5 PRIMARY KEY, v int)")
        with LogRun(server, tmp_path) as run:
            server.script("INSERT INTO d.t VALUES (1, 2)", MINIMAL, "INSERT INTO d.t (v) VALUES (3)")
            run.catch_up()
            stopped = run.table("d.t").stopped
            assert stopped is not None and (stopped.error, stopped.seq) == ("LogIncomplete", 1)
            assert "without the column 'id' of its key" in stopped.message
