"""Random schedules of requests, resyncs, stops, returns and re-reads: no table is left unread without a word.

The fold, the planner, the calls, the resyncs and the runner's "over" are the real ones; capture's look, the runner's
turns and the user are scripted, each free to act at any moment. When nothing is left to do, a captured table has been
read whole since it last had to be, or says why it was not (`unread`).
"""

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from support.journals import table_schema
from support.origins import origin
from support.states import chunk
from tailrace.changelog.records import Event, Record
from tailrace.changelog.records.snapshots import (
    ReadFailure,
    SnapshotEnded,
    SnapshotPlanned,
    SnapshotSuspended,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import Applied, SchemaChanged, TableAdded, TableRemoved, TableStopped
from tailrace.changelog.records.terms import Position, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LogState, SnapshotState, TableLog, fold
from tailrace.errors import CorruptLog
from tailrace.reading.runner import over
from tailrace.snapshot import planner
from tailrace.sources.resyncs import resyncs

SEEDS = 600
STEPS, ENOUGH = 60, 600
"""Of a schedule; until nothing is left to do."""
TABLES = (1, 2)
Part = tuple[str, int]
"""Snapshot and table."""


@dataclass(frozen=True)
class GivenUp:
    added_record: RecordNumber
    why: str


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = LogState()
        self.log: list[tuple[Event, ...]] = []
        self.given_up: dict[Part, GivenUp] = {}
        """What the runner remembers: a restart forgets it."""
        self.must: dict[int, RecordNumber | None] = {}
        """The record since which each table has to be read whole; None: it has been."""
        self.asked_in_vain: set[int] = set()
        """A snapshot of the whole table that a person asked for failed or was stopped: this may be said in any case."""
        self._named = 0
        self.put(origin())
        for table_id in TABLES:
            self._add(table_id)

    # ---- the journal ----

    def put(self, *events: Event) -> RecordNumber:
        state = self.state
        record = Record(
            number=RecordNumber(state.number + 1),
            epoch=0,
            nonce="n",
            first_seq=Seq(state.last_seq + 1),
            last_seq=state.last_seq,
            position=Position(state.position + 1),
            written_at=state.number + 2,
            events=events,
        )
        self.state = fold(state, record)
        self.log.append(events)
        return record.number

    def tried(self, *events: Event) -> bool:
        """A writer looks at the state first and drops what no longer follows from it."""
        try:
            self.put(*events)
        except CorruptLog:
            return False
        return True

    def _next(self, table_id: int) -> TableSchema:
        version = self.state.tables[table_id].schema.version + 1 if table_id in self.state.tables else 1
        return table_schema(table_id).model_copy(update={"version": version})

    def _add(self, table_id: int) -> None:
        self.must[table_id] = self.put(TableAdded(table=self._next(table_id), edge="1"))

    # ---- capture's look, the runner ----

    def look(self) -> bool:
        due = {t: i for t, i in resyncs(self.state).items() if not self.state.tables[t].removed}
        if due:
            gone = [TableRemoved(table_id=t, reason="resync") for t in due]
            back = [TableAdded(table=self._next(t), edge="1", snapshot=False, resync=i) for t, i in due.items()]
            self.must |= dict.fromkeys(due, self.put(*gone, *back))
        return bool(due)

    def plan(self) -> bool:
        if plans := planner.due_snapshots(self.state, {}):
            self.put(*plans)
        if endings := planner.endings(self.state):
            self.put(*endings)
        return bool(plans or endings)

    def parts(self) -> list[Part]:
        open_ = [s for s in self.state.snapshots.values() if s.ended is None and not s.suspended]
        return [(s.plan.snapshot_id, t) for s in open_ for t, part in s.tables.items() if part.finished is None]

    def turn(self, part: Part, failing: float) -> bool:
        """One step of the runner; whether there was one."""
        snapshot, table = self.state.snapshots[part[0]], self.state.tables[part[1]]
        why = over(table, snapshot)
        if part not in self.given_up and why is not None:
            self.given_up[part] = GivenUp(table.added_record, why)
        elif part in self.given_up:
            self._end_failed(part, snapshot, table)
        elif snapshot.awaits(table):
            return False
        elif self.random.random() < failing:
            self.given_up[part] = GivenUp(table.added_record, "worn out")
        else:
            return self._read(part, snapshot, table)
        return True

    def _end_failed(self, part: Part, snapshot: SnapshotState, table: TableLog) -> None:
        gave, chunks = self.given_up[part], snapshot.tables[part[1]].chunks_done
        if table.added_record != gave.added_record or not self._finished(part, chunks, gave.why):
            del self.given_up[part]
        elif whole(snapshot) and snapshot.plan.request is not None:
            self.asked_in_vain.add(part[1])

    def _read(self, part: Part, snapshot: SnapshotState, table: TableLog) -> bool:
        progress = snapshot.tables[part[1]]
        if not progress.started:
            event = SnapshotTableStarted(snapshot_id=part[0], table_id=part[1], max_key=None, estimated_rows=1)
            return self.tried(event)
        if progress.chunks_done and (progress.chunks_done == 2 or self.random.random() < 0.7):
            return self._finish(part, snapshot)
        if not snapshot.reads(table):
            return False
        at = {"replay_point": self.state.last_seq + 1, "high": self.state.position}
        version = table.schema.version
        read = chunk(part[1], progress.chunks_done, snapshot_id=part[0], path="p", rows=1, schema_version=version, **at)
        return self.tried(read)

    def _finish(self, part: Part, snapshot: SnapshotState) -> bool:
        progress, table_id = snapshot.tables[part[1]], part[1]
        first, before = progress.chunk_records[0], len(self.state.tables[table_id].finishes)
        done = self._finished(part, progress.chunks_done)
        brought = len(self.state.tables[table_id].finishes) > before
        must = self.must[table_id]
        if whole(snapshot) and brought and must is not None and first > must:
            self.must[table_id] = None
        return done

    def _finished(self, part: Part, chunks: int, error: str | None = None) -> bool:
        complete = error is None and whole(self.state.snapshots[part[0]])
        failure = None if error is None else ReadFailure(message=error, where="driver")
        name, table_id = part
        return self.tried(
            SnapshotTableFinished(snapshot_id=name, table_id=table_id, chunks=chunks, complete=complete, error=failure)
        )

    # ---- the user, the source, the machine ----

    def happen(self) -> None:
        self._named += 1
        people = (self.ask, self.ask, self.stop, self.suspend)
        others = (self.fault, self.come_back, self.remove, self.change, self.restart, self.apply)
        self.random.choice((*people, *others))()

    def ask(self) -> None:
        resync, where = self.random.random() < 0.5, self.random.choice((None, "x"))
        tables = self.random.choice(((1,), (2,), TABLES))
        where = None if resync else where
        name = f"u{self._named}"
        self.tried(SnapshotPlanned(snapshot_id=name, request="q", tables=tables, resync=resync, where=where))

    def stop(self) -> None:
        if going := self._going():
            name = self.random.choice(going)
            snapshot = self.state.snapshots[name]
            if whole(snapshot) and snapshot.plan.request is not None:
                self.asked_in_vain |= snapshot.tables.keys()
            self.tried(SnapshotEnded(snapshot_id=name, outcome="stopped", message="by a person"))

    def suspend(self) -> None:
        if going := self._going():
            chosen = self.state.snapshots[self.random.choice(going)]
            self.tried(SnapshotSuspended(snapshot_id=chosen.plan.snapshot_id, suspended=not chosen.suspended))

    def resume_all(self) -> None:
        for name in self._going():
            if self.state.snapshots[name].suspended:
                self.put(SnapshotSuspended(snapshot_id=name, suspended=False))

    def _going(self) -> list[str]:
        return [name for name, s in self.state.snapshots.items() if s.ended is None]

    def fault(self) -> None:
        table = self._any()
        if not table.removed and table.stopped is None:
            seq = self.state.last_seq
            self.tried(
                TableStopped(table_id=table.table_id, seq=seq, error="NoKey", message="m", fix="", where="source")
            )

    def come_back(self) -> None:
        table = self._any()
        if table.removed or table.stopped is not None:
            self._add(table.table_id)

    def remove(self) -> None:
        table = self._any()
        if not table.removed:
            self.tried(TableRemoved(table_id=table.table_id, reason="dropped"))

    def change(self) -> None:
        table = self._any()
        if not table.removed and table.stopped is None:
            event = SchemaChanged(table=self._next(table.table_id), seq=self.state.last_seq, reread=True, edge="1")
            self.must[table.table_id] = self.put(event)

    def restart(self) -> None:
        self.given_up.clear()

    def apply(self) -> None:
        table = self._any()
        if not table.removed and table.applied_record < self.state.number:
            seq, number = self.state.last_seq, self.state.number
            self.tried(Applied(table_id=table.table_id, applied_seq=seq, applied_record=number))

    def _any(self) -> TableLog:
        return self.state.tables[self.random.choice(TABLES)]


def whole(snapshot: SnapshotState) -> bool:
    return snapshot.plan.where is None and snapshot.plan.keys is None


def played(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        drawn = world.random.random()
        if drawn < 0.25:
            world.happen()
        elif drawn < 0.4:
            world.look()
        elif drawn < 0.55:
            world.plan()
        elif parts := world.parts():
            world.turn(world.random.choice(parts), failing=0.04)
    world.resume_all()
    for _ in range(ENOUGH):
        busy = world.plan() | world.look()
        for part in world.parts():
            busy |= part in world.parts() and world.turn(part, failing=0)
        if not busy:
            break
    return world


def wrong(world: World) -> list[str]:
    found = [f"still to be read: {part}" for part in world.parts()]
    for table in world.state.tables.values():
        if table.removed or table.stopped is not None:
            continue
        must, name = world.must[table.table_id], table.schema.name
        if must is not None and table.unread is None:
            found.append(f"{name} has not been read since record {must}, and does not say so")
        if must is None and table.unread is not None and table.table_id not in world.asked_in_vain:
            found.append(f"{name} has been read, yet says: {table.unread.message}")
    return found


@pytest.mark.parametrize("part", range(4))
def test_a_table_is_read_whole_or_says_that_it_was_not(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        world = played(seed)
        found = wrong(world)
        told = "\n".join(f"{number}: {events}" for number, events in enumerate(world.log))
        assert not found, f"seed {seed}: {found}\n{told}"
        seen.update(event.kind for events in world.log for event in events)
    assert {"snapshot-table-finished", "table-stopped", "schema-changed", "snapshot-ended"} <= seen.keys()
