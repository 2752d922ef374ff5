"""Drives all snapshots: asks the planner what there should be and each table's state machine what comes next.

One thread (`SnapshotRunner.step`, called in a loop) owns all state; the steps run on a pool of threads and come back as
messages over a queue. What matters is in the journal: after a restart the runs are begun again from it.
"""

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tailrace.apply.progress import Progress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.resources import SnapshotSpec
from tailrace.contract.settings import VerifySpec
from tailrace.contract.status import Fault
from tailrace.errors import NotVerified, Retry, Stop, TailraceError
from tailrace.errors.backoff import Backoff
from tailrace.reading import cascades, steps, verification
from tailrace.reading.failures import StepFailures
from tailrace.reading.groups import Groups
from tailrace.reading.messages import (
    CascadesSearched,
    ChunkDone,
    ChunkFailed,
    EdgeLooked,
    EndFailed,
    Message,
    RunKey,
    StepDone,
    StepFailed,
    Together,
)
from tailrace.reading.planning import Planning
from tailrace.reading.run_entries import RunEntries
from tailrace.reading.run_entry import LONGEST_PAUSE, RunEntry
from tailrace.reading.steps import Tools
from tailrace.reading.together import MOST, ChunkAsked, StartAsked
from tailrace.reading.turns import Room, TableTurns
from tailrace.snapshot import chunks
from tailrace.snapshot.edge import EdgeLook, Edges
from tailrace.snapshot.ranges import Range

log = logging.getLogger(__name__)

AHEAD = 2
"""Chunks cut and not begun, per table."""


def over(table: TableLog, snapshot: SnapshotState) -> str | None:
    """The reason why the snapshot has nothing more to read of the table; None: it has."""
    name = table.schema.name
    if snapshot.awaits(table):
        return None
    if table.stopped is not None and not table.removed:
        return f"{name} is stopped ({table.stopped.error})"
    if table.removed:
        return f"{name} is no longer captured"
    # Its chunks would be of another form, for another target: what called for the table's return called for a snapshot.
    return None if snapshot.reads(table) else f"{name} was added again since then and has its own snapshot"


class SnapshotRunner:
    def __init__(
        self,
        tools: Tools,
        progress: Progress,
        defaults: Callable[[], SnapshotSpec],
        *,
        retry_seconds: Callable[[], float],
        background: Callable[[], VerifySpec | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`defaults`, `background` and `retry_seconds` are asked at each use: they change while it runs. `clock`: what
        people are shown, and when a verification in the background is due. Pauses go by `monotonic`: a clock that is
        set back must not prolong them."""
        self._tools = tools
        self._progress = progress
        self._defaults = defaults
        self._background = background
        self._background_read_at = 0.0
        self._clock, self._monotonic = clock, monotonic
        self._client = CaptureClient(tools.socket)
        self._planning = Planning(
            lambda: self._tools, self._client, progress, background, clock=clock, monotonic=monotonic
        )
        self._turns = TableTurns()
        self._entries = RunEntries(self._turns, defaults)
        self._moved_tables = progress.news()
        self._messages: queue.Queue[Message] = queue.Queue()
        self._threads = defaults().parallelism + 2
        self._pool = ThreadPoolExecutor(self._threads, "snapshot")
        self._under_way = 0
        self._reading: Counter[str] = Counter()
        """Chunks being read by themselves, by snapshot."""
        self._groups = Groups(lambda: self._tools, self._client, self._submit)
        self._ready = 0
        self._edges = Edges()
        self._failures = StepFailures(retry_seconds, clock)
        self._stopping = False
        self._searching = False
        """A search for rows that foreign keys have reached is under way."""
        self._search_backoff = Backoff(LONGEST_PAUSE)
        self._hold: object | None = None
        """The object that `hold` has asked for, until `release`."""
        self._still: object | None = None
        """The `hold` for which nothing is under way."""
        self.last_step_at = time.monotonic()

    @property
    def runs(self) -> Mapping[RunKey, chunks.TableRun]:
        return {key: entry.run for key, entry in list(self._entries.known.items())}

    @property
    def waiting_for(self) -> str | None:
        return next((s.waits_for for s in list(self._entries.known.values()) if s.waits_for is not None), None)

    def step(self, patience: float = 0.5) -> None:
        """One round: plan, follow the journal, start the steps that may start, take the results of others."""
        hold = self._hold
        if hold is None:
            self._begin_work()
        self._take(patience)
        self._still = hold if not self._under_way else None
        self.last_step_at = time.monotonic()

    def _begin_work(self) -> None:
        self._resize()
        state = self._planning.plan(self._tools.journal.refresh())
        self._look_for_cascades(state)
        self._entries.follow(state.snapshots)
        for table_id in self._moved_tables():
            self._turns.wake_table(table_id)
        self._turns.begin(self._monotonic())
        self._count(state)
        self._turns.sort(lambda key: self._urgency(state, key, self._entries.known[key]))
        while self._under_way < self._most and (key := self._turns.next()) is not None:
            room = self._start_next(state, key, self._entries.known[key])
            if room is not None:
                self._turns.lacks(key, room)
            self._groups.begin(MOST)
        self._turns.end()
        self._groups.begin(1)

    def hold(self) -> bool:
        """Begins nothing more until `release`. True: nothing is under way, so that the settings of steps and chunks may
        change."""
        self._hold = self._hold or object()
        return self._still is self._hold

    def release(self) -> None:
        """Continue, with each table as the source and the options show it by then. Without a `hold`: nothing
        happens."""
        if self._hold is None:
            return
        for entry in list(self._entries.known.values()):
            entry.table = None
        self._hold = None

    # ---- small tables together ----

    def _joins(self, snapshot: SnapshotState, entry: RunEntry) -> bool:
        """True if the table's chunk may be read in a group: it is small, as far as is known, nothing of it failed, and
        nobody has asked how many are to be read at once."""
        plan = snapshot.plan
        known = entry.small and entry.table is not None
        return known and not (entry.alone or plan.verify or plan.parallelism or plan.keys)

    def _join_read(self, key: RunKey, entry: RunEntry, part: Range) -> None:
        assert entry.table is not None
        self._read_begun(key, entry, part)
        entry.grouped = True
        self._groups.reads.append((key, ChunkAsked(entry.run, part, entry.table)))

    @property
    def _most(self) -> int:
        """Steps and groups handed to the pool at once: of thousands of tables, each would else begin before the first
        is read."""
        return 2 * self._threads

    @property
    def _most_ready(self) -> int:
        """Chunks that may wait to be read before another table is begun."""
        return max(self._most, 2 * MOST)

    def _resize(self) -> None:
        threads = self._defaults().parallelism + 2
        if threads != self._threads:
            self._pool.shutdown(wait=False)  # it ends what it has
            self._threads, self._pool = threads, ThreadPoolExecutor(threads, "snapshot")

    def canonical_keys(self, table: TableLog, asked: Sequence[Key]) -> tuple[Key, ...]:
        """See `planner.CanonicalKeys`; asked from other threads."""
        return steps.canonical_keys(self._tools, table, asked)

    def stop(self) -> None:
        """Begin nothing more. A chunk that is being read is abandoned: it is read again after the next start."""
        self._stopping = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    # ---- planning ----

    def _look_for_cascades(self, state: LogState) -> None:
        if self._searching or self._stopping or self._search_backoff.is_waiting(self._monotonic()):
            return
        if self._planning.are_cascades_due(state, self._holds):
            self._searching = True

            def act() -> Message:
                cascades.look(self._tools, self._client, self._holds)
                return CascadesSearched()

            self._submit(act, CascadesSearched)

    def _holds(self, table_id: int, record: RecordNumber) -> bool:
        return self._progress.of(table_id).applied_record >= record and self._tools.is_whole(table_id)

    def _searched(self, error: Exception | None) -> None:
        self._searching = False
        if error is None:
            self._search_backoff.reset()
            return
        if isinstance(error, Stop):
            raise error
        now = self._monotonic()
        self._search_backoff.failed(now)
        known = isinstance(error, TailraceError)
        quiet = known and not self._failures.is_news(error, now)
        text = "rows that foreign keys have reached were not found: %s"
        log.log(logging.DEBUG if quiet else logging.WARNING, text, error, exc_info=None if known else error)

    # ---- starting work ----

    def _start_next(self, state: LogState, key: RunKey, entry: RunEntry) -> Room | None:
        """Returns what it lacks, if others must end before it can continue."""
        snapshot = state.snapshots.get(key[0])
        if (
            snapshot is None
            or snapshot.ended is not None
            or self._stopping
            or self._entries.is_over(key)
            or entry.backoff.is_waiting(self._monotonic())
        ):
            return None
        log_table = state.tables[key[1]]
        why = over(log_table, snapshot)
        if why is not None and (entry.run.phase is not chunks.Phase.FINISH or entry.run.fault is None):
            # Also where only the end is still to be recorded: the journal takes none without a fault now.
            entry.added = log_table.added_record
            entry.give_up(Fault(name="TableGone", message=why, where="source", since=self._clock()))
        elif snapshot.awaits(log_table):
            return None  # capture takes it in again at its next look
        paused = snapshot.suspended and entry.run.phase is not chunks.Phase.FINISH
        while not paused and not self._must_wait() and (work := chunks.next_work(entry.run, AHEAD)) is not None:
            converges = snapshot.plan.verify and bool(log_table.cascades)
            if snapshot.plan.verify and entry.run.fault is None and (converges or not self._tools.is_whole(key[1])):
                entry.waits_for = f"{log_table.schema.name}: the target does not hold it whole yet"
                if (fault := self._not_verifiable(snapshot, log_table)) is not None:
                    entry.give_up(fault)
                return None
            if isinstance(work, chunks.Read):
                joins = self._joins(snapshot, entry)
                if not self._tools.opened(key[1]):
                    return Room.TO_OPEN
                if not (self._may_read(snapshot) or (joins and self._groups.reads)):
                    return Room.TO_READ
                if not self._may_register(state, key, entry):
                    return None
                if joins:
                    self._join_read(key, entry, work.range)
                else:
                    self._begin_read(key, entry, work.range)
            elif entry.busy:
                return None
            elif isinstance(work, chunks.FindMaxKey) and self._ready >= self._most_ready:
                return Room.TO_BEGIN
            elif isinstance(work, chunks.CheckEdge) and self._edges.passed(log_table.edge):
                entry.run, entry.waits_for = chunks.step(entry.run, chunks.EdgePassed()), None
            elif isinstance(work, chunks.CheckEdge) and self._edges.is_waiting(log_table.edge, self._monotonic()):
                entry.waits_for = self._edges.waits_for(log_table.edge)
                return None
            else:
                self._begin_step(state, key, entry, work)
        return None

    def _not_verifiable(self, snapshot: SnapshotState, table: TableLog) -> Fault | None:
        """The reason why a table that is stopped in the target will not be whole; None: it may be."""
        at = self._progress.of(table.table_id)
        accepted = snapshot.accepts(table.table_id) and at.refused_record < snapshot.record
        if not at.stopped or at.fault is None or accepted:
            return None
        message = f"{table.schema.name} is stopped ({at.fault.name}: {at.fault.message})"
        return Fault(
            name=NotVerified.__name__, message=message, fix=at.fault.fix, where=at.fault.where, since=self._clock()
        )

    def _must_wait(self) -> bool:
        return self._failures.must_wait(self._monotonic(), self._under_way)

    def _may_register(self, state: LogState, key: RunKey, entry: RunEntry) -> bool:
        """A table's edge moves when the catalog shows that it must be read again: whatever is read before older
        transactions have ended would be refused at its registration."""
        edge = state.tables[key[1]].edge
        if self._edges.passed(edge):
            return True
        if self._edges.is_waiting(edge, self._monotonic()):
            entry.waits_for = self._edges.waits_for(edge)
        elif not entry.busy:
            self._begin_step(state, key, entry, chunks.CheckEdge())
        return False

    def _count(self, state: LogState) -> None:
        self._reading, self._ready = Counter(), 0
        for key in list(self._turns.counted):
            entry = self._entries.known[key]
            mine = 0 if entry.grouped else len(entry.run.reading)
            begins = entry.busy and entry.run.phase is chunks.Phase.START
            ready = begins + self._ready_of(state.snapshots.get(key[0]), key[1], entry.run)
            self._reading[key[0]] += mine
            self._ready += ready
            if not (ready or entry.run.reading):
                self._turns.counted.discard(key)

    def _ready_of(self, snapshot: SnapshotState | None, table_id: int, run: chunks.TableRun) -> int:
        """Its chunks that may be read now."""
        reads = run.ready and snapshot is not None and not snapshot.suspended and self._tools.opened(table_id)
        return len(run.ready) if reads else 0

    def _urgency(self, state: LogState, key: RunKey, entry: RunEntry) -> tuple[bool, bool, bool, bool, int]:
        """Rows that are withheld come before rows that are not there yet, and what is done in the background last; what
        is begun before what is not; of that, the tables that have the fewest readers, so that a small one does not wait
        for a large one's end."""
        snapshot = state.snapshots.get(key[0])
        repair = snapshot is not None and snapshot.plan.reason == "repair"
        waits = snapshot is not None and snapshot.plan.in_background
        phase = entry.run.phase
        new = phase in (chunks.Phase.EDGE, chunks.Phase.START)
        return waits, not repair, new, phase is chunks.Phase.EDGE, len(entry.run.reading)

    def _may_read(self, snapshot: SnapshotState) -> bool:
        if snapshot.plan.in_background and self._monotonic() < self._background_read_at:
            return False
        most = 1 if snapshot.plan.in_background else self._defaults().parallelism
        own = snapshot.plan.parallelism or most
        mine = self._reading[snapshot.plan.snapshot_id]
        return self._reading.total() + self._groups.readers < most and mine < own

    def _read_begun(self, key: RunKey, entry: RunEntry, part: Range) -> TableLog:
        entry.run = chunks.step(entry.run, chunks.ReadBegun(part.ordinal))
        entry.rows.begin_read(part.ordinal, self._monotonic())
        log_table = self._tools.journal.state.tables[key[1]]
        entry.added = log_table.added_record
        return log_table

    def _begin_read(self, key: RunKey, entry: RunEntry, part: Range) -> None:
        log_table = self._read_begun(key, entry, part)
        self._reading[key[0]] += 1
        run, table, small = entry.run, entry.table, entry.small

        def act() -> Message:
            found = table or steps.find_table(self._tools, log_table)
            file = steps.read(self._tools, run, part, found, small)
            if run.verify:
                verification.compare_chunk(self._tools, self._client, run, part.ordinal)
            return ChunkDone(key, part.ordinal, file.all_rows, file.all_bytes, found, file.waited, file.bytes_in_memory)

        self._submit(act, lambda error: ChunkFailed(key, part.ordinal, error))

    def _begin_step(self, state: LogState, key: RunKey, entry: RunEntry, work: chunks.Work) -> None:
        entry.busy, entry.added = True, state.tables[key[1]].added_record
        if isinstance(work, chunks.FindMaxKey) and not entry.alone:
            self._groups.starts.append((key, StartAsked(entry.run, state.tables[key[1]], entry.rows.following)))
            self._ready += 1
            return
        if isinstance(work, chunks.RecordFinish) and not entry.alone and not entry.run.verify:
            self._groups.finishes.append((key, entry.run))
            return
        run, log_table, tools = entry.run, state.tables[key[1]], self._tools
        table, rows = entry.table, entry.rows.following
        if isinstance(work, chunks.CheckEdge):
            self._edges.looks(log_table.edge, self._monotonic())
        if isinstance(work, chunks.CutNext):
            entry.run = chunks.step(entry.run, chunks.CutBegun())
            rows = entry.rows.begin_cut(run, state.snapshots[key[0]].plan, self._defaults())

        def act() -> Message:
            match work:
                case chunks.CheckEdge():
                    return EdgeLooked(key, EdgeLook(log_table.edge, steps.check_edge(tools, log_table)))
                case chunks.FindMaxKey():
                    start = steps.find_start(tools, self._client, run, log_table, rows)
                    return StepDone(key, chunks.Started(start.max_key, start.estimated_rows), start.table, start.small)
                case chunks.CutNext():
                    found = table or steps.find_table(tools, log_table)
                    return StepDone(key, chunks.Cut(steps.find_cut(tools, found, work, rows)), found)
                case chunks.RecordFinish() if run.verify and run.fault is None:
                    verification.finish(tools, self._client, run)
                    return StepDone(key, chunks.Finished())
                case chunks.RecordFinish():
                    steps.record_finish(tools, self._client, run)
                    return StepDone(key, chunks.Finished())
                case chunks.Read():
                    raise AssertionError("chunks are read by their own task")

        failed = EndFailed if isinstance(work, chunks.RecordFinish) else StepFailed
        self._submit(act, lambda error: failed(key, error))

    def _submit(self, act: Callable[[], Message], failed: Callable[[Exception], Message]) -> None:
        def run() -> None:
            try:
                message = act()
            except BaseException as error:  # handed to the thread of `step`, which names it in the status
                # Also a library's panic: without a message the step would never end.
                named = error if isinstance(error, Exception) else Retry(f"a step ended with {type(error).__name__}")
                message = failed(named)
            self._messages.put(message)

        self._under_way += 1
        self._pool.submit(run)

    # ---- taking results ----

    def _take(self, patience: float) -> None:
        try:
            message = self._messages.get(timeout=patience)
            while True:
                self._under_way -= 1
                self._took(message)
                message = self._messages.get_nowait()
        except queue.Empty:
            return

    def _took(self, message: Message) -> None:
        if isinstance(message, CascadesSearched):
            self._searched(message.error)
            return
        if isinstance(message, Together):
            self._groups.being_read -= message.read
            for one in message.messages:
                self._took(one)
            return
        entry = self._entries.known.get(message.key)
        if entry is None:
            return
        self._turns.wake(message.key)
        now = self._monotonic()
        match message:
            case EdgeLooked(_, look):
                self._failures.source_answered(now)
                self._looked(entry, look)
            case StepDone(_, event, table, small):
                entry.busy, entry.small = False, small
                self._failures.capture_answered(now)
                if table is not None:  # the source was asked
                    self._failures.source_answered(now)
                if isinstance(event, chunks.Cut) and entry.run.gaps:
                    entry.rows.end_cut(entry.run, event)
                entry.stepped(event, table)
            case ChunkDone(_, ordinal, rows, _, table) as done:
                entry.grouped = False
                self._failures.all_answered(now)
                entry.stepped(chunks.Registered(ordinal, rows), table)
                self._read_ended(entry, done)
            case EndFailed(key, error):
                snapshot = self._tools.journal.state.snapshots.get(key[0])
                self._failures.end_failed(entry, error, snapshot, now)
            case StepFailed(_, error):
                self._failures.failed(entry, error, None, now)
            case ChunkFailed(_, ordinal, error):
                entry.grouped = False
                self._failures.failed(entry, error, ordinal, now)

    def _looked(self, entry: RunEntry, look: EdgeLook) -> None:
        self._saw(look)
        entry.busy, entry.waits_for = False, look.waits_for
        if look.waits_for is not None:
            entry.backoff.reset()  # whatever failed before has been waiting for the same since
        elif entry.run.phase is chunks.Phase.EDGE:
            entry.stepped(chunks.EdgePassed(), None)

    def _saw(self, look: EdgeLook) -> None:
        if look.waits_for is not None and self._edges.waits_for(look.edge) is None:
            log.info("chunks wait for %s", look.waits_for)
        if look.waits_for is None:
            self._turns.wake_all()
        self._edges.saw(look, {table.edge for table in self._tools.journal.state.tables.values()})

    def _read_ended(self, entry: RunEntry, done: ChunkDone) -> None:
        snapshot, asked = self._tools.journal.state.snapshots.get(done.key[0]), self._background()
        plan = None if snapshot is None else snapshot.plan
        executors = self._tools.executors
        rows, begun = entry.rows.end_read(done, self._monotonic(), plan, self._defaults(), executors)
        if plan is not None and plan.in_background and asked is not None:
            self._background_read_at = begun + rows / asked.max_rows_per_second
