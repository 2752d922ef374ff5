"""Rewinds that SnapshotRequests ask a running driver for, while `apply.suspend` keeps its tables still.

    PUT /snapshots/{id}, mode Rewind ──> SnapshotPlanned ──> tables restored, opened again ──> SnapshotEnded

The status server's threads plan, a loop of its own carries out. Capture goes on, and so does the change log: the tables
are brought forward again once `apply.suspend` is false. Dying between the plan and the end is safe: the next driver
carries it out again, passing over tables that are there. If `apply.suspend` is false by then, that one applies nothing
before it has seen whether all of them were.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from tailrace.apply.applier import Applier
from tailrace.apply.progress import Progress, TableProgress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.snapshots import PlannedRewind, ReadFailure, SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState, SnapshotState
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.status import Fault
from tailrace.contract.units import counted, seconds
from tailrace.driver.asking.rewind import (
    Rewound,
    WantedCut,
    are_back,
    choose,
    require_lake,
    restore,
    versions_at,
    versions_of,
)
from tailrace.driver.asking.rewind_notes import RewindNotes
from tailrace.errors import Retry, RewindRefused, Stop, TableStop, TailraceError
from tailrace.errors.backoff import Backoff
from tailrace.places import Places
from tailrace.seams import seam
from tailrace.targets.api import Rewinding

log = logging.getLogger(__name__)

SUSPEND = "Set spec.apply.suspend of the Replicator to true"
LONGEST_PAUSE = 15.0


class RewindRequests:
    def __init__(
        self,
        journal: SharedJournal,
        client: CaptureClient,
        applier: Applier,
        progress: Progress,
        *,
        places: Places,
        rewinding: Callable[[], Rewinding | None],
        spec: Callable[[], ReplicatorSpec],
        notes: RewindNotes | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spec`: as it is now. `notes`: of rewinds while no driver ran. `clock`: for people."""
        self._journal, self._client, self._applier, self._progress = journal, client, applier, progress
        self._places, self._rewinding, self._spec = places, rewinding, spec
        self._notes = notes
        self._clock, self._monotonic = clock, monotonic
        self._backoff = Backoff(LONGEST_PAUSE)
        self._guard = Lock()
        """Held while a rewind begins, and while one is stopped: it is one or the other."""
        self._restoring: str | None = None
        """The rewind whose tables are going back."""
        self._gone_back = set[str]()
        """Rewinds whose tables have gone back, which is not recorded yet."""
        self._inherited = {i for i, s in journal.state.snapshots.items() if s.plan.rewind is not None and _is_open(s)}
        """Those of the process before, whose tables may have gone back."""
        applier.held = bool(self._inherited)
        self.waits_for: Fault | None = None
        """The obstacle that the last attempt met, and that may go."""

    def plan(self, state: LogState, snapshot_id: str, body: SnapshotBody) -> SnapshotPlanned:
        """Refuses what can be refused before anything is recorded."""
        assert body.spec.rewind is not None
        require_lake(self._places)
        for other_id, other in state.snapshots.items():
            if other.plan.rewind is not None and other.plan.request == body.name and other_id != snapshot_id:
                _require_new(other)
        if not self._spec().apply.suspend:
            raise RewindRefused(
                "apply.suspend is false: the tables would be brought forward again at once",
                f"{SUSPEND}, then create the request again.",
            )
        moment = WantedCut.of(body.spec.rewind)
        cut = choose(state, moment)
        tables = tuple(table.table_id for table, _ in versions_at(state, cut, body.spec.tables))
        wanted = PlannedRewind(cut=cut.name, record=cut.record, asked=moment.text, tables=tables)
        return SnapshotPlanned(snapshot_id=snapshot_id, request=body.name, tables=(), rewind=wanted)

    def step(self) -> None:
        """Carries out those that were planned."""
        if self._notes is not None:
            self._notes.record(self._journal.refresh(), self._client.append)
            self._notes = None  # no more come while a driver runs
        for snapshot in self._journal.state.snapshots.open():
            wanted = snapshot.plan.rewind
            if wanted is not None and _is_open(snapshot) and not self._backoff.is_waiting(self._monotonic()):
                self._carry_out(snapshot.plan.snapshot_id, wanted)
        self._let_apply()

    def _let_apply(self) -> None:
        """Lets batches begin once each rewind of the process before, and each whose tables are back, has ended in the
        journal or is paused: a process that does not know the end would find the tables away from the cut."""
        snapshots = self._journal.state.snapshots
        unsure = {i for i in self._inherited | self._gone_back if i in snapshots and _is_open(snapshots[i])}
        self._inherited &= unsure
        self._applier.held = bool(unsure)

    @contextmanager
    def not_beginning(self, snapshot_id: str) -> Iterator[None]:
        """While this is entered, the rewind does not begin. `Retry`: its tables are going back, and it will be said
        that they did: a request of its name must not have them go back once more."""
        with self._guard:
            if snapshot_id in (self._restoring, *self._gone_back):
                raise Retry(f"the tables of rewind {snapshot_id} are going back", "Ask again in a few seconds.")
            yield

    def _carry_out(self, snapshot_id: str, wanted: PlannedRewind) -> None:
        try:
            done = snapshot_id in self._gone_back
            end = _completed(snapshot_id) if done else self._attempt(snapshot_id, wanted)
            if end is not None:
                self._record(end)
        except Stop:
            raise
        except TailraceError as error:
            if self.waits_for is None:
                log.warning("rewind to cut %s: %s", wanted.cut, error)
            self.waits_for = fault_of(error, self._clock())
            self._backoff.failed(self._monotonic())
        else:
            self._gone_back.discard(snapshot_id)
            self.waits_for = None
            self._backoff.reset()
        finally:
            self._restoring = None

    def _begun(self, snapshot_id: str) -> bool:
        """False: it was stopped or paused while the batches under way ended."""
        with self._guard:
            known = self._journal.refresh().snapshots.get(snapshot_id)
            if known is None or not _is_open(known):
                return False
            self._restoring = snapshot_id
            return True

    def _attempt(self, snapshot_id: str, wanted: PlannedRewind) -> SnapshotEnded | None:
        """Its end; None: it is not to be carried out."""
        try:
            with self._applier.standing_still():
                if not self._begun(snapshot_id):
                    return None
                seam("rewind.before-tables")
                done = self._rewind(wanted, inherited=snapshot_id in self._inherited)
                # From here on it is done, whatever becomes of apply.suspend before that is recorded.
                self._gone_back.add(snapshot_id)
        except (RewindRefused, TableStop) as refused:
            log.warning("%s", refused)
            named = "" if isinstance(refused, RewindRefused) else f"{refused.name}: "
            why = ReadFailure(message=f"{named}{refused.message}", fix=refused.fix, where="target")
            return SnapshotEnded(snapshot_id=snapshot_id, outcome="failed", message=why.message, failure=why)
        tables = counted(done, "table is", "tables are")
        log.info("%s back at cut %s, record %d", tables, wanted.cut, wanted.record)
        return _completed(snapshot_id)

    def _rewind(self, wanted: PlannedRewind, *, inherited: bool) -> int:
        """The number of tables. Everything stands still."""
        spec, state = self._spec(), self._journal.refresh()
        if not spec.apply.suspend and not inherited:
            raise _resumed()
        cut = state.cuts.get(wanted.cut)
        if cut is None or cut.record != wanted.record:
            raise RewindRefused(f"cut {wanted.cut} was dropped before the tables had gone back", "Name another.")
        known = [i for i in wanted.tables if i in state.tables]
        rewinding = self._rewinding()
        assert rewinding is not None, "a lake keeps versions"
        tables, kept = versions_of(state, cut, known), seconds(spec.retention.time)
        if not spec.apply.suspend:  # only the record is missing, or some tables never went
            if not are_back(state, cut, tables, rewinding):
                raise _resumed()
            return len(tables)
        for done in restore(state, cut, tables, rewinding, kept):
            if isinstance(done, Rewound):
                self._opened_again(done, wanted.record)
        return len(tables)

    def _opened_again(self, done: Rewound, record: RecordNumber) -> None:
        """Forgets what the process knew of the table; the status says at once what it holds: nothing came to it between
        its version's record and the cut's."""
        at, before = done.applied, self._progress.of(done.table_id)
        self._applier.forget([done.table_id])
        now = TableProgress(
            at.applied_seq, record, at.applied_record, at.holes, before.counters, written=before.written
        )
        self._progress.put(done.table_id, now)

    def _record(self, end: SnapshotEnded) -> None:
        known = self._journal.refresh().snapshots.get(end.snapshot_id)
        if known is not None and known.ended is None:
            # Dying here, too: the next driver finds all tables there, and records it.
            seam("rewind.before-end")
            self._client.append([end])
            self._journal.refresh()


def _resumed() -> RewindRefused:
    return RewindRefused(
        "apply.suspend was set to false before all tables had gone back",
        f"{SUSPEND}, then create another request.",
    )


def _completed(snapshot_id: str) -> SnapshotEnded:
    return SnapshotEnded(snapshot_id=snapshot_id, outcome="completed")


def _is_open(snapshot: SnapshotState) -> bool:
    return snapshot.ended is None and not snapshot.suspended


def is_same(known: SnapshotState, body: SnapshotBody) -> bool:
    """True if this was the request."""
    wanted, spec = known.plan.rewind, body.spec.rewind
    same = wanted is not None and spec is not None and wanted.asked == WantedCut.of(spec).text
    return same and known.plan.request == body.name


def _require_new(other: SnapshotState) -> None:
    """A controller that applies a manifest again creates a request again that was deleted."""
    wanted = other.plan.rewind
    assert wanted is not None
    if other.ended is None:
        raise RewindRefused(f"a request of this name is under way, to cut {wanted.cut}", "Wait for it.")
    if other.is_rewound:
        raise RewindRefused(
            f"a request of this name was carried out before, to cut {wanted.cut} (record {wanted.record})",
            "Give the request another name to go back once more.",
        )
