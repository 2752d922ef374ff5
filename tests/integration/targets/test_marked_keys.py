"""Deleted and ended rows that stay in a database: keys that a type or a collation takes for one, tables of keys
alone; and types that somebody altered in a copy."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg.errors import UniqueViolation

from support.database_copies import begin, place_of, settle
from support.lake import table_schema
from support.mysql import MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from tailrace import targets
from tailrace.changelog.history import stored
from tailrace.contract.resources import TargetSpec


def marked(copy: Pipeline, **more: object) -> Pipeline:
    copy.document["spec"]["options"] = [{"match": "shop.*", "history": "SoftDelete", **more}]
    return copy


def kept(copy: Pipeline) -> Pipeline:
    copy.document["spec"]["options"] = [{"match": "shop.*", "history": "Versions"}]
    return copy


def rows(server: PostgresServer, columns: str) -> list[tuple[Any, ...]]:
    found = server.execute(f"SELECT {columns} FROM shop.t", dbname="copy")
    return sorted(found, key=repr)


def stops_by_name(copy: Pipeline, what: str) -> None:
    copy.until(lambda state: any(table.stopped is not None for table in state.tables.values()), work=True)
    for _ in range(20):  # looks at the catalog, at none of which it starts over by itself
        copy.turn()
    (table,) = copy.state.tables.values()
    assert table.stopped is not None and table.stopped.error == "SchemaChangeUnsupported"
    assert what in table.stopped.message


def test_a_key_that_changes_its_spelling_is_a_marked_row_and_a_live_one(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k numeric PRIMARY KEY, v text)")
    postgres.execute("INSERT INTO shop.t VALUES (1.0, 'a')")
    with (copy := marked(begin(postgres.source(), postgres, tmp_path))).running():
        settle(copy)
        assert copy.driver.ask("again", ["shop.t"], keys=[["1"]])  # which is no key by its text, and marks none
        settle(copy)
        assert rows(postgres, "k::text, _is_deleted") == [("1.0", False)]
        postgres.execute("UPDATE shop.t SET k = 1.00")
        settle(copy)
        assert rows(postgres, "k::text, _is_deleted") == [("1.0", True), ("1.00", False)]


def test_rows_that_a_filter_leaves_out_stay_out_of_a_table_of_keys(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (tenant int, u int, PRIMARY KEY (tenant, u))")
    postgres.execute("INSERT INTO shop.t VALUES (7, 1), (7, 2), (8, 1), (8, 2)")
    with (copy := marked(begin(postgres.source(), postgres, tmp_path), where="tenant = 7")).running():
        settle(copy)
        postgres.execute("DELETE FROM shop.t WHERE tenant = 8 OR u = 2")
        settle(copy)
        assert rows(postgres, "tenant, u, _is_deleted") == [(7, 1, False), (7, 2, True)]


def test_a_collation_s_one_key_is_a_marked_row_and_a_live_one_in_mysql(tmp_path: Path) -> None:
    with MysqlServer(MYSQL) as server:
        server.script("CREATE DATABASE shop", "CREATE TABLE shop.t (k varchar(20) PRIMARY KEY, v int)")
        server.script("INSERT INTO shop.t VALUES ('bob', 1), ('amy', 2)")
        with (copy := marked(begin(place_of(server), server, tmp_path, schema="copies"))).running():
            settle(copy)
            server.script("UPDATE shop.t SET k = 'Bob' WHERE k = 'bob'")
            settle(copy)
            found = server.execute("SELECT k, _is_deleted FROM copies.t")
            assert sorted((key, bool(deleted)) for key, deleted in found) == [("Bob", 0), ("amy", 0), ("bob", 1)]
            server.script("DELETE FROM shop.t WHERE k = 'amy'", "ALTER TABLE shop.t MODIFY v bigint")
            server.script("INSERT INTO shop.t VALUES ('new', 3)")
            stops_by_name(copy, "'v' of shop.t changed its type from int to bigint")
            found = server.execute("SELECT k, v, _is_deleted FROM copies.t")
            assert sorted((key, v, bool(deleted)) for key, v, deleted in found) == [
                ("Bob", 1, 0), ("amy", 2, 1), ("bob", 1, 1),
            ]  # fmt: skip


def test_a_mark_that_is_null_in_a_table_that_was_taken_over_is_none(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k int PRIMARY KEY, v text)")
    postgres.execute("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    with (copy := marked(begin(postgres.source(), postgres, tmp_path))).running():
        settle(copy)
        postgres.execute("UPDATE shop.t SET _is_deleted = NULL", dbname="copy")
        postgres.execute("TRUNCATE shop.t")
        settle(copy)
        assert rows(postgres, "k, _is_deleted, _deleted_at IS NULL") == [(1, True, False), (2, True, False)]


def test_a_type_that_would_shorten_a_marked_row_stops_the_table(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k int PRIMARY KEY, v varchar(20), n int)")
    postgres.execute("INSERT INTO shop.t VALUES (1, 'twelve signs', 1), (2, 'b', 2)")
    with (copy := marked(begin(postgres.source(), postgres, tmp_path))).running():
        settle(copy)
        postgres.execute("DELETE FROM shop.t WHERE k = 1; ALTER TABLE shop.t ALTER v TYPE varchar(40)")
        postgres.execute("INSERT INTO shop.t VALUES (3, repeat('w', 30), 3)")
        settle(copy)
        there = [(1, "twelve signs", 1, True), (2, "b", 2, False), (3, "w" * 30, 3, False)]
        assert rows(postgres, "k, v, n, _is_deleted") == there
        postgres.execute(
            "DELETE FROM shop.t WHERE k = 3; ALTER TABLE shop.t ALTER v TYPE varchar(5), ALTER n TYPE bigint"
        )
        postgres.execute("INSERT INTO shop.t VALUES (4, 'd', 4)")
        stops_by_name(copy, "'v' of shop.t changed its type from character varying(40) to character varying(5)")
        assert rows(postgres, "k, v, n, _is_deleted") == [*there[:2], (3, "w" * 30, 3, True)]


def test_types_that_somebody_altered_in_a_copy_get_the_values(postgres: PostgresServer, tmp_path: Path) -> None:
    """PostgreSQL takes the binary form of a bigint for that of any type of eight bytes."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k int PRIMARY KEY, v bigint, w int)")
    with (copy := begin(postgres.source(), postgres, tmp_path)).running():
        settle(copy)
        postgres.execute("ALTER TABLE shop.t ALTER v TYPE double precision, ALTER w TYPE numeric", dbname="copy")
        postgres.execute("INSERT INTO shop.t VALUES (2, 2, 2)")
        settle(copy)
        assert rows(postgres, "k, v::text, w::text") == [(2, "2", "2")]


def test_a_key_that_changes_its_spelling_ends_a_version_and_begins_another(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A second current row of a key is refused by the copy's index; one that is read again as it was adds none."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k numeric PRIMARY KEY, v text)")
    postgres.execute("INSERT INTO shop.t VALUES (1.0, 'a'), (2, 'b')")
    with (copy := kept(begin(postgres.source(), postgres, tmp_path))).running():
        settle(copy)
        postgres.execute("UPDATE shop.t SET k = 1.00 WHERE k = 1; UPDATE shop.t SET v = 'c' WHERE k = 2")
        settle(copy)
        there = [("1.0", "a", False), ("1.00", "a", True), ("2", "b", False), ("2", "c", True)]
        assert rows(postgres, "k::text, v, _is_current") == there
        assert copy.driver.ask("again", ["shop.t"])
        settle(copy)
        assert rows(postgres, "k::text, v, _is_current") == there
        with pytest.raises(UniqueViolation):
            postgres.execute("INSERT INTO shop.t SELECT * FROM shop.t WHERE _is_current", dbname="copy")


def test_a_collation_s_one_key_ends_a_version_and_begins_another_in_mysql(tmp_path: Path) -> None:
    """A text key may take all bytes of an index, and the copy's has the end of the version beside it."""
    with MysqlServer(MYSQL) as server:
        server.script("CREATE DATABASE shop", "CREATE TABLE shop.t (k varchar(768) PRIMARY KEY, v int)")
        server.script("CREATE TABLE shop.b (k varbinary(3072) PRIMARY KEY, v int)")
        names = ", ".join(f"c{number}" for number in range(16))  # as many as an index has
        server.script(f"CREATE TABLE shop.w ({names.replace(',', ' int,')} int, v int, PRIMARY KEY ({names}))")
        server.script("INSERT INTO shop.t VALUES ('bob', 1), ('amy', 2)", "INSERT INTO shop.b VALUES ('x', 1)")
        server.script(f"INSERT INTO shop.w VALUES ({', '.join('1' * 17)})")
        with (copy := kept(begin(place_of(server), server, tmp_path, schema="copies"))).running():
            settle(copy)
            server.script("UPDATE shop.t SET k = 'Bob' WHERE k = 'bob'", "UPDATE shop.b SET v = 2")
            server.script("UPDATE shop.w SET v = 2")
            settle(copy)
            found = server.execute("SELECT k, v, _is_current FROM copies.t ORDER BY k")
            assert found == [("Bob", 1, 1), ("amy", 2, 1), ("bob", 1, 0)]
            for one in "bw":
                found = server.execute(f"SELECT v, _valid_to IS NULL FROM copies.{one} ORDER BY v")
                assert found == [(1, 0), (2, 1)]


def moved_by_updates(server: MysqlServer, table: str) -> str:
    """A statement that gives ON UPDATE to the key of a copy; its mark stays."""
    asked = "SELECT column_comment FROM information_schema.columns WHERE column_name = 'ts' AND table_schema = 'copies'"
    ((comment,),) = server.execute(f"{asked} AND table_name = '{table}'")
    kept = f"ON UPDATE CURRENT_TIMESTAMP COMMENT '{comment}'"
    return f"ALTER TABLE copies.{table} MODIFY ts timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP {kept}"


@pytest.mark.parametrize("name", [MYSQL, "mariadb-10.11"])
def test_marking_and_ending_rows_leave_the_source_s_own_times_alone(tmp_path: Path, name: str) -> None:
    """ON UPDATE gives any time that an UPDATE does not name, even one on the key, which servers with old settings
    give to the first time of a table that others create; a copy that Tailrace creates has none."""
    at = "at timestamp NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    columns = f"ts timestamp NOT NULL DEFAULT '2020-01-01 00:00:00', k int, v int, {at}, PRIMARY KEY (ts, k)"
    old, new = datetime(2020, 1, 1), datetime(2021, 1, 1)
    with MysqlServer(name, explicit_defaults_for_timestamp="OFF") as server:
        server.script("CREATE DATABASE shop", *(f"CREATE TABLE shop.{one} ({columns})" for one in "stu"))
        server.script(*(f"INSERT INTO shop.{one} VALUES ('2020-01-01', 1, 1, '2020-01-01')" for one in "stu"))
        copy = begin(place_of(server), server, tmp_path, schema="copies")
        histories = {"s": "SoftDelete", "t": "Versions", "u": "Versions"}
        copy.document["spec"]["options"] = [
            {"match": f"shop.{one}", "history": history} for one, history in histories.items()
        ]
        with copy.running():
            settle(copy)
            target = targets.open(copy.replicator.spec.target, "mysql")
            with copy.source.session() as session:
                extras = session.extras([("shop", one) for one in "stu"])
            lacked = target.lacked(extras, [table.schema for table in copy.state.tables.values()])
            given = [statement for statements in lacked.values() for statement in statements if "`at`" in statement]
            assert len(given) == 3
            for one in "stu":
                assert "ON UPDATE" not in server.execute(f"SHOW CREATE TABLE copies.{one}")[0][1]
            server.script(*given, *(moved_by_updates(server, one) for one in "stu"))
            server.script("UPDATE shop.t SET v = 2, at = '2021-01-01', ts = '2020-01-01'")
            settle(copy)
            found = server.execute("SELECT ts, v, at, _is_current FROM copies.t ORDER BY v")
            assert found == [(old, 1, old, 0), (old, 2, new, 1)]
            server.script("TRUNCATE TABLE shop.s", "TRUNCATE TABLE shop.u")
            settle(copy)
            assert server.execute("SELECT ts, v, at, _is_deleted FROM copies.s") == [(old, 1, old, 1)]
            assert server.execute("SELECT ts, v, at, _is_current FROM copies.u") == [(old, 1, old, 0)]


def test_a_table_that_is_taken_over_with_all_versions_has_no_primary_key(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (k int PRIMARY KEY, v text)")
    postgres.execute("INSERT INTO shop.t VALUES (1, 'a')")
    times = "_valid_from timestamptz, _valid_to timestamptz, _is_current boolean"
    postgres.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.t (k int PRIMARY KEY, v text, {times})", dbname="copy")
    adopting = targets.open(TargetSpec.model_validate(place_of(postgres) | {"adopt": True}))
    table = table_schema([("k", "int32"), ("v", "string")], ["k"], name="t")
    table = stored(table.model_copy(update={"schema_name": "shop", "history": "Versions"}))
    what = "it has a primary key, which a copy of this table must not have"
    (obstacle,) = (one for one in adopting.obstacles([table], None) if what in one.message)
    assert obstacle.fix == 'Run `ALTER TABLE "shop"."t" DROP CONSTRAINT "t_pkey"`.'
    postgres.execute("ALTER TABLE shop.t DROP CONSTRAINT t_pkey", dbname="copy")
    with (copy := kept(begin(postgres.source(), postgres, tmp_path, adopt=True))).running():
        settle(copy)
        postgres.execute("UPDATE shop.t SET v = 'b'")
        settle(copy)
        assert rows(postgres, "k, v, _is_current") == [(1, "a", False), (1, "b", True)]


def test_texts_of_a_key_are_sorted_as_the_copy_does_it(postgres: PostgresServer, tmp_path: Path) -> None:
    """Which of its rows a chunk replaces is asked by a range. Adopted: `pg_dump` keeps a column's own collation."""
    postgres.execute("CREATE DATABASE copy TEMPLATE template0 LOCALE 'C'")
    key = 'k text COLLATE "und-x-icu"'
    postgres.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.t ({key} PRIMARY KEY, v int)")
    postgres.execute("INSERT INTO shop.t SELECT k, 1 FROM unnest(ARRAY['a', 'B', 'b', 'A', 'ä', 'z', 'Z']) k")
    postgres.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.t ({key} PRIMARY KEY, v int)", dbname="copy")
    with (copy := begin(postgres.source(), postgres, tmp_path, adopt=True)).running():
        settle(copy)
        copy.ask("shop.t")
        settle(copy)
        assert copy.driver.faults() == {}
        assert rows(postgres, "k, v") == [(k, 1) for k in ("A", "B", "Z", "a", "b", "z", "ä")]
