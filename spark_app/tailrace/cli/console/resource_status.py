"""Replicators and SnapshotRequests as the console's documents. Pure: from the API server's documents, whose status may
lack any field or be of another version."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from tailrace.cli.console.watched import Described
from tailrace.contract.console import ConsoleAssessment, FleetEntry, FleetState, ReportedEvent
from tailrace.contract.status import (
    ApplyStatus,
    CaptureStatus,
    Fault,
    SnapshotState,
    SnapshotStatus,
    State,
    Status,
    TableState,
    TableStatus,
)
from tailrace.driver.process.run_dir import NotRunning

Document = Mapping[str, Any]
TROUBLE = {
    "Stopped": 100,
    "Failing": 90,
    "Degraded": 75,
    "Deleting": 25,
    "Pending": 20,
    "Starting": 20,
    "Suspended": 10,
}
BY_CONDITION = (
    ("SourceLogAtRisk", "True", 80),
    ("SLOMet", "False", 50),
    ("Lagging", "True", 40),
    ("FollowersReading", "False", 35),
)
"""Conditions that make a Replicator urgent: type, status, urgency."""
STATES: dict[str, State] = {
    "Starting": "Starting",
    "Running": "Running",
    "Degraded": "Failing",
    "Failing": "Failing",
    "Suspended": "Suspended",
    "Stopped": "Stopped",
    "Succeeded": "Stopped",
}
BAD_WHEN_TRUE = ("Stalled", "Lagging", "SourceLogAtRisk", "Converging", "ReconciliationPaused", "RolloutPending")
SHOWN: tuple[FleetState, ...] = (*get_args(State), "Pending", "Degraded", "Succeeded", "Deleting")
QUIET = ("Reconciling", "Suspended", "Assessed", "InitialSnapshotCompleted")


def name_of(item: Document) -> str:
    return f"{item['metadata']['namespace']}:{item['metadata']['name']}"


def status_of(item: Document) -> Document:
    found = item.get("status")
    return found if isinstance(found, Mapping) else {}


def part(found: Document, name: str) -> Document:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def seconds(text: object) -> float | None:
    """Seconds since 1970 of a time as the API server writes it."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def described(item: Document) -> Described:
    spec = part(item, "spec")
    source, target = part(spec, "source"), part(spec, "target")
    dataset = part(target, "bigquery")
    warehouse = f"{dataset.get('project', '')}.{dataset.get('dataset', '')}" if dataset else ""
    database = f"/{source['database']}" if source.get("database") else ""
    return Described(
        source=f"{source.get('type', '')} {source.get('host', '')}{database}".strip(),
        target=f"{target.get('type', '')} {target.get('location') or target.get('host') or warehouse}".strip(),
        storage=str(part(spec, "storage").get("location", "")),
    )


def lag(found: Document) -> float | None:
    parts = [part(found, name).get("lagSeconds") for name in ("capture", "apply")]
    return max((float(p) for p in parts if isinstance(p, int | float)), default=None)


def trouble(found: Document) -> int:
    base = TROUBLE.get(str(found.get("state", "Pending")), 0)
    held = {c.get("type"): c.get("status") for c in found.get("conditions", ())}
    return max(base, *(rank for kind, status, rank in BY_CONDITION if held.get(kind) == status), 0)


def entry(item: Document, lags: Sequence[float | None] = (), running: int = 0) -> FleetEntry:
    """`lags`: of the last hour; `running`: its SnapshotRequests that have not ended."""
    found = status_of(item)
    state = found.get("state", "Pending")
    tables = part(found, "tables")
    message = str(found.get("message", "")) if found else "no operator has reported about it yet"
    return FleetEntry(
        name=name_of(item),
        state=state if state in SHOWN else "Pending",
        message=message,
        trouble=trouble(found),
        fault=fault(found.get("lastError")) if state in ("Stopped", "Failing") else None,
        lag_seconds=lag(found),
        lag_history=tuple(lags),
        rows_per_second=part(found, "apply").get("rowsPerSecond", 0.0),
        retained_bytes=part(found, "capture").get("retainedBytes"),
        tables_total=tables.get("total", 0),
        tables_failing=tables.get("failing", 0) + tables.get("stopped", 0),
        snapshots_running=max(running, part(found, "snapshot").get("running", 0)),
        freshness_missed=next((c.get("message") for c in found.get("conditions", ()) if _late(c)), None),
    )


def _late(condition: Document) -> bool:
    return condition.get("type") == "SLOMet" and condition.get("status") == "False"


def fault(found: object) -> Fault | None:
    if not isinstance(found, Mapping):
        return None
    return Fault(
        name=str(found.get("name", "")),
        message=str(found.get("message", "")),
        fix=str(found.get("fix", "")),
        since=seconds(found.get("since")) or 0.0,
        count=int(found.get("count", 1)),
    )


def conditions(item: Document) -> tuple[str, ...]:
    """The conditions in words, those that are bad first."""
    held = sorted(status_of(item).get("conditions", ()), key=lambda c: (not _bad(c), str(c.get("type"))))
    shown = [c for c in held if _bad(c) or c.get("message")]
    return tuple(f"{c.get('type')} {c.get('status')} ({c.get('reason')}): {c.get('message') or '–'}" for c in shown)


def _bad(condition: Document) -> bool:
    kind, status = condition.get("type"), condition.get("status")
    if kind in QUIET:
        return False
    return bool(status == "True") if kind in BAD_WHEN_TRUE else bool(status == "False")


def snapshot(request: Document) -> SnapshotStatus:
    """A SnapshotRequest's progress; its id is the driver's for it."""
    found, spec = status_of(request), part(request, "spec")
    state = {"Cancelled": "Stopped"}.get(str(found.get("state", "Pending")), str(found.get("state", "Pending")))
    return SnapshotStatus(
        id=request["metadata"]["uid"],
        name=request["metadata"]["name"],
        reason=found.get("message") or "request",
        verify=spec.get("mode", "Read") in ("Verify", "Repair"),
        state=state if state in get_args(SnapshotState) else "Pending",  # type: ignore[arg-type]  # of these words
        tables_done=found.get("tablesDone", 0),
        tables_total=found.get("tablesTotal", 0),
        rows_done=found.get("rowsDone", 0),
        rows_estimated=found.get("rowsEstimated", 0),
        rows_per_second=found.get("rowsPerSecond", 0.0),
        fault=fault(found.get("lastError")),
    )


def status(item: Document, requests: Sequence[Document], now: float) -> Status:
    """The report of the resources as a driver's status: of its tables the worst, of its snapshots the requests."""
    found = status_of(item)
    capture, apply, tables, driver = (part(found, name) for name in ("capture", "apply", "tables", "driver"))
    return Status(
        name=item["metadata"]["name"],
        state=STATES.get(str(found.get("state")), "Starting"),
        message=str(found.get("message", "")),
        started_at=seconds(driver.get("startedAt")) or 0.0,
        updated_at=now,
        made=tuple(found.get("made", ())),
        capture=CaptureStatus(
            alive=capture.get("lagSeconds") is not None,
            position=capture.get("position"),
            lag_seconds=capture.get("lagSeconds"),
            lag_bytes=capture.get("lagBytes"),
            retained_bytes=capture.get("retainedBytes"),
            log_held_by=capture.get("logHeldBy"),
            rows_per_second=capture.get("rowsPerSecond", 0.0),
            waiting_for=capture.get("waitingFor"),
        ),
        apply=ApplyStatus(
            lag_seconds=apply.get("lagSeconds"),
            record=apply.get("record", 0),
            rows_per_second=apply.get("rowsPerSecond", 0.0),
            suspended=part(part(item, "spec"), "apply").get("suspend", False),
        ),
        tables_total=tables.get("total", 0),
        tables_replicating=tables.get("replicating", 0),
        tables_failing=tables.get("failing", 0) + tables.get("stopped", 0),
        tables=tuple(_table(t) for t in tables.get("worst", ()) if t.get("state") in get_args(TableState)),
        snapshots=tuple(snapshot(r) for r in requests),
        fault=fault(found.get("lastError")) if found.get("state") in ("Stopped", "Failing") else None,
    )


def _table(found: Document) -> TableStatus:
    return TableStatus(
        name=found["name"],
        state=found["state"],
        lag_seconds=found.get("lagSeconds"),
        fault=fault(found.get("fault")),
    )


def assessment(told: str, include: Sequence[str]) -> ConsoleAssessment:
    """The console's form of what `tailrace doctor --json` says."""
    try:
        found = json.loads(told)
        document = {name: found[name] for name in ("ready", "lines", "tables")}
        seconds_of = {"seconds": found["snapshot"]["seconds"], "include": list(include)}
        return ConsoleAssessment.model_validate(document | seconds_of, extra="ignore")
    except (ValueError, KeyError, TypeError) as error:
        fix = "Run the console and the driver in the same version."
        raise NotRunning("the driver is of another version: its report is not one of doctor", fix) from error


def event(found: Document) -> ReportedEvent:
    about = part(found, "involvedObject")
    series = part(found, "series")
    times = (series.get("lastObservedTime"), found.get("lastTimestamp"), found.get("eventTime"))
    created = part(found, "metadata").get("creationTimestamp")
    return ReportedEvent(
        at=next((at for at in map(seconds, (*times, created)) if at is not None), None),
        about=f"{about.get('kind', '')} {about.get('name', '')}",
        type=str(found.get("type", "Normal")),
        reason=str(found.get("reason", "")),
        message=str(found.get("message", "")),
        count=int(found.get("count") or series.get("count") or 1),
    )
