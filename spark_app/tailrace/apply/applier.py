"""Applies all tables side by side: a worker per unit on a few threads, back-off and isolation of those that fail.

`offer` is called by the stream for every new end of the journal and by the driver's main loop for tables whose pause
has ended. A table that fails is retried with growing pauses, named in the status, and counted as stopped after
`retry.time` (or at once for a `TableStop`, or where its target refuses); the others continue. A refusal that every
table meets is the whole target's and ends the process.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock

from tailrace.apply.commit_times import CommitTimes
from tailrace.apply.progress import Progress
from tailrace.apply.publishing import is_settled
from tailrace.apply.schedule import Schedule
from tailrace.apply.unit_worker import UnitWorker
from tailrace.apply.units import NONE, ApplyUnit, TableEntry
from tailrace.apply.upkeep import Upkeep
from tailrace.changelog.logged import place_of
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.faults import fault_of
from tailrace.contract.pace import AT_ONCE, Pace
from tailrace.errors import CorruptLog, Fenced, Locked, Retry, Stop, StorageFull, TableStop, TailraceError
from tailrace.errors.backoff import Outages
from tailrace.snapshot.planner import still_needed
from tailrace.targets.api import ChunkLost, ChunkWriter, Look, TableFailed

log = logging.getLogger(__name__)

GROUP_SECONDS = 1.0
"""Seconds after which the group rests between two commits, however much there is to do."""
LONG = 0.9 * GROUP_SECONDS
"""Seconds after which the group may be about to rest."""
NOT_OF_A_TABLE = (CorruptLog, Fenced)
"""End the process, in whichever thread they occur."""
WAITING_SECONDS = 600.0
"""A batch that waits for so long is warned of: whoever holds it up may be frozen."""
STAND_SECONDS = 0.1
"""Between two looks at whether everything stands still."""
LOOK_SECONDS = 30.0
"""Between two looks at whether another program has dropped copies."""


class Applier:
    def __init__(
        self,
        journal: SharedJournal,
        progress: Progress,
        make: Callable[[TableLog], UnitWorker],
        *,
        group: UnitWorker | None = None,
        retry_seconds: Callable[[], float],
        pace: Callable[[CommitTimes], Pace] = lambda _: AT_ONCE,
        until: RecordNumber | None = None,
        threads: int = 4,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make`: the worker of a unit that is to have this table alone. `group`: that of the unit which tables join;
        None: each stays by itself. `pace`: when records come, and changes that were seen are to be committed, by what
        commits take. `until`: the record at which tables stay; None: none. `clock` is for people and the age of files;
        pauses go by `monotonic`, which is never set back."""
        self._journal = journal
        self._progress = progress
        self._make = make
        self._schedule = Schedule(journal, progress, group, pace=pace, threads=threads, monotonic=monotonic)
        self._upkeep = Upkeep(self._schedule.entries, progress, monotonic)
        self._retry_seconds = retry_seconds
        self._until = until
        self._clock, self._monotonic = clock, monotonic
        self._through = RecordNumber(-1)
        self._lock = Lock()
        self._stopping = False
        self._standing = False
        """Nothing is begun, because somebody else changes tables."""
        self.held = False
        """No batch is begun: a rewind of the process before is to be looked at first."""
        self._fatal: Exception | None = None
        self._refused = False
        """Some unit may be refused by its target."""
        self.last_step_at = time.monotonic()
        self._pool = ThreadPoolExecutor(threads, "apply")
        # Of its own: however long tables are tidied, changes find the other threads free.
        self._tidying: Future[None] | None = None
        self._tidy_pool = ThreadPoolExecutor(1, "tidy")
        self._tidied: TableEntry | None = None
        """The entry that the tidying thread works at."""
        self._looked = monotonic()
        """The time of the last look at whether copies are there."""
        self._outages = Outages()
        self._lost: dict[str, ChunkRegistered] = {}
        """Registered chunks whose file is gone, by path."""

    @property
    def through(self) -> RecordNumber:
        """The record that was offered last."""
        return self._through

    def offer(self, through: RecordNumber, patience: float = 0.0) -> None:
        """Let every table that is due continue to record `through`; wait up to `patience` seconds for them. Raises a
        `Stop` that all of them met, or one that is not about a table."""
        self._raise_fatal()
        self.last_step_at = time.monotonic()
        with self._lock:
            if self._standing or self.held or self._stopping:
                return
            self._through = max(self._through, self._bounded(through))
            for unit in {entry.unit: None for entry in self._schedule.due(self._through)}:
                self._enter(unit)
            started = self._running()
            tidy = self._upkeep.is_due() or self._is_look_due()
        if patience and started:
            wait(started, patience)
        if tidy and not self._stopping and (self._tidying is None or self._tidying.done()):
            self._tidying = self._tidy_pool.submit(self._tidy_all)
            self._tidying.add_done_callback(self._ended)

    @property
    def late(self) -> float:
        """See `Schedule.late`."""
        return self._schedule.late

    @property
    def times(self) -> CommitTimes:
        return self._schedule.times

    def may_leave(self, number: RecordNumber) -> bool:
        """True if a batch is under way that may end without holding record `number`."""
        with self._lock:
            number, long_since = self._bounded(number), self._monotonic() - LONG
            return any(unit.reaches < number or unit.begun < long_since for unit in self._schedule.running)

    def _running(self) -> list[Future[None]]:
        return [unit.running for unit in self._schedule.running if unit.running is not None]

    def is_due(self, number: RecordNumber) -> bool:
        return self.due_in(number) <= 0

    def due_in(self, number: RecordNumber) -> float:
        """Seconds until a table has to be entered to hold record `number` in time; 0: one has to be now; infinity: as
        far as is known, none. Tables to which it brings nothing are covered here."""
        with self._lock:
            if self._standing or self.held or self._stopping:
                return math.inf
            due = self._schedule.due(self._bounded(number))
            return 0.0 if due else max(0.0, self._schedule.next_due - self._monotonic())

    def _bounded(self, number: RecordNumber) -> RecordNumber:
        return number if self._until is None else min(number, self._until)

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if not self._refused:
            return
        self._refused = False
        entries = map(self._schedule.entries.get, self._live_ids())
        met = [entry.unit.refused if entry is not None else None for entry in entries]
        if any(met):
            self._refused = True
        if met and met[0] is not None and None not in met:
            raise met[0]

    def _live_ids(self) -> list[int]:
        return [t.table_id for t in self._journal.state.tables.values() if not t.removed]

    def _enter(self, unit: ApplyUnit) -> None:
        unit.reaches, unit.begun = NONE, self._monotonic()
        running = self._pool.submit(self._run, unit)
        self._schedule.begin(unit, running)
        running.add_done_callback(self._ended)

    def tidy_up(self, patience: float) -> None:
        """At the end of a short run: tables that it wrote to are tidied, for as long as `patience` allows."""
        tidying = self._tidying
        if tidying is not None:
            wait([tidying], patience)

    def is_open(self, table_id: int) -> bool:
        """True if the target of the table's present generation is known right now."""
        entry = self._schedule.present(table_id)
        return entry is not None and entry.opened

    def chunk_writer(self, table_id: int, schema: TableSchema) -> ChunkWriter | None:
        """A writer for chunks of this version of the table; None: there is none yet (`UnitWorker.chunk_writer`)."""
        entry = self._schedule.present(table_id)
        worker = None if entry is None else entry.unit.worker
        return None if worker is None else worker.chunk_writer(table_id, schema)

    def is_whole(self, table_id: int) -> bool:
        """True if the target holds all rows that were read of the table, and none are being read."""
        entry, state = self._schedule.present(table_id), self._journal.state
        applied = None if entry is None else entry.copy.applied
        if entry is None or applied is None or entry.copy.replacing:
            return False
        return is_settled(state.tables[table_id], state, applied)

    def look(self, table_id: int) -> tuple[Look, RecordNumber] | None:
        """The table's copy, to be compared with its source, and the record that it holds at least; None: not while it
        is not whole. Waits for a batch."""
        entry = self._schedule.present(table_id) if self.is_whole(table_id) else None
        worker = None if entry is None else entry.unit.worker
        return None if worker is None else worker.look(table_id, self._journal.state.tables[table_id])

    def lost_chunks(self) -> list[ChunkRegistered]:
        """Registered chunks whose file is gone and that a batch still needs: the planner has them read again. The rest
        is forgotten: clean-ups of others may continue for years."""
        state = self._journal.state
        with self._lock:
            needed = still_needed(state, self._lost.values())
            self._lost = {str(chunk.path): chunk for chunk in needed}
        return needed

    def is_done_with(self, place: tuple[str, str]) -> bool:
        """True if no thread works at the copy of a table that is no longer captured. None will: only captured ones are
        entered."""
        with self._lock:
            live = {table.table_id: table.generation for table in self._schedule.live()}
            here = [entry for entry in self._schedule.entries.values() if place_of(entry.table) == place]
            over = [entry for entry in here if live.get(entry.table.table_id) != entry.table.generation]
            if any(entry.running is not None or entry is self._tidied for entry in over):
                return False
            for entry in over:
                self._schedule.forget(entry)
            return self._tidied is None or place_of(self._tidied.table) != place  # forgotten, and tidied to its end

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """While this is entered, nothing is committed or tidied: what was under way has ended, and nothing begins."""
        with self._lock:
            self._standing = True
        try:
            while (begun := self._under_way()) and not self._stopping:
                wait(begun, STAND_SECONDS)
            if self._stopping:  # what is cancelled then never ends, and nothing is to begin
                raise Retry("the driver is shutting down")
            yield
        finally:
            with self._lock:
                self._standing = False

    def _under_way(self) -> list[Future[None]]:
        with self._lock:
            tidying = [] if self._tidied is None or self._tidying is None else [self._tidying]
            return [*self._running(), *tidying]

    def forget(self, table_ids: Iterable[int]) -> None:
        """Have the tables opened again, as if the process had just started; only while all stand still."""
        with self._lock:
            for entry in [self._schedule.entries[i] for i in table_ids if i in self._schedule.entries]:
                self._schedule.forget(entry)

    def stop(self) -> None:
        """Let the commits under way end, begin none."""
        self._stopping = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._tidy_pool.shutdown(wait=True, cancel_futures=True)

    # ---- on the pool's threads ----

    def _run(self, unit: ApplyUnit) -> None:
        begun, since = self._through, self._monotonic()
        try:
            worker = unit.worker or self._made(unit)
            more = first = True
            while more and not (self._stopping or self._standing) and not self._rests(unit, since):
                # In this order: what another thread offers meanwhile, the state may not hold.
                through = self._through
                unit.reaches = through if first else NONE
                first = False
                try:
                    more = worker.advance(self._state_with(through), through)
                except TableFailed as failed:
                    if unit is not self._schedule.group:
                        raise failed.error from None
                    self._leave(unit.entries[failed.table_id], failed.error, begun)
                for entry in [entry for entry in unit.entries.values() if not entry.copy.level]:
                    self._leave(entry)
            with self._lock:
                self._outages.answered(self._monotonic())
                self._schedule.answered()
                unit.took = (unit.took + self._monotonic() - since) / 2
                self._schedule.committed(unit)
                if not more:
                    self._schedule.done(unit)
            unit.backoff.reset()
            unit.refused = unit.waiting_since = None
        except Exception as error:  # the boundary of one unit: its tables are named in the status and tried again
            self._failed(unit, error, begun)
        finally:
            with self._lock:
                self._schedule.end(unit)

    def _state_with(self, number: RecordNumber) -> LogState:
        """A state that holds the record. It was offered by who had read it, so there is hardly ever more to read."""
        state = self._journal.state
        return state if state.number >= number else self._journal.refresh()

    def _rests(self, unit: ApplyUnit, since: float) -> bool:
        """True if the group is to rest for a moment, so that tables can join it."""
        return unit is self._schedule.group and self._monotonic() - since > GROUP_SECONDS

    def _made(self, unit: ApplyUnit) -> UnitWorker:
        """The worker of a unit with one table."""
        (entry,) = unit.entries.values()
        worker = unit.worker = self._make(entry.table)
        worker.add(entry.copy)
        return worker

    def _leave(
        self, entry: TableEntry, error: Exception | None = None, record: RecordNumber = RecordNumber(-1)
    ) -> None:
        """A table that cannot be moved with the group continues by itself, and the group without it. `error`: the one
        that it met on the way to `record`; its pause has begun when another thread may enter the table."""
        own = ApplyUnit({entry.table.table_id: entry})
        if error is not None:
            self._failed(own, error, record)
        with self._lock:
            entry.copy.applied, entry.copy.level = None, True
            self._schedule.leave_group(entry, own)

    def _ended(self, work: Future[None]) -> None:
        """Errors of a table are reported where they occur; one that is left belongs to no table, and ends the run."""
        error = None if work.cancelled() else work.exception()
        if isinstance(error, Exception):
            self._fatal = error

    def _tidy_all(self) -> None:
        """On the thread of its own: all tables whose time has come, the one that waits longest first."""
        self._look_for_copies()
        while not self._stopping:
            with self._lock:
                entry = self._tidied = None if self._standing else self._upkeep.next()
            if entry is None:
                return
            rests = entry.opened and entry.running is None  # else its changes come first
            if rests:
                self._tidy(entry)
            with self._lock:
                self._tidied = None
                if rests:
                    self._upkeep.done(entry)
                else:
                    self._upkeep.later(entry)

    def _is_look_due(self) -> bool:
        group = self._schedule.group
        return group is not None and group.worker is not None and self._monotonic() - self._looked >= LOOK_SECONDS

    def _look_for_copies(self) -> None:
        """Nothing else would notice that the copy of an idle table was dropped."""
        group = self._schedule.group
        if group is None or group.worker is None or not self._is_look_due():
            return
        self._looked = self._monotonic()
        try:
            missing = group.worker.missing()
        except TailraceError as error:  # batches tell of an outage
            log.debug("the target could not be asked for its tables: %s", error)
            return
        for entry in filter(None, map(self._schedule.entries.get, missing)):
            self._failed(group, Retry("another program dropped or replaced the copy"), self._through, entry)

    def _tidy(self, entry: TableEntry) -> None:
        committed = self._progress.of(entry.table.table_id).committed_record
        entry.tidied, entry.idle = self._monotonic(), committed == entry.tidied_record
        begun = self._through
        try:
            if entry.unit.worker is not None:
                entry.unit.worker.tidy(entry.table.table_id, self._journal.state, self._clock())
        except Exception as error:  # the boundary of one table, as in `_run`
            entry.tidied_record = RecordNumber(-1)
            self._failed(entry.unit, error, begun, entry)
            return
        entry.tidied_record = committed

    def _failed(self, unit: ApplyUnit, error: Exception, record: RecordNumber, alone: TableEntry | None = None) -> None:
        """`alone`: the table that could not be tidied; None: a batch of the unit failed. The group's other tables are
        not concerned by the former: it is tried again at the next tidying."""
        now, counts = self._monotonic(), alone is None or unit is not self._schedule.group
        if isinstance(error, Locked):
            if counts:
                self._waits(unit, error, now)
            else:
                log.info("the upkeep of a table waits for %s", error.message)
            return
        if counts:
            unit.waiting_since = None
            unit.backoff.failed(now)
            unit.refused = error if isinstance(error, Stop) else None
            self._refused |= unit.refused is not None
        with self._lock:
            told = self._outages.met(error, now)
            away = isinstance(error, Retry) and error.away
            if counts and away:
                self._schedule.spread(unit, now)
            if isinstance(error, ChunkLost):
                self._lost |= {str(chunk.path): chunk for chunk in error.chunks}
        exhausted = counts and unit.backoff.is_exhausted(now, self._retry_seconds())
        if isinstance(error, NOT_OF_A_TABLE):
            self._fatal = error
        fault = fault_of(error, self._clock())
        away = away or fault.name == StorageFull.__name__  # whoever noticed it: there is no room for others either
        entries = [alone] if alone is not None else list(unit.entries.values())
        for entry in entries:
            stopped = exhausted or isinstance(error, TableStop | Stop)
            self._progress.fail(entry.table.table_id, fault, stopped, record, away=away)
        known = isinstance(error, TailraceError)
        level = logging.WARNING if told else logging.DEBUG
        names = self._names(entries)
        what = names[0] if len(names) == 1 else f"{len(names)} tables"
        log.log(level, "%s: %s", what, error if known else fault.message, extra={"table": names[0]}, exc_info=not known)

    def _names(self, entries: Iterable[TableEntry]) -> list[str]:
        return [self._journal.state.tables[entry.table.table_id].schema.name for entry in entries]

    def _waits(self, unit: ApplyUnit, error: Locked, now: float) -> None:
        """A chunk that is being written is in the way, which is no fault: the unit is tried again after pauses."""
        if unit.waiting_since is None:
            unit.waiting_since = unit.waiting_told = now
        lasts = now - unit.waiting_told >= WAITING_SECONDS
        if lasts:
            unit.waiting_told = now
        level, waited = logging.WARNING if lasts else logging.INFO, round(now - unit.waiting_since)
        names = self._names(unit.entries.values())
        extra = {"table": names[0]} if len(names) == 1 else {}  # of several, the message names the right one
        log.log(level, "a batch has been waiting for %d s for %s", waited, error.message, extra=extra)
        with self._lock:
            unit.backoff.waited(now)
