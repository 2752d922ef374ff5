"""A look at what has changed finds what a look at all tables would, whatever has happened."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from random import Random
from typing import cast

import pytest
from typing_extensions import override

from support.apply_loop import Journal, log, table
from tailrace.apply.progress import HeldCut, Progress, TableProgress
from tailrace.apply.schedule import Schedule
from tailrace.apply.unit_worker import UnitWorker
from tailrace.apply.units import ApplyUnit, TableEntry
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import last_record
from tailrace.changelog.logged import DroppedTable, LoggedCut, place_of
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.contract.pace import Pace
from tailrace.contract.status import Fault

TABLES = range(101, 109)
FAULT = Fault(name="Retry", message="m", since=0, where="target")


class Crew:
    """The worker of a group."""

    def add(self, copy: object) -> None: ...

    def remove(self, table_id: int) -> None: ...


class FullLook(Schedule):
    """Looks at all tables at each look."""

    @override
    def due(self, number: RecordNumber) -> list[TableEntry]:
        for table_id in [*self._journal.state.tables, *self.entries]:
            self._stir(table_id)
        return super().due(number)


class History:
    """What happens to the tables of a log, and to two schedules over it alike."""

    def __init__(self, random: Random, grouped: bool) -> None:
        self.random, self.now = random, 100.0
        self.journal = Journal(log(number=9))
        self.sides = [self._side(kind, grouped) for kind in (Schedule, FullLook)]
        self.records: dict[int, list[int]] = {}

    def _side(self, kind: type[Schedule], grouped: bool) -> tuple[Schedule, Progress]:
        progress = Progress(lambda: self.now)
        group = cast(UnitWorker, Crew()) if grouped else None
        journal = cast(SharedJournal, self.journal)
        made = kind(journal, progress, group, pace=lambda _: Pace(1.0, 0.2, 4.0), threads=2, monotonic=lambda: self.now)
        return made, progress

    @property
    def state(self) -> LogState:
        return self.journal.state

    def look(self) -> None:
        number = RecordNumber(self.state.number - self.random.choice([0, 0, 0, 1, 3]))
        found = [[entry.table.table_id for entry in schedule.due(number)] for schedule, _ in self.sides]
        assert found[0] == found[1]
        assert self.sides[0][0].next_due == self.sides[1][0].next_due
        assert self.sides[0][0].entries.keys() == self.sides[1][0].entries.keys()
        for table_id in TABLES:
            assert self.sides[0][1].of(table_id) == self.sides[1][1].of(table_id), table_id
        assert self.sides[0][1].all() == self.sides[1][1].all()
        if found[0] and self.random.random() < 0.8:
            self.each(self.random.choice(found[0]), begin)

    def record(self) -> None:
        """Brings changes to some tables; tables come, go, start over or are forgotten."""
        number, tables = RecordNumber(self.state.number + 1), dict(self.state.tables)
        for table_id in self.random.sample(TABLES, self.random.choice([0, 1, 1, 2])):
            known, what = tables.get(table_id), self.random.random()
            if known is None or what < 0.1:  # also: it starts over
                self.records[table_id] = []
                tables[table_id] = table(table_id).model_copy(update={"generation": number, "added_record": number})
            elif known.removed:
                if what < 0.5:
                    del tables[table_id]
            elif what < 0.2:
                tables[table_id] = known.model_copy(update={"removed": True})
            else:
                self.records[table_id].append(number)
                brought = table(table_id, *self.records[table_id])
                tables[table_id] = known.model_copy(update={"segments": brought.segments})
        self.journal.state = self.state.model_copy(update={"number": number, "tables": tables})

    def cut(self) -> None:
        cuts = dict(self.state.cuts)
        if cuts and self.random.random() < 0.5:
            del cuts[self.random.choice(list(cuts))]
        else:
            awaited = frozenset(i for i in self.state.tables if self.random.random() < 0.5)
            name, at = f"c{self.state.number}", RecordNumber(self.state.number)
            made = {"name": name, "scheduled": False, "record": at, "position": 1, "commit_time": None, "made_at": 1}
            cuts[name] = LoggedCut.model_validate({**made, "awaited": awaited})
        number = RecordNumber(self.state.number + 1)
        self.journal.state = self.state.model_copy(update={"number": number, "cuts": cuts})

    def drop(self) -> None:
        """The copy of a former table is being deleted, or is gone."""
        dropped: tuple[DroppedTable, ...] = ()
        if not self.state.dropped and self.state.tables:
            one = self.random.choice(list(self.state.tables.values()))
            gone = {"place": place_of(one), "table_ids": (one.table_id,), "generation": 0, "begun": True}
            dropped = (DroppedTable.model_validate(gone),)
        self.journal.state = self.state.model_copy(
            update={"number": RecordNumber(self.state.number + 1), "dropped": dropped}
        )

    def each(self, table_id: int, act: Callable[["History", Schedule, Progress, TableEntry], None]) -> None:
        seed = self.random.random()
        for schedule, progress in self.sides:
            entry = schedule.entries.get(table_id)
            if entry is not None:
                self.random.seed(seed)
                act(self, schedule, progress, entry)

    def applied(self, entry: TableEntry, record: RecordNumber) -> AppliedState:
        return AppliedState("log", Seq(record), record, frozenset(), 1, entry.table.table_id)


def begin(history: History, schedule: Schedule, progress: Progress, entry: TableEntry) -> None:
    if entry.running is None:
        schedule.begin(entry.unit, Future())


def end(history: History, schedule: Schedule, progress: Progress, entry: TableEntry) -> None:
    """A batch ends: well, halfway, in a failure, or in a wait."""
    unit, random = entry.unit, history.random
    if entry.running is None:
        return
    how = random.random()
    for one in list(unit.entries.values()):
        now = progress.of(one.table.table_id)
        newest = history.state.tables.get(one.table.table_id)
        to = max(now.applied_record, RecordNumber(history.state.number - (0 if how < 0.4 else 2)))
        if how < 0.6:
            gap = RecordNumber(3) if random.random() < 0.1 else None
            one.copy.applied = replace(history.applied(one, to), gap=gap)
            one.copy.found_record = to
            committed = to if newest is not None and last_record(newest) > now.applied_record else now.committed_record
            progress.put(one.table.table_id, TableProgress(Seq(to), to, committed))
            one.behind_since = None
        elif how < 0.8:
            one.copy.applied = None
            progress.fail(one.table.table_id, FAULT, stopped=False, record=to)
        else:
            one.copy.applied = None
    if how >= 0.6:
        unit.backoff.due = history.now + 1.5
    if schedule.group is unit and random.random() < 0.3:
        schedule.leave_group(entry, ApplyUnit())
    schedule.end(unit)


def meet_fault(history: History, schedule: Schedule, progress: Progress, entry: TableEntry) -> None:
    """As upkeep does."""
    if entry.running is None and entry.opened:
        entry.copy.applied = None
        progress.fail(entry.table.table_id, FAULT, stopped=False)


def forget(history: History, schedule: Schedule, progress: Progress, entry: TableEntry) -> None:
    if entry.running is None:
        schedule.forget(entry)


def hold_cuts(history: History, schedule: Schedule, progress: Progress, entry: TableEntry) -> None:
    if entry.running is not None:
        for name in history.state.cuts:
            progress.hold(name, entry.table.table_id, HeldCut(1))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_it_finds_what_a_look_at_all_tables_would(seed: int, grouped: bool) -> None:
    history = History(Random(seed), grouped)
    random = Random(seed + 1000)
    acts = [history.look] * 8 + [history.record] * 4 + [history.cut, history.drop]
    for _ in range(400):
        history.random.seed(random.random())
        history.now += random.choice([0.0, 0.1, 1.0])
        if random.random() < 0.5:
            random.choice(acts)()
        else:
            act = random.choice([end, end, end, end, begin, meet_fault, forget, hold_cuts])
            history.each(random.choice(TABLES), act)
    history.look()
