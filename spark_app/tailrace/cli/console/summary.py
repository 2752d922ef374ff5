"""A Replicator in a line, its state in words, and the order by trouble. Pure: from status documents."""

from collections.abc import Sequence

from tailrace.contract.console import SPARK_POINTS, FleetEntry, TablePage
from tailrace.contract.driver import Problem
from tailrace.contract.history import LastHour
from tailrace.contract.status import SnapshotStatus, Status, TableStatus
from tailrace.contract.units import size_text

TABLE_ORDER = {"STOPPED": 0, "FAILING": 1, "SNAPSHOTTING": 2, "WAITING": 3, "REPLICATING": 4}
RUNNING = ("Pending", "Running")


def missing(name: str, problem: Problem) -> FleetEntry:
    """The line of a Replicator whose driver does not answer."""
    return FleetEntry(name=name, state="NotRunning", message=problem.message, problem=problem, trouble=60)


def entry(name: str, status: Status, history: LastHour | None) -> FleetEntry:
    return FleetEntry(
        name=name,
        state=status.state,
        message=status.message,
        trouble=trouble(status),
        fault=status.fault,
        updated_at=status.updated_at,
        lag_seconds=lag(status),
        lag_history=lags(history),
        rows_per_second=status.apply.rows_per_second,
        retained_bytes=status.capture.retained_bytes,
        tables_total=status.tables_total,
        tables_failing=status.tables_failing,
        snapshots_running=sum(s.state in RUNNING for s in status.snapshots),
        objective=status.objective,
        freshness_missed=status.apply.freshness_missed,
    )


def lag(status: Status) -> float | None:
    """The lag of the whole path: capture reads the source, apply what capture has read."""
    parts = [p for p in (status.capture.lag_seconds, status.apply.lag_seconds) if p is not None]
    return max(parts, default=None)


def lags(history: LastHour | None) -> tuple[float | None, ...]:
    """The largest lag of each minute or so."""
    if history is None or not history.at:
        return ()
    capture, apply = history.capture_lag_seconds, history.apply_lag_seconds
    length = min(len(capture), len(apply))
    wide = -(-length // SPARK_POINTS)
    return tuple(_most(capture[i : i + wide] + apply[i : i + wide]) for i in range(0, length, max(wide, 1)))


def _most(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(max(known), 3) if known else None


def trouble(status: Status) -> int:
    """Stopped comes before a failing whole, that before failing tables; a missed objective before a late one."""
    if status.state == "Stopped":
        return 100
    if status.fault is not None:
        return 90
    if not status.capture.alive and status.state != "Starting":
        return 85
    if status.tables_failing:
        return 70 + min(status.tables_failing, 9)
    if any(s.fault is not None and s.state in ("Failed", *RUNNING) for s in status.snapshots):
        return 55
    if status.objective is not None and (status.objective.remaining or 0) < 0:
        return 50
    if status.apply.freshness_missed is not None:
        return 40
    if any(one.said is not None for one in status.followers):
        return 35
    if status.capture.waiting_for is not None or status.capture.log_held_by is not None:
        return 30
    return {"Starting": 20, "Suspended": 10}.get(status.state, 0)


def conditions(status: Status) -> tuple[str, ...]:
    """The state of the parts in sentences, the most urgent first."""
    said: list[str] = []
    if status.fault is not None:
        said.append(f"{status.fault.name}: {status.fault.message}.")
    if not status.capture.alive:
        said.append("Capture does not answer: changes stay in the source's log.")
    if status.tables_failing:
        said.append(f"{status.tables_failing} of {status.tables_total} tables do not replicate.")
    if status.objective is not None and (status.objective.remaining or 0) < 0:
        o = status.objective
        met = "none" if o.met_percent is None else f"{o.met_percent:g} %"
        asked = f"within {o.within_seconds:g} s, asked for {o.percent:g} %"
        said.append(f"The objective is missed: {met} of the changes {asked}.")
    if status.apply.freshness_missed is not None:
        said.append(f"Changes are late: {status.apply.freshness_missed}.")
    if status.capture.waiting_for is not None:
        said.append(f"Capture or a snapshot waits: {status.capture.waiting_for}.")
    if status.capture.log_held_by is not None:
        said.append(f"The source keeps much log for {status.capture.log_held_by}.")
    said += [f"{text[0].upper()}{text[1:]}." for one in status.followers if (text := one.said) is not None]
    if status.apply.suspended:
        said.append("Apply is suspended: the source is captured, the target does not change.")
    said += [f"The copy of {copy.name} is to be deleted." for copy in status.dropping]
    said += [_snapshot(s) for s in status.snapshots if s.state in (*RUNNING, "Paused")]
    if status.capture.retained_bytes is not None:
        said.append(f"The source keeps {size_text(status.capture.retained_bytes)} of log.")
    if not status.tables_failing and status.tables_total and status.tables_replicating == status.tables_total:
        said.append("All tables replicate.")
    return tuple(said)


def _snapshot(s: SnapshotStatus) -> str:
    done = f"{s.tables_done} of {s.tables_total} tables, {s.rows_done:,} rows"
    return f"Snapshot {s.name or s.id} is {s.state.lower()}: {done}."


def page(tables: Sequence[TableStatus], search: str, states: Sequence[str], offset: int, limit: int) -> TablePage:
    text = search.casefold()
    found = [t for t in tables if text in t.name.casefold() and (not states or t.state in states)]
    found.sort(key=lambda t: (t.fault is None, TABLE_ORDER[t.state], t.name))
    some = tuple(found[offset : offset + limit])
    return TablePage(total=len(tables), matching=len(found), offset=offset, tables=some)
