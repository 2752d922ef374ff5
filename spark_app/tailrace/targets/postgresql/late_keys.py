"""The primary key of a copy, dropped while the table is empty and built once it has its rows; and loads into a copy
that has none. See `targets.sql.session.LateKeys`."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import Locked, Retry
from tailrace.targets.sql.session import Definitions, Place, TargetSession, list_of, table

_PLAIN = """
SELECT quote_ident(k.conname)
  FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid
  JOIN pg_index i ON i.indexrelid = k.conindid JOIN pg_class x ON x.oid = i.indexrelid
 WHERE k.conrelid = %s::regclass AND k.contype = 'p' AND k.conname = t.relname || '_pkey' AND NOT k.condeferrable
   AND i.indnatts = i.indnkeyatts AND NOT i.indisreplident AND NOT i.indisclustered
   AND x.reltablespace = 0 AND x.reloptions IS NULL
   AND ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS c (number, at)
               JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.number ORDER BY c.at) = %s::text[]
"""
"""The key as `build` would make it, without what people have set."""
_LACKING = """
SELECT 1 FROM pg_class t WHERE t.oid = to_regclass(%s)
   AND NOT EXISTS (
       SELECT FROM pg_index i WHERE i.indrelid = t.oid AND (i.indisprimary OR i.indisunique AND i.indisvalid
          AND i.indpred IS NULL AND i.indexprs IS NULL
          AND ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS c (number, at)
                      JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = c.number
                     WHERE c.at <= i.indnkeyatts ORDER BY 1) = %s::text[]))
"""
"""Other unique indexes than the key's do not count."""
_OBSERVED = "SELECT 1 FROM pg_publication_tables WHERE schemaname = %s AND tablename = %s"
"""Somebody reads the copy's changes, and knows its rows by the key."""
_BY_KEY = "SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relreplident = 'd'"
_PLAIN_ROWS = """
SELECT ARRAY(SELECT format('"%%s" %%s', replace(attname, '"', '""'), format_type(atttypid, atttypmod))
               FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped)
  FROM pg_class t
 WHERE t.oid = to_regclass(%s) AND t.oid = %s::oid AND t.relkind = 'r' AND NOT t.relispartition AND NOT t.relrowsecurity
   AND t.relam = (SELECT oid FROM pg_am WHERE amname = 'heap')
   AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = t.oid)
   AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = t.oid)
   AND NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = t.oid)
   AND NOT EXISTS (SELECT FROM pg_inherits WHERE t.oid IN (inhparent, inhrelid))
   AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = t.oid AND contype <> 'n')
"""
"""The columns of a table to which people have added nothing that rows could violate or set off; rows of a heap tell
which transaction brought them."""
_HOLDERS = """
SELECT string_agg(DISTINCT pid::text, ', ') FROM pg_locks
 WHERE granted AND pid <> pg_backend_pid()
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (locktype = 'advisory' AND classid = %s::oid AND objid = %s::oid AND objsubid = 1
        OR locktype = 'relation' AND relation = %s::oid AND mode NOT IN ('AccessShareLock', 'RowShareLock'))
"""
"""The backends for which `hold` waits."""
LOADING = 0x7461696D
"""Numbers of advisory locks begin with it: loads into one copy share one."""
_SPELLED = {kind: f"{kind} without time zone" for kind in ("time", "timestamp")}
"""Names of types as the server gives them, where they differ."""


def _lock(relation: int) -> int:
    return LOADING << 32 | relation


class PgLateKeys:
    def __init__(self, session: TargetSession, connection: Connection, entered: set[str]) -> None:
        """`entered`: gets the names of copies that the transaction has entered."""
        self._session, self._connection, self._entered = session, connection, entered

    def drop(self, place: Place, key: Sequence[str]) -> bool:
        name = table(self._session, place)
        refused = psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist
        with suppress(*refused, psycopg.errors.InsufficientPrivilege), self._connection.transaction():
            self._connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE NOWAIT".encode())
            found = self._connection.execute(_PLAIN.encode(), (name, list(key))).fetchall()
            filled = self._connection.execute(f"SELECT 1 FROM {name} LIMIT 1".encode()).fetchone()
            observed = self._connection.execute(_OBSERVED.encode(), place).fetchone()
            if found and filled is None and observed is None:
                self._connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT {found[0][0]}".encode())
                return True
        return False

    def lacks(self, place: Place, key: Sequence[str]) -> bool:
        return bool(self._session.rows(_LACKING, table(self._session, place), sorted(key)))

    def build(self, place: Place, key: Sequence[str]) -> bool:
        columns = list_of(self._session, key)
        statement = f"ALTER TABLE {table(self._session, place)} ADD PRIMARY KEY ({columns})"
        with suppress(psycopg.errors.LockNotAvailable), self._connection.transaction():
            self._connection.execute(statement.encode())
            return True
        return False

    def enter(self, place: Place, relation: int, columns: Definitions, may: Callable[[], bool]) -> bool:
        name = table(self._session, place)
        wanted = {f"{column} {_SPELLED.get(kind, kind)}" for column, kind in columns}
        gone = psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName
        with suppress(*gone), self._connection.transaction():
            ((entered,),) = self._session.rows("SELECT pg_try_advisory_xact_lock_shared(%s)", _lock(relation))
            if not entered:
                raise psycopg.Rollback
            self._connection.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE".encode())
            found = self._connection.execute(_PLAIN_ROWS.encode(), (name, relation)).fetchone()
            observed = self._connection.execute(_OBSERVED.encode(), place).fetchone()
            if found is not None and set(found[0]) == wanted and observed is None and may():
                self._entered.add(name)
                return True
            raise psycopg.Rollback  # it also lets go of the table
        return False

    def transaction(self) -> str:
        ((number,),) = self._session.rows("SELECT pg_current_xact_id()::xid::text")
        return str(number)

    def hold(self, place: Place, relation: int) -> None:
        name = ".".join(place)
        loads = f"rows of a snapshot that are being loaded into {name}"
        self._take("SELECT pg_advisory_xact_lock(%s)", relation, loads, _lock(relation))
        # Other programs may write to it as well, or maintain it.
        lock = f"LOCK TABLE {table(self._session, place)} IN SHARE ROW EXCLUSIVE MODE"
        self._take(lock, relation, f"a lock of another session on {name}")

    def _take(self, lock: str, relation: int, what: str, *values: object) -> None:
        """`what`: what it waits for."""
        try:
            with self._connection.transaction():
                self._session.run(lock, *values)
        except Retry as error:
            if not isinstance(error.__context__, psycopg.errors.LockNotAvailable):
                raise
            ((holders,),) = self._session.rows(_HOLDERS, LOADING, relation, relation)
            raise Locked(what if holders is None else f"{what} (backend {holders})") from error

    def brought(self, place: Place, transactions: Sequence[str]) -> list[str]:
        found = self._session.rows(
            f"SELECT xmin::text, min(ctid)::text, max(ctid)::text FROM {table(self._session, place)}"
            " WHERE xmin = ANY (%s::text[]::xid[]) GROUP BY xmin::text",
            list(transactions),
        )
        # A load's rows lie close together, and the server reads just the pages in between.
        between = {number: f"t.ctid >= '{first}'::tid AND t.ctid <= '{last}'::tid" for number, first, last in found}
        return [f"{between.get(number, 'FALSE')} AND t.xmin = '{number}'::xid" for number in transactions]

    def remove(self, place: Place, brought: Sequence[str]) -> int:
        name = table(self._session, place)
        published = self._session.rows(_OBSERVED, *place) and self._session.rows(_BY_KEY, name)
        if published:  # no row may be deleted from such a table while it has no key
            self._session.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        removed = sum(self._session.run(f"DELETE FROM {name} t WHERE {condition}") for condition in brought)
        if published:
            self._session.run(f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT")
        return removed
