"""A throw-away MySQL or MariaDB on the loopback interface: the binary log on, rows in it, root without a password.

`MysqlServer` copies an initialised data directory and takes everything away at the end. A watcher process holds the
other end of a pipe: when the process that started the server dies, however it dies, it kills the server and removes its
files. The demo, the benchmarks and, as `support.mysql`, the tests use it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymysql
from pymysql.connections import Connection

import mysql_packages
import servers
from demo import ports

MYSQL, MARIADB_NEWEST = "mysql-9", "mariadb-11.8"
SETTINGS: dict[str, str | int] = {
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "character_set_server": "utf8mb4",
    "innodb_buffer_pool_size": "64M",
    "local_infile": "ON",
    "log_bin": "binlog",
    "max_connections": 100,
    "secure_file_priv": "",
    "sync_binlog": 1,  # with less, a crash would have every table read again
}
ONLY_MYSQL: dict[str, str | int] = {
    "enforce_gtid_consistency": "ON",
    "gtid_mode": "ON",
    "mysqlx": "OFF",
    # A third of a start is its memory: room for statements of the past, which nobody reads here.
    "performance_schema_digests_size": 100,
    "performance_schema_error_size": 0,
    "performance_schema_events_stages_history_long_size": 0,
    "performance_schema_events_statements_history_long_size": 0,
    "performance_schema_events_transactions_history_long_size": 0,
    "performance_schema_events_waits_history_long_size": 0,
    "performance_schema_max_table_instances": 200,
    "performance_schema_max_thread_instances": 100,
}
ONLY_MARIADB: dict[str, str | int] = {"gtid_strict_mode": "ON"}
START_TIMEOUT = 60.0
"""Seconds."""
WATCHER = 'read -r line; [ "$line" = released ] && exit 0; kill -KILL "$0"; sleep 1; rm -rf "$1"'
"""`read` ends with the word of `_forget`, or empty when the starting process is gone."""
_numbers = count(os.getpid() % 100_000 * 1000 + 1)


class ServerFailed(Exception):
    """The server did not start or stop."""


class MysqlServer:
    """One server with a data directory of its own: a context manager."""

    def __init__(self, name: str = MYSQL, **variables: str | int) -> None:
        """`name`: of `mysql_packages.RELEASES`. `variables` go over SETTINGS."""
        self.name = name
        self.mariadb = name.startswith("mariadb")
        self.host, self.port, self.user = "127.0.0.1", 0, "root"
        own = ONLY_MARIADB if self.mariadb else ONLY_MYSQL | mysql_packages.small_redo_log(name)
        self.variables: dict[str, str | int] = {**SETTINGS, **own, "server_id": next(_numbers), **variables}
        if self.mariadb and "ssl_cert" not in variables:
            self.variables["ssl"] = "OFF"  # else newer ones make a key and a certificate at each start
        folder = servers.mysql(name)
        self._command = mysql_packages.command(folder, name)
        self._home = Path(tempfile.mkdtemp(prefix="tailrace-mysql-"))
        self.data_dir = self._home / "data"
        # A starting MariaDB deletes the temporary tables of all others in the folder; one that loses them so crashes.
        self._temporary = self._home / "tmp"
        self._temporary.mkdir()
        subprocess.run(["cp", "-a", "--reflink=auto", folder / "data", self.data_dir], check=True)
        (self.data_dir / "auto.cnf").unlink(missing_ok=True)  # the server's uuid
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, **variables: str | int) -> None:
        """Start and wait until connections are accepted. The port and the `variables` stay for later starts."""
        self.variables.update(variables)
        self.port = self.port or ports.free_port()
        options = {**self.variables, "port": self.port, "bind_address": self.host, "datadir": self.data_dir}
        options |= {
            "tmpdir": self._temporary,
            "socket": self._home / "socket",
            "pid_file": self._home / "pid",
            "log_error": self._home / "log.err",
        }
        arguments = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        self._process = subprocess.Popen(
            [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCHER, str(self._process.pid), str(self._home)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._wait_until_ready()
        except ServerFailed:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "start() comes first"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, **variables: str | int) -> None:
        self.stop()
        self.start(**variables)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def connect(self, **options: Any) -> "Connection[Any]":
        """Connects as root; every statement is a transaction. Without TLS, unless the server requires it or there is a
        password: for each connection PyMySQL would read the system's certificates, 24 ms."""
        given = {"host": self.host, "port": self.port, "user": self.user, "autocommit": True, **options}
        secured = {"ssl", "password"} & given.keys() or "require_secure_transport" in self.variables
        given.setdefault("ssl_disabled", not secured)
        return pymysql.connect(**given)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None, **options: Any) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and return its rows (none: an empty list)."""
        with closing(self.connect(**options)) as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def script(self, *statements: str, **options: Any) -> None:
        """Run statements on one connection."""
        with closing(self.connect(**options)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def log(self) -> str:
        path = self._home / "log.err"
        return path.read_text(errors="replace") if path.exists() else ""

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with suppress(pymysql.err.OperationalError):
                self.connect(connect_timeout=5, read_timeout=5).close()
                return
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} did not start: {' | '.join(self.log().splitlines()[-8:])}")
            time.sleep(0.05)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(START_TIMEOUT)
        if self._watcher is not None:
            self._watcher.communicate(b"released\n")
        self._process = self._watcher = None
