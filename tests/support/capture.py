"""Runs the real capture process against a real server, and reads its change log independently of Tailrace's readers.

The process is a fork of the fork_server's, which has all modules already, and looks at the catalog more often. `fold`
replays journal and segments with plain dictionaries, from the first sequence, so its result must equal a table that was
empty when capture began.
"""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.ddl.fork_server import LOOKS_OFTEN, ForkServer, looks
from support.forks import Forked
from support.postgres import PostgresServer
from support.seam_names import checked
from support.segment_files import read_segment
from support.waiting import until
from tailrace.capture.client import CaptureClient, CaptureGone

Row = dict[str, Any]
UNKNOWN = "<unknown>"


@dataclass
class CaptureRun:
    """One Replicator's capture: manifest, folders, processes."""

    fork_server: ForkServer
    server: PostgresServer
    folder: Path
    include: tuple[str, ...] = ("public.*",)
    source: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    timing: Mapping[str, float] = field(default_factory=lambda: LOOKS_OFTEN)
    process: Forked | None = None

    @property
    def log_path(self) -> Path:
        return self.folder / "capture.log"

    def start(self, seams: str = "", wait: bool = True) -> "CaptureRun":
        source = {
            "type": "postgresql",
            "host": self.server.host,
            "port": self.server.port,
            "database": "postgres",
            "username": "postgres",
        }
        spec = {
            "source": source | self.source,
            "tables": {"include": list(self.include)},
            "target": {"type": "delta", "location": (self.folder / "lake").as_uri()},
            "storage": {"location": (self.folder / "log").as_uri()},
        }
        document = {
            "apiVersion": "tailrace.dev/v1alpha1",
            "kind": "Replicator",
            "metadata": {"name": "shop"},
            "spec": spec | self.spec,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "replicator.yaml"
        manifest.write_text(json.dumps(document))
        command = ["--manifest", str(manifest), "--run-dir", str(self.folder / "run")]
        command += ["--socket", str(self.folder / "c.sock"), "--heartbeat", "0.5", *self.arguments]
        self.log_path.touch()
        self.process = Forked(
            self.fork_server, self.fork_server.start(self.folder, command, self.timing, checked(seams))
        )
        if wait:
            until(self._reads, f"capture reads the log\n{self.tail()}")
        return self

    def _reads(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.tail()
        try:
            with self.client() as client:
                return client.state().record >= 0
        except CaptureGone:
            return False

    def look(self) -> None:
        """Wait until at least one look at the catalog has begun and ended."""
        was = looks(self.folder)
        until(lambda: looks(self.folder) >= was + 2, f"two looks at the catalog\n{self.tail()}")

    def client(self) -> CaptureClient:
        return CaptureClient(self.folder / "c.sock", timeout=60)

    def tail(self) -> str:
        return self.log_path.read_text()[-4000:]

    def stop(self) -> int:
        """In order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def wait(self, timeout: float = 60) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def fault(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "run" / "capture-fault.json").read_text()))

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def catch_up(self, timeout: float = 60) -> None:
        """Until the journal holds everything that is committed now."""
        text = self.server.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]
        self.server.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        high = lsn(text)

        def there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.tail()
            return any(True for r in self.records()[-1:] if r["position"] >= high)

        until(there, f"journal at {text}\n{self.tail()}", timeout)

    def records(self) -> list[dict[str, Any]]:
        paths = sorted((self.folder / "log" / "journal").glob("*.json"))
        return [json.loads(p.read_text()) for p in paths]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for r in self.records() for e in r["events"] if e["kind"] == kind]

    def rows(self, table: str) -> list[Row]:
        """Rows of all segments that records name, in order of sequence."""
        names = {e["table"]["table_id"]: e["table"] for e in self.events("table-added")}
        ids = {i for i, t in names.items() if f"{t['schema_name']}.{t['table_name']}" == table}
        found: list[Row] = []
        for record in self.records():
            for segment in record["segments"]:
                if segment["table_id"] in ids:
                    found += read(self.folder, segment).to_pylist()
        return sorted(found, key=lambda r: r["_seq"])

    def fold(self, table: str, key: tuple[str, ...] = ("id",)) -> dict[tuple[Any, ...], Row]:
        """The table as the log tells it."""
        ids = {
            e["table"]["table_id"]
            for e in self.events("table-added")
            if f"{e['table']['schema_name']}.{e['table']['table_name']}" == table
        }
        log: list[tuple[int, Row | None]] = [(r["_seq"], r) for r in self.rows(table)]
        log += [(e["seq"], None) for e in self.events("truncated") if e["table_id"] in ids]
        state: dict[tuple[Any, ...], Row] = {}
        moved: dict[tuple[Any, ...], Row] = {}
        for _, row in sorted(log, key=lambda item: item[0]):
            if row is None:
                state.clear()
                continue
            _apply(state, moved, row, key)
        return state


def _apply(
    state: dict[tuple[Any, ...], Row], moved: dict[tuple[Any, ...], Row], row: Row, key: tuple[str, ...]
) -> None:
    columns = [c for c in row if not c.startswith("_")]
    at = tuple(row[k] for k in key)
    if row["_op"] == "D":
        gone = state.pop(at, None)
        moved.clear()
        if gone is not None:
            moved[at] = gone
        return
    base = state.get(at, {})
    if row["_op"] == "M":
        base = moved.get(tuple(row["_old_key"][k] for k in key), {})
    unchanged = {columns[i] for i in row["_unchanged"] or ()}
    state[at] = {c: base.get(c, UNKNOWN) if c in unchanged else row[c] for c in columns}


def read(folder: Path, segment: dict[str, Any]) -> pa.Table:
    """The rows of a segment that a record of this run's log names."""
    return read_segment(folder / "log", segment["path"], segment["table_id"], segment["first_seq"])


def started(run: CaptureRun, tables: str) -> PostgresServer:
    """It runs and captures the tables that these statements make."""
    run.server.execute(tables)
    run.start()
    until(lambda: run.events("table-added"), "table added")
    return run.server


def made_slot(run: CaptureRun) -> str:
    """What the server's only slot is called; the publication likewise, if Tailrace made both."""
    return str(run.server.execute("SELECT slot_name FROM pg_replication_slots")[0][0])


def refused(run: CaptureRun, code: int, name: str, *words: str) -> None:
    """A start ends with this exit code and error."""
    run.start(wait=False)
    assert run.wait() == code, run.tail()
    fault = run.fault()
    assert fault["name"] == name
    assert all(word in fault["message"] for word in words), fault
    assert fault["fix"]


def check_invariants(run: CaptureRun) -> None:
    """Contiguous sequences, rising positions, rows only inside their record's range, transactions in order."""
    last, position = 0, 0
    for number, record in enumerate(run.records()):
        assert record["number"] == number
        assert record["first_seq"] == last + 1
        assert record["position"] >= position
        taken: list[int] = [e["seq"] for e in record["events"] if e["kind"] == "truncated"]
        for segment in record["segments"]:
            taken += read(run.folder, segment)["_seq"].to_pylist()
        assert sorted(taken) == list(range(record["first_seq"], record["last_seq"] + 1))
        firsts = record["transactions"]["first_seqs"]
        assert firsts == sorted(set(firsts))
        assert all(record["first_seq"] <= s <= record["last_seq"] for s in firsts)
        last, position = record["last_seq"], record["position"]


def lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def source_rows(server: PostgresServer, table: str, key: tuple[str, ...] = ("id",)) -> dict[tuple[Any, ...], Row]:
    with server.connect() as connection:
        cursor = connection.execute(f"SELECT * FROM {table}".encode())
        assert cursor.description is not None
        names = [d.name for d in cursor.description]
        rows = [dict(zip(names, r, strict=True)) for r in cursor.fetchall()]
    return {tuple(r[k] for k in key): r for r in rows}
