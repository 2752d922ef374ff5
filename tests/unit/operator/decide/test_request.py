"""What the operator does about a SnapshotRequest, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, NOW, meta, reported, request
from tailrace.contract.driver import Problem
from tailrace.contract.status import (
    ApplyStatus,
    Fault,
    RewindStatus,
    SnapshotState,
    SnapshotStatus,
    SnapshotTableProgress,
)
from tailrace_operator.decide.model import Cancel, Pause, SetFinalizers, SubmitSnapshot
from tailrace_operator.decide.request import decide
from tailrace_operator.observe.model import FINALIZER, DriverAnswer, ObservedDriver, ObservedRequest
from tailrace_operator.status.models import SnapshotRequestStatus

UID = request().meta.uid


def snapshot(state: SnapshotState = "Running", **change: Any) -> SnapshotStatus:
    tables = (SnapshotTableProgress(name="public.orders", chunks_done=3, rows_done=300, rows_estimated=1000),)
    plain: dict[str, Any] = {"rows_done": 300, "rows_estimated": 1000, "tables_total": 1, "tables": tables}
    return SnapshotStatus(id=UID, reason="request", state=state, **{**plain, **change})


def truth(status: SnapshotRequestStatus, kind: str) -> str | None:
    return next((c.status for c in status.conditions if c.type == kind), None)


def deleted(**change: Any) -> ObservedRequest:
    return replace(request(), meta=replace(request().meta, deleted_at=NOW), **change)


def test_the_driver_is_asked_by_uid_and_only_once_it_has_taken_it() -> None:
    first = decide(request(), LIMITS)
    assert [a.snapshot_id for a in first.actions if isinstance(a, SubmitSnapshot)] == [UID]
    assert first.status.state == "Pending"
    second = decide(request(answer=DriverAnswer(accepted=True, record=17, at=NOW)), LIMITS)
    assert second.actions == ()
    assert second.status.record == 17


def test_a_driver_that_forgot_what_it_took_is_asked_again() -> None:
    decision = decide(request(answer=DriverAnswer(accepted=True, record=17, at=NOW - 61)), LIMITS)
    assert [type(a) for a in decision.actions] == [SubmitSnapshot]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"replicator": False}, "ReplicatorNotFound"),
        ({"replicator_idle": "it is suspended."}, "ReplicatorSuspended"),
        ({"driver": ObservedDriver()}, "ReplicatorNotReady"),
        ({"driver": ObservedDriver(reported(state="Starting"), NOW)}, "ReplicatorNotReady"),
        ({"driver": ObservedDriver(reported(tables_total=0), NOW)}, "ReplicatorNotReady"),
    ],
)
def test_without_a_driver_that_can_take_it_a_request_waits_and_says_why(change: dict[str, Any], reason: str) -> None:
    decision = decide(request(**change), LIMITS)
    assert decision.actions == ()
    assert next(c.reason for c in decision.status.conditions if c.type == "Ready") == reason
    assert truth(decision.status, "Reconciling") == "True"


@pytest.mark.parametrize("idle", ["CutOver: the cutover is done.", "it is suspended."])
def test_a_request_to_a_replicator_that_a_cutover_has_ended_does_not_seem_to_make_progress(idle: str) -> None:
    decision = decide(request(replicator_idle=idle, replicator_cut_over=True, driver=ObservedDriver()), LIMITS)
    assert decision.actions == () and decision.status.state == "Pending"
    assert truth(decision.status, "Reconciling") != "True" and truth(decision.status, "Stalled") == "True"
    assert next(c.reason for c in decision.status.conditions if c.type == "Ready") == "CutOver"
    assert "programs write to its tables" in decision.status.message
    assert decision.status.message.endswith("Delete this SnapshotRequest.")


def test_a_running_snapshot_is_ready_but_not_complete_and_shows_how_far_it_is() -> None:
    decision = decide(request(snapshot=snapshot(rows_per_second=10.0, seconds_left=70.0)), LIMITS)
    status = decision.status
    assert (truth(status, "Ready"), truth(status, "Complete")) == ("True", "False")
    assert (status.progress, status.tables_summary, status.chunks_estimated) == ("30%", "0/1", 10)
    assert status.estimated_end is not None


def test_a_running_snapshot_is_looked_at_every_second() -> None:
    running, paused = (decide(request(snapshot=snapshot(state)), LIMITS) for state in ("Running", "Pending"))
    assert (running.asks, running.again) == ("moving", 1.0)
    assert (paused.asks, paused.again) == ("steady", 2.0)


@pytest.mark.parametrize("state", ["Pending", "Running"])
def test_a_snapshot_that_no_executor_reads_says_so(state: SnapshotState) -> None:
    missing = "0 of 2 executors run; an executor cannot be scheduled: no node."
    decision = decide(request(snapshot=snapshot(state), executors_missing=missing), LIMITS)
    assert decision.status.message == missing and truth(decision.status, "Ready") == "True"
    fault = Fault(name="ReadRefused", message="no SELECT on public.orders")
    failing = decide(request(snapshot=snapshot(state, fault=fault), executors_missing=missing), LIMITS)
    assert failing.status.message.startswith("ReadRefused: "), "its own fault comes first"


def test_a_snapshot_whose_driver_went_silent_or_away_is_not_told_as_running() -> None:
    runs = decide(request(snapshot=snapshot(rows_per_second=10.0, seconds_left=70.0)), LIMITS).status
    silent = ObservedDriver(reported(), answered_at=NOW, silent_since=NOW + 10, error="TimeoutError")
    late = request(snapshot=snapshot(), status=runs, driver=silent)
    assert decide(replace(late, now=NOW + 11), LIMITS).status.state == "Running", "one answer may be late"
    for gone in (replace(late, now=NOW + 25), replace(late, snapshot=None, driver=ObservedDriver())):
        status = decide(gone, LIMITS).status
        assert (status.state, truth(status, "Ready"), truth(status, "Reconciling")) == ("Pending", "False", "True")
        assert (status.rows_per_second, status.estimated_end, status.rows_done) == (0.0, None, 300)


def test_suspend_pauses_and_unsuspend_resumes() -> None:
    spec = {**request().spec, "suspend": True}
    assert decide(request(spec=spec, snapshot=snapshot()), LIMITS).actions == (Pause(UID, True),)
    paused = decide(request(spec=spec, snapshot=snapshot("Paused")), LIMITS)
    assert (paused.actions, paused.status.state) == ((), "Paused")
    assert decide(request(snapshot=snapshot("Paused")), LIMITS).actions == (Pause(UID, False),)


@pytest.mark.parametrize("code", [409, 422])
def test_a_refused_request_has_failed_for_good_and_names_the_fix(code: int) -> None:
    problem = Problem(name="InvalidManifest", message="no table matches public.x", fix="Correct tables.")
    decision = decide(request(answer=DriverAnswer(accepted=False, problem=problem, code=code)), LIMITS)
    assert decision.status.state == "Failed"
    assert truth(decision.status, "Stalled") == truth(decision.status, "Failed") == "True"
    assert decision.status.last_error is not None and decision.status.last_error.fix == "Correct tables."
    after = decide(request(status=decision.status), LIMITS)
    assert after.actions == (SetFinalizers(()),)
    assert after.status.state == "Failed"


def test_a_busy_driver_is_asked_again() -> None:
    problem = Problem(name="Retry", message="capture restarts")
    decision = decide(request(answer=DriverAnswer(accepted=False, problem=problem, code=503)), LIMITS)
    assert [type(a) for a in decision.actions] == [SubmitSnapshot]
    assert "capture restarts" in decision.status.message


@pytest.mark.parametrize(
    ("state", "word", "ready"),
    [("Completed", "Completed", "True"), ("Failed", "Failed", "False"), ("Stopped", "Cancelled", "False")],
)
def test_the_end_is_told_and_stays(state: SnapshotState, word: str, ready: str) -> None:
    fault = Fault(name="ReadRefused", message="no SELECT on public.orders", fix="GRANT it.")
    decision = decide(request(snapshot=snapshot(state, fault=fault if state == "Failed" else None)), LIMITS)
    assert (decision.status.state, truth(decision.status, "Ready")) == (word, ready)
    assert decision.status.finished_at is not None
    complete, failed = truth(decision.status, "Complete"), truth(decision.status, "Failed")
    assert (complete, failed) == (("True", "False") if word == "Completed" else ("False", "True")), "one of the two"
    later = decide(request(status=decision.status, meta=meta(generation=2, finalizers=())), LIMITS)
    assert (later.status.state, later.actions, later.status.observed_generation) == (word, (), 2)


def test_a_table_that_fails_is_named_first() -> None:
    tables = tuple(SnapshotTableProgress(name=f"public.t{n}") for n in range(25))
    bad = SnapshotTableProgress(name="public.z", fault=Fault(name="ReadRefused", message="no right"))
    decision = decide(request(snapshot=snapshot(tables=(*tables, bad))), LIMITS)
    assert decision.status.tables[0].name == "public.z"
    assert decision.status.truncated and len(decision.status.tables) == 20


def test_deleting_a_running_request_cancels_it_and_then_lets_go() -> None:
    first = decide(deleted(snapshot=snapshot()), LIMITS)
    assert first.actions == (Cancel(UID),)
    second = decide(deleted(snapshot=snapshot("Stopped"), status=first.status), LIMITS)
    assert second.actions == (SetFinalizers(()),)


@pytest.mark.parametrize(
    ("change", "asked"), [({"driver": ObservedDriver()}, ()), ({"snapshot": snapshot()}, (Cancel(UID),))]
)
def test_a_driver_that_is_away_or_cannot_cancel_holds_up_a_deletion_for_a_minute_only(
    change: dict[str, Any], asked: tuple[Cancel, ...]
) -> None:
    """Its storage may be down for a day, its token may be another; the Replicator's own rounds go on asking."""
    first = decide(deleted(**change), LIMITS)
    soon = decide(deleted(**change, status=first.status, now=NOW + 30), LIMITS)
    assert first.actions == soon.actions == asked
    later = decide(deleted(**change, status=first.status, now=NOW + 61), LIMITS)
    assert later.actions == (SetFinalizers(()),)
    assert later.events[0].reason == "CancelLater"


@pytest.mark.parametrize("change", [{"replicator": False}, {"replicator_idle": "it is suspended."}])
def test_without_a_driver_to_come_a_deletion_is_not_held_up(change: dict[str, Any]) -> None:
    assert decide(deleted(driver=ObservedDriver(), **change), LIMITS).actions == (SetFinalizers(()),)


def test_an_invalid_spec_is_named_and_nothing_is_asked() -> None:
    decision = decide(request(spec={"replicator": "shop", "tables": []}), LIMITS)
    assert decision.actions == ()
    assert "tables" in decision.status.message
    assert truth(decision.status, "Stalled") == "True"


def test_the_finalizer_comes_before_the_driver_is_asked() -> None:
    decision = decide(request(meta=replace(request().meta, finalizers=())), LIMITS)
    assert decision.actions == (SetFinalizers((FINALIZER,)),)


REWIND = {**request().spec, "mode": "Rewind", "rewind": {"toCut": "noon"}}


def test_a_rewind_waits_until_the_driver_has_suspended_its_target() -> None:
    waits = decide(request(spec=REWIND, target_suspended=True), LIMITS)
    assert (waits.actions, waits.status.state) == ((), "Pending")
    assert waits.status.message.endswith("to suspend its target.") and waits.again <= 5
    still = ObservedDriver(reported(apply=ApplyStatus(suspended=True)), NOW)
    older = ObservedDriver(reported(generation=4), NOW)
    applied = decide(request(spec=REWIND, driver=older, replicator_generation=5), LIMITS)
    assert applied.actions == () and applied.status.message.endswith("to take over generation 5.")
    heard = request(spec=REWIND, driver=older, replicator_generation=4)
    assert [type(a) for a in decide(heard, LIMITS).actions] == [SubmitSnapshot]
    for seen in (request(spec=REWIND, target_suspended=True, driver=still), request(spec=REWIND)):
        assert [type(a) for a in decide(seen, LIMITS).actions] == [SubmitSnapshot], "the driver refuses it by name"


def test_the_texts_of_a_rewind() -> None:
    back = RewindStatus(cut="noon", record=17)
    done = decide(request(spec=REWIND, snapshot=snapshot("Completed", rewind=back, tables_done=1)), LIMITS)
    assert done.status.message.startswith("Rewound: 1 table is back at cut noon (record 17); they stay there")
    assert truth(done.status, "Complete") == "True"
    fault = Fault(name="RewindRefused", message="version 7 is gone", fix="Choose a later cut.")
    failed = decide(request(spec=REWIND, snapshot=snapshot("Failed", rewind=back, fault=fault)), LIMITS)
    assert (failed.status.state, failed.status.message) == (
        "Failed",
        "RewindRefused: version 7 is gone. Fix: Choose a later cut.",
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("Completed", "Snapshot completed."),
        ("Pending", "Accepted; waiting to start."),
        ("Stopped", "Stopped on request, by `tailrace stop` or a signal."),
    ],
)
def test_the_texts_of_a_request(state: SnapshotState, text: str) -> None:
    assert decide(request(snapshot=snapshot(state)), LIMITS).status.message == text
