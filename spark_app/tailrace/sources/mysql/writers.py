"""Sessions of a MySQL or MariaDB source that may still write: asked by a cutover, which needs the source to be
quiet."""

from collections.abc import Iterator

from tailrace.databases.mysql.connect import Connection, Server, execute, replica_status, rows, server_of, source_errors
from tailrace.sources.findings import Writers

# Waits for the commits that are under way; whoever has not committed then cannot any more.
_SET = "SET GLOBAL read_only = ON"
_WRITING = """
SELECT trx_mysql_thread_id FROM information_schema.innodb_trx
 WHERE trx_rows_modified > 0 AND trx_mysql_thread_id <> CONNECTION_ID() ORDER BY 1 LIMIT 5
"""


def writers(connection: Connection, stopped: bool) -> Writers:
    """See `sources.api.Session.writers`."""
    with source_errors(
        "looking for what may write (rights PROCESS and, to see replicas, REPLICATION CLIENT; MariaDB: SLAVE MONITOR)"
    ):
        ((read_only, server),) = execute(connection, "SELECT @@global.read_only, @@hostname")
        quiet = str(read_only) not in ("0", "OFF")
        return Writers(tuple(_obstacles(connection, quiet, stopped)), str(server) if quiet else None)


def _obstacles(connection: Connection, quiet: bool, stopped: bool) -> Iterator[tuple[str, str]]:
    if not quiet and not stopped:
        yield (
            "the source is not read-only",
            f"Stop the programs that write, then run `{_SET}` there.",
        )
        return
    for (thread,) in execute(connection, _WRITING):
        yield f"connection {thread} has an open transaction that changes rows", "Commit it or roll it back."
    if not stopped:
        yield from _replicates(connection)


def _replicates(connection: Connection) -> Iterator[tuple[str, str]]:
    """A replica writes what programs do elsewhere, although it is read-only; one that is stopped can be started."""
    server = server_of(connection)
    for found in rows(connection, replica_status(server)):
        host, port = (found.get(f"source_{what}", found.get(f"master_{what}")) for what in ("host", "port"))
        ended = _ended(server, str(found.get("connection_name") or ""))
        yield (
            f"the source is a replica of {host}:{port}, where programs may write",
            "Make that server read-only and wait until the replica has everything, then run"
            f" `{ended}` at the replica; or copy from that server.",
        )


def _ended(server: Server, name: str) -> str:
    word = "REPLICA" if server.product == "mysql" and server.version >= (8, 0, 22) else "SLAVE"
    which = f"{word} '{name}'" if name else word
    return f"STOP {which}; RESET {which} ALL"
