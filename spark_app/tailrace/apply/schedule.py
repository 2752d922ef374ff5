"""Which tables have to be entered now, so that each commits within the promise: earliest deadline first.

A table that must be begun before the next record is expected is begun at once: waiting would delay what it has, and
bring nothing. So tables are committed right behind a record, and those that are too many to be committed in time behind
the same one are spread over several (docs/decisions/0158).

Held by the applier, which enters their units.
"""

import itertools
import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from operator import itemgetter

from tailrace.apply.commit_times import CommitTimes
from tailrace.apply.group import TableGroup
from tailrace.apply.progress import Progress, TableProgress
from tailrace.apply.unit_worker import TableCopy, UnitWorker
from tailrace.apply.units import LONGEST_PAUSE, ApplyUnit, TableEntry
from tailrace.batch.slice import last_record
from tailrace.changelog.changed import changed
from tailrace.changelog.dropped import is_blocked
from tailrace.changelog.logged import LoggedCut, place_of
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.pace import NOTICE, Pace

SPACING = 1.0
"""Seconds between two tries of a place that is away, on average, however many tables fail there."""
FEWEST_COUNTED, MANY = 4, 50
"""Commits that say how late commits are: of all tables the latest one, about, in these bounds. A moment's delay is no
overload."""
LATEST = 5.0
"""Seconds that one commit counts as late at most: a pause, or a place that was away, is soon forgotten."""
SOON = 0.002
"""Seconds that nobody waits for a table that is due then."""
SNAPSHOT_HOLD = 1.0
"""Seconds that a table waits at most while a snapshot of it, or a new copy, is under way. With a snapshot's end there
is nothing left to wait for, unless one commit takes others along."""


class Schedule:
    """The tables that are applied. Its methods are called under the applier's lock.

    A look costs what has changed, however many tables there are: those are looked at that a record, a batch, a cut or a
    failure has touched since they were last found quiet. A table is quiet if its copy is known and healthy and the log
    holds nothing for it that the copy lacks.
    """

    def __init__(
        self,
        journal: SharedJournal,
        progress: Progress,
        group: UnitWorker | None,
        *,
        pace: Callable[[CommitTimes], Pace],
        threads: int,
        monotonic: Callable[[], float],
    ) -> None:
        """`group`, `pace`, `threads`, `monotonic`: see `Applier`."""
        self._journal, self._progress = journal, progress
        self._group = TableGroup(journal, progress, group)
        self._pace, self._threads, self._monotonic = pace, threads, monotonic
        self.entries: dict[int, TableEntry] = {}
        """Tables that were entered once, by table id."""
        self.running: set[ApplyUnit] = set()
        self.times = CommitTimes(threads)
        self.next_due = math.inf
        """The monotonic time at which the next table is due, as `due` found it: of those that were not due."""
        self._late = 0.0
        """Seconds by which tables have been committed too late, on average of their latest commits since all had
        everything."""
        self._away = set[ApplyUnit]()
        """Units that failed at a place that is away, since one last got an answer."""
        self._cuts: tuple[LogState | None, Mapping[int, Sequence[LoggedCut]]] = None, {}
        """The cuts that each table is awaited at, and the state that says so."""
        self._seen: tuple[Mapping[int, TableLog], Mapping[str, LoggedCut]] = {}, {}
        """The tables and cuts of the state that was last looked at, ..."""
        self._newest, self._arrived, self._gap = journal.state.number, -math.inf, math.inf
        """... the number of its record, the monotonic time at which that was first seen, and the seconds since the
        record before."""
        self._stirred: dict[int, None] = {}
        """Tables that the next look looks at."""
        self._waited_for: tuple[RecordNumber, Pace] | None = None
        """The record and the pace by which nothing is to be begun before `next_due`; None: to be found by a look."""
        self._moved_tables = progress.news()

    @property
    def group(self) -> ApplyUnit | None:
        """The unit that tables join; None: each stays by itself."""
        return self._group.unit

    def due(self, number: RecordNumber) -> list[TableEntry]:
        """Tables that have to be entered now: those that nothing is gained by letting wait, and of the others as many
        of the oldest as must be begun so that all are committed in time. (Earliest deadline first.)"""
        self._notice()
        for table_id in self._group.board():
            self._stir(table_id)
        now, pace = self._monotonic(), self._pace(self.times)
        if self._waited_for == (number, pace) and now < self.next_due:
            return []
        behind = [entry for table_id in list(self._stirred) if (entry := self._look(table_id, number)) is not None]
        self._progress.cover(number)
        if not behind and not self.running:
            self._late = 0.0  # there is nothing that longer records could save
        by_deadline = ((self._deadline(entry, pace.hold, now), entry.table.table_id, entry) for entry in behind)
        timed = sorted(by_deadline, key=itemgetter(0, 1))
        starts = self._starts([(deadline, entry.unit) for deadline, _, entry in timed])
        record = self._arrived + min(pace.record, self._gap) + NOTICE
        if record > now:  # until then, nothing comes that a later commit would take along
            due = bisect_left(starts, record)
        else:
            due = bisect_right(starts, now + pace.look) if starts and starts[0] <= now + SOON else 0
        self.next_due = starts[due] if due < len(starts) else math.inf
        nothing = not due and len(behind) == len(self._stirred)  # others wait for what nobody tells of
        self._waited_for = (number, pace) if nothing else None
        return [entry for _, _, entry in timed[:due]]

    def _starts(self, timed: Sequence[tuple[float, ApplyUnit]]) -> list[float]:
        """The latest monotonic time at which each can be begun, in this order, so that it and all after it end by their
        deadlines."""
        first = {unit: place for place, (_, unit) in reversed(list(enumerate(timed)))}
        starts, latest = [math.inf] * len(timed), math.inf
        for place in range(len(timed) - 1, -1, -1):
            deadline, unit = timed[place]
            if first[unit] == place:  # its other tables are committed with this one
                share = unit.took / self._threads
                latest = min(latest, deadline - unit.took + share) - share
            starts[place] = latest
        return starts

    def _notice(self) -> None:
        """Stir what was touched since the last look."""
        state, (tables, cuts) = self._journal.state, self._seen
        touched = dict.fromkeys(changed(tables, state.tables))
        if touched or len(tables) != len(state.tables):
            touched |= dict.fromkeys(self.entries.keys() - state.tables.keys())
        awaited = (state.cuts[name].awaited for name in changed(cuts, state.cuts))
        self._seen = state.tables, state.cuts
        if state.number != self._newest:
            now = self._monotonic()
            self._newest, self._arrived, self._gap = state.number, now, now - self._arrived
            self._waited_for = None
        for table_id in itertools.chain(touched, *awaited, self._moved_tables()):
            self._stir(table_id)
        for entry in filter(None, map(self.entries.get, touched if self.running else ())):
            if entry.running is not None and entry.behind_again is None:
                entry.behind_again = self._monotonic()

    def _stir(self, table_id: int) -> None:
        self._progress.stir(table_id)
        self._stirred[table_id] = None
        self._waited_for = None

    def _look(self, table_id: int, number: RecordNumber) -> TableEntry | None:
        """The table's entry if it lacks something up to record `number` and may be entered. It is looked at again,
        unless it is quiet, over, or being worked at: then the end of that has it looked at."""
        table, entry = self._journal.state.tables.get(table_id), self.entries.get(table_id)
        if entry is not None and entry.running is not None:
            del self._stirred[table_id]
            return None
        if table is None or (table.removed and not (entry is not None and self._is_ending(table))):
            del self._stirred[table_id]
            if entry is not None:
                self.forget(entry)
            return None
        behind = self._behind(table, number)
        if behind is None and self._is_quiet(table):
            self.entries[table_id].behind_since = None
            del self._stirred[table_id]
            self._progress.be_quiet(table_id)
        return behind

    def _is_quiet(self, table: TableLog) -> bool:
        entry = self.entries.get(table.table_id)
        if entry is None or table.removed or entry.latest is not table or entry.table.generation != table.generation:
            return False
        if entry.unit.is_waiting(self._monotonic()):
            return False
        nothing = _has_nothing_new(entry, self._progress.of(table.table_id))
        return nothing and not self._is_awaited(table.table_id, self._journal.state.number)

    def begin(self, unit: ApplyUnit, running: Future[None]) -> None:
        """Notes that the unit is at work: its worker alone says what its tables hold."""
        unit.running = running
        self.running.add(unit)
        for table_id, entry in unit.entries.items():
            entry.behind_again = None
            self._stir(table_id)

    def done(self, unit: ApplyUnit) -> None:
        """Notes that its tables hold what they were to hold. What was seen meanwhile, they may hold or not."""
        for entry in unit.entries.values():
            entry.behind_since, entry.behind_again = entry.behind_again, None

    def end(self, unit: ApplyUnit) -> None:
        unit.running = None
        self.running.discard(unit)
        for table_id in unit.entries:
            self._stir(table_id)

    def leave_group(self, entry: TableEntry, own: ApplyUnit) -> None:
        self._group.leave(entry, own)
        self._stir(entry.table.table_id)

    def _deadline(self, entry: TableEntry, hold: float, now: float) -> float:
        """The monotonic time by which it should hold what was seen."""
        progress, copy = self._progress.of(entry.table.table_id), entry.copy
        entry.deadline = math.inf
        if not copy.opened or progress.fault is not None or entry.latest.removed:
            return -math.inf
        since = now if entry.behind_since is None else entry.behind_since
        if progress.replacing or not copy.settled or _is_being_read(entry.latest, progress):
            ended = entry.unit is not self.group and _is_read_to_its_end(entry.latest, progress)
            return since + min(hold, 0.0 if ended else SNAPSHOT_HOLD)
        entry.deadline = since + hold
        return entry.deadline

    @property
    def late(self) -> float:
        """Seconds by which commits are late, as far as many tables are the cause: with few, a record costs little, and
        longer ones would have them wait."""
        return self._late * min(1.0, len(self.entries) / MANY)

    def committed(self, unit: ApplyUnit) -> None:
        """Notes how late a unit's batch has ended, and what it took."""
        now = self._monotonic()
        self.times.committed(unit, now)
        for entry in unit.entries.values():
            if entry.behind_since is not None and entry.deadline < math.inf:
                counted = max(FEWEST_COUNTED, min(MANY, len(self.entries)))
                self._late += (min(LATEST, max(0.0, now - entry.deadline)) - self._late) / counted
                entry.deadline = math.inf

    def spread(self, unit: ApplyUnit, now: float) -> None:
        """Puts the next try off, at random, if the pauses of all tables that fail there are not enough. With the first
        answer that is over."""
        self._away.add(unit)
        span = len(self._away) * SPACING
        if span > LONGEST_PAUSE:
            unit.spread = now + 2 * span * random.random()

    def answered(self) -> None:
        """Lets all units be tried again that waited for more than their pauses."""
        while self._away:
            self._away.pop().spread = -math.inf

    def live(self) -> list[TableLog]:
        """Captured tables, and those that no longer are and still lack changes from before their end: their copies are
        kept as they were then."""
        tables = self._journal.state.tables
        live = [table for table in tables.values() if not table.removed]
        gone = [tables[i] for i in self.entries if i in tables and tables[i].removed]
        return [*live, *filter(self._is_ending, gone)]

    def _is_ending(self, table: TableLog) -> bool:
        """True if the removed table lacks changes, and its place is neither another's nor about to be deleted."""
        entry, progress = self.entries[table.table_id], self._progress.of(table.table_id)
        known = entry.table.generation == table.generation and entry.opened
        lacks = known and progress.fault is None and last_record(table) > progress.applied_record
        state = self._journal.state
        if not lacks or any(dropped.place == place_of(table) for dropped in state.dropped):
            return False
        return not any(_one_place(other, table) for other in state.tables.values() if not other.removed)

    def forget(self, entry: TableEntry) -> None:
        """Tables come and go for years: what their workers hold goes with them. One that is captured still is entered
        again."""
        table_id = entry.table.table_id
        entry.unit.leave(entry)
        if not entry.unit.entries:
            self.times.forget(entry.unit)
        self._away.discard(entry.unit)
        self._group.forget(table_id)
        del self.entries[table_id]
        self._progress.forget(table_id)
        self._waited_for = None
        if table_id in self._journal.state.tables:
            self._stirred[table_id] = None

    def _behind(self, table: TableLog, number: RecordNumber) -> TableEntry | None:
        """The table's entry if it lacks something up to record `number` and may be entered."""
        entry = self.entries.get(table.table_id)
        if entry is not None and entry.table.generation != table.generation:
            self.forget(entry)  # the table starts over, perhaps under another name
            entry = None
        if entry is None:
            if is_blocked(self._journal.state, place_of(table)):
                return None  # what a dropped table left there is being deleted
            if any(_one_place(other.table, table) for unit in self.running for other in unit.entries.values()):
                return None  # the place is its former table's until that one's batch is over
            copy = TableCopy(table.table_id, table.generation)
            entry = TableEntry(table, table, last_record(table), copy)
            if self.group is not None and self.group.running is not None:
                return None  # whether it is level with the group is known once that can be asked
            (self.group or ApplyUnit()).enter(entry)
            self.entries[table.table_id] = entry
        if entry.latest is not table:
            entry.latest, entry.last_record = table, last_record(table)
        if entry.unit.is_waiting(self._monotonic()):
            return None
        progress = self._progress.of(table.table_id)
        if progress.applied_record >= number and progress.fault is None:
            return None
        if _has_nothing_new(entry, progress) and not self._is_awaited(table.table_id, number):
            self._progress.put(table.table_id, replace(progress, applied_record=number))
            return None
        if entry.behind_since is None:
            entry.behind_since = self._monotonic()
        return entry

    def _is_awaited(self, table_id: int, number: RecordNumber) -> bool:
        """True if a cut up to record `number` waits for the table: its worker has to name the version."""
        known, state = self._cuts, self._journal.state
        if known[0] is not state:
            waiting: dict[int, list[LoggedCut]] = {}
            for cut in state.cuts.values():
                for awaited in cut.awaited:
                    waiting.setdefault(awaited, []).append(cut)
            known = self._cuts = state, waiting
        cuts = known[1].get(table_id, ())
        return any(cut.record <= number and not self._progress.is_held(cut.name, table_id) for cut in cuts)

    def present(self, table_id: int) -> TableEntry | None:
        """The entry of the table's present generation."""
        entry, table = self.entries.get(table_id), self._journal.state.tables.get(table_id)
        return None if entry is None or table is None or entry.table.generation != table.generation else entry


def _one_place(one: TableLog, other: TableLog) -> bool:
    """Targets are found by the source table's name."""
    return (one.schema.schema_name, one.schema.table_name) == (other.schema.schema_name, other.schema.table_name)


def _is_being_read(table: TableLog, progress: TableProgress) -> bool:
    """True if chunks, or the end of a snapshot, wait to be applied: people wait for them."""
    latest = (part[-1].record for part in (table.chunks, table.finishes) if part)
    return any(record > progress.applied_record for record in latest)


def _is_read_to_its_end(table: TableLog, progress: TableProgress) -> bool:
    """True if the end of a snapshot waits to be applied."""
    return bool(table.finishes) and table.finishes[-1].record > progress.applied_record


def _has_nothing_new(entry: TableEntry, progress: TableProgress) -> bool:
    """True if nothing that was recorded since belongs to the table: with thousands of them, most records are for a
    few."""
    table = entry.latest
    healthy = entry.copy.settled and progress.fault is None and not progress.replacing
    kept = table.trimmed_through <= progress.applied_seq and table.trimmed_record <= progress.committed_record
    return healthy and kept and entry.last_record <= progress.applied_record
