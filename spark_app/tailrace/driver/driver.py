"""The driver's main process: starts the parts, runs its loop until something ends it, shuts them down in order.

    capture (child process) ── journal ──> ApplyStream ──> Applier ──> target tables
                                   └─────> SnapshotRunner ── chunk jobs ──> capture registers

Called by `tailrace run`. Returns the exit code, or raises the error whose exit code it is. The parts are made in
`driver.assembly`, and what is beside them in `driver.launch`.
"""

import gc
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tailrace import sources
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.contract import faults
from tailrace.contract.pace import AT_ONCE, NOTICE, SHORTEST_LOOK, Pace
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.status import TableStatus
from tailrace.contract.units import seconds
from tailrace.driver import assembly, launch
from tailrace.driver.asking import assessment, cutover_report, live_spec
from tailrace.driver.asking.control import DriverControl, ManifestRequests
from tailrace.driver.asking.declared_cutover import DeclaredCutover
from tailrace.driver.asking.final_drop import FinalDrop
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.driver.asking.signal_acts import SignalNotices
from tailrace.driver.asking.signal_file import SignalFile
from tailrace.driver.asking.signal_table import TableSignals, open_signals
from tailrace.driver.assembly import DriverParts, bound
from tailrace.driver.launch import DriverSettings
from tailrace.driver.once import OnceCheck, Verdict
from tailrace.driver.process import tail
from tailrace.driver.process.beside import Answer, PositionQuestion, Question
from tailrace.driver.process.journal_start import JournalStart
from tailrace.driver.process.shutdown import ShutdownRequest
from tailrace.driver.process.side_loops import SideLoops
from tailrace.driver.telling import display
from tailrace.driver.telling.applied_report import Reporter
from tailrace.driver.telling.copy_stops import CopyStops
from tailrace.driver.telling.followers import LOOK_SECONDS as FOLLOWERS_SECONDS
from tailrace.driver.telling.history import STEP_SECONDS as HISTORY_SECONDS
from tailrace.driver.telling.notifications import Notifications, key_path
from tailrace.errors import Fenced, Retry, SourceRefused, Stop, TailraceError, privacy
from tailrace.places import Places
from tailrace.seams import seam
from tailrace.selection import masks
from tailrace.sources.api import Source
from tailrace.spark import executors_wanted
from tailrace.spark.on_demand import on_demand

log = logging.getLogger(__name__)

STEP_SECONDS, SERVICE_SECONDS = 0.5, 1.0
"""Between two steps of the main loop, in a short run and in a service, which has no end to find."""
ANSWER_SECONDS = 1.0
"""Seconds that source and storage have to answer in each step of the start."""
TIDY_UP_SECONDS = 20.0
"""Seconds that `--once` grants the compaction of what it wrote: a table that only short runs write to has no other
time."""
KEEP_SECONDS = 5.0
"""Between two looks whether measured freshness is to be stored."""
LAST_SECONDS = 5.0
"""Time that storing the last of it, and then sending the last notifications, may each take at the end."""
COLLECT = (10_000, 20, 20)
"""Thresholds of Python's garbage collector, as in capture: with two hundred tables, looks at objects that live as long
as the journal's state took an eighth of the driver's time with the usual 700."""
COUNT_SECONDS = 1.0
"""Between two looks at Spark's tasks."""


def run(settings: DriverSettings) -> int:
    """Runs the driver from start to end."""
    if settings.replicator.spec.suspend:
        log.warning("spec.suspend is true: nothing is started, and %s", settings.replicator.spec.source.unread_log)
        return 0
    gc.set_threshold(*COLLECT)
    privacy.configure(settings.replicator.spec.show_values)
    launch.lineage(settings)  # what is wrong with it is refused before anything is touched
    Places(settings.replicator.spec, "tailrace start", settings.secrets).require()
    settings.folder.take()
    try:
        settings.folder.refuse_if_fenced()
        kept = live_spec.newest(settings.folder.path, settings.replicator)
        masks.configure(kept.spec, settings.secrets)
        if kept.spec.notifications is not None:
            key_path(kept.spec.notifications, settings.secrets)
        return Driver(replace(settings, replicator=kept)).run()
    except Fenced as error:
        settings.folder.remember_fenced(error)
        raise


class Driver:
    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._live = LiveSpec(settings.replicator)
        self._folder = settings.folder
        self._name = settings.replicator.metadata.name
        self._places = Places(self._spec, f"tailrace {self._name}", settings.secrets)
        self._control = control = DriverControl(self._name)
        control.live, control.suspended = self._live, self._spec.apply.suspend
        control.stop_at = settings.stop_at
        control.lineage = self._lineage = launch.lineage(settings)
        self._lineage_fault = ""
        self._sender: Notifications | None = None
        self._copy_stops = CopyStops()
        control.client = CaptureClient(self._folder.socket, timeout=60)
        control.watch = CaptureClient(self._folder.socket, timeout=launch.ANSWER_SECONDS)
        self._tail_client = CaptureClient(self._folder.socket, tail.ANSWER_SECONDS)
        self._news_client = CaptureClient(self._folder.socket, tail.ANSWER_SECONDS + tail.PATIENCE)
        self._newest: RecordNumber | None = None
        """The newest record, as the tail was told; None: it was not."""
        self._reporter = Reporter(control.watch, control.progress, lambda: seconds(self._spec.retry.time))
        self._ending = ShutdownRequest()
        self._failing: list[TableStatus] = []
        """The failing tables of the last status; the last lines of the log name them."""
        self._final_drop = control.final_drop = FinalDrop(
            settings.replicator, settings.secrets, self._folder, self._ending, reread=settings.reread
        )
        self._side_loops = SideLoops(self._ending)
        self._finished = False
        """True once `--once` has nothing left to do."""
        self.last_step_at = time.monotonic()

    @property
    def _spec(self) -> ReplicatorSpec:
        """The current spec."""
        return self._live.spec

    def run(self) -> int:
        self._ending.listen()
        server = launch.server(self._settings, self._control)
        self._capture = launch.capture_process(self._settings)
        shown = display.choose(self._settings.json, self._settings.log_format)
        self._view = display.Paced(shown, self._control.status)
        try:
            if faults.in_a_pod():
                given = self._settings.replicator, self._settings.secrets
                self._control.assessment = assessment.before_first_start(*given, time.time())
            if self._lineage is not None:
                self._lineage.start()
            self._capture.start()
            code = self._work()
        except TailraceError as error:
            ended = cutover_report.outcome(error, self._places)
            self._control.fault, self._control.stopped = faults.fault_of(ended, time.time()), isinstance(ended, Stop)
            self._show_last()
            if ended is not error:
                raise ended from error
            raise
        finally:
            self._ending.set()
            self._end_lineage(sys.exception())
            self._capture.stop()
            try:
                self._final_drop.carry_out()
            finally:
                server.close()
                self._folder.retract()
                self._folder.release()
                self._view.close()  # last: a terminal that is gone must not keep capture alive
        self._ending.log_summary(self._failing)
        return code

    def _end_lineage(self, error: BaseException | None) -> None:
        """The last events, before the source's clean-up, which may take long. `error`: the one that ends the run."""
        if self._lineage is not None:
            fault = faults.fault_of(error, time.time()) if isinstance(error, Exception) else None
            with self._apart_from_the_copy():
                self._lineage.end("COMPLETE" if self._finished else "ABORT", fault, in_haste=self._ending.forced)

    @contextmanager
    def _apart_from_the_copy(self) -> Iterator[None]:
        """Lineage ends no run and keeps no part of its end: what goes wrong with it is logged, the same only once."""
        try:
            yield
        except Exception as error:
            text = privacy.error_text(error)
            if text != self._lineage_fault:
                log.warning("lineage events could not be told: %s", text)
            self._lineage_fault = text

    def _work(self) -> int:
        self._control.position_text = self._places.source.text
        place = self._places.target, self._folder.path, self._folder.spark_log
        self._spark = on_demand(lambda: self._spec, *place)
        try:
            for parts in self._start():
                if parts is not None:
                    try:
                        return self._loop(parts)
                    finally:
                        self._take_down(parts)
                if self._ending.is_set():
                    break
            return self._stopped_early()
        finally:
            self._spark.abandon(self._capture.pid)
            if not self._ending.forced:
                without_jvm_errors("Spark", self._spark.stop)

    # ---- starting: a method for each state ----

    def _start(self) -> Iterator[DriverParts | None]:
        """The states of the start, in order. Each yields while it waits, so that a signal can end it. The last yields
        the parts."""
        if self._settings.once:
            yield from self._ask_position()
        else:
            self._spark.begin()  # it takes long; what needs it waits for it
        journal = yield from self._await_journal()
        yield from self._make_parts(journal)

    def _ask_position(self) -> Iterator[None]:
        """A source that refuses is reported before Spark starts."""
        question = Question(lambda: position_at_start(self._places.source, self._spec), "position-at-start")
        yield from self._answered(question)
        question.answer()

    def _await_journal(self) -> Generator[None, None, SharedJournal]:
        """Waits for record 0, or for the stream to start over, and shows what it waits for."""
        socket = self._folder.socket
        start = JournalStart(self._places.storage, self._settings.resync, lambda: launch.claimed(socket) >= 0)
        while True:
            yield
            self._look_after_children()
            look = Question(start.look, "journal-start")
            yield from self._answered(look)
            try:
                reader = look.answer()
                if reader is not None:
                    return SharedJournal(reader, lambda: tail.newest_record(self._tail_client))
                self._spark.launch()  # everything is to be read; a session is begun for what is large
            except Retry as error:
                log.warning("%s", error)
            self._view.show()
            self._ending.wait(STEP_SECONDS)

    def _make_parts(self, journal: SharedJournal) -> Iterator[DriverParts | None]:
        """Asks the target's catalog, which may hang as well."""
        control, places = self._control, self._places
        control.position_text = lambda position: bound(places.source, journal.state).text(position)
        control.journal = journal  # then a status has tables, and names their positions
        given = self._live, self._folder, control.progress, places
        made = Question(
            lambda: assembly.parts(
                *given,
                spark=self._spark,
                journal=journal,
                pace=lambda: self._pace_now,
                stop_at=self._settings.stop_at,
            ),
            "target",
        )
        yield from self._answered(made)
        parts = made.answer()
        control.runner, control.dropped, control.cut_keeper = parts.runner, parts.dropped, parts.cuts
        control.rewinds, control.measured = parts.rewinds, parts.freshness
        yield parts

    def _answered(self, question: Question[Answer]) -> Iterator[None]:
        yield
        while not question.answered(ANSWER_SECONDS):
            self._look_after_children()
            self._view.show()
            yield

    # ---- running ----

    def _look_after_children(self) -> None:
        """Raise what capture refuses, long before Spark has started, or why Spark does not start."""
        self._spark.started()
        self._capture.check()
        answer = self._control.ask_capture()
        if answer is not None:
            self._capture.works(answer.position)
        self._control.capture_fault = self._capture.fault

    def _take_down(self, parts: DriverParts) -> None:
        """Lets commits under way finish; after a second signal nothing is waited for."""
        self._ending.set()
        if self._final_drop.namespace_ends:
            self._ending.force()  # the pod has little time, and the source comes first
        if self._ending.forced:
            return
        self._spark.let_go(self._capture.pid)  # or those that wait for it would be waited for
        without_jvm_errors("the apply stream", parts.stream.stop)
        parts.runner.stop()
        parts.applier.stop()
        self._side_loops.join(10)
        self._tell_lineage(parts)  # what the last commits have brought
        if parts.freshness is not None:
            Question(lambda: self._keep_freshness(parts, stopped=True), "freshness").answered(LAST_SECONDS)
        sender = self._sender
        if sender is not None:
            Question(lambda: self._last_notifications(sender), "notifications").answered(LAST_SECONDS)
        self._reporter.report(parts.journal.state, force=True)
        self._failing = [t for t in self._control.status().tables if t.state in ("FAILING", "STOPPED")]
        self._show_last()

    def _show_last(self) -> None:
        try:
            self._view.show(last=True)
        except OSError as error:
            log.warning("the last status could not be shown: %s", error)

    def _loop(self, parts: DriverParts) -> int:
        control, requests = self._control, ManifestRequests(self._settings.requests)
        once = OnceCheck(PositionQuestion(self._position_now)) if self._settings.once else None
        self.last_step_at = time.monotonic()
        control.loops = {"the main loop": self, "the snapshot planner": parts.runner}
        waits_for = ""
        self._start_side_loops(parts, requests)
        parts.stream.start()
        self._pace(parts)
        self._live.accepts = True
        while not self._ending.wait(STEP_SECONDS if once is not None else SERVICE_SECONDS):
            self.last_step_at = time.monotonic()
            self._look_after_children()
            self._spark.check(self._folder.spark_log)
            self._side_loops.check()
            self._take_spec(parts)
            unaccepted = requests.open  # before the state: that has the plans of all others
            state = parts.journal.state
            unaccepted += len(open_signals(state))
            if not self._spec.apply.suspend:
                self._keep_applying(parts, state.number)
            self._reporter.report(state)
            self._view.show()
            if once is not None:
                verdict = once.look(state, control.progress.all(), unaccepted)
                if verdict.done:
                    self._keep_applying(parts, state.number)  # raises what all tables were refused with just now
                    parts.applier.tidy_up(TIDY_UP_SECONDS)
                    parts.dropped.step()
                    return self._ended(verdict)
                if verdict.waits_for != waits_for:
                    log.debug("--once: %s", verdict.waits_for)
                waits_for = verdict.waits_for
        return self._stopped_early()

    def _start_side_loops(self, parts: DriverParts, requests: ManifestRequests) -> None:
        start = self._side_loops.start
        start("snapshot-planner", parts.runner.step)
        start("journal-tail", lambda: self._tail(parts))
        start("snapshot-requests", lambda: requests.step(self._control), lambda: STEP_SECONDS)
        self._start_notifications()
        dialect, notices = sources.dialect(self._spec.source), SignalNotices()
        table = TableSignals(dialect, notices)
        start("signal-table", lambda: table.step(self._control), lambda: STEP_SECONDS)
        if self._settings.signals is not None:
            file = SignalFile(self._settings.signals, dialect, notices)
            start("signals", lambda: file.step(self._control), lambda: STEP_SECONDS)
        start("dropped-tables", parts.dropped.step, lambda: STEP_SECONDS)
        start("cuts", parts.cuts.step, lambda: STEP_SECONDS)
        start("rewinds", parts.rewinds.step, lambda: STEP_SECONDS)
        start("followers", lambda: self._control.followers.look(parts.journal.storage), lambda: FOLLOWERS_SECONDS)
        if not self._settings.once:  # which is no place to wait for programs
            cutover = DeclaredCutover(
                self._control, self._places, replicator=lambda: self._live.replicator, wait=self._ending.wait
            )
            self._control.cutover = cutover.status
            start("cutover", cutover.step, lambda: STEP_SECONDS)
        if parts.freshness is not None:
            start("freshness", lambda: self._keep_freshness(parts), lambda: KEEP_SECONDS)
            start("history", self._control.keep_history, lambda: HISTORY_SECONDS)
        if self._lineage is not None:
            start("lineage", lambda: self._tell_lineage(parts), lambda: STEP_SECONDS)
        start("executors-wanted", self._want_executors, lambda: COUNT_SECONDS)

    def _start_notifications(self) -> None:
        spec = self._spec.notifications
        if spec is not None:
            sender = self._sender = Notifications(self._name, spec, key_path(spec, self._settings.secrets))
            self._control.notifications = sender.status
            start = self._side_loops.start
            start("copy-stops", lambda: self._copy_stops.step(self._control), lambda: STEP_SECONDS)
            start("notifications", lambda: sender.step(self._control), lambda: STEP_SECONDS)

    def _last_notifications(self, sender: Notifications) -> None:
        self._copy_stops.step(self._control, last=True)
        sender.finish(self._control)

    def _keep_freshness(self, parts: DriverParts, *, stopped: bool = False) -> None:
        if parts.freshness is not None:
            parts.freshness.store(time.time(), stopped=stopped)

    def _tell_lineage(self, parts: DriverParts) -> None:
        if self._lineage is not None:
            with self._apart_from_the_copy():
                self._lineage.step(parts.journal.state, self._control.progress, self._places.target)

    def _want_executors(self) -> None:
        started = self._spark.started()
        if started is not None:
            self._control.want_executors(executors_wanted.of(started)())

    def _tail(self, parts: DriverParts) -> None:
        """A batch comes when a table is due; a new query is notified at once, so that it proves that it works. A short
        run has no query, whose start costs more than its batches."""
        number, patience = parts.journal.refresh(self._newest).number, tail.PATIENCE
        times = parts.applier.times
        if not self._spec.apply.suspend:
            leaves = parts.applier.may_leave(number)  # first: a batch that ends in between is looked for soon
            due_in = parts.applier.due_in(number)
            due = due_in <= 0
            patience = SHORTEST_LOOK if due else min(due_in, patience)
            delivers = parts.stream.running
            if due and not delivers:  # also in a short run, which has no query
                parts.applier.offer(number)
            if not self._settings.once and (due or not delivers):
                parts.stream.notify(number, again=due)
            if leaves:  # what came while a batch is under way, it may not bring
                patience = min(patience, max(self._pace_now.look, min(times.longest, NOTICE)))
        pace = self._pace_now.for_commits(times.longest, times.together)
        wished = 0.0 if self._settings.once else pace.record_when(parts.applier.late)
        self._newest = tail.await_record(self._news_client, number, patience, wished)
        if self._newest is None:
            self._ending.wait(min(patience, self._pace_now.look))

    def _take_spec(self, parts: DriverParts) -> None:
        """Uses the spec that is offered, if there is one. Chunks that are being read belong to the old spec, so they
        finish before capture starts with the new one."""
        offer = self._live.next()
        if offer is None:
            parts.runner.release()  # what it was held for may have been withdrawn
            return
        before, after = self._spec, offer.replicator.spec
        capture_starts_again = live_spec.of_capture(before) != live_spec.of_capture(after)
        if live_spec.of_chunks(before) != live_spec.of_chunks(after) and not parts.runner.hold():
            return
        if not self._live.take(offer):
            return
        if capture_starts_again:
            self._capture.stop()  # first: the next driver would take it for one that works by the kept spec
        refused = None
        try:
            live_spec.keep(self._folder.path, offer.replicator)
            seam("driver.spec-kept")
        except TailraceError as error:
            refused = error
        if capture_starts_again:
            self._capture.start_again()
            self._control.ask_capture()  # what the last one said is over
        self._live.settle(offer, refused)
        parts.runner.release()
        if refused is None:
            self._pace(parts)
            changed = ", ".join(live_spec.differences(before, after)) or "nothing that the driver depends on"
            log.info("the spec changed, no restart needed: %s", changed)

    @property
    def _pace_now(self) -> Pace:
        return AT_ONCE if self._settings.once else Pace.of(self._spec.freshness)

    def _pace(self, parts: DriverParts) -> None:
        """Adapts the batches to the current spec."""
        apply, loops = self._spec.apply, {k: v for k, v in self._control.loops.items() if k != "apply"}
        if not apply.suspend:
            parts.applier.offer(parts.journal.state.number)  # its step is just over
            loops["apply"] = parts.applier
        self._control.loops, self._control.suspended = loops, apply.suspend
        self._control.objective = self._spec.objective
        if parts.freshness is not None:
            parts.freshness.pause(apply.suspend or self._settings.stop_at is not None, time.time())
        self._control.freshness = None if self._settings.once else self._spec.freshness
        follows = not apply.suspend and not self._settings.once
        without_jvm_errors("the apply stream", lambda: parts.stream.follow(follows))

    def _position_now(self, state: LogState) -> Position:
        return position_at_start(bound(self._places.source, state), self._spec)

    def _stopped_early(self) -> int:
        """Stopped by a signal, the usual end of a run. With `--once` it is a failure: the copy is not complete."""
        if not self._settings.once:
            return 0
        log.error("stopped before everything up to the source's position at start was applied")
        return 1

    def _keep_applying(self, parts: DriverParts, number: RecordNumber) -> None:
        """The stream brings new records; tables whose pause has ended are offered here, and all while the stream is
        being started again."""
        parts.applier.offer(parts.applier.through if parts.stream.running else number)

    def _ended(self, verdict: Verdict) -> int:
        self._finished = True
        if verdict.withheld:
            names = ", ".join(verdict.withheld)
            log.warning("rows withheld because they changed after the start; the next run reads them: %s", names)
        if not verdict.failed:
            log.info("everything up to the source's position at start is applied")
            return 0
        log.error("incomplete: %s", ", ".join(verdict.failed))
        return 1


def without_jvm_errors(what: str, stop: Callable[[], None]) -> None:
    """A dead JVM cannot stop anything; the error of the attempt must not hide the one that ended the run."""
    try:
        stop()
    except (PySparkException, Py4JError, OSError) as error:
        log.warning("%s did not stop cleanly: %s", what, privacy.error_text(error))


def position_at_start(source: Source, spec: ReplicatorSpec) -> Position:
    """The end of the source's log now. There must be a table to bring there, or `--once` would never end."""
    with source.session() as session:
        position = session.log_end()  # refused here as by capture, but before this look has found fault with the tables
        if not session.tables(spec.read_tables, spec.read_options):
            patterns = ", ".join(spec.tables.include)
            raise SourceRefused(f"no table matches {patterns}, so --once has nothing to do", "Correct tables.include.")
    return position
