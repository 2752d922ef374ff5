"""Scripts of DDL under the whole product: the real driver with Spark, Delta or Iceberg, SIGKILL and restarts.

An `EndToEnd` is one Replicator with its processes. Source and target are compared by readers that are not ours; a
table may be stopped by name, and is then repaired by the command that the documents tell. Used by the proof and the
soak of it; `support.ddl.in_process` is the same without a JVM.

Of a script's lines (`support.ddl.script`) `!kill` is SIGKILL: of everything if `restarts` are left, else of capture
alone. `!stop` and `!gate` cost a start, or need a capture that can be held: they are passed over, and so is a fuzzer's
`!settle` but its own at the beginning.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil
import psycopg
import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from demo.compare import READERS
from support.ddl.fuzz import FIX, SETUP, Round, lines
from support.ddl.scenarios import Pack
from support.ddl.script import refusal
from support.ddl.verify import TABLES, Found, compare
from support.lake import table_schema
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from tailrace.contract.resources import TablesSpec
from tailrace.errors import SchemaChangeUnsupported
from tailrace.sources.patterns import selected
from tailrace.sources.postgresql.catalog import discover
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.iceberg import schema as iceberg_schema

PATIENCE = 300.0
"""Seconds in which fewer differences must be left, until source = target."""
REPAIRS = 3
"""What a repair of the source changed in healthy tables may stop these: they are repaired after it."""
OVER = ("Completed", "Failed", "Stopped")
CAPTURE = "tailrace.capture.process"


@dataclass
class EndToEnd:
    server: PostgresServer
    deployment: Deployment
    restarts: int = 0
    """SIGKILLs of everything that scripts may still order."""
    run: Program | None = None
    stopped: dict[str, str] = field(default_factory=dict)
    """Error by table, at the last look."""
    told: list[str] = field(default_factory=list)
    """All lines that were run."""
    _sessions: dict[str, psycopg.Connection] = field(default_factory=dict)

    # ---- processes ----

    def start(self) -> None:
        if self.run is None:
            self.run = self.deployment.start()

    def kill(self) -> None:
        """SIGKILL of everything."""
        if self.run is not None:
            self.run.kill()
            self.run = None

    def stop(self) -> None:
        """In order, and nothing may be left to complain of."""
        assert self.run is not None
        assert self.run.stop() == 0, self.run.tail()
        self.run = None

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self.deployment.close()

    # ---- scripts ----

    def session(self, name: str = "") -> psycopg.Connection:
        found = self._sessions.get(name)
        if found is None or found.closed:
            found = self._sessions[name] = self.server.connect()
            found.prepare_threshold = None  # a table that changes invalidates what was prepared
            found.execute("SET lock_timeout = '5s'")
        return found

    def play(self, script: Iterable[str], strict: bool = True) -> None:
        for line in script:
            self.told.append(line)
            verb, _, rest = line.partition(" ")
            if not verb.startswith("!"):
                self._sql(line, "", strict)
            elif verb == "!in":
                name, _, statement = rest.partition(": ")
                self._sql(statement, name, strict)
            else:
                self._verb(verb, rest)

    def _verb(self, verb: str, rest: str) -> None:
        match verb:
            case "!start":
                self.start()
            case "!settle":
                self.settle()
            case "!kill" if self.restarts > 0:
                self.restarts -= 1
                self.kill()
            case "!kill":
                self._kill_capture()
            case "!look" | "!turn":
                time.sleep(0.3 if verb == "!turn" else 4)  # looks come every three seconds
            case "!ask" | "!resync":
                self._command("resync" if verb == "!resync" else "snapshot", [rest])
            case _:
                pass  # gates and the like are for `in_process`

    def _kill_capture(self) -> None:
        if self.run is not None:
            for process in self.run.family():
                with suppress(psutil.NoSuchProcess):  # it ends just now
                    if CAPTURE in " ".join(process.cmdline()):
                        process.kill()

    def _sql(self, statement: str, session: str, strict: bool) -> None:
        if why := refusal(self.session(session), statement, strict):
            self.told[-1] = f"-- refused: {self.told[-1]}: {why}"

    def _command(self, verb: str, tables: Iterable[str]) -> str:
        """What it answers to: a request for tables that are stopped, or not captured, is refused."""
        here = ("-f", str(self.deployment.manifest), "--run-dir", str(self.deployment.state))
        done = self.deployment.command(verb, *here, "--tables", *tables)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    # ---- the verdict ----

    def settle(self, stopped: bool = True) -> None:
        """Until source = target, but for tables stopped by name: all that are, or those that the source itself does not
        let be copied."""
        end, wrong, fewest = time.monotonic() + PATIENCE, ["not looked at"], sys.maxsize
        while wrong:
            assert self.run is not None
            if self.run.process.poll() is not None:
                self._refused()
            assert time.monotonic() < end, self._failed(wrong)
            time.sleep(1)
            wrong = self.wrong()
            if not stopped:
                wrong += [f"{name} is stopped: {why}" for name, why in self.needless().items()]
            if len(wrong) < fewest:
                end, fewest = time.monotonic() + PATIENCE, len(wrong)

    def _refused(self) -> None:
        """A start over a publication that leaves out operations ends, and says how to mend that."""
        assert self.run is not None
        assert "SourceRefused: publication" in self.run.tail(), self._failed(["the driver ended"])
        self.run = None
        self.play(FIX, strict=False)
        self.start()

    def wrong(self) -> list[str]:
        document = status(self.deployment)
        if document is None:
            return ["no status"]
        tables = {t["name"]: t for t in document["tables"]}
        stops = {n: t["fault"] for n, t in tables.items() if t["state"] == "STOPPED" and t["fault"]}
        self.stopped = {name: f"{fault['name']}: {fault['message']}" for name, fault in stops.items()}
        wrong: list[str] = []
        for table in self._selected():
            if table.name not in self.stopped:
                wrong += self._different(table)
        if self.deployment.spec.get("onSchemaChange") == "Evolve":
            late = {n: why for n, why in self.needless().items() if why.startswith(SchemaChangeUnsupported.__name__)}
            wrong += [f"{name} does not start over: {why}" for name, why in late.items()]
        return wrong

    def needless(self) -> dict[str, str]:
        """Of the stopped tables those that the source lets be copied as it is now."""
        unfit = {t.name for t in discover(self.session("verify"), self._tables, ()) if t.stop is not None}
        return {name: why for name, why in self.stopped.items() if name not in unfit}

    def repair(self, fix: Sequence[str]) -> dict[str, str]:
        """As the documents tell: the cause removed at the source (`fix`), then `tailrace resync`. Returns what had
        stopped; nothing is, afterwards, but what the source itself does not let be copied."""
        before = dict(self.stopped)
        for _ in range(REPAIRS):
            if not self.stopped:
                break
            self.play(fix, strict=False)
            self._resync()
            self._resynced()
            if not self.needless():
                break
        self.settle(stopped=False)
        return before

    def _resync(self) -> None:
        """A driver that has just started, or whose capture has, refuses for a while."""
        end = time.monotonic() + PATIENCE
        while refused := self._command("resync", sorted(self.stopped)):
            assert time.monotonic() < end, self._failed([refused])
            assert self.run is not None
            if self.run.process.poll() is not None:  # after all tables had been stopped: settled, as far as tables go
                self._refused()
            time.sleep(1)

    def _resynced(self) -> None:
        """Until the request is over."""
        end = time.monotonic() + PATIENCE
        while True:
            document = status(self.deployment)
            shots = [] if document is None else document["snapshots"]
            if document is not None and all(s["state"] in OVER for s in shots):
                break
            assert time.monotonic() < end, self._failed(["the resync does not end"])
            time.sleep(0.5)
        self.settle()

    def follow_drop(self, schema: str, table: str) -> None:
        """A table that no longer exists: its copy goes if `onTableDrop` says so, else it stays."""
        assert self.run is not None
        copy = self.deployment.lake / schema / table
        if self.deployment.spec["onTableDrop"] == "Drop":
            self.run.until(lambda: not copy.exists(), PATIENCE, f"the copy of {schema}.{table} is gone")
        assert copy.exists() == (self.deployment.spec["onTableDrop"] == "Keep")

    @property
    def _tables(self) -> TablesSpec:
        return TablesSpec.model_validate(self.deployment.spec["tables"])

    def _selected(self) -> list[Found]:
        rows = self.session("verify").execute(TABLES.encode()).fetchall()
        found = [Found(r[0], r[1], r[2], r[3] == "p", tuple(r[4]), tuple(r[5])) for r in rows]
        return [t for t in found if selected(self._tables, t.schema, t.table)]

    def _different(self, table: Found) -> list[str]:
        try:
            target = self._read(table)
        except (FileNotFoundError, TableNotFoundError) as error:
            return [f"{table.name}: {error}"]
        missing = [c for c in table.columns if c not in target.column_names]
        if missing:
            return [f"{table.name}: the target has no column {', '.join(missing)}"]
        key = table.key or table.columns
        places = [table.columns.index(k) for k in key]
        return compare(self.session("verify"), table, target.select(table.columns), places)

    def _read(self, table: Found) -> pa.Table:
        """Under the source's names, where the target has others."""
        format = self.deployment.format
        found = READERS[format](self.deployment.lake / table.schema / table.table)
        shown = delta_schema.shown if format == "delta" else iceberg_schema.shown
        schema = table_schema([(name, "string") for name in table.columns], [])
        pairs = zip(schema.columns, shown(schema).columns, strict=True)
        names = {in_target.name: column.name for column, in_target in pairs}
        return found.rename_columns([names.get(name, name) for name in found.column_names])

    def _failed(self, wrong: Sequence[str]) -> str:
        tail = "" if self.run is None else self.run.tail()
        return "\n".join([*wrong, f"stopped: {self.stopped}", "script:", *self.told, tail])


def directed(run: EndToEnd, pack: Pack, timing: str) -> dict[str, str]:
    """The scenarios of a pack at once. Returns what had stopped."""
    run.play(line for line in pack.script(timing) if line != "!stop")
    run.start()
    run.settle()
    return run.repair(pack.fix)


EMPTY = ("DROP SCHEMA IF EXISTS s, o CASCADE", "DROP SCHEMA IF EXISTS s2 CASCADE")


def fuzz(run: EndToEnd, seed: int, operations: int) -> dict[str, str]:
    """One round over schema `s`: its tables, random DDL and rows, then the verdict, the repair and the verdict.
    Returns what had stopped."""
    run.told = [f"-- seed {seed}"]
    run.play([*EMPTY, *SETUP, *(["!start"] if run.run is None else []), "!settle"])
    done = Round(seed)
    run.session().execute("SET lock_timeout = '1s'")
    script = lines(run, Random(seed), operations, done)
    run.play((line for line in script if line != "!settle"), strict=False)
    run.start()
    run.settle()
    stopped = run.repair(FIX)
    run.play(["CREATE TABLE s.ending (id int PRIMARY KEY)", "INSERT INTO s.ending VALUES (1)"])
    run.settle(stopped=False)
    run.play(["DROP TABLE s.ending"])
    run.settle(stopped=False)
    run.follow_drop("s", "ending")
    return stopped


@contextmanager
def over(
    server: PostgresServer, folder: Path, format: str, pack: Pack, policy: str = "EvolveAdditive"
) -> Iterator[EndToEnd]:
    """A Replicator that takes the pack's tables, and the fuzzer's. `policy`: its `onSchemaChange`. With `Evolve`,
    copies of dropped tables are dropped, too: no other may go."""
    spec = {key: value for key, value in pack.spec.items() if key != "source"}
    spec |= {"onSchemaChange": policy, "onTableDrop": "Drop" if policy == "Evolve" else "Keep"}
    spec["snapshot"] = {**spec.get("snapshot", {}), "parallelism": 2}  # each reader is a process of Spark
    tables = spec.get("tables", {"include": [], "exclude": []})
    spec["tables"] = {"include": [*tables["include"], "s.*"], "exclude": [*tables["exclude"], "s.x*"]}
    source = server.source() | pack.spec.get("source", {})
    made = EndToEnd(server, Deployment(folder / format, source, format, spec))
    try:
        yield made
    finally:
        made.close()
