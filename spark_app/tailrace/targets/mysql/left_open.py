"""Transactions of drivers that were overtaken, or whose connection was lost: they keep copies locked for as long as the
server waits for their client. Called by the session, when a lock was not given.

MariaDB does not tell which tables a transaction has locked: there it is ended by `idle_write_transaction_timeout`.
"""

from collections.abc import Collection
from contextlib import suppress

import pymysql

from tailrace.databases.mysql.connect import Connection, execute
from tailrace.targets.mysql.literals import literal
from tailrace.targets.sql.session import Place

PATIENCE = 5
"""Seconds for which the server must have been waiting for the client."""
_OPEN = """
SELECT DISTINCT p.ID FROM performance_schema.session_account_connect_attrs a
  JOIN performance_schema.processlist p ON p.ID = a.PROCESSLIST_ID
  JOIN performance_schema.data_locks l ON l.THREAD_ID = PS_THREAD_ID(p.ID)
 WHERE a.ATTR_NAME = 'program_name' AND a.ATTR_VALUE = {program} AND p.ID <> CONNECTION_ID()
   AND p.COMMAND = 'Sleep' AND p.TIME >= {patience}
   AND l.LOCK_TYPE = 'TABLE' AND l.LOCK_MODE LIKE '%X' AND (l.OBJECT_SCHEMA, l.OBJECT_NAME) IN ({places})
"""


def end(connection: Connection, program: str, copies: Collection[Place]) -> list[str]:
    """Returns the names of the sessions; of those that have ended meanwhile, too. Nothing where the user may not see
    locks (`SELECT` on `performance_schema`)."""
    places = ", ".join(f"({literal(schema)}, {literal(name)})" for schema, name in copies)
    try:
        found = execute(connection, _OPEN.format(program=literal(program), patience=PATIENCE, places=places))
    except pymysql.err.OperationalError:
        return []
    for (number,) in found:
        with suppress(pymysql.err.OperationalError):
            execute(connection, f"KILL {int(number)}")
    return [f"connection {number}" for (number,) in found]
