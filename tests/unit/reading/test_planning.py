"""A round that looks at what records have changed leaves nothing that a look at all of the state would find."""

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.journals import Journal, table_schema
from support.states import chunk
from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import (
    ReadFailure,
    SnapshotPlanned,
    SnapshotTableFinished,
    SnapshotTableStarted,
)
from tailrace.changelog.records.tables import SchemaChanged, TableAdded, TableRemoved, TableStopped
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.settings import VerifySpec
from tailrace.errors import Retry
from tailrace.reading.planning import Planning
from tailrace.snapshot import planner

FAILED = ReadFailure(message="m", fix="f", where="source")


class History:
    """A log to which things happen, and the rounds over it."""

    def __init__(self, seed: int) -> None:
        self.random, self.progress = Random(seed), Progress()
        self.log = Journal(self.random)
        self.log.origin()
        self.verify: VerifySpec | None = VerifySpec(every="1m")
        self.asked = 0
        tools = SimpleNamespace(
            journal=self, lost=tuple, opened=lambda table_id: True, is_whole=lambda table_id: table_id % 2 == 0
        )
        now = self.random.random
        self.planning = Planning(
            lambda: cast(Any, tools), cast(CaptureClient, self), self.progress, lambda: self.verify,
            clock=lambda: 1e9 * now(), monotonic=lambda: 100 * now(),
        )  # fmt: skip

    def refresh(self) -> LogState:
        return self.log.state

    def append(self, events: Sequence[Event]) -> None:
        """What is to be recorded is, mostly, and is not always answered."""
        outcome = self.random.random()
        if outcome > 0.1:
            self.log.plain(events=tuple(events))
        if outcome < 0.2:
            raise Retry("capture is away")

    @property
    def tables(self) -> list[TableLog]:
        return [table for table in self.log.state.tables.values() if not table.removed and table.stopped is None]

    def happen(self) -> None:
        act = self.random.choice(
            [self.change, self.change, self.request, self.read, self.read, self.read, self.withhold]
        )
        events = act()
        if events:
            self.log.plain(events=tuple(events))
        if self.random.random() < 0.05:
            self.verify = None if self.verify else VerifySpec(every="1m")

    def change(self) -> list[Event]:
        random, table_id = self.random, self.random.randint(1, 6)
        table = next((t for t in self.tables if t.table_id == table_id), None)
        if table is None:
            former = self.log.state.tables.get(table_id)
            schema = table_schema(table_id, 1 if former is None else former.schema.version + 1)
            return [TableAdded(table=schema, edge="5", snapshot=random.random() < 0.7)]
        match random.choice(["schema", "schema", "removed", "stopped"]):
            case "schema":
                new, seq = table_schema(table_id, table.schema.version + 1), Seq(self.log.state.last_seq)
                return [SchemaChanged(table=new, seq=seq, reread=random.random() < 0.7)]
            case "removed":
                return [TableRemoved(table_id=table_id, reason="r")]
            case _:
                seq = Seq(self.log.state.last_seq)
                return [TableStopped(table_id=table_id, seq=seq, error="E", message="m", fix="f", where="source")]

    def request(self) -> list[Event]:
        self.asked += 1
        ids = tuple(t.table_id for t in self.tables if self.random.random() < 0.5)
        verify = self.random.random() < 0.3
        accepts = ids if verify and self.random.random() < 0.5 else ()
        name = f"r{self.asked}"
        return [SnapshotPlanned(snapshot_id=name, request=name, tables=ids, verify=verify, accepts=accepts)]

    def read(self) -> list[Event]:
        """A table of a snapshot is read, or fails."""
        state = self.log.state
        left = [(s, i) for s in state.snapshots.open() for i, part in s.tables.items() if part.finished is None]
        if not left:
            return []
        snapshot, table_id = self.random.choice(left)
        of = {"snapshot_id": snapshot.plan.snapshot_id, "table_id": table_id}
        if self.random.random() < 0.4 or snapshot.plan.verify or all(t.table_id != table_id for t in self.tables):
            return [SnapshotTableFinished.model_validate({**of, "chunks": 0, "complete": False, "error": FAILED})]
        version = state.tables[table_id].schema.version
        part = chunk(table_id, snapshot_id=of["snapshot_id"], schema_version=version, replay_point=state.last_seq + 1)
        return [
            SnapshotTableStarted.model_validate({**of, "max_key": None, "estimated_rows": 1}),
            part,
            SnapshotTableFinished.model_validate({**of, "chunks": 1, "complete": snapshot.plan.whole}),
        ]

    def withhold(self) -> list[Event]:
        for table in self.tables:
            holes = frozenset((str(n),) for n in range(self.random.choice([0, 0, 3])))
            at = TableProgress(applied_record=RecordNumber(self.log.state.number), holes=holes)
            self.progress.put(table.table_id, at)
        return []

    def require_nothing_left(self, state: LogState) -> None:
        holes = {i: planner.Holes(p.applied_record, p.holes) for i, p in self.progress.all().items() if p.holes}
        assert planner.due_snapshots(state, holes) == ()
        assert planner.endings(state) == ()
        assert self.verify is not None or list(planner.unwanted(state.snapshots.values())) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_round_leaves_nothing_that_a_look_at_all_would_find(seed: int) -> None:
    history, rounds = History(seed), 0
    for _ in range(250):
        history.happen()
        if history.random.random() < 0.5:
            continue
        try:
            history.planning.plan(history.log.state)
            history.planning.plan(history.log.state)  # a repair that has just ended may call for the next
        except Retry:
            continue
        rounds += 1
        history.require_nothing_left(history.log.state)
    assert rounds > 50 and len(history.log.state.snapshots) > 20
