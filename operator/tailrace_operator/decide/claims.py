"""Conditions of their own out of the driver's status document, which do not feed Ready. Pure.

What is not known is not claimed, except what stays true while no driver reports (`carried`).
"""

from collections.abc import Iterable, Sequence

from tailrace.contract.status import Assessment, ObjectiveStatus, Status, TableStatus
from tailrace.contract.units import size_text
from tailrace.errors import error_line
from tailrace.errors.backoff import without_paths
from tailrace_operator.decide.model import EmitEvent, Limits
from tailrace_operator.decide.summary import BAD, UNDER_WAY, WORKING, by_name, lag, tables
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Reason, Truth, bounded, sentence
from tailrace_operator.status.models import Condition, TableCounts, TableSummary

ASSESSED = "Assessed"
COPIED = "ValuesCopied"
VERIFIED = "Verified"
INITIAL = "InitialSnapshotCompleted"
SNAPSHOT_FAILED = "SnapshotFailed"
"""The driver's name for a table whose last snapshot of all its rows failed."""
MAX_WHY = 600
"""Characters of a table's error in a message that continues."""


def claims(status: Status, before: Sequence[Condition], limits: Limits) -> Iterable[Claim]:
    if status.tables:
        yield _healthy(status)
        yield _copied(status)
        yield from _converging(status)
    if any(table.verified is not None for table in status.tables):
        yield _verified(status)
    if status.tables_total:
        yield _initial(status, before)
    if status.assessment is not None:
        yield _assessed(status.assessment)
    yield from _lag(status, limits)
    yield from _retained(status, limits)
    if status.followers:
        yield _followers(status)


def carried(before: Sequence[Condition]) -> Iterable[Claim]:
    """Conditions that stay true while no driver reports, or none has ever reported."""
    for known in before:
        if known.type in (INITIAL, ASSESSED, COPIED, VERIFIED):
            yield Claim(known.type, known.status, Reason(known.reason), known.message)


def _truth(value: bool) -> Truth:
    return "True" if value else "False"


def _assessed(found: Assessment) -> Claim:
    """The result of the first start: True however much is not copied, because that was reported and the rest is
    copied."""
    reading = f"the first snapshot reads some {found.rows:,} rows, in about {times.span(found.seconds)}"
    text = f"before the first start: {found.copied} of {found.tables} tables can be copied; {reading}"
    reason = Reason.ALL_EXACT
    if found.inexact_columns:
        reason = Reason.COLUMNS_NOT_EXACT
        are = "column is" if found.inexact_columns == 1 else "columns are"
        text += f"; {found.inexact_columns} {are} not copied exactly: `kubectl tailrace doctor` lists them"
    if found.copied < found.tables:
        reason = Reason.TABLES_NOT_COPIED
        text += f"; not copied: {bounded('; '.join(found.refused), MAX_WHY)}"
    return Claim(ASSESSED, "True", reason, text)


def _healthy(status: Status) -> Claim:
    bad = [t for t in status.tables if t.state in BAD]
    if not bad:
        return Claim("TablesHealthy", "True", Reason.TABLES_WORK)
    stopped = [t for t in bad if t.state == "STOPPED"]
    reason = Reason.TABLES_STOPPED if stopped else Reason.TABLES_FAILING
    return Claim("TablesHealthy", "False", reason, failing(status))


def _copied(status: Status) -> Claim:
    """Without numbers: they grow, and a message that changes is written."""
    found = [t for t in status.tables if t.nulled]
    if not found:
        return Claim(COPIED, "True", Reason.VALUES_AS_THEY_ARE)
    named = "; ".join(f"{t.name}: {', '.join(one.column for one in t.nulled)}" for t in found)
    text = (
        f"values became NULL that their types cannot hold, in {len(found)} of {len(status.tables)} tables"
        f" ({bounded(named, MAX_WHY)}). To have them, copy these columns as text with spec.options[].as, then start"
        " the tables over."
    )
    return Claim(COPIED, "False", Reason.VALUES_NULLED, text)


def _converging(status: Status) -> Iterable[Claim]:
    found = sorted((t.converging_since, t.name) for t in status.tables if t.converging_since is not None)
    if found:
        since, name = found[0]
        more = f" and {len(found) - 1} more tables" if len(found) > 1 else ""
        text = f"rows that foreign keys changed below the source's log are read again: {name} since"
        text += f" {times.text(since)}{more}. Their copies may have rows that are gone, or old values."
        yield Claim("Converging", "True", Reason.ROWS_READ_AGAIN, text)


def _followers(status: Status) -> Claim:
    """Times do not move while nothing changes, so neither does the message."""
    said = [one.said for one in status.followers if one.said is not None]
    reason = Reason.FOLLOWER_SILENT if said else Reason.FOLLOWERS_READ
    text = f"{bounded('; '.join(said), MAX_WHY)}." if said else ""
    return Claim("FollowersReading", _truth(not said), reason, text)


def _verified(status: Status) -> Claim:
    """The last verification of each table that has had one. Without numbers of rows, as above."""
    found = [table for table in status.tables if table.verified is not None]
    wrong = [table.name for table in found if table.verified is not None and table.verified.compared.differences]
    if not wrong:
        text = f"{len(found)} of {len(status.tables)} tables were verified, and no row differs."
        return Claim(VERIFIED, "True", Reason.COPY_EQUAL, text)
    text = (
        f"the last verification found rows that differ in {len(wrong)} of {len(found)} tables"
        f" ({bounded(', '.join(wrong), MAX_WHY)}). Repair them with `tailrace verify --repair`, or a SnapshotRequest"
        " with mode Repair, then verify once more."
    )
    return Claim(VERIFIED, "False", Reason.COPY_DIFFERS, text)


def events(before: Sequence[Condition], now: Sequence[Condition]) -> Iterable[EmitEvent]:
    """Events for values that become NULL in a table or a column where none had, and for tables that differ."""
    said = {c.message for c in before}
    for c in now:
        if c.type in (COPIED, VERIFIED) and c.status == "False" and c.message not in said:
            yield EmitEvent("Warning", c.reason, c.message)


def stopped(before: TableCounts | None, now: TableCounts | None, status: Status | None) -> Iterable[EmitEvent]:
    """An event for tables that have stopped after others, whose event has told of those. What stops them all, such as
    a target that is away, is told once.

    Of many that were stopped before, only some are known by name: which of the others is new can be told for those
    alone that would have been among them."""
    if status is None or now != tables(status):
        return  # what it says is not recorded now, so it would be told at each look
    listed = [] if before is None else [table for table in before.worst if table.state == "STOPPED"]
    unlisted = 0 if before is None else before.stopped - len(listed)
    names = {table.name for table in listed}
    found = by_name(table for table in status.tables if table.state == "STOPPED")
    others = [table for table in found if table.name not in names]
    causes = {_cause(table) for table in listed}
    more = [table for table in others if _cause(table) not in causes]
    count = min(len(others) - unlisted, len(more))
    if count <= 0:
        return
    last = listed[-1].name if listed else ""
    new = more if not unlisted else [table for table in more if table.name < last]
    text = "1 more table is stopped" if count == 1 else f"{count} more tables are stopped"
    if new:
        fault = new[0].fault
        why = f": {error_line(fault.name, fault.message, fault.fix)}" if fault is not None else ""
        text = f"{new[0].name} is stopped{why}" if count == 1 else f"{text}, first {new[0].name}{why}"
    yield EmitEvent("Warning", Reason.TABLES_STOPPED.value, sentence(bounded(text)))


def _cause(table: TableSummary) -> tuple[str, str]:
    """The error and its text, without the paths in which those of several tables differ."""
    return ("", "") if table.fault is None else (table.fault.name, without_paths(table.fault.message))


def failing(status: Status) -> str:
    """The number of tables that fail or are stopped, and the first of them with its error."""
    bad = [t for t in status.tables if t.state in BAD]
    stopped = [t for t in bad if t.state == "STOPPED"]
    first = (stopped or bad)[0]
    fault = first.fault
    why = f": {error_line(fault.name, fault.message, fault.fix)}" if fault is not None else ""
    count = f"{len(bad)} of {len(status.tables)} tables ({len(bad) - len(stopped)} failing, {len(stopped)} stopped)"
    return f"not replicating: {count}; first {bounded(first.name + why, MAX_WHY)}"


def _initial(status: Status, before: Sequence[Condition]) -> Claim:
    """A driver that has just started has not opened its tables: that they wait says nothing of those read before."""
    active = [s for s in status.snapshots if s.reason == "initial" and s.state in UNDER_WAY]
    done = any(c.type == INITIAL and c.status == "True" for c in before)
    waiting = [t for t in status.tables if _unread(t, done)]
    failed = [t for t in waiting if t.state == "STOPPED" or _snapshot_failed(t)]
    if len(waiting) > len(failed) or active:
        text = f"{len(active)} initial snapshots running, {len(waiting) - len(failed)} tables waiting."
        return Claim(INITIAL, "False", Reason.SNAPSHOTTING, text)
    if failed:
        text = f"{len(failed)} tables have not been read completely, first {failed[0].name}; see status.tables.worst."
        return Claim(INITIAL, "False", Reason.SNAPSHOT_FAILED, text)
    return Claim(INITIAL, "True", Reason.INITIAL_SNAPSHOT_COMPLETED)


def _unread(table: TableStatus, done: bool) -> bool:
    if _snapshot_failed(table):
        return True
    if table.read is None:  # an older driver, which tells states alone
        return table.state == "WAITING" and not done
    if not done and table.state in ("WAITING", "SNAPSHOTTING", "FAILING"):
        return True  # its rows are read, and not all of them are in the target, as far as is known
    # A change log that an older version began does not know what was read before: what was done stays done.
    return not table.read and not (done and table.state == "REPLICATING")


def _snapshot_failed(table: TableStatus) -> bool:
    return table.fault is not None and table.fault.name == SNAPSHOT_FAILED


def _lag(status: Status, limits: Limits) -> Iterable[Claim]:
    behind, bad = lag(status), status.tables_failing
    if behind is None:
        states = {t.state for t in status.tables}
        if states & set(BAD) and not states & set(WORKING):
            yield Claim("Lagging", "Unknown", Reason.LAG_UNKNOWN, "No table is replicating: the lag is unknown.")
            yield Claim("SLOMet", "False", Reason.NOT_MET, f"{bad} tables are failing.")
        return
    shown, most = times.span(behind), times.span(limits.lag_seconds)
    late = behind > limits.lag_seconds
    text = f"{shown} behind the source; the objective is {most}."
    missed = status.apply.freshness_missed
    if missed and not late:
        yield Claim("Lagging", "True", Reason.FRESHNESS_MISSED, f"{bounded(missed, MAX_WHY)}.")
    else:
        yield Claim("Lagging", _truth(late), Reason.LAG_HIGH if late else Reason.LAG_LOW, text if late else "")
    if status.objective is not None:
        yield from _objective(status.objective, bad)
        return
    met = not late and not bad
    why = "" if met else (text if late else f"{bad} tables are failing.")
    yield Claim("SLOMet", _truth(met), Reason.MET if met else Reason.NOT_MET, why)


def _objective(found: ObjectiveStatus, bad: int) -> Iterable[Claim]:
    """Tables that fail have changes that nobody counts until they work again."""
    within = times.span(found.within_seconds)
    if bad:
        yield Claim("SLOMet", "False", Reason.NOT_MET, f"{bad} tables are failing.")
    elif found.remaining is not None:
        met = found.remaining >= 0
        asked = f"fewer than {found.percent:g}% of the changes became visible within {within}."
        yield Claim("SLOMet", _truth(met), Reason.MET if met else Reason.NOT_MET, "" if met else asked)


def _retained(status: Status, limits: Limits) -> Iterable[Claim]:
    by, kept = status.capture.log_held_by, status.capture.retained_bytes
    if kept is not None:
        yield retained(kept, limits, f" because of {by};" if by else ";")


def retained(kept: int, limits: Limits, besides: str = ";") -> Claim:
    """A claim that says if so many bytes of log are too many. `besides`: another problem to name after it."""
    risk = kept > limits.retained_bytes
    text = f"the source keeps {size_text(kept)} of log for this Replicator{besides} its disk may fill." if risk else ""
    reason = Reason.RETAINED_LOG_HIGH if risk else Reason.RETAINED_LOG_LOW
    return Claim("SourceLogAtRisk", _truth(risk), reason, text)
