"""One proof: a server with the proof tables, a Replicator over them, writers, and the comparison at the end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from demo.compare import compare, compare_by
from support.postgres import PostgresServer
from support.process import Program
from support.proof import tables
from support.proof.on_s3 import OnS3
from support.proof.process import Deployment, status
from support.proof.writers import Writers

ROWS = 200
"""Rows of each table at the start; writers use twice as many keys. With so many the largest table is read by Spark's
workers."""
SMALL = 100
"""With so many rows, each table in one chunk, none is: where it is not chunks that are proved."""


@dataclass
class Proof:
    """The parts of one proving run."""

    server: PostgresServer
    deployment: Deployment
    on_s3: OnS3 | None = None
    rows: int = ROWS
    reader: Callable[[str, str], pa.Table] | None = None
    """Reads a table of the target, by its schema and name; None: by the format."""

    @classmethod
    def begin(
        cls, server: PostgresServer, folder: Path, format: str, seed: int, *, rows: int = ROWS, **spec: object
    ) -> "Proof":
        """Fill the source; `spec` goes into the Replicator."""
        with server.connect() as connection:
            tables.create(connection, rows, seed)
        chunks = {"snapshot": {"chunkRows": 17, "parallelism": 3}}
        deployment = Deployment(folder / "proof", server.source(), format, chunks | spec)
        deployment.write_manifest()
        return cls(server, deployment, rows=rows)

    @classmethod
    def begin_on_s3(cls, on_s3: OnS3, server: PostgresServer, folder: Path, seed: int, **spec: Any) -> "Proof":
        """The change log and the Delta tables are in the bucket."""
        places = {"storage": on_s3.place("log"), "target": {"type": "delta", **on_s3.place("lake")}}
        return replace(cls.begin(server, folder, "delta", seed, **places | spec), on_s3=on_s3, reader=on_s3.delta)

    def completed(self, count: int, *, repairs: bool = False) -> Callable[[], bool]:
        """Whether the running process says that at least `count` snapshots are completed; those that Tailrace orders
        to fill holes come as they must and count only where asked for."""
        return lambda: self._completed(repairs) >= count

    def _completed(self, repairs: bool) -> int:
        document = status(self.deployment)
        shots = [] if document is None else document["snapshots"]
        return sum(1 for s in shots if s["state"] == "Completed" and (repairs or s["reason"] != "repair"))

    def ask(self, name: str, **spec: object) -> None:
        """Give the running process a SnapshotRequest."""
        path = self.deployment.request(name, **spec)
        done = self.deployment.command("snapshot", "-f", str(self.deployment.manifest), "-f", str(path), *self.here)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def here(self) -> tuple[str, str]:
        return "--run-dir", str(self.deployment.state)

    def writers(self, seed: int, count: int = 5, *, pause: float = 0.03, truncate: bool = False) -> Writers:
        """`pause`: seconds between a writer's transactions. The default leaves two cores time for the rest."""
        return Writers(
            self.server.connect, count=count, keys=2 * self.rows, seed=seed, pause=pause, truncate=truncate
        ).start()

    @property
    def where(self) -> dict[str, str]:
        """The manifest's row filters, by table."""
        options = cast(list[dict[str, Any]], self.deployment.spec.get("options", []))
        return {one["match"]: one["where"] for one in options if "where" in one}

    def slot(self) -> str:
        """Name of the server's only replication slot."""
        return str(self.server.execute("SELECT slot_name FROM pg_replication_slots")[0][0])

    def assert_refused(self, code: int, name: str) -> None:
        """The next run ends with this exit code and names the error."""
        run = self.deployment.start("--once")
        assert run.wait(120) == code, run.tail()
        assert name in run.tail(), run.tail()

    def assert_equal(self, *more: str) -> None:
        """Every proof table (and `more`), row by row and column by column."""
        names = [f"proof.{table.name}" for table in tables.TABLES] + list(more)
        found = self.differences(*names)
        assert not found, "\n".join(found)

    def settle(self, run: Program, *more: str) -> None:
        """What runs brings the target level with a source that nobody writes to any more, and ends in order."""
        run.until(lambda: self.level(*more), 400, "source = target")
        assert run.stop() == 0, run.tail()
        self.assert_equal(*more)

    def level(self, *more: str) -> bool:
        """Whether source = target, as of now; a look each second, which ends at the first table that is not."""
        time.sleep(1)
        names = [f"proof.{table.name}" for table in tables.TABLES] + list(more)
        return not any(self.differences(name) for name in names)

    def differences(self, *names: str) -> list[str]:
        """What the comparison of these tables finds; none: source = target."""
        with self.server.connect() as connection:
            try:
                if self.reader is not None:
                    return compare_by(connection, names, self.reader, self.where)
                return compare(connection, names, self.deployment.lake, self.deployment.format, self.where)
            except (FileNotFoundError, TableNotFoundError) as error:
                return [str(error)]

    def assert_nothing_acknowledged_early(self) -> None:
        """Invariant 1, from outside: the slot's confirmed position is not beyond the journal's last record."""
        from tailrace.changelog.records import Record

        log = self.deployment.log if self.on_s3 is None else self.on_s3.folder / "log"
        records = sorted((log / "journal").glob("[0-9]*.json"))
        position = Record.model_validate_json(records[-1].read_bytes()).position
        rows = self.server.execute("SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots")
        assert all(row[0] <= position for row in rows), f"acknowledged {rows}, durable {position}"


class Begin(Protocol):
    """The `prove` fixture."""

    def __call__(self, format: str, seed: int, *, rows: int = ROWS, **spec: object) -> Proof: ...
