"""The primary key of a copy, dropped while the table is empty and built once it has its rows. See
`targets.sql.session.LateKeys`."""

from collections.abc import Sequence
from contextlib import suppress

import psycopg

from tailrace.databases.postgresql.connect import Connection
from tailrace.targets.sql.session import Place, TargetSession, list_of, table

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


class PgLateKeys:
    def __init__(self, session: TargetSession, connection: Connection) -> None:
        self._session, self._connection = session, connection

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
