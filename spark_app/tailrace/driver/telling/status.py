"""Assembles the status document: a pure function of what the driver's parts know at one moment.

Called by the driver for `GET /status`, the live display and `--json`. Nothing here reads a clock or a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tailrace.apply.progress import NOTHING, TableProgress
from tailrace.capture.protocol import StateAnswer
from tailrace.changelog.dropped import due
from tailrace.changelog.logged import KEPT_SNAPSHOTS, Verified, converging
from tailrace.changelog.records.snapshots import ComparisonResult, PlannedRewind, ReadFailure
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.state import LoggedSignal, LogState, SnapshotState, TableLog
from tailrace.contract.status import (
    ApplyStatus,
    Assessment,
    CaptureStatus,
    ComparedRows,
    CutsStatus,
    DifferingColumn,
    DroppedCopy,
    Fault,
    NulledColumn,
    RewindStatus,
    SignalReport,
    SnapshotStatus,
    SnapshotTableProgress,
    State,
    Status,
    TableCounters,
    TableState,
    TableStatus,
    Verification,
)
from tailrace.contract.status import SnapshotState as SnapshotWord
from tailrace.driver.telling.resting_statuses import RestingStatuses
from tailrace.errors import RESYNC, LogTrimmed, RewindRefused
from tailrace.snapshot.chunks import TableRun

SHOWN_SIGNALS = 20


@dataclass(frozen=True)
class Moment:
    """Everything that a status is made of."""

    name: str
    now: float
    started_at: float
    log: LogState
    tables: Mapping[int, TableProgress] = field(default_factory=dict)
    runs: Mapping[tuple[str, int], TableRun] = field(default_factory=dict)
    capture: StateAnswer | None = None
    """None: capture does not answer."""
    table_rates: Mapping[int, float] = field(default_factory=dict)
    """Rows per second by table."""
    snapshot_rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second by snapshot."""
    generation: int | None = None
    """The generation of the spec that all parts use."""
    suspended: bool = False
    stop_at: RecordNumber | None = None
    """The record at which the target stays."""
    rewind_fault: Fault | None = None
    """The obstacle that a rewind waits for."""
    stopped: bool = False
    fault: Fault | None = None
    """The fault of the whole Replicator."""
    assessment: Assessment | None = None
    not_deleted: Mapping[tuple[str, str], Fault] = field(default_factory=dict)
    """The reasons why copies of dropped tables still exist, by place."""
    executors_wanted: int = 0
    """See `spark.executors_wanted`."""
    position_text: Callable[[Position], str] = str
    """The source's own way to write a position."""
    resting: RestingStatuses | None = None
    """The statuses of tables as last assembled; None: each is assembled."""

    @cached_property
    def being_read(self) -> frozenset[int]:
        """Tables with a snapshot under way. Found once: at a first start there is one for each of thousands."""
        under_way = (s for s in self.log.snapshots.open() if s.plan.reason != "repair" and not s.plan.verify)
        return frozenset(i for s in under_way for i, part in s.tables.items() if part.finished is None)


def assemble(at: Moment) -> Status:
    tables = tuple(_table(at, log) for log in _by_name(at) if not log.removed)
    failing = [t for t in tables if t.state in ("FAILING", "STOPPED")]
    running = [t for t in tables if t.state not in ("FAILING", "STOPPED")]
    state, message = _state(at, tables, failing)
    return Status(
        name=at.name,
        state=state,
        message=message,
        started_at=at.started_at,
        updated_at=at.now,
        log_id=at.log.origin.log_id if at.log.origin else None,
        made=at.log.origin.made if at.log.origin else (),
        epoch=max(at.log.epoch, 0),
        generation=at.generation,
        capture=_capture(at),
        apply=ApplyStatus(
            lag_seconds=max((t.lag_seconds for t in running if t.lag_seconds is not None), default=None),
            record=min((t.applied_record for t in running), default=max(at.log.number, 0)),
            rows_per_second=round(sum(at.table_rates.values()), 1),
            suspended=at.suspended,
        ),
        tables_total=len(tables),
        tables_replicating=sum(t.state == "REPLICATING" for t in tables),
        tables_failing=len(failing),
        tables=tables,
        snapshots=tuple(_snapshot(at, s) for s in _shown(at.log)),
        dropping=_dropping(at),
        assessment=at.assessment,
        cuts=_cuts(at.log),
        signals=tuple(map(_signal, list(at.log.signals.values())[-SHOWN_SIGNALS:])),
        executors_wanted=at.executors_wanted,
        fault=at.fault,
    )


def _dropping(at: Moment) -> tuple[DroppedCopy, ...]:
    """While the target stands still, too."""
    places = sorted(dropped.place for dropped in due(at.log))
    return tuple(DroppedCopy(name=".".join(place), fault=at.not_deleted.get(place)) for place in places)


def _signal(logged: LoggedSignal) -> SignalReport:
    signal, answer = logged.signal, logged.answer
    return SignalReport(
        sequence=signal.seq,
        id=signal.id,
        type=signal.type,
        received=logged.received_at / 1e6,
        state="Open" if answer is None else "Done" if answer.outcome == "done" else "Ignored",
        message="" if answer is None else answer.message,
    )


def _cuts(log: LogState) -> CutsStatus | None:
    if not log.cuts:
        return None
    last = list(log.cuts.values())[-1]
    complete = not last.awaited and not last.without
    return CutsStatus(kept=len(log.cuts), last=last.name, made=last.made_at / 1e6, complete=complete)


def _by_name(at: Moment) -> list[TableLog]:
    return sorted(at.log.tables.values(), key=lambda t: t.schema.name)


def _state(at: Moment, tables: tuple[TableStatus, ...], failing: list[TableStatus]) -> tuple[State, str]:
    if at.stopped:
        return "Stopped", str(at.fault.message) if at.fault else ""
    if at.fault is not None:
        return "Failing", f"{at.fault.name}: {at.fault.message}"
    if failing:
        worst = failing[0]
        why = f": {worst.fault.name}: {worst.fault.message}" if worst.fault else ""
        return "Failing", f"{len(failing)} of {len(tables)} tables fail, first {worst.name}{why}"
    if at.capture is None or at.log.origin is None:
        return "Starting", (at.capture.waiting_for if at.capture is not None else None) or "waiting for capture"
    if at.suspended:
        return "Suspended", "apply is suspended; the source is captured, the target stands still"
    if at.stop_at is not None:
        return "Suspended", f"apply stops at record {at.stop_at} (--stop-at); the source is captured"
    left = next((copy for copy in _dropping(at) if copy.fault is not None), None)
    if left is not None and left.fault is not None:
        why = f"{left.fault.name}: {left.fault.message}"
        return "Running", f"the copy of the dropped table {left.name} is not deleted yet: {why}"
    if not tables:
        return "Running", at.capture.waiting_for or at.capture.of_other_case or "no table matches tables.include"
    by = at.capture.log_held_by
    held = f"the source keeps much log for {by}" if by else ""
    return "Running", at.capture.waiting_for or held or at.capture.of_other_case or ""


def _capture(at: Moment) -> CaptureStatus:
    if at.capture is None:
        return CaptureStatus(alive=False, record=max(at.log.number, 0), position=_position(at, at.log.position))
    answer = at.capture
    return CaptureStatus(
        alive=True,
        position=_position(at, answer.position),
        lag_seconds=answer.lag_seconds,
        lag_bytes=answer.behind_bytes,
        retained_bytes=answer.retained_bytes,
        log_held_by=answer.log_held_by,
        record=max(answer.record, 0),
        rows_per_second=answer.rows_per_second,
        waiting_for=answer.waiting_for,
    )


def _position(at: Moment, position: Position) -> str | None:
    return at.position_text(position) if position else None


def _table(at: Moment, log: TableLog) -> TableStatus:
    progress, rate = at.tables.get(log.table_id, NOTHING), round(at.table_rates.get(log.table_id, 0.0), 1)
    if at.resting is None:
        return _assembled(at, log, progress)
    rests = rate == 0.0 and at.fault is None and log.table_id not in at.being_read
    return at.resting.status(log, progress, rests, lambda: _assembled(at, log, progress))


def _assembled(at: Moment, log: TableLog, progress: TableProgress) -> TableStatus:
    fault = fault_of_table(at.log, log, progress)
    return TableStatus(
        name=log.schema.name,
        state=_table_state(at, log, progress),
        read=not progress.replacing and _is_read(log),
        applied_sequence=progress.applied_seq,
        applied_record=max(progress.applied_record, 0),
        # While capture ends again and again nobody knows what the source has written since.
        lag_seconds=None if at.fault is not None else lag(at.log, log, progress.applied_record, at.now),
        converging_since=converging_since(log, progress.applied_record),
        replacing=progress.replacing,
        rows_per_second=round(at.table_rates.get(log.table_id, 0.0), 1),
        holes=len(progress.holes),
        nulled=tuple(NulledColumn(column=column, values=count) for column, count in log.nulled),
        counters=progress.counters,
        verified=None if log.verified is None else _verification(at, log.verified),
        fault=fault,
    )


def fault_of_table(state: LogState, log: TableLog, progress: TableProgress) -> Fault | None:
    """The fault of the table that requires action most; None: it has none."""
    return _worst(progress.fault, _stopped(log)) or unread(state, log)


def _verification(at: Moment, last: Verified) -> Verification:
    return Verification(
        snapshot=last.snapshot_id,
        at=last.ended_at / 1e6,
        position=_position(at, last.position),
        record=last.at_record,
        compared=compared_rows(last.found),
    )


def compared_rows(found: ComparisonResult) -> ComparedRows:
    return ComparedRows(
        rows=found.rows,
        missing=found.missing,
        extra=found.extra,
        different=found.different,
        undecided=found.undecided,
        columns=tuple(DifferingColumn(column=column, rows=rows) for column, rows in found.columns),
    )


def _worst(met: Fault | None, stopped: Fault | None) -> Fault | None:
    """The fault to show: the one that the target meets; but what a stopped table lacks in the log, only the fix of the
    stop repairs."""
    if stopped is not None and (met is None or met.name == LogTrimmed.__name__):
        return stopped
    return met


def _stopped(log: TableLog) -> Fault | None:
    stop = log.stopped
    return None if stop is None else Fault(name=stop.error, message=stop.message, fix=stop.fix, where=stop.where)


_AGAIN = f"Then take a snapshot of the table; should it be stopped by then (as options[].as does), {RESYNC}."
"""A snapshot keeps the rows readable that the target has. A table that is stopped takes none."""


def unread(state: LogState, log: TableLog) -> Fault | None:
    """The last snapshot of the whole table failed and no other is under way: rows from before it may be missing,
    whatever the changes say."""
    if log.unread is None or any(_reads_whole(s, log.table_id) for s in state.snapshots.of(log.table_id)):
        return None
    failed = snapshot_failed(log.unread)
    again = failed.fix if RESYNC in failed.fix else f"{failed.fix or 'Remove the cause.'} {_AGAIN}"
    return failed.model_copy(update={"fix": again})


def snapshot_failed(failure: ReadFailure) -> Fault:
    return Fault(name="SnapshotFailed", message=failure.message, fix=failure.fix, where=failure.where)


def _reads_whole(snapshot: SnapshotState, table_id: int) -> bool:
    part = snapshot.tables.get(table_id)
    return snapshot.plan.whole and snapshot.ended is None and part is not None and part.finished is None


def _table_state(at: Moment, log: TableLog, progress: TableProgress) -> TableState:
    if log.stopped is not None or progress.stopped:
        return "STOPPED"
    if progress.fault is not None or unread(at.log, log) is not None:
        return "FAILING"
    if log.table_id in at.being_read or progress.replacing:
        return "SNAPSHOTTING"
    if any(c.record > progress.applied_record and c.chunk.keys is None for c in log.chunks):
        return "SNAPSHOTTING"
    began = progress.applied_record >= log.added_record and _is_read(log)  # its first snapshot may not be planned yet
    return "REPLICATING" if began else "WAITING"


def _is_read(log: TableLog) -> bool:
    """True if nothing is left to be read of it for the first time."""
    return not log.initial_snapshot or log.read_record > log.added_record


def lag(state: LogState, log: TableLog, applied_record: RecordNumber, now: float) -> float | None:
    """Age of the oldest commit that is in the log for this table and not applied, or has reached its rows below the log
    and they were not read again; 0: none."""
    first, cascaded = log.segments.record_after(applied_record), converging_since(log, applied_record)
    since = [] if cascaded is None else [cascaded]
    if first is not None:
        times = state.commit_times.lines(state.commit_times.find(0, first))[:, 1]
        if not len(times):
            return None
        since.append(int(times.min()) / 1e6)
    return max((max(round(now - at, 3), 0.0) for at in since), default=0.0)


def converging_since(log: TableLog, applied_record: RecordNumber) -> float | None:
    """See `TableStatus`."""
    return min((cascaded.since / 1e6 for cascaded in converging(log, applied_record)), default=None)


def _shown(log: LogState) -> list[SnapshotState]:
    """Without old rewinds, which the log remembers by their names, each with all its tables."""
    rewound = [snapshot.plan.snapshot_id for snapshot in log.snapshots.values() if snapshot.is_rewound]
    old = frozenset(rewound[:-KEPT_SNAPSHOTS])
    return [snapshot for snapshot_id, snapshot in log.snapshots.items() if snapshot_id not in old]


def _snapshot(at: Moment, snapshot: SnapshotState) -> SnapshotStatus:
    if snapshot.plan.rewind is not None:
        return _rewind(at, snapshot, snapshot.plan.rewind)
    tables = tuple(_snapshot_table(at, snapshot, table_id) for table_id in snapshot.plan.tables)
    rows, estimated = sum(t.rows_done for t in tables), sum(t.rows_estimated for t in tables)
    word = snapshot_state(snapshot)
    rate = at.snapshot_rates.get(snapshot.plan.snapshot_id, 0.0) if word == "Running" else 0.0
    left = max(estimated - rows, 0) / rate if rate > 0 else None
    faults = [t.fault for t in tables if t.fault is not None]
    return SnapshotStatus(
        id=snapshot.plan.snapshot_id,
        name=snapshot.plan.request,
        reason=snapshot.plan.reason,
        verify=snapshot.plan.verify,
        sample=snapshot.plan.sample,
        state=word,
        tables_done=sum(t.finished and t.fault is None for t in tables),
        tables_total=len(tables),
        rows_done=rows,
        rows_estimated=max(estimated, rows),
        rows_per_second=round(rate, 1),
        seconds_left=None if left is None else round(left, 1),
        tables=tables,
        fault=faults[0] if faults else None,
    )


def _rewind(at: Moment, snapshot: SnapshotState, wanted: PlannedRewind) -> SnapshotStatus:
    word, ended = snapshot_state(snapshot), snapshot.ended
    there = word == "Completed"
    names = [at.log.tables[i].schema.name if i in at.log.tables else str(i) for i in wanted.tables]
    failure = None if ended is None else ended.failure
    fault = at.rewind_fault if word == "Pending" else None
    if failure is not None:
        fault = Fault(name=RewindRefused.__name__, message=failure.message, fix=failure.fix, where=failure.where)
    return SnapshotStatus(
        id=snapshot.plan.snapshot_id,
        name=snapshot.plan.request,
        reason=snapshot.plan.reason,
        rewind=RewindStatus(cut=wanted.cut, record=wanted.record),
        state=word,
        tables_done=len(names) if there else 0,
        tables_total=len(names),
        tables=tuple(SnapshotTableProgress(name=name, finished=there) for name in names),
        fault=fault,
    )


def snapshot_state(snapshot: SnapshotState) -> SnapshotWord:
    if snapshot.ended is not None:
        words: dict[str, SnapshotWord] = {"completed": "Completed", "failed": "Failed", "stopped": "Stopped"}
        return words[snapshot.ended.outcome]
    if snapshot.suspended:
        return "Paused"
    return "Running" if any(t.started or t.finished for t in snapshot.tables.values()) else "Pending"


def _snapshot_table(at: Moment, snapshot: SnapshotState, table_id: int) -> SnapshotTableProgress:
    part = snapshot.tables[table_id]
    run = at.runs.get((snapshot.plan.snapshot_id, table_id))
    log = at.log.tables.get(table_id)
    fault = run.fault if run is not None else None
    if part.finished is not None and part.finished.error is not None:
        fault = snapshot_failed(part.finished.error)
    return SnapshotTableProgress(
        name=log.schema.name if log is not None else str(table_id),
        chunks_done=part.chunks_done,
        rows_done=part.rows_done,
        rows_estimated=max(part.estimated_rows, part.rows_done),
        running=tuple(str(r) for r in run.reading.values()) if run is not None else (),
        finished=part.finished is not None,
        compared=compared_rows(part.found or ComparisonResult()) if snapshot.plan.verify else None,
        fault=fault,
    )


def total(status: Status) -> TableCounters:
    """Over all tables."""
    names = TableCounters.model_fields
    return TableCounters(**{name: sum(getattr(t.counters, name) for t in status.tables) for name in names})
