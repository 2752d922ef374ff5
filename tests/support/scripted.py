"""The smallest source: a database in memory (`support.scripted_database`) behind `tailrace.sources.api`, nothing else.

`docs/dev/adding-a-source.md` walks through this module.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from support.scripted_database import PREFIX, Database, Seen
from tailrace.changelog.records import Event, Origin
from tailrace.changelog.records.tables import SchemaChanged, TableAdded, Truncated
from tailrace.changelog.records.terms import Column, Key, Position, ResumePoint, Seq, TableSchema
from tailrace.changelog.segments import segment_schema
from tailrace.changelog.transactions import TransactionStart
from tailrace.changelog.types import arrow_type
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator, TableOptions, TablesSpec
from tailrace.databases.wire import WireForm
from tailrace.errors import PositionLost, ReadRefused, SourceRefused, TableStop
from tailrace.selection import filters, masks
from tailrace.sources import api, findings, patterns
from tailrace.sources.resyncs import ending, renewal_plan, resyncs

ID = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
V = Column(name="v", id=2, source_type="text", type="string")
N = Column(name="n", id=3, source_type="int", type="int32")
READER = "log reader"
"""What a change log makes in this source."""


def resume_point(position: Position) -> ResumePoint:
    return ResumePoint(position, source_state=f"{PREFIX}1-{position}")


@dataclass(frozen=True)
class ScriptedTable:
    schema: TableSchema
    stop: TableStop | None = None

    @property
    def name(self) -> str:
        return self.schema.name

    def shows(self, version: TableSchema) -> bool:
        return version.form == self.schema.form


@dataclass(frozen=True)
class ScriptedSource:
    """`Source`, and also its `Session` and `ChunkReader`: memory needs no connection."""

    database: Database
    place: str = "memory"
    server: str | None = None
    """The only server that this may read from; None: any."""

    @property
    def more(self) -> tuple[Column, ...]:
        return (N,) if self.database.numbered else ()

    def text(self, position: Position) -> str:
        return f"transaction {position}"

    def bound_to(self, origin: Origin) -> "ScriptedSource":
        return replace(self, server=origin.identity["server"])

    def session(self) -> AbstractContextManager["ScriptedSource"]:
        self._connect()
        return nullcontext(self)

    def _connect(self) -> None:
        if self.server not in (None, self.database.server):
            raise SourceRefused(f"this is server {self.database.server}, the change log is of {self.server}", "")

    def reader(self) -> "ScriptedSource":
        return self

    def subscription(self, replicator: Replicator, root: str) -> AbstractContextManager["ScriptedSubscription"]:
        return nullcontext(ScriptedSubscription(self, replicator))

    def visibility(self, snapshot: str) -> Seen:
        end, _, hidden = snapshot.partition(":")
        return Seen(int(end), frozenset(int(n) for n in hidden.split(",") if n))

    # ---- Session ----

    def extras(self, tables: object) -> tuple[()]:
        return ()

    def counters(self, tables: object) -> tuple[()]:
        return ()

    def writers(self, since: str | None, stopped: bool) -> findings.Writers:
        return findings.Writers(())

    def database_id(self) -> None:
        return None

    def current_snapshot(self) -> str:
        return str(self.database.seen())

    def log_end(self) -> Position:
        return self.database.end

    def tables(self, asked: TablesSpec, options: Sequence[TableOptions]) -> list[ScriptedTable]:
        found = (self.table(number, options) for number in range(1, len(self.database.names) + 1))
        return [t for t in found if t is not None and patterns.selected(asked, "main", t.schema.table_name)]

    def table(self, table_id: int, options: Sequence[TableOptions]) -> ScriptedTable | None:
        if table_id > len(self.database.names):
            return None
        name = self.database.names[table_id - 1]
        own = patterns.options_of(options, "main", name)
        columns = (ID, V.model_copy(update={"mask": masks.mask_of(own, V.name)}), *self.more)
        schema = TableSchema(table_id=table_id, schema_name="main", table_name=name, version=0, columns=columns)
        return ScriptedTable(*filters.filtered(schema, own, texts=[V.name]))

    def unfollowed(self, before: api.Table, now: api.Table) -> TableStop | None:
        return None

    def obstacle(self, edge: str) -> str | None:
        return None if self.database.seen().past(edge) else "a hidden transaction"

    def keys(self, table: api.Table) -> "ScriptedKeys":
        return ScriptedKeys(table.name, sorted(self.database.rows(table.schema.table_id, self.database.seen())))

    # ---- ChunkReader ----

    def kept(self) -> AbstractContextManager["ScriptedSource"]:
        return nullcontext(self)

    def wire(self, table: api.Table, form: WireForm) -> None:
        """It has no server."""

    def read(
        self, table: api.Table, part: api.KeyRange | api.KeyList, where: str | None, write: api.Writer
    ) -> api.ChunkRead:
        assert where is None
        self._connect()
        seen = self.database.seen()
        rows = self.database.whole(table.schema.table_id, seen)
        chosen = sorted(i for i in rows if _covers(part, i))
        names = tuple(column.name for column in table.schema.columns)
        if chosen:
            values = [chosen, [rows[i][0] for i in chosen], [rows[i][1] for i in chosen]]
            types = (arrow_type(column.type) for column in table.schema.columns)
            write(pa.record_batch([pa.array(v, t) for v, t in zip(values, types, strict=False)], list(names)))
        return api.ChunkRead(len(chosen), str(seen), self.log_end(), columns=names)


def _covers(part: api.KeyRange | api.KeyList, id: int) -> bool:
    if isinstance(part, api.KeyList):
        return (str(id),) in part.keys
    return (part.lower is None or id > int(part.lower[0])) and (part.upper is None or id <= int(part.upper[0]))


@dataclass(frozen=True)
class ScriptedKeys:
    table: str
    numbers: list[int]

    def estimated_rows(self, where: str | None) -> int:
        return len(self.numbers)

    def at_most(self, rows: int) -> bool:
        return len(self.numbers) <= rows

    def bytes(self) -> int | None:
        return 8 * len(self.numbers)

    def max_key(self) -> Key | None:
        return (str(max(self.numbers)),) if self.numbers else None

    def boundary(self, after: Key | None, rows: int, max_key: Key) -> Key | None:
        left = [i for i in self.numbers if i <= int(max_key[0]) and (after is None or i > int(after[0]))]
        return (str(left[rows - 1]),) if len(left) >= rows else None

    def normal_keys(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        try:
            return tuple((str(int(key[0])),) for key in asked)
        except ValueError:
            raise ReadRefused(self.table, "a key that was asked for is no key of the table", "Correct it.") from None


@dataclass(frozen=True)
class ScriptedSubscription:
    source: ScriptedSource
    replicator: Replicator

    @property
    def readers(self) -> dict[str, int]:
        return self.source.database.readers

    @property
    def _identity(self) -> dict[str, str]:
        return {"server": self.source.database.server}

    def admit(
        self, origin: Origin, point: ResumePoint, renewing: bool, stopping: threading.Event | None = None
    ) -> None:
        if point.position > self.source.log_end() and not renewing:
            raise PositionLost("the log ends before the journal's position", "")

    def prepare(self, log_id: str, noted: Origin | None, patience: api.Patience) -> Origin:
        owner, kind = ownership.owner(self.replicator), self.replicator.spec.source.type
        return Origin(log_id=log_id, source=kind, identity=self._identity, made=(READER,), owner=owner)

    def begin(self, origin: Origin, patience: api.Patience) -> ResumePoint:
        self.readers[origin.log_id] = self.source.log_end()
        return resume_point(self.source.log_end())

    def renew(self, origin: Origin, patience: api.Patience) -> tuple[dict[str, str], ResumePoint]:
        return self._identity, self.begin(origin, patience)

    def failed_over(self, origin: Origin, point: ResumePoint) -> tuple[dict[str, str], ResumePoint] | None:
        moved = self.source.database.continues and origin.identity != self._identity
        return (self._identity, point) if moved else None

    def resume(self, origin: Origin, point: ResumePoint) -> None:
        assert point == resume_point(point.position), "the state is that of the position"
        if self.readers.get(origin.log_id, point.position + 1) > point.position:
            raise PositionLost("the source has forgotten its log", "")

    def stream(self, origin: Origin, context: api.StreamContext) -> "ScriptedStream":
        return ScriptedStream(self.source, self.replicator, origin.log_id, context)

    def examine(self, origin: Origin | None, renewing: bool) -> findings.Examination:
        found = findings.Finding("memory", "ok", "there is a database")
        spec = self.replicator.spec
        with self.source.session() as session:
            tables = session.tables(spec.tables, spec.read_options)
        return findings.Examination(
            (found,), tuple(findings.TableSupport(t.schema, _columns(t.schema)) for t in tables)
        )

    def check(self, origin: Origin, point: Callable[[], ResumePoint], renewing: bool) -> None:
        self.admit(origin, point(), renewing)

    def check_free(self, noted: Origin | None) -> None: ...

    def retained_bytes(self, origin: Origin) -> int | None:
        return None

    def remove(self, proof: Callable[[], api.RemovalProof]) -> Iterator[api.RemovalStep]:
        now = proof()
        if now.kept is not None:
            yield api.RemovalStep(READER, "kept", now.kept)
        elif now.origin is None or now.origin.log_id not in self.readers:
            yield api.RemovalStep(READER, "absent")
        else:
            del self.readers[now.origin.log_id]
            yield api.RemovalStep(READER, "dropped")


def _columns(schema: TableSchema) -> tuple[findings.ColumnSupport, ...]:
    return tuple(findings.ColumnSupport(c.name, c.source_type, c.type, "YES") for c in schema.columns)


@dataclass
class ScriptedStream:
    source: ScriptedSource
    replicator: Replicator
    log_id: str
    context: api.StreamContext
    in_transaction = False

    def __post_init__(self) -> None:
        state = self.context.sink.state
        self.position = self._given = state.position
        self._schemas = {t.table_id: t.schema for t in state.tables.values() if not t.removed}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)

    def start(self) -> None:
        self.source.database.bells.add(self._bell)
        self.poll_catalog()

    def fileno(self) -> int:
        return self._bell

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self.position = self.source.log_end()
        return True

    @property
    def pending(self) -> bool:
        return self.position > self._given

    def cut(self) -> None:
        if self.pending:
            self.context.sink.rows(self._changes(range(self._given + 1, self.position + 1)))
            self._given = self.position
        self.context.sink.cut(resume_point(self.position))

    def _changes(self, numbers: Sequence[int]) -> api.Changes:
        seq, now = self.context.sink.next_seq, int(time.time() * 1e6)
        self.source.database.times.update(dict.fromkeys(numbers, now))
        rows: dict[int, list[dict[str, object]]] = {}
        events: list[Event] = []
        firsts: dict[int, int] = {}
        for number in numbers:
            for change in (c for c in self.source.database.log[number - 1] if c.table in self._schemas):
                firsts.setdefault(number, seq)
                if change.op == "T":
                    own = f"{PREFIX}{number}"
                    events.append(Truncated(table_id=change.table, seq=seq, transaction=own, commit_time=now))
                else:
                    old = {"id": change.old} if change.op == "M" else None
                    lacking = [1] if change.kept else None
                    row = {"_seq": seq, "_op": change.op, "_commit_ts": now, "_unchanged": lacking, "_old_key": old}
                    rows.setdefault(change.table, []).append({**row, "id": change.id, "v": change.v, "n": change.n})
                seq = Seq(seq + 1)
        tables = [
            api.TableRows(self._schemas[i], pa.Table.from_pylist(found, segment_schema(self._schemas[i])))
            for i, found in rows.items()
        ]
        starts = [TransactionStart(PREFIX, number, first) for number, first in firsts.items()]
        return api.Changes(tables, events, Seq(seq - 1), starts, (now, now) if starts else None, leaves=[])

    def acknowledge(self, position: Position) -> None:
        assert position <= self.context.sink.state.position, "only what a durable record holds"
        readers = self.source.database.readers
        readers[self.log_id] = max(position, readers[self.log_id])

    def keep_alive(self, listened: bool = True) -> None: ...

    def heartbeat(self) -> None: ...

    def poll_catalog(self) -> float:
        """New tables begin here, and those that are to begin again: of their rows until now only chunks tell."""
        self.context.settle()
        state = self.context.sink.state
        spec = self.replicator.spec
        found = {table.schema.table_id: table.schema for table in self.source.tables(spec.tables, spec.read_options)}
        asked = resyncs(state) if state.renewal is None else dict.fromkeys(found, state.renewal.id)
        events: list[Event] = []
        for table_id, schema in found.items():
            if table_id in self._schemas and table_id not in asked:
                continue
            if table_id in self._schemas:
                events.append(ending(table_id, asked[table_id]))
            version = state.tables[table_id].schema.version + 1 if table_id in state.tables else 1
            now = self._schemas[table_id] = schema.model_copy(update={"version": version})
            resync = asked.get(table_id)
            events.append(TableAdded(table=now, edge=str(self.position), snapshot=resync is None, resync=resync))
        if state.renewal is not None:
            events.append(renewal_plan(state.renewal, found))
        events += [self._differs(table_id, state.last_seq) for table_id in self.source.database.differing]
        self.source.database.differing.clear()
        self.context.sink.add(*events)
        self.context.settle()
        return 0.0

    def _differs(self, table_id: int, seq: Seq) -> SchemaChanged:
        before = self._schemas[table_id]
        now = self._schemas[table_id] = before.model_copy(update={"version": before.version + 1})
        return SchemaChanged(table=now, seq=seq, reread=True, edge=str(self.position))

    def poll_catalog_for(self, table_id: int) -> bool:
        return True

    def is_captured(self, table_id: int) -> bool:
        return table_id in self._schemas

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        schema = self._schemas[table_id]
        return schema.version if set(columns) == {c.name for c in schema.columns} else None

    def current_snapshot(self) -> str:
        return self.source.current_snapshot()

    def distance(self, position: Position) -> api.Distance:
        return api.Distance(self.source.log_end(), behind_bytes=None, retained_bytes=None)

    of_other_case = ()

    def close(self) -> None:
        self.source.database.bells.discard(self._bell)
        os.close(self._bell)
