"""The server's answers about itself and the user's rights, for preflight. Called by `subscription`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.databases.mysql.connect import Connection, Server, execute, replica_status, server_of, source_errors
from tailrace.errors import Retry, SourceRefused
from tailrace.sources.mysql import filters, sql
from tailrace.sources.mysql.cascades import Cascade, UnknownCascades, cascades
from tailrace.sources.mysql.catalog import TRANSACTIONAL
from tailrace.sources.mysql.model import MysqlTable

DURABLE = {"sync_binlog": ("1",), "innodb_flush_log_at_trx_commit": ("1", "3")}
"""Settings with which log and tables are on the disk when a commit ends. The 3 is MariaDB's."""
_NAMES = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "xa_detach_on_prepare",
    "binlog_row_metadata",
    "binlog_row_value_options",
    *DURABLE,
    "gtid_mode",
    "server_id",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "log_slave_updates",
    "log_replica_updates",
    "innodb_native_foreign_keys",
    "max_prepared_stmt_count",
)
_GRANT = re.compile(r"GRANT (?P<rights>.+) ON (?P<place>\S+) TO ", re.IGNORECASE)


@dataclass(frozen=True)
class Facts:
    server: Server
    user: str
    """The user as GRANT names it: `'tailrace'@'%'`."""
    variables: Mapping[str, str]
    """Lower-case names; those that the server does not have are missing."""
    rights: frozenset[str]
    """Upper-case, on everything (`*.*`)."""
    replica: bool | None
    """It applies the log of another server; None: the right to see it is missing."""
    dropped: str
    """Databases that the log leaves out, or the only ones that it holds; empty: it holds all."""
    tables: Sequence[MysqlTable]
    unreadable: frozenset[str]
    """Names of tables without a SELECT right."""
    partly_readable: frozenset[str]
    """Names of tables with a SELECT right on some columns: the catalog shows only these."""
    unlockable: frozenset[str]
    """Names of tables that reading must lock (their engine has no transactions), without the right to."""
    cascades: tuple[Cascade | UnknownCascades, ...]
    filters: filters.Rules
    """The filters by which it may have left out changes as a replica."""

    def on(self, name: str) -> bool:
        return self.variables.get(name, "OFF").upper() in ("ON", "1")

    @property
    def may_lose_xa(self) -> bool:
        """True if the server can log an XA COMMIT and lose the rows: if it comes from another session while the one
        that prepared the transaction is disconnecting. With `xa_detach_on_prepare` that one has nothing to do with
        it any more."""
        return not self.on("xa_detach_on_prepare")

    @property
    def may_differ_after_crash(self) -> bool:
        """True if a crash can leave changes in the log that the tables lack, or the other way round."""
        return any(self.variables.get(name, "1") not in full for name, full in DURABLE.items())

    @property
    def logs_what_it_applies(self) -> bool:
        """True if, as a replica, it logs what it applies."""
        return self.on("log_replica_updates") or self.on("log_slave_updates")


def observe(connection: Connection, tables: Sequence[MysqlTable]) -> Facts:
    with source_errors("looking at the source's settings and rights"):
        names = f"Variable_name IN {sql.listed(_NAMES)}"
        found = execute(connection, f"SHOW GLOBAL VARIABLES WHERE {names}")
        server, variables = server_of(connection), {str(name).lower(): str(value) for name, value in found}
        unreadable = _refused(connection, tables, "1")
        return Facts(
            server=server,
            user=account(connection),
            variables=variables,
            rights=rights(connection),
            replica=is_replica(connection, server),
            dropped=_dropped(connection, server),
            tables=tables,
            unreadable=unreadable,
            partly_readable=_refused(connection, tables, "*") - unreadable,
            unlockable=frozenset(t.name for t in tables if not _lockable(connection, t)),
            # Since 9.6 MySQL logs them, unless `innodb_native_foreign_keys` is on.
            cascades=() if variables.get("innodb_native_foreign_keys") == "OFF" else cascades(connection, tables),
            filters=filters.rules(connection, server),
        )


def rights(connection: Connection) -> frozenset[str]:
    """The rights of the user and its active roles on everything."""
    held: set[str] = set()
    for (grant,) in execute(connection, "SHOW GRANTS"):
        found = _GRANT.match(str(grant))
        if found is not None and found["place"] == "*.*":
            held |= {right.strip().upper() for right in found["rights"].split(",")}
    return frozenset(held)


def account(connection: Connection) -> str:
    """The user as a GRANT names it."""
    name, _, host = str(execute(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return f"{sql.text(name)}@{sql.text(host)}"


def is_replica(connection: Connection, server: Server) -> bool | None:
    """True if it applies the log of another server; None: the right to see it is missing."""
    found = _try(connection, replica_status(server))
    return None if found is None else bool(found)


def _dropped(connection: Connection, server: Server) -> str:
    renamed = server.product == "mysql" and server.version >= (8, 2)
    found = _try(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    return " ".join(str(v) for v in found[0][2:4] if v) if found else ""


def _try(connection: Connection, statement: str) -> Sequence[tuple[object, ...]] | None:
    """None where the right for it is missing: a check says so."""
    try:
        with source_errors(statement):
            return execute(connection, statement)
    except SourceRefused:
        return None


def _refused(connection: Connection, tables: Sequence[MysqlTable], what: str) -> frozenset[str]:
    """Names of those of which the user may not select this."""
    return frozenset(t.name for t in tables if not _readable(connection, t, what))


def _lockable(connection: Connection, table: MysqlTable) -> bool:
    """True if the table can be locked as far as it must be."""
    return (
        table.stop is not None
        or table.engine in TRANSACTIONAL
        or _allowed(connection, table, f"LOCK TABLES {table.quoted} READ", "UNLOCK TABLES")
    )


def _readable(connection: Connection, table: MysqlTable, what: str) -> bool:
    return _allowed(connection, table, f"SELECT {what} FROM {table.quoted} LIMIT 0")


def _allowed(connection: Connection, table: MysqlTable, *statements: str) -> bool:
    try:
        with source_errors(f"reading {table.name}"):
            for statement in statements:
                execute(connection, statement)
    except SourceRefused:
        return False
    except Retry:  # locked, or just dropped: nothing is known about the right
        return True
    return True
