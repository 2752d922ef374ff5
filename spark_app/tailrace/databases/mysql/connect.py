"""Connections to MySQL and MariaDB: every one with pinned session settings, TLS, timeouts and errors with our names.

Called by the log, the catalog, chunk readers and preflight. `MyConfig` is picklable and holds no secret: the password
is read from its file at each connect, so a rotated one is taken without a restart.
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor, DictCursor

from tailrace.databases import client_certificate
from tailrace.databases.mysql import faults
from tailrace.databases.secret_files import read_password
from tailrace.databases.server import ServerConfig
from tailrace.errors import (
    MAKE_ROOM,
    AuthenticationFailed,
    Retry,
    SourceRefused,
    StorageFull,
    TailraceError,
    TargetRefused,
    met_at,
)

Connection = pymysql.Connection
Part = Literal["source", "target"]

CONNECT_SECONDS = 10
ANSWER_SECONDS = 900
"""Longest silence of the server inside an answer: a chunk's first row comes after all its rows were looked for."""
PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A machine that vanishes says nothing, while a server may take long: only the network can tell them apart. Seconds,
how many, and milliseconds; what a system does not have is left out."""
SORTED = 1 << 16
"""Bytes of a value that the server sorts by: a key of 3,072 bytes can become 49,152 in the form that it compares."""
SETTINGS = (
    # The text of values and literals, whatever the server's defaults say.
    "NAMES utf8mb4 COLLATE utf8mb4_bin",
    "time_zone = '+00:00'",
    # A bound of a range can be a date that does not exist: without it MySQL 9 refuses to compare with one.
    "sql_mode = 'NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES'",
    # Without a limit: DEFAULT would be the server's own.
    "sql_select_limit = 18446744073709551615",
    "sql_big_selects = 1",
    # Where an index makes no order of long keys, the server sorts: by the whole key, and with the room that it takes.
    f"max_sort_length = {SORTED}",
    "sort_buffer_size = 16777216",
    # PyMySQL sets it only where the greeting says otherwise, and MySQL's greeting does not know the server's default.
    # Without it a session that has looked at a table keeps a lock on its definition.
    "autocommit = 1",
    # A COMMIT ends the transaction, and not the connection as well.
    "completion_type = 0",
    # Names in definitions.
    "sql_quote_show_create = 1",
    # Whoever waits for a lock of ours waits for much more than one table: we try again, with pauses.
    "lock_wait_timeout = 5",
    # Rows may be written to a slow target while they arrive.
    "net_write_timeout = 900",
    "net_read_timeout = 900",
    # What is asked in SQL waits while a large transaction is read: ended meanwhile, it would be read again without end.
    "wait_timeout = 86400",
)
TARGET_SETTINGS = (
    # A value that does not fit is refused, never changed.
    "sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,"
    "ALLOW_INVALID_DATES'",
    # Constraints that people have put on copies must not act on what the source has done already.
    "foreign_key_checks = 0",
    "unique_checks = 1",
    "sql_safe_updates = 0",
    "default_storage_engine = InnoDB",
    # Errors name their column in words that we know.
    "lc_messages = 'en_US'",
    "innodb_lock_wait_timeout = 5"
    # A driver that stands still in a transaction keeps copies locked, which MariaDB tells no other session.
    "/*M! , idle_write_transaction_timeout = 1800 */",
)
"""Beyond SETTINGS: sessions that write."""
REFUSED: dict[Part, type[SourceRefused | TargetRefused]] = {"source": SourceRefused, "target": TargetRefused}
DOCS: dict[Part, str] = {"source": "docs/mysql.md", "target": "docs/database-targets.md"}
_LOST = (1047, 1053, 1927, 2003, 2006, 2013, 2055, 4031, 0)
"""The server ends, or the connection to it; or it is a member of a cluster that takes no statements."""
_READ_ONLY = (1290, 1836)
"""The server has become one that takes no writes, as after a failover."""
SERVER_ID = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')"
"""The first is MySQL's, the second that of newer versions of MariaDB."""
SERVER_ID_PREFIX = "server_id "
"""The prefix of a MariaDB's identity."""
TRANSACTIONS: dict[Part, str] = {
    "source": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "target": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
}
"""Nothing writes into a source: the server makes sure."""
FIRST = (
    "SET SESSION /*!50708 max_execution_time = 0 *//*M! max_statement_time = 0 */"
    # MariaDB's catalog makes temporary tables.
    "/*M! , SESSION tmp_disk_table_size = 18446744073709551615 */"
    "/*!80030 , SESSION show_gipk_in_create_table_and_information_schema = ON */"
)
"""Before it is known who answers, for a server's limit on time holds for that question, too. Each server reads what its
comments' numbers mean for it: MySQL's from a version on, MariaDB's its own."""


@dataclass(frozen=True)
class Server:
    """The server that answers."""

    product: str
    """`mysql` or `mariadb`."""
    version: tuple[int, ...]
    identity: str
    """MySQL: the server's uuid. MariaDB: its server id, which servers that replicate from each other have of their own;
    its uid changes with its address."""


@dataclass(frozen=True)
class MyConfig(ServerConfig):
    identity: str | None = None
    """Only this very server is accepted; None: any."""

    @property
    def place(self) -> str:
        """The name of the server in messages."""
        return f"{self.host}:{self.port}"


def connect(config: MyConfig) -> Connection:
    """Open a connection in autocommit, without a default database."""
    with met_at(config.part):
        connection = _opened(config)
    try:
        with database_errors(config.place, config.part):
            _settle(connection, config)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(config: MyConfig) -> "_Connection":
    try:
        connection = (_WatchedConnection if config.part == "target" else _Connection)(
            host=config.host,
            port=config.port,
            user=config.username,
            password=b"" if config.password_file is None else read_password(config.password_file, config.part),
            program_name=config.program,
            charset="utf8mb4",
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            write_timeout=ANSWER_SECONDS,
            autocommit=True,
            init_command=FIRST,
            # A target's rows count as changed where they are found: states are compared by it.
            client_flag=CLIENT.FOUND_ROWS if config.part == "target" else 0,
            **_tls(config),
        )
    except (pymysql.MySQLError, OSError) as error:
        raise _connect_error(config, error) from None
    for name, value in PROBES.items():
        if hasattr(socket, name):
            connection._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)  # type: ignore[attr-defined]  # no public name
    return connection


def _tls(config: MyConfig) -> dict[str, Any]:
    """PyMySQL uses TLS if the server offers it, without a look at the certificate, unless told otherwise."""
    if config.tls_mode == "disable":
        return {"ssl_disabled": True}
    if config.tls_mode in ("allow", "prefer"):
        return {}
    unchecked = config.tls_mode == "require" and config.ca_file is None
    try:
        context = _unchecked() if unchecked else ssl.create_default_context(cafile=config.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise REFUSED[config.part](
            f"the CA file {config.ca_file} cannot be read: {error.strerror}", f"Correct {config.part}.tls."
        ) from None
    # The certificates that MySQL makes for itself at its first start do not pass it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = config.tls_mode == "verify-full"
    if config.cert_file is not None and config.key_file is not None:
        client_certificate.load(context, config.cert_file, config.key_file)
    return {"ssl": context}


def _unchecked() -> ssl.SSLContext:
    """TLS without a look at the server's certificate: reading the system's certificates takes 24 CPU ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_OFFERED = _unchecked()


class _Connection(pymysql.Connection):
    server: "Server | None" = None
    """The one that answers, once it was asked."""
    waiting_since: float | None = None
    """The time, of a monotonic clock, since which it has been waiting for the server; None: it does not."""

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """A context; asked for without settings, by each connection, where TLS is used only if the server offers it."""
        return super()._create_ssl_ctx(sslp) if sslp else _OFFERED  # type: ignore[misc]  # no public name


class _WatchedConnection(_Connection):
    """A connection that tells since when its server has been silent: one that writes may wait for room on its disk."""

    def _read_bytes(self, num_bytes: int) -> bytes:
        self.waiting_since = time.monotonic()
        try:
            return bytes(super()._read_bytes(num_bytes))  # type: ignore[misc]  # no public name
        finally:
            self.waiting_since = None

    def _write_bytes(self, data: bytes) -> None:
        self.waiting_since = time.monotonic()
        try:
            super()._write_bytes(data)  # type: ignore[misc]  # no public name
        finally:
            self.waiting_since = None


def silent_for(connection: Connection) -> float:
    """Seconds; 0: nothing is waited for, or the connection does not tell."""
    since = connection.waiting_since if isinstance(connection, _Connection) else None
    return 0.0 if since is None else time.monotonic() - since


def _settle(connection: _Connection, config: MyConfig) -> None:
    # Before any question: a server's limit on rows, or its character set, holds for each.
    own = TARGET_SETTINGS if config.part == "target" else ()
    execute(connection, "SET " + ", ".join((*SETTINGS[1:], *own)))
    execute(connection, "SET " + SETTINGS[0])
    server = connection.server = _asked(connection)
    if config.identity not in (None, server.identity):
        # Capture's next start decides whether it has taken that one's place, and says so in the change log.
        raise Retry(
            f"{config.place} is the server {server.identity}, the change log is read from {config.identity}",
            "Wait until capture has looked at the server. If it stays so: connect to the server directly, not through a"
            " load balancer over several.",
        )
    execute(connection, TRANSACTIONS[config.part])


def server_of(connection: Connection) -> Server:
    """The server that answers: a connection of `connect` has asked it."""
    known = connection.server if isinstance(connection, _Connection) else None
    return known or _asked(connection)


def _asked(connection: Connection) -> Server:
    text = str(execute(connection, "SELECT VERSION()")[0][0])
    numbers = re.match(r"\d+(?:\.\d+)*", text)  # services put words behind them
    version = tuple(map(int, numbers[0].split("."))) if numbers else ()
    if "MariaDB" not in text:
        return Server("mysql", version, str(execute(connection, "SELECT @@server_uuid")[0][0]))
    number = execute(connection, "SELECT @@GLOBAL.server_id")[0][0]
    return Server("mariadb", version, f"{SERVER_ID_PREFIX}{number}")


def replica_status(server: Server) -> str:
    """The statement that shows what a replica reads; no row: it is none."""
    if server.product == "mariadb":
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if server.version >= (8, 0, 22) else "SHOW SLAVE STATUS"


def id_of(rows: Sequence[tuple[Any, ...]]) -> str | None:
    """The identity of a server that has been asked for `SERVER_ID`; None: it tells none."""
    return f"server {rows[0][1]}" if rows else None


def execute(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement, which has no parameters: see `sql`."""
    with connection.cursor(Cursor) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def rows(connection: Connection, statement: str) -> list[dict[str, Any]]:
    """The rows by lower-case column names."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(statement)
        return [{name.lower(): value for name, value in row.items()} for row in cursor.fetchall()]


def _connect_error(config: MyConfig, error: Exception) -> TailraceError:
    what, part = f"{config.place} as {config.username!r}: {faults.connect_text(error)}", config.part
    kind = faults.kind(error)
    if kind == "passing" and config.cert_file is not None and "_ALERT_" in what:
        kind = "authentication"  # the server's word on the client's certificate
    match kind:
        case "authentication":
            who = f"Check {part}.username, the password, the host that the user has, and the client's certificate in"
            return AuthenticationFailed(what, f"{who} {part}.tls if the user requires one.")
        case "refused":
            fix = f"Check {part}.tls, and the settings and rights of the {part}: {DOCS[part]}."
            return REFUSED[part](what, fix)
        case _:
            met = Retry if faults.number(error) in faults.CROWDED else Retry.of_place
            away = f"Check {part}.host, {part}.port, and that the server runs and can be reached from here."
            return met(f"cannot connect to {what}", faults.HELP.get(faults.number(error), away))


@contextmanager
def source_errors(what: str) -> Iterator[None]:
    """Turn the source's errors into ours: `database_errors`."""
    with database_errors(what, "source"):
        yield


@contextmanager
def database_errors(what: str, part: Part) -> Iterator[None]:
    """Turn PyMySQL's errors into ours. `what`: what was being done. Missing rights: `SourceRefused` or
    `TargetRefused`."""
    with met_at(part):
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            raise _ours(what, error, part) from None


def _ours(what: str, error: Exception, part: Part) -> TailraceError:
    text = f"{what}: {faults.text(error)}"
    if part == "target" and faults.is_no_room(error):
        return StorageFull(text, MAKE_ROOM)  # no table's fault
    match faults.kind(error):
        case "authentication":
            return AuthenticationFailed(text, f"Check {part}.username and the password.")
        case "right" | "refused":
            return REFUSED[part](text, f"Grant the missing rights; {DOCS[part]} lists them.")
        case "statement" | "definition" if part == "target":
            fix = "Remove what the target's table has beyond its columns and primary key, or correct the value."
            return TargetRefused(text, fix)
        case _ if part == "target" and faults.number(error) in (*_LOST, *_READ_ONLY):
            return Retry.of_place(text)  # no table's fault
        case found:
            again = Retry(text, faults.HELP.get(faults.number(error), ""))
            again.locked = found == "locked"
            return again
