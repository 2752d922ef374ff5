"""Connections to Snowflake with a key pair, and what its errors mean. Called by `session`."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import snowflake.connector
from cryptography.hazmat.primitives import serialization
from snowflake.connector import errors

from tailrace.errors import AuthenticationFailed, Retry, TailraceError, TargetRefused, privacy

LOCK_SECONDS = 60
"""Seconds after which a statement that waits for another transaction gives up: by default it would be hours."""
CONNECT_SECONDS = 30
NO_DETECTION = "SNOWFLAKE_DISABLE_PLATFORM_DETECTION"
"""Environment variable: the client asks no cloud's metadata service what it runs on, and for which identity."""
SETTINGS: dict[str, object] = {
    "ABORT_DETACHED_QUERY": True,
    "AUTOCOMMIT": True,
    "BINARY_INPUT_FORMAT": "HEX",
    "BINARY_OUTPUT_FORMAT": "HEX",
    "CLIENT_TELEMETRY_ENABLED": False,
    "DATE_INPUT_FORMAT": "AUTO",
    "LOCK_TIMEOUT": LOCK_SECONDS,
    "QUERY_TAG": "tailrace",
    "QUOTED_IDENTIFIERS_IGNORE_CASE": False,
    "ROWS_PER_RESULTSET": 0,
    "TIMESTAMP_INPUT_FORMAT": "AUTO",
    "TIMEZONE": "UTC",
    "TIME_INPUT_FORMAT": "AUTO",
    "TRANSACTION_ABORT_ON_ERROR": True,
}
"""Settings of a session: accounts and users may have others, under which statements would not be committed, days be
read as months, or answers end early. `ABORT_DETACHED_QUERY`: what a killed driver runs ends after five minutes."""
LOGIN = range(390100, 390500)
"""Errors of a login; of a statement: the session has ended, as it does when nothing was asked for hours."""
OF_VALUES = range(100000, 101000)
"""Errors of values that a statement meets in rows."""
OF_STATEMENTS = ("0A", "23", "42")
"""Classes of SQLSTATE that a statement meets again at each attempt."""
ABSENT, RIGHT, NO_WAREHOUSE, EXISTS = 2003, 3001, 606, 2002
"""Something does not exist, or the role may not see it; the role may not do it; no warehouse; something exists."""
_VALUE = re.compile("'.*'", re.DOTALL)


@dataclass(frozen=True)
class SnowflakeConfig:
    """The way to the target. Picklable; holds no secret."""

    account: str
    user: str
    database: str
    schema: str
    warehouse: str
    role: str
    endpoint: str | None
    key: str
    """Path of the file with the private key."""
    passphrase: str
    """Path of a file with its passphrase, which may be missing."""

    @property
    def place(self) -> str:
        return f"Snowflake {self.account} {self.database}.{self.schema}"


def connect(config: SnowflakeConfig) -> Any:
    os.environ.setdefault(NO_DETECTION, "true")
    where: dict[str, Any] = {}
    if config.endpoint is not None:
        address = urlsplit(config.endpoint)
        port = address.port or (443 if address.scheme == "https" else 80)
        where = {"host": address.hostname, "port": port, "protocol": address.scheme}
    for told in ("Connection was not explicitly closed", "enable_server_session_keep_alive_auto_detection"):
        warnings.filterwarnings("ignore", told, FutureWarning)  # about defaults to come
    with errors_of(config, login=True):
        return snowflake.connector.connect(
            account=config.account,
            user=config.user,
            database=config.database,
            warehouse=config.warehouse,
            role=config.role,
            authenticator="SNOWFLAKE_JWT",
            private_key=_key(config),
            paramstyle="qmark",
            login_timeout=CONNECT_SECONDS,
            session_parameters=SETTINGS,
            **where,
        )


def _key(config: SnowflakeConfig) -> bytes:
    """Read for each connection, so that a rotated key is taken without a restart."""
    try:
        text, passphrase = Path(config.key).read_bytes(), Path(config.passphrase)
        password = passphrase.read_bytes().strip() if passphrase.is_file() else None
        key = serialization.load_pem_private_key(text, password)
    except OSError as error:
        raise AuthenticationFailed(
            f"the private key of the target cannot be read: {error.strerror}", "Correct target.credentials."
        ) from None
    except (TypeError, ValueError):
        raise AuthenticationFailed(
            "the private key of the target is none in PEM, or its passphrase is missing or wrong",
            "Correct target.credentials.",
        ) from None
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.DER, *form)


@contextmanager
def errors_of(config: SnowflakeConfig, *, login: bool = False) -> Iterator[None]:
    """Turns the client's errors into ours."""
    try:
        yield
    except errors.Error as error:
        raise fault(config, error, login=login) from error


def fault(config: SnowflakeConfig, error: errors.Error, *, login: bool = False) -> TailraceError:
    number, said = error.errno or 0, _said(error)
    message = f"{config.place}: {said}"
    if login and (number in LOGIN or "JWT" in said):
        return AuthenticationFailed(
            f"account {config.account} of Snowflake does not accept the key of user {config.user}: {said}",
            "Correct target.snowflake, or give the user the public key (`ALTER USER … SET RSA_PUBLIC_KEY`).",
        )
    if number in LOGIN:
        return Retry.of_place(f"{config.place}: the session has ended: {said}")
    if number == RIGHT:
        return TargetRefused(message, f"Grant role {config.role} the right, as docs/snowflake.md lists them.")
    if number == NO_WAREHOUSE:
        return TargetRefused(
            f"{config.place}: role {config.role} cannot use warehouse {config.warehouse}",
            f"Correct target.snowflake, or run `GRANT USAGE ON WAREHOUSE {config.warehouse} TO ROLE {config.role}`.",
        )
    if number == EXISTS:
        return TargetRefused(message, "Rename or drop what is there.")
    if number == ABSENT:
        absent = TargetRefused(message, f"Correct target.snowflake, or grant role {config.role} the right to see it.")
        absent.absent = True
        return absent
    if is_of_statement(error):
        return TargetRefused(message, "Correct the value or the name, or leave the column out (options[].columns).")
    away = not isinstance(error, (errors.ProgrammingError, errors.DataError, errors.IntegrityError))
    return Retry.of_place(message) if away else Retry(message)


def is_of_statement(error: BaseException | None) -> bool:
    """A value or a name in a statement is at fault: one that is refused for what the role lacks is not meant."""
    if not isinstance(error, errors.Error) or error.errno in (ABSENT, RIGHT, NO_WAREHOUSE, EXISTS):
        return False
    return (error.errno or 0) in OF_VALUES or (error.sqlstate or "")[:2] in OF_STATEMENTS


def _said(error: errors.Error) -> str:
    """The service's words, without values of rows."""
    said = str(error.raw_msg or error)
    if privacy.showing() or (error.errno or 0) not in OF_VALUES:
        return said
    return _VALUE.sub("'…'", said)
