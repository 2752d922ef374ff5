"""Observe what preflight judges: settings, rights, slot, publication, tables. Reads only; decides nothing.

Called by `tailrace doctor` and at start-up, before anything is made; `preflight.check` takes the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import DictRow, dict_row

from tailrace.contract.resources import SourceSpec
from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.errors import TableStop
from tailrace.sources.postgresql import publication, signal_table
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.signal_table import Signals


@dataclass(frozen=True)
class SlotFacts:
    plugin: str | None
    database: str | None
    wal_status: str | None
    """`lost`: the server has removed log that the slot needs."""


@dataclass(frozen=True)
class PublicationFacts:
    owned: bool
    """We are a member of the owner."""
    all_tables: bool
    via_root: bool
    operations: frozenset[str]
    """A subset of insert, update, delete, truncate."""
    tables: frozenset[int]
    """Oids, as published (with `via_root` the partitioned root) and as added."""
    unfit: Mapping[int, TableStop]
    """The faults by oid: the row filter or the column list that keeps changes back, or the reason why the server
    refuses them."""


@dataclass(frozen=True)
class TableFacts:
    table: PgTable
    usage: bool
    """USAGE on its schema."""
    select: bool
    owned: bool
    owner_is_superuser: bool
    rows_hidden: bool
    """Row-level security applies to us."""
    collations: tuple[str, ...]
    """Collations of the key whose version is no longer the one the index was built with."""


@dataclass(frozen=True)
class Facts:
    """One look at the source."""

    version: int
    """server_version_num."""
    username: str
    database: str
    slot_name: str
    publication_name: str
    slot_given: bool
    """Named in the manifest: must exist, is not made."""
    publication_given: bool
    wal_level: str
    in_recovery: bool
    slots_used: int
    slots_most: int
    senders_used: int
    senders_most: int
    keep_megabytes: int
    """max_slot_wal_keep_size; -1: no limit."""
    idle_slot_timeout: int
    """idle_replication_slot_timeout in seconds (18 and later); 0: off."""
    synchronous: str
    """synchronous_standby_names."""
    replication: bool
    may_connect: bool
    may_create: bool
    """CREATE on the database."""
    slot: SlotFacts | None
    publication: PublicationFacts | None
    tables: tuple[TableFacts, ...]
    signals: Signals | None = None
    """None: `source.signalTable` is not set."""


_SERVER = """
SELECT current_setting('server_version_num')::int AS version, current_user::text AS username,
       current_database()::text AS database, current_setting('wal_level') AS wal_level,
       pg_is_in_recovery() AS in_recovery,
       (SELECT count(*) FROM pg_replication_slots)::int AS slots_used,
       current_setting('max_replication_slots')::int AS slots_most,
       (SELECT count(*) FROM pg_stat_replication)::int AS senders_used,
       current_setting('max_wal_senders')::int AS senders_most,
       (SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep_megabytes,
       coalesce((SELECT setting::int FROM pg_settings WHERE name = 'idle_replication_slot_timeout'), 0)
         AS idle_slot_timeout,
       current_setting('synchronous_standby_names') AS synchronous,
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user) AS replication,
       has_database_privilege(current_database(), 'CONNECT') AS may_connect,
       has_database_privilege(current_database(), 'CREATE') AS may_create
"""
_SLOT = "SELECT plugin::text, database::text, wal_status FROM pg_replication_slots WHERE slot_name = %s"
_PUBLICATION = """
SELECT p.oid::int8 AS oid, pg_has_role(p.pubowner, 'USAGE') AS owned, p.puballtables, p.pubviaroot, p.pubinsert,
       p.pubupdate, p.pubdelete, p.pubtruncate,
       (SELECT coalesce(array_agg(c.oid::int8), '{}') FROM pg_publication_tables t
          JOIN pg_namespace n ON n.nspname = t.schemaname
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
         WHERE t.pubname = p.pubname) || ARRAY(
       SELECT r.prrelid::int8 FROM pg_publication_rel r WHERE r.prpubid = p.oid) AS tables
  FROM pg_publication p WHERE p.pubname = %s
"""
_RIGHTS = """
SELECT c.oid::int8 AS oid, has_schema_privilege(c.relnamespace, 'USAGE') AS usage,
       has_table_privilege(c.oid, 'SELECT') AS select, pg_has_role(c.relowner, 'USAGE') AS owned,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.oid = c.relowner) AS super,
       row_security_active(c.oid) AS rows_hidden,
       (SELECT coalesce(array_agg(DISTINCT co.collname::text), '{}')
          FROM pg_index i, unnest(i.indcollation::oid[]) AS used(coll) JOIN pg_collation co ON co.oid = used.coll
         WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
           AND co.collversion <> pg_collation_actual_version(co.oid)) AS collations
  FROM pg_class c WHERE c.oid = ANY(%s::int8[])
"""
_DEFAULT_COLLATION = """
SELECT datcollversion <> pg_database_collation_actual_version(oid) AS changed FROM pg_database
 WHERE datname = current_database()
"""


def observe(connection: Connection, source: SourceSpec, made: tuple[str, str], tables: Sequence[PgTable]) -> Facts:
    """`made`: what slot and publication are called if the manifest does not name them."""
    slot_name, publication_name = source.postgresql.slot or made[0], source.postgresql.publication or made[1]
    with (
        source_errors("looking at the source's settings and rights"),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        server = cursor.execute(_SERVER).fetchone()
        assert server is not None
        slot = cursor.execute(_SLOT, (slot_name,)).fetchone()
        return Facts(
            **server,
            slot_name=slot_name,
            publication_name=publication_name,
            slot_given=source.postgresql.slot is not None,
            publication_given=source.postgresql.publication is not None,
            slot=SlotFacts(**slot) if slot else None,
            publication=_publication(connection, cursor, publication_name, tables),
            tables=_tables(cursor, tables, server["version"]),
            signals=signal_table.look(connection, source),
        )


def _publication(connection: Connection, cursor: Any, name: str, tables: Sequence[PgTable]) -> PublicationFacts | None:
    row: DictRow | None = cursor.execute(_PUBLICATION, (name,)).fetchone()
    if row is None:
        return None
    published = publication.look(connection, name)
    unfit = {t.oid: published.narrowed(t) or published.harmful(t) for t in tables} if published is not None else {}
    operations = {o for o in ("insert", "update", "delete", "truncate") if row[f"pub{o}"]}
    return PublicationFacts(
        owned=row["owned"],
        all_tables=row["puballtables"],
        via_root=row["pubviaroot"],
        operations=frozenset(operations),
        tables=frozenset(row["tables"]),
        unfit={oid: stop for oid, stop in unfit.items() if stop is not None},
    )


def _tables(cursor: Any, tables: Sequence[PgTable], version: int) -> tuple[TableFacts, ...]:
    rows = cursor.execute(_RIGHTS, ([t.oid for t in tables],)).fetchall()
    changed = version >= 150000 and cursor.execute(_DEFAULT_COLLATION).fetchone()["changed"]
    found = {row["oid"]: row for row in rows}
    facts = []
    for table in tables:
        row = found.get(table.oid)
        if row is None:  # dropped since discovery: capture's affair
            continue
        text_key = any(c.native == "string" for c in table.key_columns)
        collations = (*row["collations"], "default") if changed and text_key else tuple(row["collations"])
        facts.append(
            TableFacts(
                table, row["usage"], row["select"], row["owned"], row["super"], row["rows_hidden"], tuple(collations)
            )
        )
    return tuple(facts)
