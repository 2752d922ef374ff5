"""Turns resources into what `kubectl tailrace` prints. Pure: documents in, text out.

A status may lack any field: the operator has not written it yet, or is of another version.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tailrace.contract.units import size_text
from tailrace.logs import visible

Document = dict[str, Any]
ENDED = ("Completed", "Failed", "Cancelled")
BAR = 24
TITLES = ("NAME", "STATE", "READY", "LAG", "TABLES", "EXECUTORS", "SNAPSHOT")
CONDITION_TITLES = ("CONDITION", "STATUS", "REASON", "MESSAGE")
TABLE_TITLES = ("TABLE", "STATE", "BEHIND", "FAULT")


def status_of(item: Document) -> Document:
    found: Document = item.get("status") or {}
    return found


def columns(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table, as kubectl writes one."""
    cells = [titles, *([visible("" if cell is None else str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(titles))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def overview(replicators: Sequence[Document], everywhere: bool) -> list[str]:
    """One line for each Replicator."""
    rows = [_row(item) for item in replicators]
    if everywhere:
        spaces = [item["metadata"]["namespace"] for item in replicators]
        return columns(("NAMESPACE", *TITLES), [[space, *row] for space, row in zip(spaces, rows, strict=True)])
    return columns(TITLES, rows)


def _row(item: Document) -> list[object]:
    status = status_of(item)
    shown = [status.get(key) for key in ("lag", "tablesSummary", "executorsSummary", "snapshotSummary")]
    return [item["metadata"]["name"], status.get("state"), condition(item, "Ready").get("status"), *shown]


def condition(item: Document, kind: str) -> Document:
    """Empty where there is none."""
    return next((c for c in status_of(item).get("conditions", ()) if c["type"] == kind), {})


def detail(item: Document, requests: Sequence[Document], now: datetime) -> list[str]:
    """Everything about one Replicator; `requests` are those for it."""
    status = status_of(item)
    lines = [f"{item['metadata']['name']}  {status.get('state', 'Pending')}", *_flow(status), *_tables_line(status)]
    lines += bars(status, requests, now)
    lines += ["", *worst(status)] if worst(status) else []
    error = status.get("lastError")
    lines += ["", f"last error  {_fault(error)}"] if error else []
    held = [[c["type"], c["status"], c["reason"], c.get("message")] for c in status.get("conditions", ())]
    return [*lines, "", *columns(CONDITION_TITLES, held)]


def _flow(status: Document) -> list[str]:
    capture, apply = status.get("capture"), status.get("apply")
    if capture is None or apply is None:
        return []
    retained = capture.get("retainedBytes")
    as_of = f" (at {capture['retainedAt']})" if capture.get("retainedAt") and capture.get("lagSeconds") is None else ""
    kept = "" if retained is None else f", the source keeps {size_text(retained)} of log{as_of}"
    waits = capture.get("waitingFor")
    place = f"to {capture['position']}, " if capture.get("position") else ""
    rate = f", {apply.get('rowsPerSecond', 0):,.0f} rows/s" if apply.get("lagSeconds") is not None else ""
    return [
        visible(f"captured   {place}{_behind(capture)}{kept}"),
        f"applied    {_behind(apply)}{rate}",
        *([visible(f"log kept   for {by}")] if (by := capture.get("logHeldBy")) else []),
        *([visible(f"waits for  {waits}")] if waits else []),
    ]


def _behind(part: Document) -> str:
    lag = part.get("lagSeconds")
    return "lag unknown" if lag is None else f"{seconds(lag)} behind"


def _tables_line(status: Document) -> list[str]:
    counts = status.get("tables")
    if not counts:
        return []
    states = ("replicating", "snapshotting", "waiting", "failing", "stopped")
    listed = ", ".join(f"{counts[state]:,} {state}" for state in states if counts.get(state))
    return [f"tables     {counts.get('total', 0):,}" + (f": {listed}" if listed else "")]


def worst(status: Document) -> list[str]:
    """The tables that the status names, with their faults; nothing where all is well."""
    counts = status.get("tables") or {}
    named = [t for t in counts.get("worst", ()) if t.get("fault") or t["state"] not in ("REPLICATING",)]
    rows = [[t["name"], t["state"], seconds(t.get("lagSeconds")), _fault(t.get("fault"))] for t in named]
    return columns(TABLE_TITLES, rows) if rows else []


def tables(found: Sequence[Document]) -> list[str]:
    rows = [[t["name"], t["state"], seconds(t.get("lagSeconds")), _fault(t.get("fault"))] for t in found]
    return columns(TABLE_TITLES, rows)


def _fault(fault: Document | None) -> str:
    if not fault:
        return ""
    fix = f". Fix: {fault['fix']}" if fault.get("fix") else ""
    return visible(f"{fault['name']}: {fault['message'].rstrip('.')}{fix}")


def bars(status: Document, requests: Sequence[Document], now: datetime) -> list[str]:
    """A progress bar for each SnapshotRequest that has not ended, and one for all snapshots where there are others."""
    active = [r for r in requests if status_of(r).get("state", "Pending") not in ENDED]
    total = status.get("snapshot") or {}
    running = total.get("running", 0)
    lines = []
    if running > sum(status_of(r).get("state") in ("Running", "Paused") for r in active):
        label = "1 snapshot" if running == 1 else f"{running} snapshots"
        lines.append(f"{label}  {_bar(status.get('snapshotSummary'))}{_rows(total)}{_left(total.get('secondsLeft'))}")
    return lines + [request_bar(r, now) for r in active]


def request_bar(request: Document, now: datetime) -> str:
    status, name = status_of(request), request["metadata"]["name"]
    state = status.get("state", "Pending")
    if state not in ("Running", "Paused"):
        message = f": {status['message']}" if status.get("message") else ""
        return visible(f"snapshot {name}  {state}{message}")
    paused = "  Paused" if state == "Paused" else _left(_until(status.get("estimatedEnd"), now))
    return visible(f"snapshot {name}  {_bar(status.get('progress'))}{_rows(status)}{paused}")


def _until(end: str | None, now: datetime) -> float | None:
    return None if end is None else max((datetime.fromisoformat(end) - now).total_seconds(), 0.0)


def _bar(percent: str | None) -> str:
    """`percent` as the operator writes it (`63%`)."""
    digits = (percent or "0%").removesuffix("%")
    share = min(int(digits), 100) if digits.isdigit() else 0
    done = BAR * share // 100
    return f"[{'#' * done}{'-' * (BAR - done)}] {share}%"


def _rows(progress: Document) -> str:
    done, expected = progress.get("rowsDone", 0), progress.get("rowsEstimated", 0)
    return f"  {done:,} of about {max(done, expected):,} rows, {progress.get('rowsPerSecond', 0):,.0f}/s"


def _left(left: float | None) -> str:
    return "" if left is None else f", {seconds(left)} left"


def seconds(value: float | None) -> str:
    if value is None:
        return "?"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
