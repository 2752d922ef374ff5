"""Sessions of a MySQL or MariaDB source that may still write: asked by a cutover, which needs the source to be
quiet."""

from collections.abc import Iterator

import pymysql

from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, Server, execute, replica_status, rows, server_of, source_errors
from tailrace.sources.findings import Writers

# Waits for the commits that are under way; whoever has not committed then cannot any more.
_SET = "SET GLOBAL read_only = ON"
_WRITING = """
SELECT trx_mysql_thread_id FROM information_schema.innodb_trx
 WHERE trx_rows_modified > 0 AND trx_mysql_thread_id <> CONNECTION_ID() ORDER BY 1 LIMIT 5
"""
_MEMBERS = "performance_schema.replication_group_members"
_OTHERS = f"SELECT member_host, member_port FROM {_MEMBERS} WHERE member_id <> @@server_uuid ORDER BY 1, 2 LIMIT 5"
_STATE = f"SELECT member_state FROM {_MEMBERS} WHERE member_id = @@server_uuid"
# By name alone, for which no right is needed. A backslash would be taken for itself: sessions have no escapes.
_GROUP = "SHOW GLOBAL VARIABLES LIKE 'group_replication_group_name'"
_CLUSTER = "SHOW GLOBAL STATUS LIKE 'wsrep_c%'"
_MANY = "the source is one of several servers that programs may write to"
_ALONE = "Make every member read-only and wait until the source has everything, then"


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
        yield from _in_group(connection)
        yield from _in_cluster(connection)


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


def _in_group(connection: Connection) -> Iterator[tuple[str, str]]:
    """Group Replication: any other member may take writes, in single-primary mode as soon as it is elected."""
    if not any(name for _, name in execute(connection, _GROUP)):
        return
    try:
        state = [str(state) for (state,) in execute(connection, _STATE)]
        others = [f"{host}:{port}" for host, port in execute(connection, _OTHERS)]
    except pymysql.MySQLError as error:
        if faults.kind(error) != "right":
            raise
        what = "the source belongs to a replication group, whose members Tailrace may not see"
        yield what, f"Run `GRANT SELECT ON {_MEMBERS} TO` the user of Tailrace at the source."
        return
    if state == ["ERROR"]:
        fix = "Let it join again, or run `STOP GROUP_REPLICATION` at the source if no program writes to the others."
        yield "the source was expelled from its replication group, whose members programs may write to", fix
    elif others and state not in ([], ["OFFLINE"]):
        yield f"{_MANY}: {', '.join(others)}", f"{_ALONE} run `STOP GROUP_REPLICATION` at the source."


def _in_cluster(connection: Connection) -> Iterator[tuple[str, str]]:
    """Galera. One that left it, cleanly or not, refuses statements unless it is told to be alone."""
    found = {str(name).lower(): str(value) for name, value in execute(connection, _CLUSTER)}
    size, state = int(found.get("wsrep_cluster_size") or 0), found.get("wsrep_cluster_status", "")
    if found.get("wsrep_connected") != "ON":
        return
    if size > 1:
        yield f"{_MANY}: a Galera cluster of {size}", f"{_ALONE} shut the other members down."
    elif state.lower() != "primary":
        what = f"the source is in the {state} component of its Galera cluster, and programs may write to the other"
        yield what, "Join the members again."
