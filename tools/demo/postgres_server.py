"""A throw-away PostgreSQL on the loopback interface, for the demo and the tests.

`PostgresServer` copies a cached, initialised data directory (so a server is up in well under a second), runs `postgres`
as an unprivileged user when called by root, and takes everything away at the end. A small watcher process holds the
other end of a pipe: when the process that started the server dies, however it dies, the watcher stops the server and
removes its files. `postgres_files.py` prepares programs and template.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg

from demo import ports, postgres_files
from tailrace.errors import TailraceError

StopMode = Literal["smart", "fast", "immediate"]
Setting = str | int | float | bool

DEFAULTS: dict[str, Setting] = {
    "wal_level": "logical",
    "max_wal_senders": 20,
    "max_replication_slots": 20,
    "shared_buffers": "32MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_line_prefix": "%m [%p] %a ",
    # In the data directory, which goes: in /dev/shm a server that is killed leaves half a megabyte for good.
    "dynamic_shared_memory_type": "mmap",
}
LOCAL_TRUST = ("host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust")
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
READY_LINE = 7
"""Zero-based line of postmaster.pid with the server's state; `pg_ctl -w` reads the same line."""
WATCHER = 'read -r line; [ "$line" = released ] && exit 0; kill -QUIT "$0"; sleep 2; rm -rf "$1"'
"""`read` ends with the word of `_release`, or empty when the starting process is gone."""


class ServerFailed(TailraceError):
    """The embedded PostgreSQL did not start, stop or answer."""


class PostgresServer:
    """One server with a data directory of its own: a context manager, or `start()` … `close()`."""

    def __init__(
        self,
        major: int = 18,
        settings: Mapping[str, Setting] | None = None,
        *,
        fsync: bool = False,
        hba: Sequence[str] = LOCAL_TRUST,
        port: int | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        """`settings` go over DEFAULTS; `fsync` on for crash tests that pull the plug; `port` None: any free one."""
        self.major = major
        self.host = "127.0.0.1"
        self.settings: dict[str, Setting] = {**DEFAULTS, "fsync": fsync, **(settings or {})}
        self._fixed_port = port
        self.port = port or 0
        self._hba = tuple(hba)
        self._start_timeout = start_timeout
        self._files = postgres_files.prepare(major)
        self._home = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
        self.data_dir = self._home / "data"
        self.log_path = self._home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        postgres_files.copy_template(self._files, self._home)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise ServerFailed("the embedded PostgreSQL is not running.", "Call start() first.")
        return self._process.pid

    def start(self, settings: Mapping[str, Setting] | None = None) -> None:
        """Start and wait until connections are accepted; `settings` stay for later starts. The port stays too."""
        if self.running:
            return
        self.settings.update(settings or {})
        attempts = 1 if self.port else 5  # a free port can be taken by somebody else before the server binds it
        for attempt in range(attempts):
            self.port = self.port or ports.free_port()
            self._write_configuration()
            self._launch()
            try:
                self._wait_until_ready()
                return
            except ServerFailed as error:
                self.kill()
                if attempt + 1 == attempts or "Address already in use" not in str(error):
                    raise
                self.port = 0

    def stop(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Shut down like `pg_ctl stop -m mode`."""
        if self._process is None:
            return
        self._signal(STOP_SIGNALS[mode])
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"PostgreSQL did not stop within {timeout} s ({mode}).", self._log_tail()) from None
        self._forget()

    def kill(self) -> None:
        """SIGKILL for the postmaster and every child, as a crash of the machine's process table would."""
        if self._process is None:
            return
        children = _children(self._process.pid)
        for pid in (self._process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        _wait_until_gone(children)
        self._forget()

    def restart(self, mode: StopMode = "fast", settings: Mapping[str, Setting] | None = None) -> None:
        self.stop(mode)
        self.start(settings)

    def close(self) -> None:
        """Stop at once and remove the files. By SIGKILL only what hangs: it leaves a segment of shared memory behind,
        and a system has room for 4,096."""
        try:
            self.stop("immediate", 8.0)
        except ServerFailed:
            self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def reload(self, settings: Mapping[str, Setting] | None = None) -> None:
        """Take over settings and access rules that need no restart."""
        self.settings.update(settings or {})
        self._write_configuration()
        self._signal(signal.SIGHUP)

    def set_hba(self, lines: Sequence[str]) -> None:
        """Replace pg_hba.conf; a running server takes it over."""
        self._hba = tuple(lines)
        if self.running:
            self.reload()

    def source(self) -> dict[str, object]:
        """`spec.source` of a Replicator of this server."""
        return {
            "type": "postgresql",
            "host": self.host,
            "port": self.port,
            "database": "postgres",
            "username": "postgres",
            "tls": {"mode": "disable"},
        }

    def dsn(self, dbname: str = "postgres", user: str = "postgres", **parameters: str | int) -> str:
        """A libpq connection string."""
        return psycopg.conninfo.make_conninfo(
            host=self.host, port=self.port, dbname=dbname, user=user, **{k: str(v) for k, v in parameters.items()}
        )

    def connect(
        self, dbname: str = "postgres", user: str = "postgres", *, autocommit: bool = True, **parameters: str | int
    ) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(dbname, user, **parameters), autocommit=autocommit)

    def execute(
        self, sql: str, parameters: Sequence[Any] | None = None, dbname: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run SQL on a connection of its own and return the last statement's rows (none: an empty list)."""
        with self.connect(dbname) as connection:
            cursor = connection.execute(sql.encode(), parameters)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def drop_slot(self, name: str) -> None:
        """Once nobody reads it: a reader's session ends a moment after the reader, on a busy machine."""
        deadline = time.monotonic() + 30
        while True:
            try:
                self.execute("SELECT pg_drop_replication_slot(%s)", (name,))
                return
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _write_configuration(self) -> None:
        lines = [f"{name} = {_quoted(value)}" for name, value in {**self.settings, "port": self.port}.items()]
        (self.data_dir / "tailrace.conf").write_text("\n".join(lines) + "\n")
        (self.data_dir / "pg_hba.conf").write_text("\n".join(self._hba) + "\n")

    def _launch(self) -> None:
        (self.data_dir / "postmaster.pid").unlink(missing_ok=True)  # left by kill(); its pid may be anybody's by now
        with self.log_path.open("ab") as log:
            self._process = self._files.popen("postgres", "-D", str(self.data_dir), output=log)
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCHER, str(self._process.pid), str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not _says_ready(self.data_dir / "postmaster.pid"):
            if not self.running:
                raise ServerFailed("PostgreSQL did not start.", self._log_tail())
            if time.monotonic() > deadline:
                raise ServerFailed(f"PostgreSQL was not ready after {self._start_timeout} s.", self._log_tail())
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _forget(self) -> None:
        """The server is gone: let the watcher end without doing anything."""
        if self._watcher is not None:
            self._watcher.communicate(b"released\n")
        self._process = self._watcher = None
        if self._fixed_port is None and not self.data_dir.exists():
            self.port = 0

    def _log_tail(self) -> str:
        return "Server log: " + " | ".join(self.log().splitlines()[-8:])


def _says_ready(pid_file: Path) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > READY_LINE and lines[READY_LINE].strip() in ("ready", "standby")


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value).replace("'", "''")
    return f"'{text}'"


def _children(pid: int) -> list[int]:
    """The server's direct children: all its processes are."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _wait_until_gone(pids: Sequence[int], timeout: float = 10.0) -> None:
    """Orphans are reaped by init; a shared memory segment still in use would refuse the next start."""
    deadline = time.monotonic() + timeout
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
