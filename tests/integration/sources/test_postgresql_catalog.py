"""What the catalog proves of a table's past."""

from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.sources.postgresql.catalog import COMPARABLE, CatalogHorizon, settled
from tailrace.sources.postgresql.connect import Connection, connect

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


def _now(admin: Connection) -> CatalogHorizon:
    row = admin.execute("SELECT txid_current()").fetchone()
    assert row is not None
    return CatalogHorizon(str(row[0] % (1 << 32)), row[0])


def _settled(admin: Connection, since: CatalogHorizon | None) -> set[str]:
    inside = "SELECT oid::int8, relname FROM pg_class WHERE relnamespace = 's'::regnamespace AND relkind = 'r'"
    names = {row[0]: row[1] for row in admin.execute(inside.encode()).fetchall()}
    return {names[oid] for oid in settled(admin, list(names), since)}
