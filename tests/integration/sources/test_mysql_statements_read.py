"""Statements in the log that sound as if they concerned a captured table, and do not: keywords and its name in strings,
comments and names, in every quoting, and objects of kinds that hold no rows. And those that do, hidden likewise."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun
from support.versions import turns

OTHERS = (
    'create table forms (id int primary key, kind enum("select","radio","text"))',
    "create table t (id int primary key, kind set('select','update') comment 'insert into d.t select 1')",
    "create table c1 (id int primary key /* select from t */) comment = 'select'",
    "create table c2 (id int primary key) /*!50100 partition by range (id) "
    "(partition p0 values less than (10) comment = 'select t') */",
    "create table c3 (`select` int primary key, `t` int, `d.t` int)",
    "create table c4 (id int primary key, v varchar(20) default 'it''s select')",
    r'create table c5 (id int primary key, v varchar(20) default "select \" from t")',
    "create table c6 (id int primary key, a int, b int as (a+1), check (a > 5)) -- select",
    "create table c7 (id int primary key) # select",
    "create /*!40101 temporary */ table tmp (id int, kind enum('select'))",
    "create table c8 as select 1 as t",
    "alter table forms modify kind enum('select','t')",
    "alter table t add column v int default 5, comment 'select'",
    "truncate table t",
    "rename table t to d_t, c3 to t",
    "create index t on forms (kind)",
    "drop table if exists t, nothing",
    "create procedure p() select * from d.t",
    "create definer = current_user function f() returns int deterministic return 1",
    "create event e on schedule every 1 day do insert into d.u select 1",
    "create user u@localhost",
    "create server s foreign data wrapper mysql options (host 'select')",
    "create sequence t",
    'create spatial reference system 990001 name \'select t\' definition \'GEOGCS["x",DATUM["y",'
    'SPHEROID["z",6378137,298.25]],PRIMEM["g",0],UNIT["d",0.017453292519943278]]\'',
    "create library l language javascript as 'export function f(n) { return n }'",
    "create json duality view dv as select json_duality_object('_id': id, 'a': kind) from forms",
    "create view w as select * from d.t",
    "create resource group g type = user",
    "alter database crm character set latin1",
)
"""Run in the database crm, which is not captured."""
MODES = (
    ("ANSI_QUOTES", 'create table "select" ("t" int primary key, v varchar(9) default \'t"\')'),
    ("NO_BACKSLASH_ESCAPES", r"create table m1 (id int primary key, v varchar(9) default 'c:\')"),
    ("ANSI_QUOTES,NO_BACKSLASH_ESCAPES", r"""create table m2 (id int primary key, "a\" varchar(9) default '\')"""),
)


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST, "mysql-8.0", "mariadb-10.11"))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        running.script("CREATE DATABASE d", "CREATE DATABASE crm", "CREATE TABLE d.t (id int PRIMARY KEY, v int)")
        yield running


def tried(server: MysqlServer, statements: list[str], mode: str = "", database: str = "crm", **options: Any) -> int:
    """The number of those that this server knows."""
    done = 0
    with server.connect(database=database, **options) as session, session.cursor() as cursor:
        cursor.execute(f"SET SESSION sql_mode = '{mode}'")
        for statement in statements:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError:
                continue
            done += 1
    return done


def unconcerned(run: LogRun) -> bool:
    before = run.table("d.t")
    run.catch_up()
    table = run.table("d.t")
    return table.stopped is None and (table.added_record, len(table.schemas)) == (
        before.added_record,
        len(before.schemas),
    )


def test_a_statement_that_concerns_no_captured_table_is_passed_over(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path, include="d.*") as run:
        run.catch_up()
        known = 0
        for statement in OTHERS:
            known += tried(server, [statement])
            assert unconcerned(run), statement
        assert known >= 21
        for mode, statement in MODES:
            assert tried(server, [statement], mode) == 1 and unconcerned(run), statement
        assert tried(server, ["create table `größe select` (id int)"], charset="latin1") == 1 and unconcerned(run)
        server.script("INSERT INTO d.t VALUES (1, 1)")
        run.catch_up()
        assert len(run.rows("d.t")) == 1


WORDS = ("select", "insert into t", "truncate d.t", "t", "d.t", "table", "drop", "values row", "database")


@pytest.mark.parametrize("mode", ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"])
def test_keywords_that_are_quoted_or_commented_out_mean_nothing(server: MysqlServer, tmp_path: Path, mode: str) -> None:
    random = Random(mode)
    statements = [definition(random, mode, number) for number in range(60)]
    with LogRun(server, tmp_path, include="d.*") as run:
        run.catch_up()
        assert tried(server, statements, mode) > 50
        assert unconcerned(run), [s for s in statements if not alone(server, run, s, mode)][:3]


def alone(server: MysqlServer, run: LogRun, statement: str, mode: str) -> bool:
    tried(server, ["drop table if exists x", statement], mode)
    return unconcerned(run)


def definition(random: Random, mode: str, number: int) -> str:
    column = quoted(random, random.choice(WORDS) + str(number), mode)
    text, other = string(random, random.choice(WORDS), mode), string(random, random.choice(WORDS), mode)
    note = comment(random, random.choice(WORDS))
    kind = random.choice([f"varchar(30) default {text}", f"enum({text}, 'x')", "int"])
    table = f"x{number}"
    return f"create{note} table {note}{table} ({column} {kind} comment {other}, id int {note}) comment {note}= {text}"


def quoted(random: Random, word: str, mode: str) -> str:
    name = random.choice(["", "'", "`", '"', "\\", "--", "/*"]) + word
    mark = '"' if "ANSI_QUOTES" in mode and random.random() < 0.5 else "`"
    return mark + name.replace(mark, mark * 2) + mark


def string(random: Random, word: str, mode: str) -> str:
    mark = "'" if "ANSI_QUOTES" in mode or random.random() < 0.5 else '"'
    noise = random.choice(["", "'", "`", '"', "--", "/*", "*/", "#", "\\"])
    content = f"{noise}{word}"
    if "NO_BACKSLASH" not in mode:
        content = content.replace("\\", "\\\\")
        if random.random() < 0.3:
            return mark + content.replace(mark, "\\" + mark) + mark
    return mark + content.replace(mark, mark * 2) + mark


def comment(random: Random, word: str) -> str:
    noise = random.choice(["", "'", "`", '"', "\\", ";"])
    return random.choice([f" /*{noise}{word} */ ", f" -- {noise}{word}\n", f" #{noise}{word}\n", " ", "/* */ "])


REAL = (
    ("truncate table t", "emptied"),
    ("/*!40000 truncate table */ t", "emptied"),
    ("/*!80000 alter table t add column c1 int default 5 */", "read"),
    ("alter table t add column c2 varchar(9) default 'x\\'\"'", "read"),
    ('alter table t add column c3 varchar(9) default "t" comment "select"', "read"),
    ("alter table t add column c4 int, comment 'it''s `t'", "nothing"),
    ("rename table t to o, n to t", "anew"),
    ("create or replace table t (id int primary key, kind enum('a', \"b\"))", "anew"),
    ("drop table `t` -- t", "gone"),
)


@pytest.mark.parametrize(("statement", "expected"), REAL)
def test_a_statement_that_concerns_it_is_never_passed_over(
    server: MysqlServer, tmp_path: Path, statement: str, expected: str
) -> None:
    server.script("CREATE TABLE d.n LIKE d.t")
    with LogRun(server, tmp_path, include="d.t") as run:
        server.script("INSERT INTO d.t VALUES (1, 1)")
        run.catch_up()
        before = run.table("d.t")
        known = server.mariadb or not statement.startswith("create or replace")
        assert bool(tried(server, [statement], database="d")) == known
        executed = server.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_name = 't' AND table_schema = 'd'"
        )
        run.catch_up()
        after = run.table("d.t")
        if not known or (statement.startswith("/*!8") and server.mariadb):
            expected = "nothing"
        found = "gone" if after.removed else "anew" if after.added_record > before.added_record else "nothing"
        found = "emptied" if list(after.truncates) else "read" if after.reread_record > 0 else found
        assert (found, bool(executed)) == (expected, expected != "gone")


AS_TEXT = "SET SESSION binlog_format = STATEMENT"


@pytest.fixture(params=turns(MYSQL, "mysql-8.0"))
def mysql(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    """With tables of two captured databases and another one."""
    with MysqlServer(request.param, log_bin_trust_function_creators=1) as running:
        tables = "d.t", "d.u", "e.t", "crm.t"
        made = [f"CREATE TABLE {table} (id int PRIMARY KEY, v int)" for table in tables]
        running.script("CREATE DATABASE d", "CREATE DATABASE e", "CREATE DATABASE crm", *made)
        yield running


def stops(run: LogRun) -> set[str]:
    return {t.schema.name for t in run.journal.state.tables.values() if t.stopped is not None}


def reread(run: LogRun) -> set[str]:
    return {t.schema.name for t in run.journal.state.tables.values() if t.reread_record > 0}


def test_a_row_change_as_text_reaches_no_further_than_the_log_says(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script(
        "CREATE VIEW crm.w AS SELECT * FROM e.t",
        "CREATE TRIGGER crm.g AFTER DELETE ON crm.t FOR EACH ROW INSERT INTO e.t VALUES (OLD.id, 0)",
    )
    for number, (statement, expected) in enumerate(
        (
            ("INSERT INTO crm.t VALUES (1, 1)", set[str]()),
            ("UPDATE crm.t SET v = v + 1 ORDER BY id LIMIT 1", set()),
            ("DELETE FROM crm.t", {"e.t"}),
            ("INSERT INTO crm.w VALUES (7, 7)", {"e.t"}),
        )
    ):
        with LogRun(mysql, tmp_path / str(number), include="?.*") as run:
            run.catch_up()
            mysql.script(AS_TEXT, statement)
            run.catch_up()
            assert stops(run) == expected, statement


def test_only_the_table_of_a_plain_row_change_as_text_is_read_again(mysql: MysqlServer, tmp_path: Path) -> None:
    with LogRun(mysql, tmp_path, include="?.*") as run:
        mysql.script("INSERT INTO d.t VALUES (1, 1)")
        run.catch_up()
        mysql.script(AS_TEXT, "UPDATE d.t SET v = 9 WHERE id = 1", "USE d", "INSERT INTO u SELECT id, v FROM t")
        run.catch_up()
        assert (stops(run), reread(run)) == (set(), {"d.t", "d.u"})


@pytest.mark.parametrize("why", ["a trigger", "a function", "a trigger that came since the last look", "a foreign key"])
def test_where_it_may_have_reached_others_they_stop_and_the_message_quotes_it(
    mysql: MysqlServer, tmp_path: Path, why: str
) -> None:
    trigger = "CREATE TRIGGER d.g AFTER UPDATE ON d.t FOR EACH ROW INSERT INTO d.u VALUES (NEW.id, 0)"
    made = {
        "a function": "CREATE FUNCTION d.f() RETURNS int BEGIN INSERT INTO d.u VALUES (5, 5); RETURN 1; END",
        "a foreign key": "CREATE TABLE crm.child (p int, FOREIGN KEY (p) REFERENCES d.t (id) ON DELETE CASCADE)",
    }.get(why, trigger)
    if "since" not in why:
        mysql.script(made)
    with LogRun(mysql, tmp_path, include="?.*") as run:
        mysql.script("INSERT INTO d.t VALUES (1, 1)")
        run.catch_up()
        if "since" in why:
            mysql.script(made)
        value = "d.f()" if why == "a function" else "'9'"
        mysql.script(AS_TEXT, f"UPDATE /* secret */ d.t SET v = {value} WHERE id = 1")
        run.read()
        expected = {"d.t", "d.u", "e.t"} if why == "a foreign key" else {"d.t", "d.u"}
        assert stops(run) == expected
        stopped = run.table("d.u").stopped
        assert stopped is not None and "secret" not in stopped.message and "'9'" not in stopped.message
        assert "`UPDATE d.t SET v = " in stopped.message and "WHERE id = ?` behind 0000" in stopped.message
        assert stopped.message.endswith(" UTC")


def test_who_may_not_see_triggers_has_all_tables_of_the_database_stopped(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.script("CREATE USER blind", "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind")
    if mysql.name != "mysql-8.0":
        mysql.script("GRANT XA_RECOVER_ADMIN ON *.* TO blind")
    with LogRun(mysql, tmp_path, include="?.*", user="blind") as run:
        run.catch_up()
        mysql.script(AS_TEXT, "INSERT INTO d.t VALUES (1, 1)")
        run.catch_up()
        assert (stops(run), reread(run)) == ({"d.t", "d.u"}, set())
