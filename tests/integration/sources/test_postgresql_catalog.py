"""What the catalog proves of a table's past."""

from dataclasses import replace

import pytest

from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.contract.resources import TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import Connection, connect
from tailrace.sources.postgresql import unreadable
from tailrace.sources.postgresql.catalog import discover, of_other_case
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.relations import COMPARABLE, CatalogHorizon, settled
from tailrace.sources.postgresql.trees import Trees

MADE = "CREATE TABLE s.{0} (id int PRIMARY KEY)"
CHANGED = "ALTER TABLE s.{0} ALTER id SET STATISTICS 7"
"""Writes the row of the only column, as ATTACH does."""


def test_what_was_last_written_before_a_transaction_was_not_attached_since(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        for line in ("CREATE SCHEMA s", MADE.format("as_made"), MADE.format("older"), CHANGED.format("older")):
            admin.execute(line.encode())
        since = _now(admin)
        for line in (MADE.format("younger"), CHANGED.format("younger")):
            admin.execute(line.encode())
        assert _settled(admin, since) == {"as_made", "older"}
        assert _settled(admin, None) == {"as_made"}


def test_ages_are_not_compared_after_a_thousand_million_transactions(postgres: PostgresServer) -> None:
    """Twice as many later, what is old would look young, and what is young old."""
    with connect(config_of(postgres)) as admin:
        for line in ("CREATE SCHEMA s", MADE.format("older"), CHANGED.format("older")):
            admin.execute(line.encode())
        now = _now(admin)
        assert _settled(admin, now) == {"older"}
        assert _settled(admin, CatalogHorizon(now.xid, now.number - COMPARABLE)) == set()


def test_a_look_makes_again_only_the_tables_whose_rows_in_the_catalog_differ(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        for line in ("CREATE SCHEMA s", *map(MADE.format, "abcd")):
            admin.execute(line.encode())
        trees, spec = Trees(), TablesSpec(include=("s.*",))
        before = discover(admin, spec, (), trees)
        assert [now is then for now, then in zip(discover(admin, spec, (), trees), before, strict=True)] == [True] * 4
        for line in ("ALTER TABLE s.a ADD n int", "ALTER TABLE s.b REPLICA IDENTITY FULL", "TRUNCATE s.c"):
            admin.execute(line.encode())
        after = discover(admin, spec, (), trees)
        assert [now is then for now, then in zip(after, before, strict=True)] == [False, False, False, True]
        assert after == discover(admin, spec)
        assert discover(admin, spec, (TableOptions(match="s.d", columns=("id",)),), trees)[3] is not after[3]


def _now(admin: Connection) -> CatalogHorizon:
    row = admin.execute("SELECT txid_current()").fetchone()
    assert row is not None
    return CatalogHorizon(str(row[0] % (1 << 32)), row[0])


def _settled(admin: Connection, since: CatalogHorizon | None) -> set[str]:
    inside = "SELECT oid::int8, relname FROM pg_class WHERE relnamespace = 's'::regnamespace AND relkind = 'r'"
    names = {row[0]: row[1] for row in admin.execute(inside.encode()).fetchall()}
    return {names[oid] for oid in settled(admin, list(names), since)}


def test_a_name_that_is_not_utf8_and_comes_between_two_statements_ends_no_look(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    odd = ["CREATE TABLE public.%I (id int PRIMARY KEY)", "CREATE TABLE col (id int PRIMARY KEY, %I text)"]
    find = unreadable.find

    def others_go_on(connection: Connection) -> tuple[PgTable, ...]:
        found = find(connection)
        if odd:
            other.execute(f"DO $$BEGIN EXECUTE format('{odd.pop(0)}', convert_from('\\x41ff', 'SQL_ASCII')); END$$")
        return found

    monkeypatch.setattr(unreadable, "find", others_go_on)
    with (
        postgres.connect(dbname="ascii", client_encoding="LATIN1") as other,
        connect(replace(config_of(postgres), database="ascii")) as admin,
    ):
        found = discover(admin, TablesSpec(include=("*.*",)))
    assert {t.name for t in found if t.stop is not None} == {"public.A\\xff", "public.col"}


def test_partitions_whose_names_are_not_utf8_are_looked_at(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    with (
        postgres.connect(dbname="ascii", client_encoding="LATIN1") as other,
        connect(replace(config_of(postgres), database="ascii")) as admin,
    ):
        other.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY LIST (id)")
        statement = "CREATE TABLE %I PARTITION OF p DEFAULT"
        for line in (statement, "ALTER TABLE %I REPLICA IDENTITY FULL"):
            other.execute(f"DO $$BEGIN EXECUTE format('{line}', convert_from('\\x41ff', 'SQL_ASCII')); END$$")
        (found,) = discover(admin, TablesSpec(include=("*.*",)))
    assert (found.stop, found.whole_identity) == (None, 'public."A\\377"')


def test_a_pattern_in_another_case_than_the_catalogs_is_told(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        for line in ("CREATE SCHEMA s", MADE.format('"Orders"')):
            admin.execute(line.encode())
        told = "tables.include: pattern s.orders matches no table because case counts: write s.Orders"
        assert of_other_case(admin, TablesSpec(include=("s.orders",)), (), ()) == [told]
