"""Carries out signals in Debezium's form, and tells what became of them.

Signals come from a file (`asking.signal_file`) or from a table of the source (`asking.signal_table`). What one asks for
becomes events of one record: a snapshot of each table, the end of a snapshot, a pause. Answers are log lines in the
form of Debezium's notifications.
"""

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned, SnapshotSuspended
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.driver.asking import signals
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.signals import Signal, SignalIgnored
from tailrace.errors import InvalidManifest, Retry, TailraceError
from tailrace.snapshot import planner
from tailrace.sources.signals import WATERMARKS

log = logging.getLogger(__name__)

PREFIX = "signal-"
"""The beginning of the ids of snapshots that signals asked for."""
NAMED = 20
"""Tables that one warning names."""
SUCCESS = {"completed": ("COMPLETED", "SUCCEEDED"), "failed": ("ABORTED", "SQL_EXCEPTION")}
"""Debezium's words, by the outcome of a snapshot; without one, it was stopped."""
ActEvent = SnapshotPlanned | SnapshotEnded | SnapshotSuspended


@dataclass
class Act:
    """The effect of a signal, with the state as it is."""

    signal: Signal
    replicator: str
    events: list[ActEvent] = field(default_factory=list)
    started: dict[str, str] = field(default_factory=dict)
    """Snapshot -> its table."""
    suspended: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Each snapshot that is paused or resumed: the id that its notifications have, and its tables."""
    warnings: list[str] = field(default_factory=list)
    """Parts that are not carried out, with the fix."""
    lines: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """The word of the answer: ignored, if nothing at all is left of the signal."""
        return "ignored" if self.warnings and not self.events else "done"


def act_of(signal: Signal, place: str, control: DriverControl, state: LogState, dialect: str) -> Act:
    """`place`: the identity of the signal, in the ids of its snapshots. `SignalIgnored`: nothing can be done."""
    found = Act(signal, control.name)
    try:
        _carry_out(found, place, control, state, dialect)
    except (SignalIgnored, TailraceError):
        raise
    except Exception as error:  # the boundary of one signal: it would come again at every start
        log.warning("signal %r could not be read", signal.id, exc_info=True)
        what = f"it could not be read ({type(error).__name__})"
        raise SignalIgnored(what, "Correct it; report it with the log lines.") from error
    return found


def _carry_out(found: Act, place: str, control: DriverControl, state: LogState, dialect: str) -> None:
    signal = found.signal
    match signal.type:
        case "execute-snapshot":
            _execute(found, place, state, dialect)
        case "stop-snapshot":
            _stop(found, state)
        case "pause-snapshot" | "resume-snapshot":
            _suspend(found, state)
        case "log":
            message = signal.data.get("message")
            if not isinstance(message, str):
                raise SignalIgnored("it has no message", 'Write {"message": "…"}.')
            found.lines.append(message.replace("{}", control.position_text(state.position)))
        case _ if signal.type in WATERMARKS:
            pass
        case _:
            known = ", ".join(signals.TYPES)
            raise SignalIgnored(f"type {signal.type!r} is not supported", f"Use one of {known}.")


def _execute(found: Act, place: str, state: LogState, dialect: str) -> None:
    if state.renewal is not None:
        # The first look adds all tables and plans for them; what is asked before meets none.
        raise Retry("every table is about to start over", "Ask again in a few seconds.")
    asked = signals.execution(found.signal.data, dialect)
    captured = sorted((t for t in state.tables.values() if not t.removed), key=lambda t: t.schema.name)
    named = signals.matches(asked.tables, captured)
    unmet = [p.pattern for p in asked.tables if not signals.matches((p,), captured)]
    if unmet:
        names = ", ".join(t.schema.name for t in captured[:NAMED])
        found.warnings.append(
            f"no captured table matches {', '.join(unmet)} (captured: {names}). Fix: Correct data-collections; names"
            " are regular expressions, for example public\\.orders."
        )
    if asked.blocking:
        found.lines.append("the snapshot runs beside the stream, which a blocking one would stop")
    if asked.surrogate_key:
        found.lines.append("surrogate-key is not used, chunks are ranges of the table's key")
    unused = asked.unused(named) if named else []
    if unused:
        found.warnings.append(
            f"the conditions for {', '.join(unused)} match none of the signal's tables. Fix: Write data-collection as"
            " the table's name in data-collections."
        )
    for table in named:
        try:
            where = asked.where(table)
        except SignalIgnored as error:
            found.warnings.append(f"table {table.schema.name} is not read: {error}")
        else:
            _read(found, f"{PREFIX}{place}-{table.table_id}", table, where, state)


def _read(found: Act, snapshot_id: str, table: TableLog, where: str | None, state: LogState) -> None:
    """A snapshot for each table: a signal may stop one of them."""
    name = table.schema.name
    if re.search(r"[*?]", name):
        found.warnings.append(f"table {name} is not read: its name has * or ?. Fix: Use a SnapshotRequest.")
        return
    if snapshot_id in state.snapshots:
        return  # planned before the process died, or before capture went away
    try:
        spec = SnapshotRequestSpec(replicator=found.replicator, tables=(name,), where=where)
        body = SnapshotBody(name=found.signal.id, spec=spec)
        plan = planner.request_plan(state, snapshot_id, body, lambda of, keys: ())
    except (InvalidManifest, ValueError) as error:
        found.warnings.append(f"table {name} is not read: {error}")
        return
    found.events.append(plan)
    found.started[snapshot_id] = name


def _stop(found: Act, state: LogState) -> None:
    patterns = signals.collections(found.signal.data)
    met = False
    for snapshot_id, snapshot in _running(state):
        tables = [state.tables[i] for i in snapshot.plan.tables if i in state.tables]
        concerned = tables if not patterns else signals.matches(patterns, tables)
        if not concerned:
            continue
        met = True
        if len(concerned) < len(tables):
            found.warnings.append(
                f"snapshot {snapshot_id} continues: it reads other tables as well. Fix: Run `tailrace stop`."
            )
            continue
        found.events.append(SnapshotEnded(snapshot_id=snapshot_id, outcome="stopped", message=planner.STOPPED))
    if not met:
        found.lines.append("no snapshot runs that it could stop")


def _suspend(found: Act, state: LogState) -> None:
    pauses = found.signal.type == "pause-snapshot"
    for snapshot_id, snapshot in _running(state):
        if snapshot.suspended != pauses:
            found.events.append(SnapshotSuspended(snapshot_id=snapshot_id, suspended=pauses))
            found.suspended.append((_notified_as(snapshot_id, snapshot), _tables(snapshot, state)))


def _running(state: LogState) -> Iterator[tuple[str, SnapshotState]]:
    """Those that somebody asked for; first ones and re-reads are Tailrace's own, verifications and rewinds read
    nothing."""
    for snapshot_id, snapshot in state.snapshots.items():
        plan = snapshot.plan
        reads = not (plan.verify or plan.resync) and plan.rewind is None
        if snapshot.ended is None and plan.reason == "request" and reads:
            yield snapshot_id, snapshot


def _notified_as(snapshot_id: str, snapshot: SnapshotState) -> str:
    """The id in its notifications: as in Debezium, of the signal that asked for it, not of one that pauses it."""
    return snapshot.plan.request or snapshot_id


def _tables(snapshot: SnapshotState, state: LogState) -> tuple[str, ...]:
    return tuple(state.tables[i].schema.name for i in snapshot.plan.tables if i in state.tables)


class SignalNotices:
    """The log lines about signals, and about the ends of their snapshots."""

    def __init__(self) -> None:
        self._running: dict[str, str] | None = None
        """Snapshots whose end is not told yet -> their signals. None: not looked for yet."""

    def look(self, state: LogState) -> None:
        if self._running is None:
            mine = ((i, s) for i, s in state.snapshots.items() if i.startswith(PREFIX) and s.ended is None)
            self._running = {i: _notified_as(i, s) for i, s in mine}
        for snapshot_id, signal_id in list(self._running.items()):
            snapshot = state.snapshots.get(snapshot_id)
            if snapshot is not None and snapshot.ended is None:
                continue
            del self._running[snapshot_id]
            if snapshot is None or snapshot.ended is None:
                continue
            word, status = SUCCESS.get(snapshot.ended.outcome, ("ABORTED", None))
            rows = sum(t.rows_done for t in snapshot.tables.values())
            more = {"total_rows_scanned": str(rows)} | ({} if status is None else {"status": status})
            _told(signal_id, word, _tables(snapshot, state), **more)

    def done(self, act: Act) -> None:
        """Its events are in the journal."""
        signal_id = act.signal.id
        for line in act.lines:
            log.info("signal %r: %s", signal_id, line)
        for warning in act.warnings:
            log.warning("signal %r: %s", signal_id, warning)
        for snapshot_id, table in act.started.items():
            _told(signal_id, "STARTED", (table,))
            if self._running is not None:
                self._running[snapshot_id] = signal_id
        for asked_by, tables in act.suspended:
            _told(asked_by, "PAUSED" if act.signal.type == "pause-snapshot" else "RESUMED", tables)


def _told(id_: str, kind: str, names: tuple[str, ...], **more: str) -> None:
    """One line in the form of Debezium's notifications."""
    said = {
        "id": id_,
        "aggregate_type": "Incremental Snapshot",
        "type": kind,
        "additional_data": {"data_collections": ",".join(names), **more},
        "timestamp": int(time.time() * 1000),
    }
    log.info("notification %s", json.dumps(said))
