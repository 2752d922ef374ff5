"""Capture, journal and chunks of the simulation: sequences, records, registration, retention."""

from dataclasses import dataclass, field

from model.source import Source, State, Transaction

from support.transactions import known
from tailrace.batch.rule import Change, Values
from tailrace.changelog.records.terms import Seq
from tailrace.snapshot.replay import replay_point
from tailrace.sources.postgresql.visibility import PgSnapshot


@dataclass(eq=False)
class SimSnapshot:
    """A snapshot: the initial one, a complete one, one range, or a list of keys (then `asked` is not empty)."""

    ranges: tuple[range, ...]
    complete: bool
    initial: bool = False
    asked: frozenset[int] = frozenset()
    chunks: dict[int, "SimChunk"] = field(default_factory=dict)
    finished: int | None = None

    @property
    def registered(self) -> bool:
        return len(self.chunks) == len(self.ranges) and all(c.record is not None for c in self.chunks.values())


@dataclass(eq=False)
class SimChunk:
    snapshot: SimSnapshot
    seen: PgSnapshot
    rows: State
    keys: frozenset[int]
    high: int | None = None
    """Length of the log after the read; None: still being read."""
    record: int | None = None
    replay_point: int = 0


@dataclass(frozen=True)
class SimRecord:
    through: int
    chunks: tuple[SimChunk, ...]
    finishes: tuple[SimSnapshot, ...]


class Capture:
    """What mutants override has a rule there: docs/dev/design.md#the-chunk-rule, #what-the-log-keeps."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.base: State | None = None
        """The state in log order where capture begins; None: no slot yet."""
        self.edge = 0
        self.received = self.durable = 0
        self.seq = self.durable_seq = 0
        self.buffer: list[tuple[Transaction, list[Change[int]], State]] = []
        self.current: State = {}
        self.states: dict[int, State] = {}
        self.changes: list[Change[int]] = []
        self.transactions: list[tuple[int, int]] = []
        self.journal: list[SimRecord] = []
        self.reading: list[SimChunk] = []
        self.snapshots: list[SimSnapshot] = []

    def copied(self, rows: State) -> State:
        """Rows that are copied: all, without a filter."""
        return rows

    def read(self, rows: State) -> State:
        """What a chunk brings of them."""
        return self.copied(rows)

    def logged(self, rows: list[Change[int]]) -> list[Change[int]]:
        """What the change log has of them."""
        return rows

    def start(self, rows: State) -> None:
        if self.base is None:
            self.received = self.durable = len(self.source.log)
            self.base = self.current = self.source.logged_state(rows, self.durable)
            self.states[0] = self.base
            self.edge = self.source.next_xid
            self.source.next_xid += 1
            self.source.completed = max(self.source.completed, self.edge)

    def beyond_edge(self, seen: PgSnapshot) -> bool:
        """Chunks need xmin > X: what was in progress where capture began is in no log."""
        return self.base is not None and seen.xmin > self.edge

    def open_chunk(self, snapshot: SimSnapshot, number: int) -> None:
        seen = self.source.snapshot()
        if number in snapshot.chunks or self.source.truncating is not None or not self.beyond_edge(seen):
            return
        keys = snapshot.asked or frozenset(snapshot.ranges[number])
        rows = self.read({key: row for key, row in self.source.visible.items() if key in keys})
        chunk = snapshot.chunks[number] = SimChunk(snapshot, seen, rows, keys)
        self.reading.append(chunk)
        self.source.readers.add(chunk)

    def end_chunk(self, number: int) -> None:
        unread = [chunk for chunk in self.reading if chunk.high is None]
        if unread:
            chunk = unread[number % len(unread)]
            chunk.high = len(self.source.log)
            self.source.readers.discard(chunk)

    def receive(self, count: int) -> None:
        while self.base is not None and count and self.received < len(self.source.log):
            transaction = self.source.log[self.received]
            rows = []
            for op, key, values in transaction.rows:
                self.seq += 1
                rows.append(Change(self.seq, op, key, values))
            self.current = transaction.onto(self.current)
            self.states[self.seq] = self.current
            self.buffer.append((transaction, rows, self.current))
            self.received += 1
            count -= 1

    def crash(self) -> None:
        """What no record holds is received again, with the same sequences."""
        if self.base is not None:
            self.buffer = []
            self.received, self.seq = self.durable, self.durable_seq
            self.current = self.states[self.durable_seq]

    def record(self, choice: int) -> None:
        ready = [c for c in self.reading if c.high is not None and self.reached(c)]
        chunks = [c for number, c in enumerate(ready) if choice >> number & 1]
        if not self.buffer and not chunks and not (choice & 16 and self._finishable()):
            return
        for transaction, rows, _ in self.buffer:
            self.changes.extend(self.logged(rows))
            self.transactions.append((transaction.xid, rows[0].seq))
        self.buffer = []
        self.durable, self.durable_seq = self.received, self.seq
        for chunk in chunks:
            chunk.replay_point = self.replay_point(chunk)
            chunk.record = len(self.journal) + 1
            self.reading.remove(chunk)
        finishes = self._finishable() if choice & 16 else []
        for snapshot in finishes:
            snapshot.finished = len(self.journal) + 1
        self.journal.append(SimRecord(self.durable_seq, tuple(chunks), tuple(finishes)))

    def _finishable(self) -> list[SimSnapshot]:
        return [s for s in self.snapshots if s.finished is None and s.registered]

    def reached(self, chunk: SimChunk) -> bool:
        """A chunk is registered only in a record that ends at or after the position read after it."""
        return chunk.high is not None and chunk.high <= self.received

    def known(self) -> list[tuple[int, int]]:
        return self.transactions

    def replay_point(self, chunk: SimChunk) -> int:
        xids, first_seqs = zip(*self.known(), strict=True) if self.known() else ((), ())
        return replay_point(chunk.seen, known(xids, first_seqs), Seq(self.durable_seq + 1))

    def floors(self, applied_seq: int, applied_record: int) -> list[int]:
        """The log may lose what lies below the smallest of these (docs/dev/design.md#what-the-log-keeps)."""
        reading = [self.replay_point(chunk) for chunk in self.reading]
        waiting = [c.replay_point for s in self.snapshots for c in s.chunks.values() if self._open(c, applied_record)]
        return [applied_seq + 1, *reading, *waiting, *self.floor_now()]

    def _open(self, chunk: SimChunk, applied_record: int) -> bool:
        """Not applied, or part of a complete snapshot whose end is not applied."""
        if chunk.record is None:
            return False
        finished = chunk.snapshot.finished
        pending = chunk.snapshot.complete and (finished is None or finished > applied_record)
        return chunk.record > applied_record or pending

    def floor_now(self) -> list[int]:
        """A commit can be in the log and invisible for an hour: a chunk whose snapshot were taken now needs it."""
        now = SimChunk(SimSnapshot((), False), self.source.snapshot(), {}, frozenset())
        return [self.replay_point(now)]

    def trim(self, floor: int) -> None:
        self.changes = [change for change in self.changes if change.seq >= floor]
        self.transactions = [(xid, seq) for xid, seq in self.transactions if seq >= floor]


def shown(values: Values | None) -> str:
    return "-" if values is None else "/".join(map(str, values))
