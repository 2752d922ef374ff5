"""The whole product without a JVM: real server, real capture, real planner, chunks and apply, tables in memory or in a
database.

An `InProcess` is one Replicator over one database of a server. `settle` lets it work until nothing is left to do, and
`compare` says what differs from the source then. `tests/support/ddl/script.py` drives it by scripts.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from support.capture import lsn
from support.ddl import copies
from support.ddl.fork_server import GATE, LOOKS, ForkServer, looks
from support.ddl.lake import InMemoryLake
from support.pipeline import Driver
from support.postgres import PostgresServer
from tailrace import sources
from tailrace.capture import last_fault
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.changelog.state import LogState
from tailrace.contract.resources import Replicator
from tailrace.errors import Retry
from tailrace.storage.store import NotFound, Storage

PATIENCE = 240.0
"""Seconds after which something that must happen counts as never happening."""
PAUSE = 0.05
"""Seconds between two rounds: each asks every table whether something is left to do."""
QUIET_LOOKS = 3
"""Looks at the catalog, one after the other, that found nothing to say: there is nothing left to do."""
REFUSALS = (2, 10, 11, 12, 13)
"""Exit codes of errors that only a person can cure."""
SILENT = {"heartbeat", "applied", "epoch-started"}
"""Events that say nothing about tables."""


class Broken(AssertionError):
    """The product ended, hung or contradicted itself."""


class Refused(Broken):
    """Capture ended with the exit code of an error that tells a person what to do."""


@dataclass
class InProcess:
    """One Replicator: its database, folder, targets, and what runs of it."""

    server: PostgresServer
    fork_server: ForkServer
    folder: Path
    database: str
    spec: dict[str, Any] = field(default_factory=dict)
    """Merged over the defaults."""
    arguments: tuple[str, ...] = ()
    """More of them for capture."""
    copies: "copies.Copies | None" = None
    """The targets are in a database; None: in memory."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.lake = InMemoryLake(self.folder / "lake")
        self.pid: int | None = None
        self.driver: Driver | None = None
        self._sessions: dict[str, psycopg.Connection] = {}
        self._requests = 0
        with self.server.connect() as connection:
            connection.execute(f"CREATE DATABASE {self.database}".encode())

    @property
    def socket(self) -> Path:
        return self.folder / "c.sock"

    @property
    def replicator(self) -> Replicator:
        return Replicator.model_validate(self.document)

    @property
    def document(self) -> dict[str, Any]:
        source = {
            "type": "postgresql",
            "host": self.server.host,
            "port": self.server.port,
            "database": self.database,
            "username": "postgres",
        }
        spec: dict[str, Any] = {
            "tables": {"include": ["s.*"]},
            "target": {"type": "delta", "location": (self.folder / "lake").as_uri()}
            if self.copies is None
            else self.copies.target,
            "storage": {"location": (self.folder / "log").as_uri()},
            "snapshot": {"chunkRows": 7, "parallelism": 2},
        }
        merged = spec | self.spec | {"source": source | self.spec.get("source", {})}
        return {
            "apiVersion": "tailrace.dev/v1alpha1",
            "kind": "Replicator",
            "metadata": {"name": self.database.replace("_", "-")},
            "spec": merged,
        }

    # ---- the source ----

    def session(self, name: str = "") -> psycopg.Connection:
        """A client of the database; each name is a session of its own."""
        found = self._sessions.get(name)
        if found is None or found.closed:
            port, host = self.server.port, self.server.host
            found = psycopg.connect(
                f"host={host} port={port} user=postgres dbname={self.database} application_name=client", autocommit=True
            )
            found.prepare_threshold = None  # a table that changes invalidates what was prepared
            found.execute("SET lock_timeout = '5s'")
            self._sessions[name] = found
        return found

    @property
    def sessions(self) -> list[psycopg.Connection]:
        return list(self._sessions.values())

    def table_id(self, name: str, schema: str = "s") -> int:
        row = self.session().execute("SELECT %s::regclass::oid::int8", (f"{schema}.{name}",)).fetchone()
        assert row is not None
        return int(row[0])

    def sql(self, text: str, session: str = "") -> None:
        self.session(session).execute(text.encode())

    # ---- processes ----

    @property
    def manifest(self) -> Path:
        """As a person would have it."""
        path = self.folder / "replicator.json"
        path.write_text(json.dumps(self.document))
        return path

    def start(self) -> None:
        """Capture and driver."""
        self._start_capture()
        self._until(self._answers, "capture answers")
        self._until(self._has_journal, "the journal's first record")

    def _start_capture(self) -> None:
        command = ["--manifest", str(self.manifest), "--run-dir", str(self.folder / "run")]
        command += ["--socket", str(self.socket)]
        (self.folder / LOOKS).unlink(missing_ok=True)
        self.pid = self.fork_server.start(self.folder, [*command, "--heartbeat", "0.2", *self.arguments])

    def _answers(self) -> bool:
        try:
            with CaptureClient(self.socket, 5) as client:
                return client.state().record >= 0 and (self.folder / LOOKS).exists()
        except CaptureGone:
            return False

    def _has_journal(self) -> bool:
        try:
            source = sources.open(self.replicator.spec.source, "driver")
            in_memory = self.copies is None
            tables = self.lake.targets(self._log) if in_memory else copies.targets(self.replicator, self._log)
            self.driver = Driver.start(self.replicator, source, self.socket, tables, PATIENCE)
        except (Retry, NotFound):
            return False
        return True

    @property
    def _log(self) -> Storage:
        return Storage.open(self.replicator.spec.storage)

    def stop(self, kill: bool = False) -> None:
        """Everything ends: in order, or as with SIGKILL."""
        if self.driver is not None:
            self.driver.close()
            self.driver = None
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL if kill else signal.SIGTERM)
            code = self.fork_server.ended(self.pid, wait=True)
            self.pid = None
            if code in REFUSALS:
                return  # refused by name just now, perhaps before the kill: the next start says so again
            if code != (-signal.SIGKILL if kill else 0):
                raise Broken(f"capture ended with {code}\n{self.tail()}")

    def close(self) -> None:
        with_slot = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
        if self.driver is not None:
            self.driver.close()
        if self.pid is not None and self.fork_server.ended(self.pid) is None:
            os.kill(self.pid, signal.SIGKILL)
            self.fork_server.ended(self.pid, wait=True)
        for session in self._sessions.values():
            session.close()
        with self.server.connect() as connection:
            for (name,) in connection.execute(with_slot.encode(), (self.database,)).fetchall():
                self.server.drop_slot(name)
            connection.execute(f"DROP DATABASE {self.database} WITH (FORCE)".encode())
        if self.copies is not None:
            self.copies.drop()

    def tail(self) -> str:
        log = self.folder / "capture.log"
        return log.read_text()[-3000:] if log.exists() else ""

    # ---- work ----

    def gate(self, closed: bool) -> None:
        """Closed: no look at the catalog but those that a chunk needs."""
        path = self.folder / GATE
        if closed:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def turn(self) -> LogState:
        """One round of the driver."""
        assert self.driver is not None
        self._alive()
        try:
            return self.driver.turn()
        except Retry:
            time.sleep(0.02)
            return self.driver.journal.state
        except Exception as error:  # whatever it is, the driver would have ended
            raise Broken(f"the driver ended: {type(error).__name__}: {error}") from error

    def _alive(self) -> None:
        if self.pid is not None and (code := self.fork_server.ended(self.pid)) is not None:
            self.pid = None
            told = last_fault.read(last_fault.of(self.folder / "run"))
            if told is not None and (code in REFUSALS or told.name in ("CorruptLog", "UnknownMessage")):
                raise Refused(f"{told.name}: {told.message} {told.fix}")
            if code == 1 and told is not None and told.name == Retry.__name__:
                self._start_capture()  # as the driver does
                return
            raise Broken(f"capture ended with {code}\n{self.tail()}")

    def look(self) -> None:
        """Let at least one look at the catalog begin and end, and work on; behind a closed gate only work on."""
        if (self.folder / GATE).exists():
            self.turn()
            return
        was = looks(self.folder)
        self._until(lambda: looks(self.folder) >= was + 2, "two looks at the catalog", self.turn)

    def ask(self, tables: Sequence[str], **spec: Any) -> str:
        """A SnapshotRequest; returns its id."""
        driver = self.driver
        assert driver is not None
        self._requests += 1
        name = f"request-{self._requests}"
        self._until(lambda: driver.ask(name, tables, **spec), "the request is taken", self.turn)
        return name

    def settle(self) -> LogState:
        """Work until nothing is left to do."""
        self.gate(False)
        row = self.session().execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        high = lsn(row[0])
        self.session().execute("SELECT pg_logical_emit_message(true, 'test', '')")
        quiet, seen = -1, 0

        def done() -> bool:
            nonlocal quiet, seen
            state = self.turn()
            told = self._told()
            assert self.driver is not None
            if told != quiet or state.position < high or not self.driver.level(state):
                quiet, seen = told, looks(self.folder)
                return False
            return looks(self.folder) >= seen + QUIET_LOOKS

        self._until(done, "nothing is left to do")
        assert self.driver is not None
        return self.driver.journal.state

    def _told(self) -> int:
        """Events of the journal that say something."""
        count = 0
        with os.scandir(self.folder / "log" / "journal") as found:
            for name, path in ((file.name, file.path) for file in found):
                if name not in self._counted and name[0].isdigit() and name.endswith(".json"):
                    events = json.loads(Path(path).read_text())["events"]
                    self._counted[name] = sum(e["kind"] not in SILENT for e in events)
                count += self._counted.get(name, 0)
        return count

    @property
    def _counted(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__.setdefault("_counts", {})
        return found

    def _until(self, condition: Callable[[], bool], what: str, work: Callable[[], object] = lambda: None) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            work()
            if condition():
                return
            self._alive()
            if time.monotonic() > end:
                raise Broken(f"not within {PATIENCE:.0f} s: {what}\n{self._story()}\n{self.tail()}")
            time.sleep(PAUSE)

    def _story(self) -> str:
        if self.driver is None:
            return "no driver"
        state = self.driver.journal.state
        open_ = [(s.plan.snapshot_id, s.plan.reason) for s in state.snapshots.values() if s.ended is None]
        faults = {i: p.fault for i, p in self.driver.progress.all().items() if p.fault is not None}
        runs = {k: (r.phase.name, r.fault) for k, r in self.driver.runner.runs.items()}
        behind = list(self.driver.behind(state))
        return f"record {state.number}, open snapshots {open_}, runs {runs}, faults {faults}, behind: {behind}"


@contextmanager
def in_process(
    server: PostgresServer,
    fork_server: ForkServer,
    folder: Path,
    database: str,
    *,
    into: copies.Make | None = None,
    **spec: Any,
) -> Iterator[InProcess]:
    """`into`: makes the database of the targets; None: they are in memory."""
    placed = None if into is None else into(database)
    made = InProcess(server, fork_server, folder / database, database, spec, copies=placed)
    try:
        yield made
    finally:
        made.close()
