"""The running driver's operations on snapshots and status, for its HTTP server and main loop
(`asking.server.Control`)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol

from tailrace.apply.freshness import Freshness
from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.capture.protocol import StateAnswer
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned, SnapshotSuspended
from tailrace.changelog.records.terms import Key, Position, RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.driver import (
    CutList,
    CutReport,
    DropAnswer,
    SnapshotAnswer,
    SnapshotBody,
    SpecAnswer,
    SpecBody,
    VerificationReport,
)
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.resources import DeletionPolicy, SnapshotRequest
from tailrace.contract.settings import ObjectiveSpec
from tailrace.contract.status import Assessment, CutoverStatus, Fault, NotificationsStatus, Status
from tailrace.driver.asking import rewind_requests
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.final_drop import FinalDrop
from tailrace.driver.asking.key_lookups import BeingLookedUp, KeyLookups, Withdrawn
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.driver.asking.rewind_requests import RewindRequests
from tailrace.driver.asking.server import Conflict, Unknown
from tailrace.driver.telling import objective
from tailrace.driver.telling.followers import FollowerWatch
from tailrace.driver.telling.history import HistoryRing
from tailrace.driver.telling.lateness import Lateness
from tailrace.driver.telling.lineage.reporter import LineageReporter
from tailrace.driver.telling.rates import Rates
from tailrace.driver.telling.resting_statuses import RestingStatuses
from tailrace.driver.telling.status import Moment, assemble
from tailrace.driver.telling.table_history import TableHistory
from tailrace.driver.telling.table_view import table_view
from tailrace.driver.telling.verification_report import report
from tailrace.errors import ForeignChange, InvalidManifest, Retry
from tailrace.errors.backoff import Backoff
from tailrace.reading.runner import SnapshotRunner
from tailrace.removal.dropped import DroppedCopies
from tailrace.seams import seam
from tailrace.snapshot import planner
from tailrace.sources import removals
from tailrace.targets.demand import DEMAND
from tailrace.targets.pauses import PAUSES

log = logging.getLogger(__name__)

STUCK_SECONDS = 300.0
"""A loop that has been stuck for this long is reported by `/healthz`."""
ANSWER_SECONDS = 20.0
"""Seconds that the source has to translate the keys of a request before its client must ask again; the operator's waits
for 30 s."""
RESUME = "Set apply.suspend to false, then ask again."
LONGEST_PAUSE = 5.0
"""Between two tries to have a request of the manifest accepted."""
LOOK_SECONDS = 0.5
"""Seconds that one such try waits for the source."""


class Loop(Protocol):
    last_step_at: float
    """`time.monotonic()` of its last step."""


class DriverControl:
    """The driver fills it as its parts start; answers come from the parts that are there."""

    def __init__(self, name: str, clock: Callable[[], float] = time.time) -> None:
        self.name = name
        self.progress = Progress()
        self.journal: SharedJournal | None = None
        self.runner: SnapshotRunner | None = None
        self.cut_keeper: CutKeeper | None = None
        self.rewinds: RewindRequests | None = None
        self.client: CaptureClient | None = None
        self.watch: CaptureClient | None = None
        """A client for questions that are answered at once: `client` may be waiting for a record."""
        self.loops: dict[str, Loop] = {}
        self.dropped: DroppedCopies | None = None
        self.final_drop: FinalDrop | None = None
        self.live: LiveSpec | None = None
        self.lineage: LineageReporter | None = None
        self.followers = FollowerWatch()
        self.freshness: float | None = None
        """The seconds that `apply.freshness` promises; None: nothing is promised."""
        self.measured: Freshness | None = None
        self.objective: ObjectiveSpec | None = None
        self.notifications: Callable[[], NotificationsStatus | None] = lambda: None
        self.cutover: Callable[[], CutoverStatus | None] = lambda: None
        self.suspended = False
        self.stop_at: RecordNumber | None = None
        """The record at which the target stays."""
        self.stopped = False
        self.fault: Fault | None = None
        self.capture_fault: Fault | None = None
        """The error that ended capture, while it is being restarted."""
        self.assessment: Assessment | None = None
        """The assessment of a first start in a pod."""
        self.of_manifest: Mapping[str, SnapshotBody] = {}
        """Requests that came with the manifest, by the id of the snapshot."""
        self.request_fault: str | None = None
        """The reason why a request of the manifest cannot be accepted yet."""
        self.position_text: Callable[[Position], str] = str
        """The source's, once it is known."""
        self._clock = clock
        self._started = clock()
        self._capture: StateAnswer | None = None
        self._executors_wanted = 0
        """The number of executors that Spark's tasks call for."""
        self._table_rates = Rates[int]()
        self._snapshot_rates = Rates[str]()
        self._lateness, self._resting = Lateness(), RestingStatuses()
        self._history = HistoryRing()
        self._table_history = TableHistory()
        self._rates_lock = threading.Lock()
        self._lock = threading.Lock()
        """One snapshot verb at a time; held while capture records."""
        self._lookups = KeyLookups(self._canonical_keys)

    # ---- status ----

    def ask_capture(self) -> StateAnswer | None:
        """Refresh what capture says of itself; the main loop calls this. None: it has not opened the journal."""
        try:
            self._capture = self.watch.state() if self.watch is not None else None
        except Retry:
            self._capture = None
        return self._capture if self._capture is not None and self._capture.record >= 0 else None

    def want_executors(self, number: int | None) -> None:
        """None: the JVM does not answer; its last answer stays."""
        self._executors_wanted = self._executors_wanted if number is None else number

    def status(self) -> Status:
        now = self._clock()
        state = self.journal.state if self.journal is not None else LogState()
        runs = self.runner.runs if self.runner is not None else {}
        tables = self.progress.all()
        with self._rates_lock:
            table_rates = self._table_rates.add(now, {key: table.counters.rows for key, table in tables.items()})
            snapshot_rates = self._snapshot_rates.add(now, _rows_read(state))
        status = assemble(
            Moment(
                name=self.name,
                now=now,
                started_at=self._started,
                log=state,
                tables=tables,
                runs=runs,
                capture=self._capture_answer(),
                table_rates=table_rates,
                snapshot_rates=snapshot_rates,
                suspended=self.suspended,
                stop_at=self.stop_at,
                rewind_fault=self.rewinds.waits_for if self.rewinds is not None else None,
                generation=self.live.generation if self.live is not None else None,
                stopped=self.stopped,
                fault=self.fault or self.capture_fault,
                assessment=self.assessment,
                not_deleted=self.dropped.faults if self.dropped is not None else {},
                executors_wanted=self._executors_wanted or int(DEMAND.missing),
                position_text=self.position_text,
                resting=self._resting,
            )
        )
        self._resting.keep(state.tables)
        told = {"notifications": self.notifications(), "cutover": self.cutover()}
        status = status.model_copy(update={**told, "followers": self.followers.reports()})
        if self.measured is not None:
            status = objective.told(status, self.measured, self.objective, now)
        if self.lineage is not None:
            status = status.model_copy(update={"lineage": self.lineage.status})
        return self._lateness.told(status, self.freshness, time.monotonic(), PAUSES.why)

    def keep_history(self) -> None:
        """Adds the numbers of now to those of the last hour; a loop of the driver calls this."""
        status = self.status()
        self._history.add(status)
        self._table_history.add(status.updated_at, {table.name: table.counters for table in status.tables})

    def history(self) -> LastHour:
        return self._history.document()

    def table(self, name: str) -> TableView:
        """Raises `Unknown` if no table is captured under this name (`schema.table`)."""
        status = next((table for table in self.status().tables if table.name == name), None)
        state = self.journal.state if self.journal is not None else LogState()
        log = next((t for t in state.tables.values() if t.schema.name == name and not t.removed), None)
        if status is None or log is None:
            raise Unknown(f"no table {name[:200]!r} is captured", "`tailrace status` shows the names.")
        progress = self.progress.all().get(log.table_id, TableProgress())
        runs = self.runner.runs if self.runner is not None else {}
        view = table_view(status, log, progress, state.snapshots.values(), runs)
        return view.model_copy(update={"history": self._table_history.document(name)})

    def _capture_answer(self) -> StateAnswer | None:
        """The last answer of capture; the obstacle that a snapshot waits for is reported under the same heading as
        capture's own."""
        answer = self._capture if self.capture_fault is None else None
        waits = self._snapshots_wait()
        if answer is None or answer.waiting_for is not None or waits is None:
            return answer
        return answer.model_copy(update={"waiting_for": waits})

    def _snapshots_wait(self) -> str | None:
        edge = self.runner.waiting_for if self.runner is not None else None
        if edge is not None:
            return f"a snapshot waits for {edge}"
        if self.request_fault is not None:
            return self.request_fault
        requested = self._lookups.waiting_for
        return None if requested is None else f"snapshot {requested} waits for the source to look up its keys"

    def unhealthy(self) -> str | None:
        now = time.monotonic()
        for name, loop in self.loops.items():
            if now - loop.last_step_at > STUCK_SECONDS:
                return f"{name} has been stuck for {now - loop.last_step_at:.0f} s"
        return None

    # ---- snapshots ----

    def request(self, snapshot_id: str, body: SnapshotBody, patience: float = ANSWER_SECONDS) -> SnapshotAnswer:
        """`patience`: seconds that the source has to translate the request's keys (`BeingLookedUp`)."""
        journal, client = self._ready()
        if body.spec.replicator != self.name:
            raise InvalidManifest(
                f"the request is for Replicator {body.spec.replicator!r}, this is {self.name!r}", "Correct replicator."
            )
        # Planned before the lock: however long it takes to match the patterns, nobody else waits for it.
        state = journal.refresh()
        if state.renewal is not None:
            # The first look adds all tables and plans for them; what is asked before meets none.
            raise Retry("every table is about to start over", "Ask again in a few seconds.")
        keys = partial(self._lookups.keys, snapshot_id, patience=patience)
        made = None
        if body.spec.rewind is not None:
            return self._rewind(snapshot_id, body)
        if snapshot_id not in state.snapshots:
            if self.suspended and body.spec.mode != "Read":
                # Its chunks would be read, and then wait for a target that does not move.
                raise Retry("apply.suspend is true: the target stands still, so nothing can be compared", RESUME)
            made = planner.request_plan(state, snapshot_id, body, keys, self._changed_by_others())
        with self._lock:
            known = journal.refresh().snapshots.get(snapshot_id)
            if known is not None:
                if not planner.is_plan_of(known, snapshot_id, body):
                    raise Conflict(f"snapshot {snapshot_id} exists with another content", "Use another name.")
                plan, record = known.plan, known.record
            elif made is not None:
                plan, record = made, self._record_plan(client, made, body)
            else:
                raise Retry(f"snapshot {snapshot_id} has just been removed from the change log", "Ask again.")
        self._lookups.planned(snapshot_id)
        tables = tuple(state.tables[t].schema.name for t in plan.tables if t in state.tables)
        return SnapshotAnswer(id=snapshot_id, record=record, tables=tables)

    def _rewind(self, snapshot_id: str, body: SnapshotBody) -> SnapshotAnswer:
        journal, client = self._ready()
        if self.rewinds is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        with self._lock:
            state = journal.refresh()  # with the plan of another request of this name, if there was one just now
            known = state.snapshots.get(snapshot_id)
            if known is None:
                plan = self.rewinds.plan(state, snapshot_id, body)
                record = self._record_plan(client, plan, body)
            elif rewind_requests.is_same(known, body):
                plan, record = known.plan, known.record
            else:
                raise Conflict(f"snapshot {snapshot_id} exists with another content", "Use another name.")
        assert plan.rewind is not None
        tables = tuple(state.tables[i].schema.name for i in plan.rewind.tables if i in state.tables)
        return SnapshotAnswer(id=snapshot_id, record=record, tables=tables)

    def _changed_by_others(self) -> list[int]:
        faults = {table_id: at.fault for table_id, at in self.progress.all().items() if at.stopped}
        return [i for i, fault in faults.items() if fault is not None and fault.name == ForeignChange.__name__]

    def _record_plan(self, client: CaptureClient, plan: SnapshotPlanned, body: SnapshotBody) -> RecordNumber:
        if plan.keys is not None:
            self._lookups.require(plan.snapshot_id)
        suspended = [SnapshotSuspended(snapshot_id=plan.snapshot_id, suspended=True)] if body.spec.suspend else []
        record = client.append([plan, *suspended])
        # Dying here loses no request: it is asked again under the same id and meets its own plan.
        seam("snapshot.after-plan")
        return record

    def follow(self) -> None:
        """Read what capture has recorded since."""
        self._ready()[0].refresh()

    def report(self, snapshot_id: str) -> VerificationReport:
        journal, _ = self._ready()
        snapshot = self._known(snapshot_id)
        if not snapshot.plan.verify:
            raise Unknown(f"snapshot {snapshot_id} is no verification", "")
        return report(journal.state, snapshot)

    def carry_out(self, act: Callable[[LogState], Sequence[Event]]) -> None:
        """Records in one record the events that `act` makes of the state, none if it makes none."""
        journal, client = self._ready()
        with self._lock:
            events = act(journal.refresh())
            if events:
                client.append(events)
        journal.refresh()

    # ---- cuts ----

    def cuts(self) -> CutList:
        return CutList(cuts=self._keeper().reports())

    def make_cut(self, name: str) -> CutReport:
        return self._keeper().make(name)

    def drop_cut(self, name: str) -> None:
        self._keeper().drop(name)

    def _keeper(self) -> CutKeeper:
        if self.cut_keeper is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        return self.cut_keeper

    # ---- running snapshots ----

    def stop_snapshot(self, snapshot_id: str) -> None:
        journal, client = self._ready()
        with self._lock:
            if snapshot_id not in journal.refresh().snapshots:
                body = self.of_manifest.get(snapshot_id)
                if body is not None:
                    # Every start asks for it. Dying behind the record: nobody waits for its keys any more.
                    client.append(planner.stopped_unplanned(snapshot_id, body))
                if self._lookups.withdraw(snapshot_id) or body is not None:
                    return  # it was not planned yet, and is not any more
            with self._not_beginning(snapshot_id):
                if self._known(snapshot_id).ended is None:
                    client.append([SnapshotEnded(snapshot_id=snapshot_id, outcome="stopped", message=planner.STOPPED)])

    def suspend_snapshot(self, snapshot_id: str, suspend: bool) -> None:
        _, client = self._ready()
        with self._lock, self._not_beginning(snapshot_id):
            known = self._known(snapshot_id)
            if known.ended is None and known.suspended != suspend:
                client.append([SnapshotSuspended(snapshot_id=snapshot_id, suspended=suspend)])

    def _not_beginning(self, snapshot_id: str) -> AbstractContextManager[None]:
        return nullcontext() if self.rewinds is None else self.rewinds.not_beginning(snapshot_id)

    def _known(self, snapshot_id: str) -> SnapshotState:
        journal, _ = self._ready()
        known = journal.refresh().snapshots.get(snapshot_id)
        if known is None:
            raise Unknown(f"no snapshot has the id {snapshot_id}", "See `tailrace status` for the ids.")
        return known

    # ---- the spec ----

    def change_spec(self, body: SpecBody) -> SpecAnswer:
        if self.live is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        if self.journal is not None and body.spec.tables != self.live.spec.tables:
            removals.require_confirmed(body.spec.tables, removals.of_log(self.journal.state))
        return self.live.offer(body)

    # ---- the end ----

    def drop(self, policy: DeletionPolicy) -> DropAnswer:
        if self.final_drop is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        self.loops = {}  # they end: to stand still is no ailment any more
        return self.final_drop.ask(policy)

    def _canonical_keys(self, table: TableLog, requested: Sequence[Key]) -> tuple[Key, ...]:
        if self.runner is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        return self.runner.canonical_keys(table, requested)

    def _ready(self) -> tuple[SharedJournal, CaptureClient]:
        if self.journal is None or self.client is None:
            raise Retry("the driver is still starting", "Ask again in a few seconds.")
        return self.journal, self.client


class ManifestRequests:
    """SnapshotRequests that came with the manifest, submitted one after the other: one that cannot be accepted yet
    delays those behind it. Runs on a separate thread, because the source may be slow to translate keys."""

    def __init__(self, requests: Sequence[SnapshotRequest], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._open = list(requests)
        self._bodies = {planner.request_id(r): SnapshotBody(name=r.metadata.name, spec=r.spec) for r in requests}
        self._monotonic = monotonic
        self._backoff = Backoff(LONGEST_PAUSE)

    @property
    def open(self) -> int:
        return len(self._open)

    def step(self, control: DriverControl) -> None:
        """One try; raises what a request is refused with for good."""
        control.of_manifest = self._bodies
        state = control.journal.state if control.journal is not None else LogState()
        if not state.tables:
            return  # capture has not looked at the source yet: no pattern can match
        while self._open and not self._backoff.is_waiting(self._monotonic()):
            if not self._accepted(control, self._open[0]):
                return
            self._open.pop(0)

    def _accepted(self, control: DriverControl, request: SnapshotRequest) -> bool:
        """Or withdrawn."""
        name, snapshot_id = request.metadata.name, planner.request_id(request)
        try:
            control.request(snapshot_id, self._bodies[snapshot_id], patience=LOOK_SECONDS)
            control.follow()  # who counts the open ones must find its plan, once it is no longer one of them
        except BeingLookedUp:
            control.request_fault = None
            return False
        except Retry as error:
            self._failed(control, f"snapshot request {name} is asked again: {error.name}: {error.message}")
            return False
        except Withdrawn as error:
            log.info("snapshot request %s is dropped: %s", name, error.message)
        control.request_fault = None
        self._backoff.reset()
        return True

    def _failed(self, control: DriverControl, why: str) -> None:
        if control.request_fault != why:
            log.warning("%s", why)
        control.request_fault = why
        self._backoff.failed(self._monotonic())


def _rows_read(state: LogState) -> dict[str, int]:
    """The rows read by each snapshot that has not ended."""
    running = state.snapshots.open()
    return {s.plan.snapshot_id: sum(t.rows_done for t in s.tables.values()) for s in running}
