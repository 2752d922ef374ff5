"""Decides one round for a SnapshotRequest. Pure.

    Pending --taken--> Running <--suspend--> Paused
       |                  |                     |
       +------------------+------> Completed | Failed | Cancelled      (these three are final)

The running driver does the work; here it only gets the desired state, idempotently by the request's uid. `Ready` means
that the driver has taken it, so that a snapshot of a day holds up no GitOps sync; `Complete` and `Failed` (or
cancelled) report the end.
"""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tailrace.contract.driver import Problem
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import SnapshotStatus, SnapshotTableProgress
from tailrace.contract.units import counted
from tailrace.errors import error_line
from tailrace_operator.decide import summary
from tailrace_operator.decide.desired import faults
from tailrace_operator.decide.model import (
    Action,
    Asks,
    Cancel,
    Decision,
    EmitEvent,
    Limits,
    Pause,
    SetFinalizers,
    SubmitSnapshot,
)
from tailrace_operator.observe.model import FINALIZER, ObservedDriver, ObservedRequest
from tailrace_operator.status import times
from tailrace_operator.status.conditions import (
    Claim,
    Readiness,
    Reason,
    Truth,
    bounded,
    clause,
    conditions,
    sentence,
    short,
)
from tailrace_operator.status.models import (
    FINAL,
    MAX_WORST,
    FaultStatus,
    RequestState,
    RequestTable,
    SnapshotRequestStatus,
)
from tailrace_operator.status.numbers import count, left, rate

REFUSED = (404, 409, 422)
"""Answers of the driver that asking again would not change."""
FORGOTTEN_SECONDS = 60.0
"""A driver that took it and does not list it after this has lost its journal: it is given again."""
WAIT_SECONDS = 60.0
"""Without a driver; the Replicator's status wakes it earlier."""
IDLE_SECONDS, SOON_SECONDS = 600.0, 3.0
CANCELLED = "Stopped on request, by `tailrace stop` or a signal."
Assessed = tuple[RequestState, Readiness]


def decide(observed: ObservedRequest, limits: Limits) -> Decision[SnapshotRequestStatus]:
    if observed.meta.deleting:
        return _delete(observed, limits)
    if observed.status.state in FINAL:
        return _finished(observed)
    if FINALIZER not in observed.meta.finalizers:
        return Decision(observed.status, (SetFinalizers((*observed.meta.finalizers, FINALIZER)),), again=SOON_SECONDS)
    try:
        spec = SnapshotRequestSpec.model_validate(observed.spec)
    except ValidationError as error:
        readiness = Readiness("False", Reason.INVALID_SPEC, f"spec: {faults(error)}", stuck=True)
        return _write(observed, "Pending", readiness, {}, again=IDLE_SECONDS)
    if observed.snapshot is not None and not _silent(observed.driver, observed.now, limits):
        return _follow(observed, spec, observed.snapshot)
    return _offer(observed, spec)


def _silent(driver: ObservedDriver, now: float, limits: Limits) -> bool:
    """True if the driver has been silent for so long that its last status may be outdated."""
    late = driver.silent_since is not None and driver.answered_at is not None
    return late and now - (driver.answered_at or 0.0) >= limits.silent_seconds


# ---- not with the driver yet ----


def _offer(observed: ObservedRequest, spec: SnapshotRequestSpec) -> Decision[SnapshotRequestStatus]:
    answer = observed.answer
    if answer is not None and not answer.accepted and answer.code in REFUSED:
        return _refused(observed, answer.problem)
    state, readiness = _waiting(observed, spec)
    update: dict[str, Any] = {"rows_per_second": 0.0, "estimated_end": None}
    if not _driver_takes(observed):
        return _write(observed, state, readiness, update, again=WAIT_SECONDS)
    if _before_pause(observed, spec) is not None:
        return _write(observed, state, readiness, update, again=SOON_SECONDS)
    if answer is not None and answer.record is not None:
        update["record"] = answer.record
    # The plan is in the journal before the answer, under our uid: dying here asks again and meets the same plan.
    taken = answer is not None and answer.accepted and observed.now - answer.at < FORGOTTEN_SECONDS
    actions: tuple[Action, ...] = () if taken else (SubmitSnapshot(observed.meta.uid, spec),)
    return _write(observed, state, readiness, update, actions=actions, again=SOON_SECONDS)


def _driver_takes(observed: ObservedRequest) -> bool:
    reported = observed.driver.status
    if not observed.replicator or observed.replicator_idle is not None or reported is None:
        return False
    # Before it knows the tables of the source no pattern matches.
    return observed.driver.silent_since is None and reported.state != "Starting" and reported.tables_total > 0


def _before_pause(observed: ObservedRequest, spec: SnapshotRequestSpec) -> str | None:
    """The obstacle that a rewind waits for: its driver must work by the Replicator as it is now, since the request may
    have been applied together with the `apply.suspend` that it needs, and must have suspended its target for that."""
    reported = observed.driver.status
    if spec.rewind is None or reported is None:
        return None
    if summary.lacks_spec(observed.driver, observed.replicator_generation):
        return f"take over generation {observed.replicator_generation}"
    return "suspend its target" if observed.target_suspended and not reported.apply.suspended else None


def _waiting(observed: ObservedRequest, spec: SnapshotRequestSpec) -> Assessed:
    # Without a driver nothing runs, whatever it was before.
    state: RequestState = "Paused" if spec.suspend and observed.status.record is not None else "Pending"
    if not observed.replicator:
        text = f"Replicator {spec.replicator!r} does not exist in namespace {observed.meta.namespace}; create it."
        return state, Readiness("False", Reason.REPLICATOR_NOT_FOUND, text, progress=True)
    if observed.replicator_cut_over:
        text = f"Replicator {spec.replicator!r} has ended with a cutover: programs write to its tables, so nothing is "
        text += "copied into them. Delete this SnapshotRequest."
        return state, Readiness("False", Reason.CUT_OVER, text, stuck=True)
    if observed.replicator_idle is not None:
        text = f"Replicator {spec.replicator!r} is not running: {observed.replicator_idle}"
        return state, Readiness("False", Reason.REPLICATOR_SUSPENDED, text, progress=True)
    if not _driver_takes(observed):
        text = f"waiting for the driver of Replicator {spec.replicator!r}."
        return state, Readiness("False", Reason.REPLICATOR_NOT_READY, text, progress=True)
    if (pause := _before_pause(observed, spec)) is not None:
        text = f"waiting for the driver of Replicator {spec.replicator!r} to {pause}."
        return state, Readiness("False", Reason.REPLICATOR_NOT_READY, text, progress=True)
    problem = observed.answer.problem if observed.answer is not None else None
    text = f"{problem.name}: {problem.message}" if problem is not None else "the driver is accepting the request."
    return state, Readiness("False", Reason.PENDING, text, progress=True)


def _refused(observed: ObservedRequest, problem: Problem | None) -> Decision[SnapshotRequestStatus]:
    name, text, fix = (problem.name, problem.message, problem.fix) if problem is not None else ("Refused", "", "")
    readiness = Readiness("False", Reason.REQUEST_REFUSED, error_line(name, text, fix), stuck=True)
    fault = FaultStatus(name=short(name), message=bounded(text), fix=bounded(fix))
    update = {"last_error": fault, "finished_at": times.text(observed.now)}
    return _write(observed, "Failed", readiness, update, again=IDLE_SECONDS)


# ---- with the driver ----


def _follow(
    observed: ObservedRequest, spec: SnapshotRequestSpec, found: SnapshotStatus
) -> Decision[SnapshotRequestStatus]:
    state, readiness = _assess(found, observed.executors_missing)
    update = _progress(observed, found)
    actions: tuple[Action, ...] = ()
    if state in FINAL:
        update["finished_at"] = times.text(observed.now)
        update["estimated_end"] = None
    elif spec.suspend != (state == "Paused"):
        actions = (Pause(observed.meta.uid, spec.suspend),)
    if state in FINAL:
        again = IDLE_SECONDS
    else:
        again = SOON_SECONDS if actions else summary.pause(observed.driver, moves=found.state == "Running")
    asks: Asks = "moving" if found.state == "Running" else "steady"
    return replace(_write(observed, state, readiness, update, actions=actions, again=again), asks=asks)


def _assess(found: SnapshotStatus, executors_missing: str) -> Assessed:
    fault = found.fault
    why = error_line(fault.name, fault.message, fault.fix) if fault is not None else ""
    waits = why or executors_missing
    match found.state:
        case "Completed":
            return "Completed", Readiness("True", Reason.COMPLETED, _completed(found))
        case "Failed":
            what = "snapshot" if found.rewind is None else "rewind"
            return "Failed", Readiness("False", Reason.FAILED, why or f"the {what} failed.", stuck=True)
        case "Stopped":
            return "Cancelled", Readiness("False", Reason.CANCELLED, CANCELLED, stuck=True)
        case "Paused":
            return "Paused", Readiness("True", Reason.PAUSED, "Paused; rows already read are kept.")
        case "Pending":
            return "Running", Readiness("True", Reason.RUNNING, waits or "Accepted; waiting to start.")
        case "Running":
            return "Running", Readiness("True", Reason.RUNNING, waits)


def _completed(found: SnapshotStatus) -> str:
    if found.rewind is not None:
        moment = f"cut {found.rewind.cut} (record {found.rewind.record})"
        stay = "they stay there while the Replicator's apply.suspend is true"
        tables = counted(found.tables_done, "table is", "tables are")
        return f"Rewound: {tables} back at {moment}; {stay}."
    if not found.verify:
        return "Snapshot completed."
    wrong = [table for table in found.tables if table.compared is not None and table.compared.differences]
    if not wrong:
        undecided = sum(table.compared.undecided for table in found.tables if table.compared is not None)
        if undecided:
            rows = counted(undecided, "row that changed meanwhile was", "rows that changed meanwhile were")
            return f"Verified: no row differs; {rows} not decided."
        return (
            "Verified: every row is equal." if found.sample is None else "Verified: every row of the sample is equal."
        )
    names = ", ".join(table.name for table in wrong[:MAX_WORST])
    rows = counted(_differences(found), "row is", "rows are")
    return f"Verified: {rows} not the source's, in {names}."


def _differences(found: SnapshotStatus) -> int:
    return sum(table.compared.differences for table in found.tables if table.compared is not None)


def _progress(observed: ObservedRequest, found: SnapshotStatus) -> dict[str, Any]:
    chunks = count(sum(t.chunks_done for t in found.tables))
    done = found.state == "Completed"
    seconds = left(found.seconds_left) if found.state == "Running" else None
    bad_first = sorted(found.tables, key=lambda t: (t.fault is None, t.finished, not t.running, t.name))
    answer = observed.answer
    return {
        "record": observed.status.record or (answer.record if answer is not None else None),
        "progress": summary.percentage(found.rows_done, found.rows_estimated, done),
        "tables_summary": f"{found.tables_done}/{found.tables_total}",
        "tables_done": count(found.tables_done),
        "tables_total": count(found.tables_total),
        "chunks_done": chunks,
        "chunks_estimated": _chunks(chunks, found),
        "rows_done": count(found.rows_done),
        "rows_estimated": count(found.rows_estimated),
        "rows_per_second": rate(found.rows_per_second),
        "differences": count(_differences(found)) if found.verify else None,
        "estimated_end": times.text(observed.now + seconds) if seconds is not None else None,
        "started_at": observed.status.started_at or times.text(observed.now),
        "tables": tuple(_table(t) for t in bad_first[:MAX_WORST]),
        "truncated": len(found.tables) > MAX_WORST,
        "last_error": summary.fault(found.fault) or observed.status.last_error,
    }


def _chunks(done: int, found: SnapshotStatus) -> int:
    """The estimated number of chunks, by the rows per chunk so far: chunks are cut while the snapshot runs."""
    if found.state == "Completed" or not found.rows_done:
        return done
    return count(max(-(-done * found.rows_estimated // found.rows_done), done))


def _table(table: SnapshotTableProgress) -> RequestTable:
    return RequestTable(
        name=table.name[:256],
        chunks_done=count(table.chunks_done),
        rows_done=count(table.rows_done),
        rows_estimated=count(table.rows_estimated),
        finished=table.finished,
        fault=summary.fault(table.fault),
    )


# ---- the end ----


def _finished(observed: ObservedRequest) -> Decision[SnapshotRequestStatus]:
    """Nothing is left to cancel: no finalizer; the generation is followed (a user may still change `suspend`)."""
    rest = tuple(f for f in observed.meta.finalizers if f != FINALIZER)
    actions = (SetFinalizers(rest),) if rest != observed.meta.finalizers else ()
    old = observed.status
    moved = tuple(c.model_copy(update={"observed_generation": observed.meta.generation}) for c in old.conditions)
    status = old.model_copy(
        update={
            "observed_generation": observed.meta.generation,
            "message_summary": clause(old.message) or None,  # of an older operator's request, too
            "conditions": moved,
        }
    )
    return Decision(status, actions, again=IDLE_SECONDS)


def _delete(observed: ObservedRequest, limits: Limits) -> Decision[SnapshotRequestStatus]:
    if FINALIZER not in observed.meta.finalizers:
        return Decision(observed.status)
    rest = tuple(f for f in observed.meta.finalizers if f != FINALIZER)
    release = Decision(observed.status, (SetFinalizers(rest),), again=SOON_SECONDS)
    active = observed.snapshot is not None and observed.snapshot.state in summary.UNDER_WAY
    reachable = observed.driver.status is not None and observed.driver.silent_since is None
    if observed.status.state in FINAL or not observed.replicator or observed.replicator_idle is not None:
        # Should the driver still have it, the Replicator's own rounds stop snapshots that nobody wants any more.
        return release
    if reachable and not active:
        return release
    begun = times.seconds(observed.status.deletion_started_at) or observed.now
    if observed.now - begun >= limits.cancel_seconds:
        late = EmitEvent(
            "Warning",
            "CancelLater",
            "The driver could not be reached to stop the snapshot; it is stopped once the driver answers.",
        )
        return Decision(observed.status, (SetFinalizers(rest),), (late,), again=SOON_SECONDS)
    readiness = Readiness("False", Reason.DELETING, "The snapshot is being cancelled.", progress=True)
    update = {"deletion_started_at": observed.status.deletion_started_at or times.text(observed.now)}
    actions = (Cancel(observed.meta.uid),) if reachable else ()
    return _write(observed, observed.status.state, readiness, update, actions=actions, again=SOON_SECONDS)


def _write(
    observed: ObservedRequest,
    state: RequestState,
    readiness: Readiness,
    update: dict[str, Any],
    *,
    actions: tuple[Action, ...] = (),
    again: float,
) -> Decision[SnapshotRequestStatus]:
    generation, before = observed.meta.generation, observed.status
    complete: Truth = "True" if state == "Completed" else "False"
    reason = Reason.COMPLETED if state == "Completed" else Reason.NOT_COMPLETED
    paused = state == "Paused"
    over = state in ("Failed", "Cancelled")
    claims = [
        *readiness.claims(),
        Claim("Complete", complete, reason),
        Claim("Failed", "True" if over else "False", readiness.reason if over else Reason.NOT_FAILED),
        Claim("Suspended", "True" if paused else "False", Reason.PAUSED if paused else Reason.NOT_SUSPENDED),
    ]
    fixed = {
        "observed_generation": generation,
        "state": state,
        "message": sentence(readiness.message),
        "message_summary": clause(readiness.message) or None,
        "conditions": conditions(claims, before.conditions, generation, observed.now),
    }
    status = before.model_copy(update={**update, **fixed})
    was = next((c.reason for c in before.conditions if c.type == "Ready"), None)
    changed = was != readiness.reason.value
    text = readiness.message or f"the snapshot is {state}."
    event = EmitEvent("Warning" if readiness.stuck else "Normal", readiness.reason.value, sentence(text))
    events = (event,) if changed else ()
    return Decision(status, actions, events, again=again, intent=before.observed_generation < 0)
