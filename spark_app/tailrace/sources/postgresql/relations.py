"""Single questions about relations to the system catalog, without discovery: is one there, empty, ever attached?

Called by the look at the catalog (`log.catalog_poll`); `objects` makes the horizon.
"""

from collections.abc import Sequence
from typing import NamedTuple

import psycopg

from tailrace.databases.postgresql.connect import Connection


def exists(connection: Connection, oid: int) -> bool:
    """True if anything has this oid, whatever kind of relation it is, and whichever users may see it."""
    row = connection.execute("SELECT 1 FROM pg_catalog.pg_class WHERE oid = %s::int8::oid", [oid]).fetchone()
    return row is not None


def is_taken(connection: Connection, schema: str, table: str) -> bool:
    """True if a table has this name."""
    statement = (
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND n.nspname = %s AND c.relname = %s"
    )
    return connection.execute(statement, [schema, table]).fetchone() is not None


def empty(connection: Connection, oids: Sequence[int]) -> frozenset[int]:
    """Those of these tables whose file has no page; it takes no right on them to ask. It opens the tables: where one is
    locked, none is said to be empty."""
    statement = (
        "SELECT o FROM unnest(%s::int8[]) o WHERE pg_catalog.pg_relation_size(o::oid::regclass) IS NOT DISTINCT FROM 0"
    )
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '200ms'")
            rows = connection.execute(statement, (list(oids),)).fetchall()
    except psycopg.errors.LockNotAvailable:
        return frozenset()
    return frozenset(row[0] for row in rows)


def unwritten(connection: Connection, oids: Sequence[int]) -> frozenset[int]:
    """Those of these tables that are empty, and have been since the transaction that made them: a file that was filled
    has a page until VACUUM or TRUNCATE takes it, and those leave a trace, but for a TRUNCATE by that very transaction.
    (ANALYZE leaves one, too.)"""
    statement = (
        "SELECT oid::int8 FROM pg_catalog.pg_class WHERE oid = ANY(%s::oid[]) AND reltuples = -1 AND relfilenode = oid"
    )
    now_empty = empty(connection, oids) if oids else ()
    return frozenset(row[0] for row in connection.execute(statement, (list(now_empty),)).fetchall())


COMPARABLE = 1 << 30
"""Transactions up to which ages, of 32 bits, are compared: twice as many later they begin again."""


class CatalogHorizon(NamedTuple):
    """The oldest transaction whose changes of the catalog the slot has not passed."""

    xid: str
    """The transaction id as the catalog has it: 32 bits."""
    number: int
    """Counted through, or a few more."""


def settled(connection: Connection, oids: Sequence[int], since: CatalogHorizon | None) -> frozenset[int]:
    """Those of these tables for which it is proven that they have not been attached to a table, or detached, since
    transaction `since`, or ever. ATTACH and DETACH write the catalog's rows of all columns: one that is older proves
    it, and so does one that still is as CREATE TABLE wrote it, by the same command as that of the table's type. A row
    that another transaction tried to write, and was rolled back, no longer shows the command; OWNER TO writes the
    type's row and, in the same command, those of columns that have rights of their own."""
    statement = """
    SELECT c.oid::int8 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type t ON t.oid = c.reltype
     WHERE c.oid = ANY(%s::oid[]) AND EXISTS (
           SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND (pg_catalog.age(a.xmin) > pg_catalog.age(%s::xid)
                    AND pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) - %s < %s
                OR (a.xmin = t.xmin AND a.cmin = t.cmin AND a.xmax = '0'::xid AND t.xmax = '0'::xid
                    AND a.attacl IS NULL)))"""
    xid, number = since or (None, None)
    found = connection.execute(statement, (list(oids), xid, number, COMPARABLE)).fetchall()
    return frozenset(row[0] for row in found)
