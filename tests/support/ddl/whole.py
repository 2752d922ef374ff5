"""A pack of scenarios under the whole product: the real driver with Spark, Delta or Iceberg, SIGKILL and restarts.

One life fills the targets, one meets what the scenarios did, in between or while nothing ran. Source and target are
compared by readers that are not ours; a table may be stopped by name, and is then repaired as the documents tell.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from demo.compare import READERS
from support.ddl.judge import TABLES, Found, compare
from support.ddl.scenarios import Pack
from support.postgres import PostgresServer
from support.proof.process import Deployment, Run, status
from tailrace.contract.resources import Tables
from tailrace.sources.patterns import selected

PATIENCE = 240.0


@dataclass
class Whole:
    server: PostgresServer
    pack: Pack
    deployment: Deployment
    stopped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, server: PostgresServer, folder: Path, format: str, pack: Pack) -> "Whole":
        source = server.source() | pack.spec.get("source", {})
        spec = {key: value for key, value in pack.spec.items() if key != "source"}
        return cls(server, pack, Deployment(folder / "ddl", source, format, spec))

    def write(self, lines: Iterable[str], strict: bool = True) -> None:
        with self.server.connect() as connection:
            for line in lines:
                try:
                    connection.execute(line.encode())
                except psycopg.Error:
                    if strict:
                        raise

    def settle(self, run: Run) -> list[str]:
        """Until every table is equal or stopped by name; what is still wrong when patience ends, or nothing."""
        end, wrong = time.monotonic() + PATIENCE, ["not looked at"]
        while wrong and time.monotonic() < end:
            assert run.process.poll() is None, run.tail()
            time.sleep(1.5)
            wrong = self.wrong()
        return wrong

    def wrong(self) -> list[str]:
        document = status(self.deployment)
        if document is None:
            return ["no status"]
        tables = {t["name"]: t for t in document["tables"]}
        self.stopped = {n: t["fault"]["name"] for n, t in tables.items() if t["state"] == "STOPPED" and t["fault"]}
        wrong: list[str] = []
        with self.server.connect() as connection:
            for table in self._selected(connection):
                if table.name not in self.stopped:
                    wrong += self._different(connection, table)
        return self.pack.by_scenario(wrong)

    def _selected(self, connection: psycopg.Connection) -> list[Found]:
        tables = Tables.model_validate(self.pack.spec["tables"])
        rows = connection.execute(TABLES.encode()).fetchall()
        found = [Found(r[0], r[1], r[2], r[3] == "p", tuple(r[4]), tuple(r[5])) for r in rows]
        return [t for t in found if selected(tables, t.schema, t.table)]

    def _different(self, connection: psycopg.Connection, table: Found) -> list[str]:
        try:
            target = self._read(table)
        except (FileNotFoundError, TableNotFoundError) as error:
            return [f"{table.name}: {error}"]
        missing = [c for c in table.columns if c not in target.column_names]
        if missing:
            return [f"{table.name}: the target has no column {', '.join(missing)}"]
        key = table.key or table.columns
        return compare(connection, table, target.select(table.columns), [table.columns.index(k) for k in key])

    def _read(self, table: Found) -> pa.Table:
        return READERS[self.deployment.format](self.deployment.lake / table.schema / table.table)

    def life(self, work: Callable[[Run], None]) -> None:
        """One driver's life, ended in order."""
        run = self.deployment.start()
        work(run)
        assert run.stop() == 0, run.tail()
