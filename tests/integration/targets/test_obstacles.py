"""Obstacles in a database that is the target, each with its object and the statement that mends it."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.conforming import log_of, no_spark
from support.database_copies import begin, settle
from support.lake import table_schema
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from support.resources import replicator
from support.versions import turns
from tailrace import targets
from tailrace.apply import applier
from tailrace.batch.applied import FIRST
from tailrace.changelog.records.terms import TableSchema
from tailrace.cli import main as cli
from tailrace.contract.resources import Replicator, TargetSpec
from tailrace.databases.postgresql.connect import database_errors
from tailrace.driver.telling.applied_report import Reporter
from tailrace.errors import AuthenticationFailed, Retry, TargetRefused, where_of
from tailrace.places import Places
from tailrace.targets.api import Obstacle, Opening, Runtime, Target, Unit

from .test_mysql_copies import demanding

PLACES = (("closed", "t"), ("open", "view"), ("open", "mine"), ("open", "copy"), ("open", "foreign"), ("open", "later"))
THERE = """
CREATE SCHEMA closed; CREATE SCHEMA open; GRANT USAGE, CREATE ON SCHEMA open TO "poor man";
CREATE VIEW open.view AS SELECT 1 AS a; CREATE TABLE open.mine (id bigint);
"""
ADDED = """
CREATE TABLE open.other (id bigint PRIMARY KEY);
ALTER TABLE open.copy ADD CONSTRAINT "to other" FOREIGN KEY (id) REFERENCES open.other;
ALTER TABLE open.copy ADD CONSTRAINT small CHECK (id < 1000);
CREATE UNIQUE INDEX ON open.copy (id, id);
CREATE FUNCTION open.act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER noisy AFTER INSERT ON open.copy FOR EACH ROW EXECUTE FUNCTION open.act();
CREATE TRIGGER loud AFTER INSERT ON open.copy FOR EACH ROW EXECUTE FUNCTION open.act();
ALTER TABLE open.copy ENABLE ALWAYS TRIGGER loud;
"""
STATE = """
CREATE SCHEMA _tailrace;
CREATE TABLE _tailrace.logs (); CREATE TABLE _tailrace.chunks ();
CREATE TABLE _tailrace.tables (place_schema text, place_name text, log_id text, relation bigint, hidden boolean);
INSERT INTO _tailrace.tables VALUES ('open', 'copy', 'log', 'open.copy'::regclass::oid, false),
    ('open', 'foreign', 'another', 'open.foreign'::regclass::oid, false);
CREATE ROLE other; ALTER SCHEMA _tailrace OWNER TO other;
ALTER TABLE _tailrace.logs OWNER TO other; ALTER TABLE _tailrace.tables OWNER TO other;
ALTER TABLE _tailrace.chunks OWNER TO other;
"""


def place(server: PostgresServer, **more: object) -> dict[str, object]:
    return {"type": "postgresql", "host": server.host, "port": server.port, "username": "poor man"} | more


def target_of(server: PostgresServer) -> Target:
    return targets.open(TargetSpec.model_validate(place(server, database="copy")))


def schemas() -> list[TableSchema]:
    found = [table_schema([("id", "int64")], ["id"], name=name, table_id=n) for n, (_, name) in enumerate(PLACES)]
    return [s.model_copy(update={"schema_name": p[0]}) for s, p in zip(found, PLACES, strict=True)]


def statements(fix: str) -> list[str]:
    return [part for part in fix.split("`")[1::2] if part.startswith(("GRANT", "ALTER", "DROP"))]


@pytest.mark.parametrize("major", turns(14, 18))
def test_each_obstacle_is_mended_by_its_statement(major: int) -> None:
    with PostgresServer(major) as server:

        def run(script: str) -> None:
            server.execute(script, dbname="copy")

        def found() -> dict[tuple[str, str | None], Obstacle]:
            return {(one.level, one.table): one for one in target_of(server).obstacles(schemas(), "log")}

        server.execute("CREATE DATABASE copy")
        server.execute('CREATE ROLE "poor man" LOGIN')
        with pytest.raises(TargetRefused, match="may not create schemas") as refused:
            target_of(server).examine()
        run(*statements(refused.value.fix))
        assert target_of(server).examine()
        run(THERE)
        first = found()
        assert set(first) == {("fail", None), ("fail", "open.view"), ("fail", "open.mine")}
        assert "view open.view" in first["fail", "open.view"].message
        for one in first.values():
            run(*statements(one.fix))
        assert found() == {}
        run("CREATE TABLE open.copy (id bigint PRIMARY KEY); CREATE TABLE open.foreign (id bigint)")
        run(STATE)
        run(*statements(found()["fail", None].fix))
        run("CREATE ROLE third")
        for fix in (0, 1):
            run("ALTER TABLE _tailrace.logs OWNER TO third; ALTER TABLE _tailrace.chunks OWNER TO third")
            closed = found()["fail", None]
            assert "_tailrace.chunks, _tailrace.logs" in closed.message and "third" in closed.message
            run(statements(closed.fix)[fix])
            assert ("fail", None) not in found()
        run('REVOKE CREATE ON DATABASE copy FROM "poor man"; ALTER SCHEMA closed RENAME TO shut')
        assert target_of(server).examine()
        run(*statements(found()["fail", None].fix))
        second = found()
        assert set(second) == {("fail", "open.copy"), ("fail", "open.foreign")}
        assert "belongs to change log another" in second["fail", "open.foreign"].message
        run(*statements(second["fail", "open.copy"].fix))
        run("DROP TABLE open.foreign")
        assert found() == {}
        run(ADDED)
        warned = [one for one in target_of(server).obstacles(schemas(), "log") if one.table == "open.copy"]
        assert {one.level for one in warned} == {"warn"} and len(warned) == 3
        acts, always, limits = (one.message for one in warned)
        assert 'constraint "to other", trigger noisy, which poor man may not switch off' in acts
        assert "trigger loud" in always and "constraint small, unique index copy_id_id1_idx" in limits
        run(statements(warned[0].fix)[0])
        after = [one for one in target_of(server).obstacles(schemas(), "log") if one.table == "open.copy"]
        assert len(after) == 2
        for one in after:
            run(*statements(one.fix))
        assert found() == {}


def test_the_source_as_the_target_is_refused_by_whatever_name_it_is_reached(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE copy")
    for target, refused in (("postgres", True), ("copy", False)):
        there = place(postgres, host="localhost", username="postgres", database=target)
        spec = Replicator.model_validate(replicator(source=postgres.source(), target=there)).spec
        if refused:
            with pytest.raises(TargetRefused, match="target and source are the same database"):
                Places(spec).require_other_database()
        else:
            Places(spec).require_other_database()


def test_a_password_file_of_the_target_that_is_missing_is_the_targets_fault(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    given = place(postgres, database="copy", passwordFile=f"{tmp_path}/none")
    with pytest.raises(AuthenticationFailed, match="cannot be read") as failed:
        targets.open(TargetSpec.model_validate(given)).examine()
    assert where_of(failed.value) == "target" and "target.passwordFile" in failed.value.fix


def test_mysql_names_what_is_in_the_way_and_the_source_as_the_target(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql.execute("CREATE DATABASE closed")
    mysql.execute("CREATE TABLE closed.t (id int)")
    there: dict[str, object] = {"type": "mysql", "host": mysql.host, "port": mysql.port, "username": "root"}
    target = targets.open(TargetSpec.model_validate(there))
    (found,) = target.obstacles(schemas(), None)
    assert (found.level, found.table) == ("fail", "closed.t")
    assert "DROP TABLE `closed`.`t`" in found.fix
    mysql.execute("DROP TABLE closed.t")
    assert target.obstacles(schemas(), None) == []
    (tmp_path / "log").mkdir()
    (schema, *_) = schemas()
    unit = target.units(Runtime(log_of(tmp_path), lambda: None, no_spark, "postgresql")).alone()
    unit.open({schema.table_id: Opening(schema, FIRST)}, "log")
    assert target.obstacles(schemas(), "log") == [] and target.lacking([("closed", "t"), ("a", "b")], "log") == [
        ("a", "b")
    ]
    assert list(unit.missing()) == []
    mysql.execute("ALTER TABLE closed.t ADD UNIQUE INDEX `two ``words` (id), ADD CONSTRAINT small CHECK (id < 9)")
    mysql.execute("CREATE TRIGGER closed.noisy BEFORE INSERT ON closed.t FOR EACH ROW SET NEW.id = 1")
    added = target.obstacles(schemas(), "log")
    assert [(one.level, one.table) for one in added] == [("warn", "closed.t")] * 3
    assert [word in one.message for word, one in zip(("small", "noisy", "`words"), added, strict=True)] == [True] * 3
    for one in added:
        (statement,) = re.findall("`((?:ALTER|DROP) .*)`", one.fix)
        mysql.execute(statement)
    assert target.obstacles(schemas(), "log") == []
    mysql.execute("DROP TABLE closed.t")
    assert set(unit.missing()) == {schema.table_id} and target.lacking([("closed", "t")], "log") == [("closed", "t")]
    source = {**there, "host": "localhost"}
    with pytest.raises(TargetRefused, match="target and source are the same database"):
        Places(Replicator.model_validate(replicator(source=source, target=there)).spec).require_other_database()


def test_nothing_is_written_before_target_and_source_could_be_compared(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """One of them was away at the start."""
    postgres.execute("CREATE DATABASE copy")
    (tmp_path / "log").mkdir()
    (schema, *_) = schemas()
    target = targets.open(TargetSpec.model_validate(place(postgres, username="postgres", database="copy")))
    said: list[Exception] = [Retry("the source is away"), TargetRefused("the same database")]

    def compared() -> None:
        raise said[0]

    def opened(compare: Callable[[], None]) -> Unit:
        unit = target.units(Runtime(log_of(tmp_path), lambda: None, no_spark, "mysql", compare)).alone()
        unit.open({schema.table_id: Opening(schema, FIRST)}, "log")
        return unit

    for error in list(said):
        with pytest.raises(type(error), match=str(error)):
            opened(compared)
        schemas_there = "SELECT 1 FROM pg_namespace WHERE nspname IN ('_tailrace', 'closed')"
        assert postgres.execute(schemas_there, dbname="copy") == []
        said.pop(0)
    opened(lambda: None)
    opened(compared)  # its copies are there: the source need not be


@pytest.mark.timeout(300)
def test_an_emptied_target_is_not_ready_and_an_idle_copy_that_is_gone_is_noticed(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.item (id int PRIMARY KEY); CREATE TABLE shop.visit (n int)")
    postgres.execute("ALTER TABLE shop.visit REPLICA IDENTITY FULL; INSERT INTO shop.visit VALUES (1), (2)")
    postgres.execute("INSERT INTO shop.item VALUES (1), (2)")
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.document["spec"]["retention"] = {"time": "1s"}
    copy.start()
    settle(copy)
    # Somebody publishes the copies: rows without a key can be deleted all the same.
    postgres.execute("CREATE PUBLICATION p FOR ALL TABLES", dbname="copy")
    postgres.execute("DELETE FROM shop.visit WHERE n = 1")
    settle(copy)
    assert postgres.execute("SELECT n FROM shop.visit", dbname="copy") == [(2,)]
    # Nothing changes in the source.
    monkeypatch.setattr(applier, "LOOK_SECONDS", 0.0)
    postgres.execute("DROP TABLE shop.item", dbname="copy")
    there = "SELECT id FROM shop.item ORDER BY 1"
    made_again = "SELECT to_regclass('shop.item') IS NOT NULL"
    copy.until(lambda _: postgres.execute(made_again, dbname="copy") == [(True,)], work=True)
    settle(copy)
    assert postgres.execute(there, dbname="copy") == [(1,), (2,)]

    def doctor() -> str:
        cli.main(["doctor", "-f", str(copy.manifest)])
        return capsys.readouterr().out

    time.sleep(1.1)
    driver = copy.driver
    Reporter(driver.client, driver.progress, lambda: 60.0).report(driver.journal.refresh(), force=True)
    copy.stop()  # retention runs at the latest now
    assert doctor().endswith("\nready\n")
    postgres.execute("DROP DATABASE copy WITH (FORCE)")
    postgres.execute("CREATE DATABASE copy")
    text = doctor()
    assert text.endswith("\nnot ready\n"), text
    assert "fail shop.item: the target has no copy of this table, which was copied before" in text, text
    assert "tailrace snapshot -f <manifest> --tables shop.item" in text, text


ADOPTED = """
CREATE SCHEMA open; CREATE TABLE open.copy (id bigint GENERATED ALWAYS AS IDENTITY, name text,
    "two words" varchar(9) NOT NULL, price int,
    sum int GENERATED ALWAYS AS (1) STORED, twice numeric(9,2) GENERATED ALWAYS AS (2) STORED, more int);
ALTER TABLE open.copy ADD PRIMARY KEY (price); ALTER TABLE open.copy OWNER TO other; INSERT INTO open.copy
    ("two words", price) VALUES ('a', 1);
"""


def test_what_keeps_a_table_from_being_taken_over_is_mended_by_its_statement(postgres: PostgresServer) -> None:
    def run(script: str) -> None:
        postgres.execute(script, dbname="copy")

    postgres.execute("CREATE DATABASE copy")
    postgres.execute('CREATE ROLE other; CREATE ROLE "poor man" LOGIN')
    postgres.execute('GRANT CREATE ON DATABASE copy TO "poor man"; GRANT other TO "poor man"')
    run(
        ADOPTED
        + 'GRANT ALL ON SCHEMA open TO "poor man", other; CREATE TABLE open.part (id int) PARTITION BY LIST (id)'
    )
    columns = [("id", "int64"), ("name", "string"), ("two words", "string"), ("price", "decimal(9,2)"),
               ("twice", "decimal(9,2)"), ("at", "timestamptz")]  # fmt: skip
    copy = table_schema(columns, ["id", "name"], name="copy").model_copy(update={"schema_name": "open"})
    part = copy.model_copy(update={"table_name": "part", "table_id": 9})
    target = targets.open(TargetSpec.model_validate(place(postgres, database="copy", adopt=True)))
    (divided, *_) = target.obstacles([part], "log")
    assert "no plain table" in divided.message and statements(divided.fix) == ['DROP TABLE "open"."part"']
    run('REVOKE other FROM "poor man"; GRANT SELECT ON open.copy TO "poor man"')
    told = []
    for _ in range(3):  # what keeps it from being looked at, its rows, the rest
        for one in target.obstacles([copy], "log"):
            told.append(one.message.removeprefix("table open.copy of the target is not taken over: "))
            (statement,) = re.findall("`((?:ALTER|TRUNCATE) .*)`", one.fix)
            run(statement)
    assert target.obstacles([copy], "log") == []
    run("CREATE PUBLICATION tailrace_shop_12ab34cd FOR TABLE open.copy; CREATE PUBLICATION tailraces FOR ALL TABLES")
    (ring,) = target.obstacles([copy], "log")
    assert "(publication tailrace_shop_12ab34cd): changes would go round" in ring.message
    assert ring.fix == "Add open.copy to tables.exclude of one of the two Replicators."
    assert told == [
        "poor man does not own it",
        "it has rows",
        "column 'id' takes no given values",
        "column 'two words' is character varying(9), not text",
        "column 'price' is integer, not numeric(9,2)",
        "column 'twice' is generated",
        "column 'at' is missing",
        "the source has no column 'more'",
        "the source's key is id, name",
        "column 'two words' is NOT NULL",
        "column 'price' is NOT NULL",
    ]


@pytest.mark.postgres(18)
def test_columns_that_depend_on_others_are_named_or_made_again(postgres: PostgresServer) -> None:
    """What readers compute has no values that could stay; the type of what a view shows cannot change."""
    postgres.execute("CREATE TABLE public.copy (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2))")
    schema = table_schema([("id", "int64"), ("twice", "int64")], ["id"], name="copy")
    schema = schema.model_copy(update={"schema_name": "public"})
    there = place(postgres, username="postgres", database="postgres", adopt=True)
    target = targets.open(TargetSpec.model_validate(there))
    (generated,) = target.obstacles([schema], "log")
    assert "column 'twice' is generated" in generated.message
    (statement,) = statements(generated.fix)
    postgres.execute(statement)
    assert target.obstacles([schema], "log") == []

    postgres.execute("CREATE VIEW public.seen AS SELECT id FROM public.copy")
    refused = pytest.raises(TargetRefused, match=r"column used by a view.*view seen depends")
    with refused as told, database_errors("altering", "target"):
        postgres.execute("ALTER TABLE public.copy ALTER id TYPE int")
    assert told.value.fix == "Drop what depends on it; it can be created again afterwards."


DOMAINS = """
CREATE SCHEMA shop; CREATE DOMAIN shop.code AS varchar(9); CREATE DOMAIN shop.part AS shop.code CHECK (VALUE <> '');
CREATE DOMAIN shop.price AS numeric(9,2) NOT NULL; CREATE DOMAIN shop.fee AS numeric(9,2);
CREATE DOMAIN shop.tags AS text[];
CREATE TYPE shop.mood AS ENUM ('sad', 'glad'); CREATE DOMAIN shop.feeling AS shop.mood;
CREATE TABLE shop.item (part shop.part, n int, price shop.price, tags shop.tags, mood shop.feeling,
    fees shop.fee[], note text, PRIMARY KEY (part, n)); ALTER TABLE shop.item ALTER note SET STORAGE EXTERNAL;
CREATE TABLE shop.visit (n int PRIMARY KEY);
"""
OTHER_DOMAIN = "CREATE DOMAIN shop.cheap AS numeric(8,2); ALTER TABLE shop.item ALTER price TYPE shop.cheap"


@pytest.mark.timeout(300)
def test_columns_of_domains_are_taken_over_with_their_rules(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(DOMAINS)
    postgres.execute(DOMAINS + OTHER_DOMAIN, dbname="copy")
    postgres.execute(
        "INSERT INTO shop.item SELECT 'p' || n % 3, n, n / 7.0, ARRAY[NULL, 'a'], 'sad', '{1,2.5}', repeat('x', 3000)"
        " FROM generate_series(1, 90) n"
    )

    def rows(dbname: str) -> list[Any]:
        return postgres.execute("SELECT i::text FROM shop.item i ORDER BY part, n", dbname=dbname)

    copy = begin(postgres.source(), postgres, tmp_path, chunk_rows=20, adopt=True)
    with copy.running():
        copy.until(lambda _: copy.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
        refused = copy.driver.control.status().tables[0].fault
        assert refused is not None and refused.message.endswith(
            "column 'price' is domain shop.cheap over numeric(8,2), not numeric(9,2)"
        )
        (statement,) = re.findall("`(ALTER .*)`", refused.fix)
        assert "TYPE numeric(9,2) USING" in statement
        postgres.execute("ALTER TABLE shop.item ALTER price TYPE shop.price", dbname="copy")
        copy.until(lambda _: not copy.driver.faults(), work=True)
        settle(copy)
        assert rows("copy") == rows("postgres")
        postgres.execute(
            "UPDATE shop.item SET price = price + 1, mood = 'glad', fees = NULL WHERE n < 30; DELETE FROM shop.item"
            " WHERE n > 80; UPDATE shop.item SET part = 'q', tags = '{}' WHERE n BETWEEN 20 AND 40"
        )
        settle(copy)
        assert rows("copy") == rows("postgres")
        postgres.execute("ALTER DOMAIN shop.price ADD CONSTRAINT low CHECK (VALUE < 100)", dbname="copy")
        postgres.execute("UPDATE shop.item SET price = 200 WHERE n = 1")
        copy.until(lambda _: copy.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
        stopped = copy.driver.control.status().tables[0].fault
        assert stopped is not None and "value for domain shop.price violates check constraint" in stopped.message
        postgres.execute("ALTER DOMAIN shop.price DROP CONSTRAINT low", dbname="copy")
        copy.until(lambda _: not copy.driver.faults(), work=True)
        settle(copy)
        assert rows("copy") == rows("postgres")
    kinds = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'shop.item'::regclass"
    kinds += " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    assert postgres.execute(kinds, dbname="copy") == postgres.execute(kinds)


@pytest.mark.timeout(300)
def test_tables_that_fit_are_taken_over_with_all_that_people_have_given_them(
    postgres: PostgresServer, mysql: MysqlServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE DATABASE copy")
    made = (
        "CREATE SCHEMA shop; CREATE TABLE shop.item (id serial PRIMARY KEY, name text DEFAULT 'none', n int, k int);"
        " CREATE INDEX by_name ON shop.item (name); CREATE TABLE shop.visit (n int)"
    )
    postgres.execute(made)
    postgres.execute("ALTER TABLE shop.visit REPLICA IDENTITY FULL; INSERT INTO shop.visit VALUES (1), (1), (2)")
    postgres.execute("INSERT INTO shop.item (n) SELECT n FROM generate_series(1, 9) n")
    postgres.execute(made + "; INSERT INTO shop.item VALUES (99)", dbname="copy")
    mysql.execute("CREATE DATABASE shop")
    collation = "utf8mb4_nopad_bin" if "MariaDB" in mysql.execute("SELECT version()")[0][0] else "utf8mb4_0900_bin"
    mysql.execute(
        "CREATE TABLE shop.item (id int NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'it''s \\\\ \"one\"',"
        f" name longtext COLLATE {collation}, n int, k int DEFAULT 7 COMMENT 'of (it)',"
        " KEY by_n (n)) COMMENT='mine'"
    )
    mysql.execute("CREATE TABLE shop.visit (n int)")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = [begin(postgres.source(), server, folder, adopt=True)
            for server, folder in ((postgres, tmp_path / "a"), (mysql, tmp_path / "b"))]  # fmt: skip

    def of_copy(sql: str) -> list[Any]:
        return postgres.execute(sql, dbname="copy")

    first = both[0]
    first.start()
    first.until(lambda _: first.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
    assert of_copy("SELECT count(*) FROM shop.item") == [(1,)]
    postgres.execute("DELETE FROM shop.item", dbname="copy")
    first.until(lambda _: not first.driver.faults(), work=True)
    first.stop()
    for copy, rows in zip(both, (of_copy, mysql.execute), strict=True):
        copy.start()
        settle(copy)
        postgres.execute("UPDATE shop.item SET n = n + 10 WHERE id < 4; DELETE FROM shop.visit WHERE n = 2")
        postgres.execute("ALTER TABLE shop.item RENAME n TO m; UPDATE shop.item SET name = 'x' WHERE id = 9")
        settle(copy)
        assert rows("SELECT id, name, m FROM shop.item ORDER BY id") == postgres.execute(
            "SELECT id, name, m FROM shop.item ORDER BY id"
        )
        assert rows("SELECT n FROM shop.visit") == [(1,), (1,)]
        copy.stop()
        copy.start()
        settle(copy)
        copy.stop()
        postgres.execute("ALTER TABLE shop.item RENAME m TO n; INSERT INTO shop.visit VALUES (2)")
    kept = postgres.execute("SELECT relname FROM pg_class WHERE relname IN ('by_name', 'item_id_seq')", dbname="copy")
    assert sorted(kept) == [("by_name",), ("item_id_seq",)]
    ((_, text),) = mysql.execute("SHOW CREATE TABLE shop.item")
    assert all(re.search(part, text) for part in ("KEY `by_n`", "`k` int.* DEFAULT '?7'?", "`id` int.* AUTO_INCREMENT"))


def test_mysql_tables_are_mended_and_taken_over_again_after_a_death(mysql: MysqlServer, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    mysql.execute("CREATE DATABASE open")
    mysql.execute(
        "CREATE TABLE open.copy (id bigint, name varchar(9), at datetime(6) AS ('2020-01-01') STORED,"
        " price int NOT NULL, more int) ENGINE=MyISAM"
    )
    mysql.execute("INSERT INTO open.copy (id, price) VALUES (1, 1)")
    columns = [("id", "int64"), ("name", "string"), ("at", "timestamp"), ("price", "int32"), ("born", "date")]
    copy = table_schema(columns, ["id"], name="copy").model_copy(update={"schema_name": "open"})
    there = {"type": "mysql", "host": mysql.host, "port": mysql.port, "username": "root", "adopt": True}
    target = targets.open(TargetSpec.model_validate(there))
    told = []
    for _ in range(2):  # its rows, the rest
        for one in target.obstacles([copy], "log"):
            told.append(one.message.partition(": ")[2])
            (statement,) = re.findall("`((?:ALTER|TRUNCATE) .*)`", one.fix)
            mysql.execute(statement)
    assert target.obstacles([copy], "log") == []
    assert [re.sub(r" is varchar.*", " is other", text) for text in told] == [
        "it has rows",
        "its engine is MyISAM",
        "column 'name' is other",
        "column 'at' is generated",
        "column 'price' is NOT NULL",
        "column 'born' is missing",
        "the source has no column 'more'",
        "the source's key is id",
    ]
    with demanding(mysql, sql_require_primary_key="ON"):
        assert target.obstacles([copy], "log") == []
        for _ in range(2):
            units = target.units(Runtime(log_of(tmp_path), lambda: None, no_spark, "mysql"))
            unit = units.alone()
            unit.open({copy.table_id: Opening(copy, FIRST)}, "log")
            assert list(unit.missing()) == [] and target.obstacles([copy], "log") == []
            mysql.execute("ALTER TABLE open.copy COMMENT = ''")  # as it is after the record was written
