"""The smallest source: tables and transactions in memory, behind `tailrace.sources.api` and nothing else.

Each table has the columns `id` (the key) and `v`. A transaction is a list of changes; its number in the log is its id
and its position. One that is `hidden` is in the log and not yet visible to chunks, as a commit is for a moment in any
database: that is what the chunk rule is about. `docs/dev/adding-a-source.md` walks through this module.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from tailrace.changelog.keys import Key
from tailrace.changelog.records import Column, Event, Origin, Position, TableAdded, TableSchema, Truncated
from tailrace.changelog.segments import segment_schema
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator, TableOptions, Tables
from tailrace.errors import PositionLost, SourceRefused, TableStop
from tailrace.sources import patterns
from tailrace.sources.api import (
    Changes,
    ChunkRead,
    Distance,
    Examination,
    Finding,
    KeyList,
    KeyRange,
    Patience,
    Proof,
    Step,
    Table,
    TableRows,
    Wiring,
    Writer,
)

ID = Column(name="id", id=1, source_type="bigint", type="int64", nullable=False, key=0)
V = Column(name="v", id=2, source_type="text", type="string")
ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])
READER = "log reader"
"""What a change log makes in this source."""


@dataclass(frozen=True)
class Change:
    """`op`: I, U, D, T (the table is emptied), or M: the row of `id` moves to the key `to`."""

    op: Literal["I", "U", "D", "M", "T"]
    table: int
    id: int = 0
    v: str = ""
    to: int = 0


@dataclass(frozen=True)
class ScriptedTable:
    schema: TableSchema
    stop: TableStop | None = None

    @property
    def name(self) -> str:
        return self.schema.name


@dataclass
class Database:
    """Thread-safe: capture, the planner and chunk readers all look at it."""

    names: list[str] = field(default_factory=list)
    """The tables, `main.<name>`; a table's id is its place, from 1."""
    log: list[list[Change]] = field(default_factory=list)
    """Transactions 1, 2, …"""
    hidden: set[int] = field(default_factory=set)
    readers: dict[str, int] = field(default_factory=dict)
    """By the id of the change log: the position that it has acknowledged."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    written: Callable[[], None] = lambda: None

    def commit(self, *changes: Change, hidden: bool = False) -> int:
        with self.lock:
            self.log.append(list(changes))
            if hidden:
                self.hidden.add(len(self.log))
        self.written()
        return len(self.log)

    def show(self, transaction: int) -> None:
        self.hidden.discard(transaction)

    def rows(self, table: int, hidden: frozenset[int] = frozenset()) -> dict[int, str]:
        found: dict[int, str] = {}
        for number, changes in enumerate(self.log, 1):
            for c in changes if number not in hidden else ():
                if c.table != table:
                    continue
                if c.op == "T":
                    found.clear()
                elif c.op in "DM":
                    found.pop(c.id, None)
                if c.op in "IUM":
                    found[c.to if c.op == "M" else c.id] = c.v
        return found

    def table(self, number: int) -> ScriptedTable:
        name = self.names[number - 1]
        return ScriptedTable(
            TableSchema(table_id=number, schema_name="main", table_name=name, version=0, columns=(ID, V))
        )


@dataclass(frozen=True)
class Seen:
    """What a chunk saw: transactions up to `end` but the hidden ones."""

    end: int
    hidden: frozenset[int]

    @staticmethod
    def of(text: str) -> "Seen":
        end, _, rest = text.partition(":")
        return Seen(int(end), frozenset(int(n) for n in rest.split(",") if n))

    @override
    def __str__(self) -> str:
        return f"{self.end}:{','.join(map(str, sorted(self.hidden)))}"

    def sees(self, transactions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (transactions <= self.end) & ~np.isin(transactions, list(self.hidden))

    def past(self, edge: int) -> bool:
        return self.end >= edge and not any(number <= edge for number in self.hidden)


def look(database: Database) -> Seen:
    return Seen(len(database.log), frozenset(database.hidden))


@dataclass(frozen=True)
class ScriptedReader:
    database: Database

    def read(self, table: Table, part: KeyRange | KeyList, where: str | None, write: Writer) -> ChunkRead:
        assert where is None
        with self.database.lock:
            seen = look(self.database)
            rows = self.database.rows(table.schema.table_id, seen.hidden)
        if isinstance(part, KeyList):
            chosen = sorted(rows.keys() & {int(key[0]) for key in part.keys})
        else:
            lower = int(part.lower[0]) if part.lower else -(2**62)
            upper = int(part.upper[0]) if part.upper else 2**62
            chosen = sorted(i for i in rows if lower < i <= upper)
        if chosen:
            write(pa.record_batch([pa.array(chosen, pa.int64()), pa.array([rows[i] for i in chosen])], ROWS))
        return ChunkRead(len(chosen), str(seen), high=Position(len(self.database.log)), columns=("id", "v"))


@dataclass(frozen=True)
class ScriptedSession:
    database: Database

    def log_end(self) -> Position:
        return Position(len(self.database.log))

    def tables(self, patterns_: Tables, options: Sequence[TableOptions]) -> tuple[ScriptedTable, ...]:
        found = (self.database.table(n) for n in range(1, len(self.database.names) + 1))
        return tuple(t for t in found if patterns.selected(patterns_, "main", t.schema.table_name))

    def table(self, table_id: int, options: Sequence[TableOptions]) -> ScriptedTable | None:
        return self.database.table(table_id) if table_id <= len(self.database.names) else None

    def obstacle(self, edge: int) -> str | None:
        return None if look(self.database).past(edge) else "a hidden transaction"

    def estimated_rows(self, table: Table, where: str | None) -> int:
        return len(self._keys(table))

    def at_most(self, table: Table, rows: int) -> bool:
        return len(self._keys(table)) <= rows

    def max_key(self, table: Table) -> Key | None:
        return (str(max(self._keys(table))),) if self._keys(table) else None

    def boundary(self, table: Table, after: Key | None, rows: int, max_key: Key) -> Key | None:
        low = int(after[0]) if after else -(2**62)
        left = sorted(i for i in self._keys(table) if low < i <= int(max_key[0]))
        return (str(left[rows - 1]),) if len(left) >= rows else None

    def normal_keys(self, table: Table, asked: Sequence[Key]) -> tuple[Key, ...]:
        return tuple((str(int(key[0])),) for key in asked)

    def _keys(self, table: Table) -> dict[int, str]:
        with self.database.lock:
            return self.database.rows(table.schema.table_id, frozenset(self.database.hidden))


@dataclass
class ScriptedStream:
    """Every transaction is taken whole, so it is never divided."""

    database: Database
    replicator: Replicator
    log_id: str
    wiring: Wiring
    divided: bool = False

    def __post_init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        self._ready: list[int] = []
        self.position = Position(0)
        self._schemas = {t.table_id: t.schema for t in self.wiring.sink.state.tables.values() if not t.removed}

    def start(self) -> None:
        self.position = self.wiring.sink.state.position
        self.database.written = self._wake
        self.look()

    def _wake(self) -> None:
        os.write(self._in, b".")

    def fileno(self) -> int:
        return self._out

    def read(self, most_bytes: int, most_seconds: float) -> bool:
        with suppress(BlockingIOError):
            os.read(self._out, 4096)
        end = len(self.database.log)
        self._ready += range(self.position + 1, end + 1)
        self.position = Position(end)
        return True

    @property
    def pending(self) -> bool:
        return bool(self._ready)

    def cut(self) -> None:
        if self._ready:
            self.wiring.sink.rows(self._changes(self._ready))
            self._ready = []
        self.wiring.sink.cut(self.position)

    def _changes(self, numbers: list[int]) -> Changes:
        seq, now = self.wiring.sink.next_seq, int(time.time() * 1e6)
        rows: dict[int, list[dict[str, object]]] = {}
        events: list[Event] = []
        transactions: list[tuple[int, int]] = []
        for number in numbers:
            for change in self.database.log[number - 1]:
                if change.table not in self._schemas:
                    continue
                if transactions[-1:] == [] or transactions[-1][0] != number:
                    transactions.append((number, seq))
                if change.op == "T":
                    events.append(Truncated(table_id=change.table, seq=seq, transaction=number))
                    seq += 1
                for row in _rows_of(change):
                    rows.setdefault(change.table, []).append({**row, "_seq": seq, "_commit_ts": now})
                    seq += 1
        tables = [
            TableRows(self._schemas[i], pa.Table.from_pylist(found, segment_schema(self._schemas[i])))
            for i, found in rows.items()
        ]
        return Changes(tables, events, seq - 1, transactions, (now, now) if transactions else None, leaves=[])

    def acknowledge(self, position: Position) -> None:
        assert position <= self.wiring.sink.state.position, "only what a durable record holds"
        self.database.readers[self.log_id] = max(position, self.database.readers[self.log_id])

    def keep_alive(self, listened: bool = True) -> None: ...

    def nudge(self) -> None: ...

    def look(self) -> float:
        """A new table begins here: what was taken of the log until now has no rows of it, its chunks must see that."""
        found = ScriptedSession(self.database).tables(self.replicator.spec.tables, ())
        new = [t.schema.model_copy(update={"version": 1}) for t in found if t.schema.table_id not in self._schemas]
        self.wiring.settle()
        for schema in new:
            self._schemas[schema.table_id] = schema
            self.wiring.sink.add(TableAdded(table=schema, edge=self.position))
        self.wiring.settle()
        return 0.0

    def look_for(self, table_id: int) -> bool:
        return True

    def is_captured(self, table_id: int) -> bool:
        return table_id in self._schemas

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        return 1 if set(columns) == {"id", "v"} else None

    def seen_now(self) -> str:
        with self.database.lock:
            return str(look(self.database))

    def distance(self, position: Position) -> Distance:
        return Distance(Position(len(self.database.log)), behind_bytes=None, retained_bytes=None)

    def close(self) -> None:
        self.database.written = lambda: None
        os.close(self._out)
        os.close(self._in)


def _rows_of(change: Change) -> list[dict[str, object]]:
    """A move is two rows: D of the old key, M of the new one."""
    row: dict[str, object] = {"_op": change.op, "id": change.id, "v": change.v}
    if change.op == "D":
        return [row | {"v": None}]
    if change.op == "M":
        moved = {"_op": "M", "id": change.to, "v": change.v, "_old_key": {"id": change.id}}
        return [{"_op": "D", "id": change.id, "v": None}, moved]
    return [row] if change.op in "IU" else []


@dataclass(frozen=True)
class ScriptedSubscription:
    database: Database
    replicator: Replicator

    def admit(self, origin: Origin, position: Position, renewing: bool) -> None:
        if position > len(self.database.log) and not renewing:
            raise PositionLost("the log ends before the journal's position", "")

    def prepare(self, log_id: str, noted: Origin | None) -> Origin:
        owner = ownership.owner(self.replicator)
        kind = self.replicator.spec.source.type
        return Origin(log_id=log_id, source=kind, identity={"name": "memory"}, made=(READER,), owner=owner)

    def begin(self, origin: Origin, patience: Patience) -> Position:
        self.database.readers[origin.log_id] = len(self.database.log)
        return Position(len(self.database.log))

    def renew(self, origin: Origin, patience: Patience) -> tuple[dict[str, str], Position]:
        return origin.identity, self.begin(origin, patience)

    def resume(self, origin: Origin, position: Position) -> None:
        if self.database.readers.get(origin.log_id, position + 1) > position:
            raise PositionLost("the source has forgotten its log", "")

    def stream(self, origin: Origin, wiring: Wiring) -> ScriptedStream:
        return ScriptedStream(self.database, self.replicator, origin.log_id, wiring)

    def examine(self, origin: Origin | None, renewing: bool) -> Examination:
        names = tuple(("main", name) for name in self.database.names)
        return Examination((Finding("memory", "ok", "there is a database"),), names, ())

    def check(self, origin: Origin, position: Callable[[], Position], renewing: bool) -> None:
        self.admit(origin, position(), renewing)

    def check_free(self, noted: Origin | None) -> None:
        if noted is None and READER in self.database.readers:
            raise SourceRefused("somebody else has it", "")

    def remove(self, proof: Callable[[], Proof]) -> Iterator[Step]:
        now = proof()
        if now.origin is None or now.origin.log_id not in self.database.readers:
            yield Step(READER, "absent")
        elif now.kept is not None:
            yield Step(READER, "kept", now.kept)
        else:
            del self.database.readers[now.origin.log_id]
            yield Step(READER, "dropped")


@dataclass(frozen=True)
class ScriptedSource:
    database: Database
    place: str = "memory"

    def text(self, position: Position) -> str:
        return f"transaction {position}"

    def bound_to(self, origin: Origin) -> "ScriptedSource":
        return self

    @contextmanager
    def session(self) -> Iterator[ScriptedSession]:
        yield ScriptedSession(self.database)

    def reader(self) -> ScriptedReader:
        return ScriptedReader(self.database)

    @contextmanager
    def subscription(self, replicator: Replicator, root: str) -> Iterator[ScriptedSubscription]:
        yield ScriptedSubscription(self.database, replicator)

    def visibility(self, seen: str) -> Seen:
        return Seen.of(seen)
