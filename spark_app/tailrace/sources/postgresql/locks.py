"""The holder of a lock that blocks Tailrace. Asked after a wait has timed out, for messages only."""

from collections.abc import Sequence

from tailrace.databases.postgresql.connect import Connection

AGAINST_READING = ("AccessExclusiveLock",)
AGAINST_PUBLISHING = (
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)


def holder(connection: Connection, oid: int, modes: Sequence[str]) -> str:
    """The session that holds, or is first in the queue for, a lock of one of these modes on the table, a partition of
    it or an index of these."""
    row = connection.execute(_HOLDER, (oid, list(modes))).fetchone()
    if row is None:
        return "another session held a lock on it"
    relation, mode, granted, pid, application, prepared, age = row
    who = f"backend {pid} ({application!r})" if prepared is None else f"prepared transaction {prepared!r}"
    since = "" if age is None else f", in a transaction open for {age} s"
    return f"{who} {'holds' if granted else 'waits for'} {mode} on {relation}{since}"


# pg_locks shows every lock to everybody; of other users' sessions pg_stat_activity hides when their transaction began.
_HOLDER = """
WITH RECURSIVE member(oid) AS (
  SELECT %s::int8::oid UNION SELECT i.inhrelid FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.oid),
relation(oid) AS (
  SELECT oid FROM member UNION ALL SELECT x.indexrelid FROM member m JOIN pg_catalog.pg_index x ON x.indrelid = m.oid)
SELECT l.relation::regclass::text, l.mode, l.granted, l.pid, a.application_name, p.gid,
       extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(p.prepared, a.xact_start))::int
  FROM pg_catalog.pg_locks l JOIN relation r ON r.oid = l.relation
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_catalog.pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
        AND t.virtualtransaction = l.virtualtransaction
  LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = t.transactionid
 WHERE l.locktype = 'relation' AND l.mode = ANY(%s) AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
 ORDER BY l.granted DESC, coalesce(p.prepared, a.xact_start) LIMIT 1
"""
