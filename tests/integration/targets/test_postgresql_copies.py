"""Copies in a PostgreSQL database: rows, types, columns, keys, rows without a key; out of MySQL as well."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from psycopg import IsolationLevel
from pyspark.sql import SparkSession

from support.conforming import Database, LogOf, Table, log_of
from support.counted_log import SCHEMA, TABLE
from support.database_copies import DEFERRED, SHOP, STEPS, TABLES, LogOfCopies, begin, overtaken, settle
from support.lake import table_schema
from support.mysql import MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.random_log import first_schema
from tailrace import targets
from tailrace.batch.applied import FIRST
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.cli import main as cli
from tailrace.cli import staying
from tailrace.contract.resources import TargetSpec
from tailrace.errors import InvalidManifest, TableStop, TargetRefused
from tailrace.targets.api import Opening, Runtime, TableFailed, Units
from tailrace.targets.postgresql import session
from tailrace.targets.sql.state import SCHEMA as STATE
from tailrace.targets.sql.unit import SqlUnit


def texts(server: PostgresServer, table: str, dbname: str) -> list[tuple[Any, ...]]:
    """Rows as the server writes them, columns in order of their names."""
    with server.connect(dbname) as connection:
        found = connection.execute(
            "SELECT string_agg(format('%%I::text', column_name), ', ' ORDER BY column_name)"
            " FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = %s",
            [table],
        ).fetchone()
        if found is None or found[0] is None:
            return []
        rows = connection.execute(f"SELECT {found[0]} FROM shop.{table}".encode()).fetchall()
    return sorted(rows, key=repr)


def no_spark() -> SparkSession:
    raise AssertionError("no JVM is needed")


@pytest.mark.timeout(300)
def test_rows_types_columns_and_keys_arrive_as_they_are(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(SHOP)
    postgres.execute(DEFERRED)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    for table in TABLES:
        assert texts(postgres, table, "copy") == texts(postgres, table, "postgres") != []
    # People add to a copy what the source does not have: values are exchanged between keys.
    postgres.execute("CREATE UNIQUE INDEX ON shop.item (code)", dbname="copy")
    for number, step in enumerate(STEPS):
        if number == len(STEPS) // 2:
            copy.stop()
            copy.start()
        postgres.execute(step)
        settle(copy)
        for table in TABLES:
            assert texts(postgres, table, "copy") == texts(postgres, table, "postgres"), step
    members = postgres.execute(f"SELECT count(*) FROM {STATE}.tables WHERE member", dbname="copy")
    assert members == [(2,)]
    copy.stop()


def test_a_copy_stays_at_a_time_between_two_transactions_and_goes_on(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(SHOP)
    copy = begin(postgres.source(), postgres, tmp_path)
    with copy.running():
        settle(copy)
        postgres.execute("BEGIN; UPDATE shop.item SET price = 1; DELETE FROM shop.visit WHERE a = 1; COMMIT")
        held = {table: texts(postgres, table, "postgres") for table in TABLES}
        time.sleep(0.3)  # longer than a record
        moment = datetime.now(UTC)
        time.sleep(0.3)
        postgres.execute("BEGIN; UPDATE shop.item SET price = 2; TRUNCATE shop.visit; COMMIT")
        with copy.source.session() as session:
            end = session.log_end()
        copy.until(lambda state: state.position >= end)
        with pytest.raises(InvalidManifest, match="others up to that time may still come"):
            staying.record(copy.replicator, datetime.now(UTC).isoformat(), False)
    copy.stop_at = staying.record(copy.replicator, moment.isoformat(), False)
    with copy.running():
        copy.until(lambda _: copy.driver.applier.through == copy.stop_at and not list(late(copy)), work=True)
        for _ in range(20):
            copy.turn()
        assert {table: texts(postgres, table, "copy") for table in TABLES} == held
    copy.stop_at = None
    with copy.running():
        settle(copy)
        assert {table: texts(postgres, table, "copy") for table in TABLES} != held
        for table in TABLES:
            assert texts(postgres, table, "copy") == texts(postgres, table, "postgres")


def late(copy: Pipeline) -> Iterator[str]:
    """Tables that do not hold the record at which they are to stay."""
    assert copy.stop_at is not None
    for table in copy.driver.control.status().tables:
        if table.applied_record < copy.stop_at:
            yield table.name


@pytest.mark.timeout(300)
def test_what_is_there_and_is_not_ours_is_refused_and_left_alone(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(SHOP)
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.item AS SELECT 1 AS mine", dbname="copy")
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    copy.until(lambda _: copy.driver.faults(), work=True)
    assert copy.driver.faults() == {"shop.item": "TargetRefused"}
    assert postgres.execute("SELECT * FROM shop.item", dbname="copy") == [(1,)]
    copy.stop()


UNUSUAL = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "DateStyle": "'SQL, DMY'",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "extra_float_digits": "-15",
    "IntervalStyle": "sql_standard",
    "search_path": "nowhere",
    "standard_conforming_strings": "off",
    "statement_timeout": "1",
    "TimeZone": "'Asia/Kathmandu'",
    "xmloption": "document",
}
PAIR = """
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, n int);
CREATE TABLE shop.visit (id int PRIMARY KEY, item int);
INSERT INTO shop.item SELECT n, n FROM generate_series(1, 9) n;
INSERT INTO shop.visit SELECT n, n FROM generate_series(1, 9) n;
"""


@pytest.mark.timeout(300)
def test_a_table_that_took_the_place_of_a_copy_is_left_alone(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(PAIR)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    away = "ALTER TABLE shop.item RENAME TO old; CREATE TABLE shop.item (id int PRIMARY KEY, n int)"
    postgres.execute(away, dbname="copy")
    postgres.execute("UPDATE shop.item SET n = 0")
    copy.until(lambda _: copy.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
    assert postgres.execute("SELECT * FROM shop.item", dbname="copy") == []
    postgres.execute("DROP TABLE shop.item; ALTER TABLE shop.old RENAME TO item", dbname="copy")
    copy.until(lambda _: not copy.driver.faults(), work=True)
    settle(copy)
    assert texts(postgres, "item", "copy") == texts(postgres, "item", "postgres")
    copy.stop()
    postgres.execute(away, dbname="copy")
    targets.open(copy.replicator.spec.target).removal(no_spark).drop(("shop", "item"))
    assert postgres.execute("SELECT * FROM shop.item", dbname="copy") == []


@pytest.mark.postgres(18)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "added",
    [
        "ALTER TABLE shop.visit ADD FOREIGN KEY (item) REFERENCES shop.item ON DELETE CASCADE",
        "CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := -1; RETURN NEW; END';"
        " CREATE TRIGGER t BEFORE INSERT ON shop.item FOR EACH ROW EXECUTE FUNCTION shop.f()",
    ],
)
def test_what_people_add_to_a_copy_does_not_change_rows(postgres: PostgresServer, tmp_path: Path, added: str) -> None:
    """The role may not switch it off at first."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    postgres.execute(PAIR)
    copy = begin(postgres.source(), postgres, tmp_path, "plain")
    copy.start()
    settle(copy)
    postgres.execute(added, dbname="copy")
    postgres.execute("UPDATE shop.item SET n = 0 WHERE id < 5")
    copy.until(lambda _: copy.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
    postgres.execute("GRANT SET ON PARAMETER session_replication_role TO plain")
    copy.until(lambda _: not copy.driver.faults(), work=True)
    settle(copy)
    for table in TABLES:
        assert texts(postgres, table, "copy") == texts(postgres, table, "postgres")
    copy.stop()


FAMILY = """
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, part_of int, code int NOT NULL);
CREATE TABLE shop.visit (id int PRIMARY KEY, item int NOT NULL);
INSERT INTO shop.item VALUES (1, NULL, 1), (2, 1, 2), (3, 3, 3);
INSERT INTO shop.visit SELECT n, n FROM generate_series(1, 3) n;
"""
KEYS = """
ALTER TABLE shop.item ADD UNIQUE (code){0}, ADD FOREIGN KEY (part_of) REFERENCES shop.item{0};
ALTER TABLE shop.visit ADD FOREIGN KEY (item) REFERENCES shop.item{0};
"""
TRANSACTIONS = (
    "UPDATE shop.item SET part_of = 3 - id WHERE id < 3",
    "UPDATE shop.item SET code = 3 - code WHERE id < 3",
    "INSERT INTO shop.visit VALUES (9, 9); INSERT INTO shop.item VALUES (9, 8, 9), (8, 9, 8)",
    "UPDATE shop.visit SET item = 10 WHERE item = 9; UPDATE shop.item SET id = 10, part_of = 10 WHERE id = 9;"
    " UPDATE shop.item SET part_of = NULL WHERE id = 8",
    "DELETE FROM shop.item WHERE id = 3; DELETE FROM shop.visit WHERE item = 3",
)


@pytest.mark.postgres(18)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("username", "kind"), [("plain", " DEFERRABLE"), ("postgres", "")])
def test_foreign_and_unique_keys_of_copies_hold_at_the_end_of_each_transaction(
    postgres: PostgresServer, tmp_path: Path, username: str, kind: str
) -> None:
    """Also of tables that refer to themselves or to each other; a role that may not switch them off defers them."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    postgres.execute(FAMILY)
    copy = begin(postgres.source(), postgres, tmp_path, username)
    with copy.running():
        settle(copy)
        postgres.execute(KEYS.format(kind), dbname="copy")
        for transaction in TRANSACTIONS:
            postgres.execute(transaction)
            settle(copy)
            for table in TABLES:
                assert texts(postgres, table, "copy") == texts(postgres, table, "postgres"), transaction
        if username == "plain":
            postgres.execute("INSERT INTO shop.visit VALUES (77, 77); UPDATE shop.item SET code = 44 WHERE id = 1")
            copy.until(lambda _: copy.driver.faults() == {"shop.visit": "TargetRefused"}, work=True)
            code = "SELECT code FROM shop.item WHERE id = 1"
            copy.until(lambda _: postgres.execute(code, dbname="copy") == [(44,)], work=True)
            postgres.execute("INSERT INTO shop.item VALUES (77, NULL, 77)")
            copy.until(lambda _: not copy.driver.faults(), work=True)
            settle(copy)
            assert texts(postgres, "visit", "copy") == texts(postgres, "visit", "postgres")


@pytest.mark.timeout(300)
def test_different_tables_may_go_in_opposite_directions(postgres: PostgresServer, tmp_path: Path) -> None:
    """No change comes back: each side's log has its own tables only, and neither copy is read."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(PAIR)
    postgres.execute(PAIR.replace("shop", "back"), dbname="copy")
    here, there = postgres.source(), postgres.source() | {"database": "copy"}
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    first = begin(here, postgres, tmp_path / "there")
    second = begin(there, postgres, tmp_path / "back", include="back.*", database="postgres")
    with first.running(), second.running():
        for number in range(5):
            postgres.execute(f"UPDATE shop.item SET n = n + {number}; INSERT INTO shop.visit VALUES ({20 + number}, 1)")
            postgres.execute(f"UPDATE back.item SET n = n - {number}; DELETE FROM back.visit WHERE id = {number}",
                             dbname="copy")  # fmt: skip
            settle(first)
            settle(second)
        for table, own, other in (("item", first, second), ("visit", first, second)):
            assert {t.schema.schema_name for t in own.state.tables.values()} == {"shop"}
            assert {t.schema.schema_name for t in other.state.tables.values()} == {"back"}
            for schema in ("shop", "back"):
                rows = f"SELECT * FROM {schema}.{table} ORDER BY id"
                assert postgres.execute(rows) == postgres.execute(rows, dbname="copy") != []


@pytest.mark.timeout(300)
def test_values_arrive_whatever_the_role_has_been_given(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    for name, value in UNUSUAL.items():
        postgres.execute(f"ALTER ROLE plain SET {name} = {value}")
    postgres.execute(SHOP + DEFERRED)
    copy = begin(postgres.source(), postgres, tmp_path, "plain")
    copy.start()
    settle(copy)
    postgres.execute("UPDATE shop.item SET price = 0 WHERE id < 9; DELETE FROM shop.visit WHERE a = 1")
    settle(copy)
    for table in TABLES:
        assert texts(postgres, table, "copy") == texts(postgres, table, "postgres") != []
    copy.stop()


@pytest.mark.timeout(300)
def test_missing_rights_are_named_with_the_statement_that_grants_them(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; REVOKE TEMPORARY ON DATABASE copy FROM public")
    postgres.execute(PAIR)
    postgres.execute("CREATE SCHEMA shop", dbname="copy")
    copy = begin(postgres.source(), postgres, tmp_path, "plain")
    target = targets.open(copy.replicator.spec.target)
    for right in ("CREATE", "TEMPORARY"):
        statement = f'GRANT {right} ON DATABASE "copy" TO "plain"'
        with pytest.raises(TargetRefused, match=re.escape(statement)):
            target.examine()
        postgres.execute(statement)
    assert target.examine()
    units = target.units(Runtime(copy.storage, lambda: None, no_spark, "postgresql"))
    schema = table_schema([("id", "int64")], ["id"]).model_copy(update={"schema_name": "shop"})
    with pytest.raises(TableFailed, match='GRANT CREATE ON SCHEMA "shop" TO "plain"'):
        units.alone().open({schema.table_id: Opening(schema, FIRST)}, "log")
    for long in ({"schema_name": "s" * 64}, {"table_name": "ß" * 32}):
        with pytest.raises(TableStop, match="63 bytes"):
            target.shown(schema.model_copy(update=long))


@pytest.mark.timeout(300)
def test_rows_of_a_table_that_inherits_from_a_copy_are_left_alone(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(PAIR)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    postgres.execute(
        "CREATE TABLE shop.mine () INHERITS (shop.item); INSERT INTO shop.mine VALUES (3, 3)", dbname="copy"
    )
    postgres.execute("DELETE FROM shop.item WHERE id = 3")
    copy.until(lambda _: copy.driver.faults() == {"shop.item": "TargetRefused"}, work=True)
    assert postgres.execute("SELECT * FROM shop.mine", dbname="copy") == [(3, 3)]
    postgres.execute("ALTER TABLE shop.mine NO INHERIT shop.item", dbname="copy")
    copy.until(lambda _: not copy.driver.faults(), work=True)
    settle(copy)
    assert texts(postgres, "item", "copy") == texts(postgres, "item", "postgres")
    assert postgres.execute("SELECT * FROM shop.mine", dbname="copy") == [(3, 3)]
    copy.stop()


@pytest.mark.timeout(300)
def test_the_copies_are_dropped_with_their_state(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(SHOP)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    copy.stop()
    postgres.execute("CREATE TABLE shop.other (a int)", dbname="copy")
    removal = targets.open(copy.replicator.spec.target).removal(no_spark)
    postgres.execute("DROP TABLE _tailrace.keys_of_chunks", dbname="copy")  # as an earlier version left it
    postgres.execute("CREATE VIEW shop.seen AS SELECT id FROM shop.item", dbname="copy")
    with pytest.raises(TargetRefused, match=r"view shop\.seen depends on table shop\.item"):
        removal.drop(("shop", "item"))
    postgres.execute("DROP VIEW shop.seen", dbname="copy")
    for table in TABLES:
        owner = removal.owner(("shop", table))
        assert owner is not None and not owner.altered and removal.exists(("shop", table))
        removal.drop(("shop", table))
        assert not removal.exists(("shop", table)) and removal.owner(("shop", table)) is None
    removal.finish("log")
    left = postgres.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('shop', '_tailrace')", dbname="copy")
    assert left == [("shop",)] and postgres.execute("SELECT * FROM shop.other", dbname="copy") == []
    postgres.execute("DROP DATABASE copy WITH (FORCE)")
    gone = targets.open(copy.replicator.spec.target).removal(no_spark)
    assert not gone.exists(("shop", "item")) and gone.owner(("shop", "item")) is None
    gone.drop(("shop", "item"))
    gone.finish("log")


@pytest.mark.timeout(300)
def test_rows_out_of_mysql_arrive(mysql: MysqlServer, postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    mysql.execute("CREATE DATABASE shop")
    mysql.execute(
        "CREATE TABLE shop.item (id bigint unsigned PRIMARY KEY, name varchar(20), price decimal(9,2), at datetime(6))"
    )
    mysql.execute("INSERT INTO shop.item VALUES (18446744073709551615, 'a\\tb', 1.50, '2020-01-02 03:04:05.000006')")
    mysql.execute("INSERT INTO shop.item (id) VALUES (2)")
    copy = begin({"type": "mysql", "host": mysql.host, "port": mysql.port, "username": "root"}, postgres, tmp_path)
    copy.start()
    settle(copy)
    mysql.execute("UPDATE shop.item SET name = 'changed' WHERE id = 2")
    settle(copy)
    assert texts(postgres, "item", "copy") == [
        ("2020-01-02 03:04:05.000006", "18446744073709551615", "a\tb", "1.50"),
        (None, "2", "changed", None),
    ]
    copy.stop()


@pytest.mark.timeout(300)
def test_many_tables_are_created_at_once(postgres: PostgresServer, tmp_path: Path) -> None:
    """Each by a session of its own: none of them finds schemas or state that another is just creating."""
    postgres.execute("CREATE DATABASE copy")
    (tmp_path / "log").mkdir()
    place = {"type": "postgresql", "host": postgres.host, "port": postgres.port, "username": "postgres"}
    target = targets.open(TargetSpec.model_validate({**place, "database": "copy"}))
    for turn in range(3):
        units, together = target.units(Runtime(log_of(tmp_path), lambda: None, no_spark, "mysql")), Barrier(8)

        def opened(number: int, units: Units = units, together: Barrier = together, turn: int = turn) -> bool:
            made = table_schema([("id", "int64")], ["id"], name=f"t{number}", table_id=100 * turn + number)
            schema = made.model_copy(update={"schema_name": f"s{turn}"})
            together.wait()
            (found,) = units.alone().open({schema.table_id: Opening(schema, FIRST)}, "log").values()
            return found.level

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(opened, range(8)))
        if not turn:
            postgres.execute("DROP SCHEMA _tailrace CASCADE; DROP SCHEMA s0 CASCADE", dbname="copy")


@pytest.mark.timeout(300)
def test_rows_without_a_key_are_as_many_as_in_the_source(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = session.FEW
    for seed in range(12):
        monkeypatch.setattr(session, "FEW", seed % 2 and few)
        folder, rnd = tmp_path / str(seed) / "log", Random(seed)
        folder.mkdir(parents=True)
        table = Table(Database(tmp_path / str(seed), postgres), SCHEMA)
        log, read = LogOfCopies(rnd, folder, table), False
        for _ in range(rnd.randint(2, 6)):
            log.grow()
            part = cut(log.state, TABLE, table.applied, RecordNumber(log.record))
            if part is not None:
                read |= bool(part.chunks)
                table.apply(part)
            if read:
                assert Counter(postgres.execute("SELECT n, t FROM public.t")) == +log.rows, f"seed {seed}"
        postgres.execute("DROP SCHEMA _tailrace CASCADE; DROP TABLE public.t")


@pytest.mark.timeout(300)
def test_a_table_that_fails_does_not_have_all_others_opened_again(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hundreds fail, that is much."""
    (tmp_path / "log").mkdir()
    postgres.execute("CREATE TABLE t2 (a int)")
    group, asked = Database(tmp_path, postgres).units(lambda: None).group(), list[int]()
    assert isinstance(group, SqlUnit)
    opened = SqlUnit._opened

    def count(unit: SqlUnit, session: Any, opening: Opening, log_id: str) -> Any:
        asked.append(opening.schema.table_id)
        return opened(unit, session, opening, log_id)

    monkeypatch.setattr(SqlUnit, "_opened", count)
    tables = {n: Opening(table_schema([("id", "int64")], ["id"], name=f"t{n}", table_id=n), FIRST) for n in (1, 2, 3)}
    with pytest.raises(TableFailed, match="table 2"):
        group.open(tables, "log")
    del tables[2]
    assert set(group.open(tables, "log")) == {1, 3} and asked == [1, 2, 3]
    group.open(tables, "log")
    assert asked == [1, 2, 3, 1, 3]


@pytest.mark.timeout(300)
def test_a_tables_staged_chunks_are_dropped_one_by_one(postgres: PostgresServer, tmp_path: Path) -> None:
    """All at once, they would need more locks than the server has."""
    (tmp_path / "log").mkdir()
    table, locked = Table(Database(tmp_path, postgres), SCHEMA), list[int]()
    for number in range(3):
        table.unit.chunk_writer(SCHEMA).write("s", number, [pa.table({"n": [1], "t": ["a"]})])

    def count() -> None:
        ((locks,),) = postgres.execute("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'")
        locked.append(locks)

    place = {"type": "postgresql", "host": postgres.host, "port": postgres.port, "username": "postgres"}
    target = targets.open(TargetSpec.model_validate({**place, "database": "postgres"}))
    target.removal(no_spark).drop(("public", "t"), count)
    assert locked == [0] * 4 and not postgres.execute("SELECT 1 FROM pg_class WHERE relname ~ '^chunk_'")


@pytest.mark.timeout(300)
def test_a_wider_column_does_not_empty_the_copy_for_older_transactions(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(SHOP + "ALTER TABLE shop.item ALTER code TYPE varchar(9)")
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    with postgres.connect("copy", autocommit=False) as reader:
        reader.isolation_level = IsolationLevel.REPEATABLE_READ
        assert reader.execute("SELECT count(*) FROM shop.visit").fetchone() == (30,)
        postgres.execute("ALTER TABLE shop.item ALTER code TYPE varchar(99), ALTER price TYPE numeric(12,2)")
        postgres.execute("UPDATE shop.item SET code = repeat('c', 99), price = 9999999999 WHERE id = 1")
        settle(copy)
        assert texts(postgres, "item", "copy") == texts(postgres, "item", "postgres")
        assert reader.execute("SELECT count(*) FROM shop.item").fetchone() == (50,)
        reader.rollback()
    copy.stop()


@pytest.mark.timeout(300)
def test_who_may_read_a_copy_may_read_the_one_that_replaces_it(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(PAIR)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    postgres.execute('CREATE ROLE "Re ader"')
    postgres.execute('GRANT SELECT, UPDATE ON shop.item TO "Re ader" WITH GRANT OPTION', dbname="copy")
    postgres.execute("GRANT SELECT ON shop.item TO PUBLIC", dbname="copy")
    rights = "SELECT oid, relacl::text FROM pg_class WHERE oid = 'shop.item'::regclass"
    ((before, granted),) = postgres.execute(rights, dbname="copy")
    copy.ask("shop.item", resync=True)
    copy.until(lambda _: postgres.execute(rights, dbname="copy") != [(before, granted)], work=True)
    settle(copy)
    ((_, since),) = postgres.execute(rights, dbname="copy")
    assert sorted(since.strip("{}").split(",")) == sorted(granted.strip("{}").split(","))
    copy.stop()


@pytest.mark.timeout(300)
def test_a_small_batch_creates_nothing_in_the_target(postgres: PostgresServer, tmp_path: Path) -> None:
    """A transaction of hundreds of tables would run out of the locks that the server has for it."""
    (tmp_path / "log").mkdir()
    created: list[int] = []

    def count() -> None:
        ((locks,),) = postgres.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock'"
        )
        created.append(locks)

    random, schema = Random(1), first_schema(False)
    table = Table(Database(tmp_path, postgres), schema, admit=count)
    log = LogOf(random, tmp_path, schema, [(n,) for n in range(9)], table)
    for _ in range(5):
        log.grow_by_changes(9)
        table.follow(log)
    assert created[0] > 0 and created[1] == 0
    assert max(created[1:]) <= 2 * 3  # rows that lack values: two temporary tables, with what holds their long values


@pytest.mark.timeout(300)
def test_a_reading_that_has_seen_every_change_is_the_table(postgres: PostgresServer, tmp_path: Path) -> None:
    """The log deletes a row, and nothing of that counts any more."""
    (tmp_path / "log").mkdir()
    table = Table(Database(tmp_path, postgres), SCHEMA)
    log = LogOfCopies(Random(1), tmp_path / "log", table)
    log.record, log.seq = 1, 2
    log._segment([(1, "I", 1, "a"), (2, "D", 1, "a")])
    log._register([(None, "a")], Seq(1), ((Seq(1), Seq(2)),))
    part = cut(log.state, TABLE, table.applied, RecordNumber(1))
    assert part is not None
    table.apply(part)
    assert postgres.execute("SELECT n, t FROM public.t") == [(None, "a")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", [False, True])
def test_a_driver_that_has_been_overtaken_changes_nothing(
    postgres: PostgresServer, tmp_path: Path, together: bool
) -> None:
    """Each change counts once, even where the change log has not told it yet that there is another driver."""
    overtaken(Database(tmp_path, postgres), tmp_path, together)
    assert postgres.execute("SELECT n, t FROM public.t") == [(1, "a")]


@pytest.mark.timeout(300)
def test_the_targets_server_crashes_and_a_copy_is_dropped(postgres: PostgresServer, tmp_path: Path) -> None:
    """What is lost with it is read again or applied again; a failing server is no table's fault."""
    postgres.execute(SHOP)
    with PostgresServer(postgres.major) as other:
        other.execute("CREATE DATABASE copy")
        copy = begin(postgres.source(), other, tmp_path)
        copy.start()
        settle(copy)
        other.stop("immediate")
        postgres.execute("UPDATE shop.item SET price = price + 1; INSERT INTO shop.visit VALUES (9, 'new')")
        copy.until(lambda _: copy.driver.faults(), work=True)
        assert set(copy.driver.faults().values()) == {"Retry"}
        other.start()
        settle(copy)
        for _ in range(2):  # the second one moves them together again
            postgres.execute("UPDATE shop.item SET price = price + 1; INSERT INTO shop.visit VALUES (9, 'new')")
            settle(copy)
        assert other.execute(f"SELECT count(*) FROM {STATE}.tables WHERE member", dbname="copy") == [(2,)]
        other.execute("DROP TABLE shop.item", dbname="copy")
        postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id = 7")
        copy.until(lambda _: other.execute("SELECT to_regclass('shop.item')", dbname="copy") != [(None,)], work=True)
        settle(copy)
        for table in TABLES:
            assert texts(postgres, table, "postgres") == texts(other, table, "copy")
        copy.stop()


@pytest.mark.timeout(300)
def test_all_tables_go_into_one_schema_and_those_that_would_get_one_name_are_refused(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(PAIR)
    copy = begin(postgres.source(), postgres, tmp_path, schema="copies")
    copy.document["spec"]["tables"]["include"] = ["shop.*", "other.*"]
    copy.start()
    settle(copy)

    def copied(table: str) -> list[Any]:
        return postgres.execute(f"SELECT * FROM copies.{table} ORDER BY 1", dbname="copy")

    items = postgres.execute("SELECT * FROM shop.item ORDER BY 1")
    assert copied("item") == items and copied("visit") == items
    postgres.execute(
        "CREATE SCHEMA other; CREATE TABLE other.item (id int PRIMARY KEY); INSERT INTO other.item VALUES (7);"
        " CREATE TABLE other.twin (id int PRIMARY KEY); CREATE TABLE shop.twin (id int PRIMARY KEY)"
    )
    refused = dict.fromkeys(("other.item", "other.twin", "shop.twin"), "TableStop")
    copy.until(lambda _: copy.driver.faults() == refused, work=True)
    postgres.execute("UPDATE shop.item SET n = 0; UPDATE shop.visit SET item = 0")
    copy.until(lambda _: copied("visit") == [(n, 0) for n in range(1, 10)], work=True)
    assert copied("item") == copied("visit") and copy.driver.faults() == refused
    there = postgres.execute("SELECT relname FROM pg_class WHERE relname = 'twin'", dbname="copy")
    assert there == [], "nothing is created for either"
    assert cli.main(["doctor", "-f", str(copy.manifest)]) == 10
    told = capsys.readouterr().out
    for one, other in (("shop.item", "other.item"), ("other.twin", "shop.twin"), ("shop.twin", "other.twin")):
        assert f"fail {one}: {other} would have the same name in the target, copies.{one.split('.')[1]}" in told, told
    postgres.execute("DROP TABLE other.item, other.twin")
    copy.until(lambda _: not copy.driver.faults(), work=True)
    settle(copy)
    assert copied("twin") == [] and len(copied("item")) == 9
    copy.stop()
    copy.start()
    postgres.execute("CREATE TABLE other.item (id int PRIMARY KEY)")
    copy.until(lambda _: copy.driver.faults() == {"other.item": "TableStop"}, work=True)
    origin = copy.state.origin
    assert origin is not None
    copy.stop()
    target = targets.open(copy.replicator.spec.target)
    assert target.lacking([("shop", "item"), ("shop", "none")], origin.log_id) == [("shop", "none")]
    removal = target.removal(no_spark)
    assert removal.location(("shop", "item")).startswith("table copies.item in ")
    for table in ("item", "visit", "twin"):
        assert removal.exists(("shop", table))
        removal.drop(("shop", table))
    removal.finish("log")
    left = postgres.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('shop', '_tailrace')", dbname="copy")
    assert left == []


EXTRAS = """
CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('ok');
CREATE TABLE shop.item (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "two words" serial, n int DEFAULT 7 + 1,
    left_out int DEFAULT 3, name text DEFAULT 'it''s', code text UNIQUE, twice int GENERATED ALWAYS AS (7) STORED);
CREATE UNIQUE INDEX "by %s" ON shop.item (lower(name), n) WHERE n > 3; CREATE INDEX ON shop.item (left_out);
CREATE INDEX by_hash ON shop.item USING hash (name); CREATE SEQUENCE shop.shared;
ALTER TABLE shop.item ALTER code SET DEFAULT nextval('shop.shared');
INSERT INTO shop.item (name) VALUES ('a'), ('b');
"""


@pytest.mark.timeout(300)
def test_doctor_prints_what_the_copy_lacks_of_the_source(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(EXTRAS)
    copy = begin(postgres.source(), postgres, tmp_path, schema="it's")
    copy.document["spec"]["options"] = [{"match": "shop.item", "columns": ["id", "two words", "n", "name", "code"]}]
    copy.start()
    settle(copy)
    copy.stop()

    def told() -> list[tuple[str, str]]:
        assert cli.main(["doctor", "-f", str(copy.manifest)]) == 0
        return re.findall("the copy lacks (\\d+) .*\n.*otherwise run `(.*)`", capsys.readouterr().out)

    (found,) = told()
    count, statements = found
    assert int(count) == 9, statements
    postgres.execute(statements, dbname="copy")
    assert told() == []
    for sequence in ("item_two words_seq", "shared"):
        postgres.execute(f"""SELECT setval('"it''s"."{sequence}"', 70)""", dbname="copy")
    postgres.execute("""INSERT INTO "it's".item (id) VALUES (9)""", dbname="copy")
    row = postgres.execute("""SELECT "two words", n, name, code FROM "it's".item WHERE id = 9""", dbname="copy")
    assert row == [(71, 8, "it's", "71")]
