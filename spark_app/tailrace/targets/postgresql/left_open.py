"""Transactions of drivers that were overtaken, or whose connection was lost: they keep copies locked for as long as the
server waits for their client. Called by the session, when a lock was not given."""

from collections.abc import Callable, Collection
from typing import Any

from tailrace.targets.postgresql.late_keys import LOADING

CREATING = 0x7461696C72616365
"""Number of the advisory lock of sessions that create schemas and tables."""
PATIENCE = "5 seconds"
"""Time for which the server must have been waiting for the client."""
_END = """
WITH found AS MATERIALIZED (
SELECT a.pid FROM pg_stat_activity a
 WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND a.usename = current_user
   AND a.application_name = current_setting('application_name')
   AND a.wait_event_type = 'Client' AND a.state_change < clock_timestamp() - %s::interval
   AND EXISTS (
       SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.pid = a.pid AND l.granted
          AND (l.locktype = 'relation' AND l.relation = ANY (%s::oid[])
               AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
            OR l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32) + l.objid::bigint = %s))
   AND NOT EXISTS (
       SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.classid = %s::oid
          AND l.mode = 'ShareLock')
) SELECT pid FROM found WHERE pg_terminate_backend(pid)
"""
"""Such a session changes one of the copies, or creates some: nobody else can then create any, and what it has created
has no number yet that others see. Loads of executors, which share an advisory lock, may be this driver's. Materialized:
a condition that ends sessions must not be asked before the others."""


def end(rows: Callable[..., list[tuple[Any, ...]]], copies: Collection[int]) -> list[str]:
    """`copies`: their numbers. Returns the names of the sessions."""
    return [f"backend {pid}" for (pid,) in rows(_END, PATIENCE, list(copies), CREATING, LOADING)]
