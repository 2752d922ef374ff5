"""Has the journal hold which copies are stopped, so that notifications tell of it: once for each stop, over restarts.

    applier ──> Progress ──> CopyStops ──> copies-stopped, copies-resumed ──> notices

Only tables that the target (or another part that apply needs) stops: those that the source stops are in the journal
anyway. A place that is away stops all tables, one after the other: that is one stop, which is over with the last of
them.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.apply.progress import TableProgress
from tailrace.changelog.logged import CopyStop, LogState, TableLog
from tailrace.changelog.records.notices import CopiesResumed, CopiesStopped
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.contract.status import Fault
from tailrace.errors import CorruptLog, Fenced, Retry, Where
from tailrace.errors.backoff import without_paths

log = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""A stop, or the end of one, is told after this time, together with those of other tables for the same reason: one that
lasts for a moment is none."""
OF_THE_PROCESS = (Fenced.__name__, CorruptLog.__name__)
"""Errors that end the process, whatever table has met them."""

StopEvent = CopiesStopped | CopiesResumed


class ProgressReader(Protocol):
    """The newest progress of each table (`apply.progress`)."""

    def all(self) -> Mapping[int, TableProgress]: ...
    def failing(self) -> Mapping[int, TableProgress]: ...


class StopKeeper(Protocol):
    """The driver's control."""

    @property
    def journal(self) -> SharedJournal | None: ...

    @property
    def progress(self) -> ProgressReader: ...

    def carry_out(self, act: Callable[[LogState], Sequence[StopEvent]]) -> None:
        """Records what `act` makes of the state."""


class CopyStops:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: float | None = None
        """Monotonic time since which the journal lacks something; None: it lacks nothing."""

    def step(self, control: StopKeeper, *, last: bool = False) -> None:
        """One look. `last`: the driver ends, so nothing is waited for."""
        if control.journal is None:
            return
        state = control.journal.state
        concerned = state.copy_stops or any(at.stopped for at in control.progress.failing().values())
        if not concerned or not stop_events(state, control.progress.all()):
            self._since = None
            return
        now = self._monotonic()
        self._since = now if self._since is None else self._since
        if last or now - self._since >= SETTLE_SECONDS:
            try:
                control.carry_out(lambda state: stop_events(state, control.progress.all()))
            except Retry as error:  # capture is away: the next look, or the next driver, has it recorded
                log.debug("stops of copies were not recorded: %s", error)


def stop_events(state: LogState, found: Mapping[int, TableProgress]) -> list[StopEvent]:
    """Returns what the journal does not hold yet."""
    if not state.copy_stops and not any(progress.stopped for progress in found.values()):
        return []
    return [*_stopped(state, found), *_resumed(state, found)]


def _stopped(state: LogState, found: Mapping[int, TableProgress]) -> Iterator[CopiesStopped]:
    told = defaultdict[int, set[tuple[str, Where | None]]](set)
    """Errors by table, each with the place that was away, or None if the error was of the table."""
    for stop in state.copy_stops.values():
        for table in _of_stop(state, stop):
            told[table.table_id].add((stop.error, stop.where if stop.away else None))
    groups = defaultdict[tuple[str, Where, str | None], list[tuple[TableLog, Fault]]](list)
    for table in filter(_is_captured, state.tables.values()):
        progress = found.get(table.table_id)
        fault = None if progress is None or not progress.stopped else progress.fault
        if progress is None or fault is None or fault.name in OF_THE_PROCESS:
            continue
        # A table that has failed by itself with an error of this name is not told of a place that is away between two
        # such failures: the place's stop would end with each of them.
        where = _where(fault)
        reasons = {(fault.name, None), (fault.name, where)} if progress.away else {(fault.name, None)}
        if told[table.table_id] & reasons:
            continue
        text = None if progress.away else without_paths(fault.message)
        groups[fault.name, where, text].append((table, fault))
    for place, ((error, where, text), met) in enumerate(groups.items()):
        known = _open_outage(state, error, where)
        joins = text is None and known is not None
        fault = met[0][1]
        yield CopiesStopped(
            id=known if joins and known is not None else f"{state.number}.{place}",
            tables={table.table_id: table.added_record for table, _ in met},
            error=error,
            message=fault.message,
            fix=fault.fix,
            where=where,
            away=text is None,
            later=joins,
        )


def _open_outage(state: LogState, error: str, where: Where) -> str | None:
    stops = state.copy_stops.items()
    return next((key for key, stop in stops if stop.away and (stop.error, stop.where) == (error, where)), None)


def _resumed(state: LogState, found: Mapping[int, TableProgress]) -> Iterator[CopiesResumed]:
    shared_first = sorted(state.copy_stops.items(), key=lambda known: not _is_shared(known[1]))
    newest = {table.table_id: key for key, stop in shared_first for table in _of_stop(state, stop)}
    """The stop that tells of the end, for each table: its errors may have been several."""
    for key, stop in state.copy_stops.items():
        tables = [table.table_id for table in _of_stop(state, stop)]
        moving = [i for i in tables if _is_moving(found.get(i))]
        if all(i in moving or _has_left(found.get(i), stop, answers=bool(moving)) for i in tables):
            told = tuple(i for i in moving if newest[i] == key)
            yield CopiesResumed(id=key, tables=told, error=stop.error, where=stop.where, shared=_is_shared(stop))


def _is_shared(stop: CopyStop) -> bool:
    return stop.away or len(stop.tables) > 1


def _of_stop(state: LogState, stop: CopyStop) -> list[TableLog]:
    """The tables of the stop that have neither resumed nor started over since."""
    known = {table_id: state.tables.get(table_id) for table_id in stop.tables}
    captured = [table for table in known.values() if table is not None and _is_captured(table)]
    return [table for table in captured if table.added_record == stop.tables[table.table_id]]


def _is_captured(table: TableLog) -> bool:
    return not table.removed and table.stopped is None


def _has_left(progress: TableProgress | None, stop: CopyStop, *, answers: bool) -> bool:
    """True if a table that does not move is stopped for something else since the place answers again: that has an
    event, and so has its end. `answers`: a table of the stop moves. Without one, another place that is away says
    nothing of this one."""
    if progress is None or progress.fault is None or not (stop.away and progress.stopped):
        return False
    same = (progress.fault.name, _where(progress.fault)) == (stop.error, stop.where)
    return not progress.away or (answers and not same)


def _where(fault: Fault) -> Where:
    return fault.where or "target"


def _is_moving(progress: TableProgress | None) -> bool:
    """True if the last attempt succeeded. Before the first one of a process, nothing is known."""
    return progress is not None and progress.fault is None and progress.applied_record >= 0
