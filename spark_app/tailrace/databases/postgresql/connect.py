"""Connections to PostgreSQL: every one with pinned session settings, TLS, keep-alives and errors with our names.

Called by capture (replication connection), the catalog, chunk readers and preflight. `PgConfig` is picklable and holds
no secret: the password is read from its file at each connect, so a rotated one is taken without a restart.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg

from tailrace.databases import client_certificate
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
    privacy,
)
from tailrace.storage.secret_files import file_place

Connection = psycopg.Connection[tuple[Any, ...]]

Part = Literal["source", "target"]
REFUSED: dict[Part, type[SourceRefused | TargetRefused]] = {"source": SourceRefused, "target": TargetRefused}
RIGHTS: dict[Part, str] = {
    "source": "docs/postgresql.md lists them",
    "target": "`tailrace doctor` (in Kubernetes `kubectl tailrace doctor`) prints the statements",
}
DOCS: dict[Part, str] = {"source": "docs/postgresql.md", "target": "docs/database-targets.md"}
_OF_ROWS = ("0A", "22", "23", "2B", "42", "54")
"""Classes of SQLSTATE that a value, a constraint, a view, a name or a limit meets again at each attempt."""
_OF_SERVER = ("", "08", "53", "57", "58")
"""Classes that say that the server, or the connection to it, fails; no SQLSTATE: the connection is lost."""
READ_ONLY, DISK_FULL, NO_MEMORY = "25006", "53100", "53200"
"""SQLSTATEs of a server: the first of one that has become a standby."""
LOCKS_FIX = "Raise `max_locks_per_transaction` of the server: a transaction of many tables takes many locks."
CONNECT_SECONDS = 10
SETTINGS: dict[str, str] = {
    # The text of values: the same by the log and by a chunk, whatever ALTER ROLE … SET says (startup options win).
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "search_path": "pg_catalog",
    # Of statements with parameters, prepared or not: planning a look at one table's columns costs the server seven
    # times as much as the look.
    "plan_cache_mode": "force_generic_plan",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    # Long reads and an idle log connection are our ordinary life.
    "statement_timeout": "0",
    # A session of ours that waits for somebody's lock holds up much more than one table: whoever needs the lock tries
    # again, with pauses. (The making of a slot, which waits for transactions, has none.)
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read\\ committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Markers and publications need no standby's word: while none answers, capture must not wait.
    "synchronous_commit": "local",
    # A client whose machine died must not leave a backend that holds a snapshot. (Of no effect on a local socket.)
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # A policy that would hide rows is an error, never a silent filter.
    "row_security": "off",
    "jit": "off",
}
ON_REQUEST = 1 << 30
"""Executions after which psycopg prepares a statement unasked: none is, but where a caller says so."""
TARGET_SETTINGS: dict[str, str] = {"synchronous_commit": "on"}
"""The change log forgets what is committed there: whichever server takes over must have it."""
REPLICATION_SETTINGS: dict[str, str] = {"wal_sender_timeout": "30s", "lock_timeout": "0"}
DEPENDED_ON = "2BP01"
"""SQLSTATE of an object that cannot be dropped because of others."""
UNSUPPORTED = "0A000"
"""SQLSTATE of what the server cannot do, as to change the type of a column that a view shows."""
LOCKED = "55P03"
"""SQLSTATE of a lock that was not given within `lock_timeout`."""

_AUTHENTICATION = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects connection",
    "authentication failed for user",
    "is not permitted to log in",
    "requires a peer",
)
_CERTIFICATE = (
    "private key file",
    "valid client certificate",
    "certificate authentication failed",
    "alert unknown ca",
    "alert certificate",
    "alert bad certificate",
)
"""About the client's; the last three are TLS alerts of the server, which gives no details."""
_CROWDED = ("too many clients", "too many connections", "remaining connection slots")
"""Texts of a server that has all the connections that it may have: Tailrace's other connections continue."""
_TLS = {
    "server certificate for": "Check {part}.host: the server's certificate names other hosts.",
    "certificate": "Check {part}.tls: its CA must be the one that signed the server's certificate.",
    "server does not support SSL": "Switch TLS on in the server, or set {part}.tls.mode to prefer.",
}
"""Fixes by what the client says of the server."""
_REFUSED = (
    "permission denied",
    "certificate verify failed",
    "root certificate file",
    "server certificate for",
    "server does not support SSL",
    "must be superuser or replication role",
    "permission denied to start WAL sender",
    "unrecognized configuration parameter",
    "could not read root certificate",
)


@dataclass(frozen=True)
class PgConfig(ServerConfig):
    """`program` is seen in pg_stat_activity: by capture's, a dead predecessor's slot is recognised as ours."""

    database: str
    system_identifier: str | None = None
    """When set, a connection that reaches another server (load balancer, restored backup) is refused."""
    timeline: int | None = None
    """When set, so is one to a server that was promoted or put back since."""

    def bound_to(self, system_identifier: str, timeline: int) -> "PgConfig":
        """A copy that accepts only this very server, in the state in which the change log knows it."""
        return replace(self, system_identifier=system_identifier, timeline=timeline)

    @property
    def place(self) -> str:
        """The name of the database in messages."""
        return f"{self.host}:{self.port}/{self.database}"


def connect(config: PgConfig, *, replication: bool = False) -> Connection:
    """Open a connection in autocommit. `replication`: a walsender bound to the database."""
    try:
        parameters = _parameters(config, replication)
    except TailraceError as error:
        raise _placed(error, config.part) from None
    try:
        connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=ON_REQUEST)
    except psycopg.Error as error:
        raise _connect_error(config, error) from None
    try:
        with database_errors(config.place, config.part):
            _settle(connection, config, replication)
    except BaseException:
        connection.close()
        raise
    return connection


def _parameters(config: PgConfig, replication: bool) -> dict[str, Any]:
    more = REPLICATION_SETTINGS if replication else TARGET_SETTINGS if config.part == "target" else {}
    settings = SETTINGS | more
    parameters: dict[str, Any] = {
        "host": config.host,
        "port": config.port,
        "dbname": config.database,
        "user": config.username,
        "application_name": config.program,
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "client_encoding": "UTF8",
        "sslmode": config.tls_mode,
        "connect_timeout": CONNECT_SECONDS,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "passfile": "/dev/null/none",  # no file: libpq must not look for one of the user's
    }
    if config.password_file is not None:
        parameters["password"] = _password(config)
    if config.ca_file is not None:
        parameters["sslrootcert"] = config.ca_file
    elif config.tls_mode == "verify-full":
        parameters["sslrootcert"] = "system"
    if config.cert_file is not None and config.key_file is not None:
        client_certificate.load(ssl.create_default_context(), config.cert_file, config.key_file)
        parameters |= {"sslcert": config.cert_file, "sslkey": config.key_file}
    if replication:
        parameters["replication"] = "database"
    return parameters


def _password(config: PgConfig) -> str:
    assert config.password_file is not None
    try:
        return read_password(config.password_file, config.part).decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(
            f"{file_place(config.password_file, 'password file')} cannot be read: not UTF-8",
            "Write the password into it as UTF-8.",
        ) from None


def _placed(error: TailraceError, part: Part) -> TailraceError:
    error.where = part
    return error


def _settle(connection: Connection, config: PgConfig, replication: bool) -> None:
    if connection.info.server_version >= 170000:
        # Older servers refuse a connection that names it among the startup options.
        connection.execute("SET transaction_timeout = 0")
    if not replication:
        # A dead client's statement ends: a long read, or the making of a slot that nobody would own. Some platforms
        # cannot.
        with suppress(psycopg.errors.InvalidParameterValue):
            connection.execute("SET client_connection_check_interval = '5s'")
    if config.system_identifier is None:
        return
    found, timeline = _identity(connection, replication)
    if found != config.system_identifier:
        raise SourceRefused(
            f"{config.place} is the server with system identifier {found}, the change log belongs to"
            f" {config.system_identifier}",
            "Connect to the primary directly, not through a load balancer over several servers. A restored or"
            " new server needs a new change log.",
        )
    if timeline not in (None, config.timeline):
        # Not refused here: capture meets the same at its next start, and says what it means for the position.
        raise Retry(f"{config.place} is on timeline {timeline}, the change log belongs to {config.timeline}")


def _identity(connection: Connection, replication: bool) -> tuple[str, int | None]:
    """The server's identity, equal on primary and standbys, and the timeline that it writes (None: it is a standby)."""
    statement = "IDENTIFY_SYSTEM" if replication else _IDENTITY
    row = connection.execute(statement).fetchone()
    assert row is not None
    return str(row[0]), row[1]


# The first eight digits of a segment's name are the timeline that is being written now.
_IDENTITY = """
SELECT system_identifier::text, CASE WHEN NOT pg_is_in_recovery() THEN
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END
  FROM pg_catalog.pg_control_system()
"""


DATABASE = """
SELECT 'system identifier ' || system_identifier::text || ', database ' || current_database()
  FROM pg_catalog.pg_control_system()
"""
"""One text: the same for the same database, whatever its address."""


def take_unchecked_text(connection: Connection) -> None:
    """Call right before rows are read (COPY, START_REPLICATION).

    A SQL_ASCII database stores any bytes, and the server would break off at the first row that is not UTF-8. Taken as
    they are, the codec can name table and column, and the others continue. (psycopg reads text as bytes from then on.)
    """
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        connection.execute("SET client_encoding = 'SQL_ASCII'")


def _connect_error(config: PgConfig, error: psycopg.Error) -> TailraceError:
    text, part = _one_line(str(error)), config.part
    what = f"{config.place} as {config.username!r}: {text}"
    about_certificate = any(known in text for known in _CERTIFICATE)
    refused = any(known in text for known in _AUTHENTICATION) or ("role" in text and "does not exist" in text)
    if about_certificate or (refused and config.cert_file is not None):
        fix = f"Check {part}.username, the password, the client's certificate and key in {part}.tls, and pg_hba.conf."
        return _placed(AuthenticationFailed(what, fix), part)
    if refused:
        return _placed(AuthenticationFailed(what, f"Check {part}.username, the password and pg_hba.conf."), part)
    if "database" in text and "does not exist" in text:
        fix = f"Create the database, or correct {part}.database; in Kubernetes, create another Replicator."
        missing = REFUSED[part](what, fix)
        if isinstance(missing, TargetRefused):
            missing.absent = True
        return missing
    if any(known in text for known in _REFUSED):
        general = "Check the settings and rights of the {part}; {docs} lists them."
        fix = next((fix for known, fix in _TLS.items() if known in text), general)
        return REFUSED[part](what, fix.format(part=part, docs=DOCS[part]))
    fix = f"Check {part}.host, {part}.port, and that the server runs and can be reached from here."
    met = Retry if any(known in text for known in _CROWDED) else Retry.of_place
    return met(f"cannot connect to {what}", fix)


def error_text(error: psycopg.Error) -> str:
    """The server's message, without what may be a row's."""
    primary = None if privacy.showing() else error.diag.message_primary
    return privacy.server_text(_one_line(primary or str(error)), error.sqlstate)


def _one_line(text: str) -> str:
    """Each line is a sentence, often without a full stop. The client's questions ("Is the server running?") are left
    out: the fix asks them better."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    kept = [line for line in lines if line and not line.endswith("?")]
    return " ".join(line if line[-1] in ".,:;" else f"{line}." for line in kept).removesuffix(".")


@contextmanager
def source_errors(what: str) -> Iterator[None]:
    """Turn the source's errors into ours: `database_errors`."""
    with database_errors(what, "source"):
        yield


@contextmanager
def database_errors(what: str, part: Part) -> Iterator[None]:
    """Turn psycopg's errors into ours. `what`: what was being done. Missing rights: `SourceRefused` or
    `TargetRefused`."""
    with met_at(part), _as_ours(what, part):
        yield


@contextmanager
def _as_ours(what: str, part: Part) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        text = f"{what}: {error_text(error)}" + (f" (SQLSTATE {state})" if state else "")
        if state == LOCKED:
            text = f"{what}: another session has held a lock for {SETTINGS['lock_timeout']} (SQLSTATE {state})"
        if state.startswith("28"):
            raise _placed(AuthenticationFailed(text, f"Check {part}.username and the password."), part) from None
        if state in ("42501", "3D000") or (part == "source" and state.startswith("0A")):
            raise REFUSED[part](text, f"Grant the missing rights; {RIGHTS[part]}.") from None
        detail = error.diag.message_detail or ""
        if part == "target" and (state == DEPENDED_ON or (state == UNSUPPORTED and detail)):
            lines = detail.splitlines()  # names of objects
            fix = "Drop what depends on it; it can be created again afterwards."
            raise TargetRefused(f"{text}: {'; '.join(lines)}", fix) from None
        if part == "target" and state[:2] in _OF_ROWS:
            what = "Remove what the target's table has beyond its columns and primary key"
            how = "`tailrace doctor`, in Kubernetes `kubectl tailrace doctor`, names it"
            fix = f"{what} ({how}), or correct the value."
            raise TargetRefused(text, fix) from None
        if part == "target" and state == DISK_FULL:
            raise StorageFull(text, MAKE_ROOM) from None
        if part == "target" and (state[:2] in _OF_SERVER or state == READ_ONLY):
            fix = LOCKS_FIX if state == NO_MEMORY and "shared memory" in text else ""
            raise Retry.of_place(text, fix) from None  # no table's fault
        again = Retry(text)
        again.locked = state == LOCKED
        raise again from None
