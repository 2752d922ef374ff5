"""Conditions that do not feed Ready: the lag, the initial snapshots, the tables."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, NOW, SPEC, condition, emitted, kinds, reason, reported, running, template, verdict
from tailrace.contract.status import (
    ApplyStatus,
    Assessment,
    CaptureStatus,
    ComparedRows,
    CutoverStatus,
    CutsStatus,
    Fault,
    FollowerReport,
    NulledColumn,
    ObjectiveStatus,
    SnapshotStatus,
    Status,
    TableStatus,
    Verification,
)
from tailrace_operator.decide.model import Decision
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import ObservedDriver, ObservedReplicator
from tailrace_operator.status.models import ReplicatorStatus

NO_KEY = Fault(name="NoKey", message="public.b has no primary key", fix="Add one.", where="source")
STOPPED = TableStatus(name="public.b", state="STOPPED", fault=NO_KEY, read=False)
WELL = TableStatus(name="public.a", state="REPLICATING", lag_seconds=0.0, read=True)
QUICK = CaptureStatus(alive=True, lag_seconds=0.0)


def tables(*found: TableStatus, **change: Any) -> Status:
    bad = [t for t in found if t.state in ("FAILING", "STOPPED")]
    working = [t.lag_seconds for t in found if t not in bad and t.lag_seconds is not None]
    plain: dict[str, Any] = {
        "state": "Failing" if bad else "Running",
        "tables": found,
        "tables_total": len(found),
        "tables_failing": len(bad),
        "tables_replicating": sum(t.state == "REPLICATING" for t in found),
        "capture": QUICK,
        "apply": ApplyStatus(lag_seconds=max(working, default=None)),
    }
    return reported(**{**plain, **change})


def truths(status: ReplicatorStatus) -> dict[str, str]:
    return {c.type: c.status for c in status.conditions}


# ---- the lag ----


def test_the_lag_is_unknown_while_every_table_is_stopped() -> None:
    decision = decide(running(tables(STOPPED)), LIMITS)
    assert decision.status.lag is None, "capture is in_process, but nothing arrives"
    found = truths(decision.status)
    assert (found["Lagging"], found["SLOMet"]) == ("Unknown", "False")
    well = decide(running(tables(WELL)), LIMITS)
    assert (well.status.lag, truths(well.status)["Lagging"]) == ("0.0s", "False")


def test_the_lag_is_unknown_while_capture_does_not_answer() -> None:
    decision = decide(running(tables(WELL, capture=CaptureStatus())), LIMITS)
    assert decision.status.lag is None and "Lagging" not in kinds(decision)


def test_a_promise_that_is_not_kept_is_a_reason_to_lag_and_not_an_error() -> None:
    why = "1 of 1 tables are late, by up to 9 s, and apply.freshness promises 5 s: the commits take longer than that"
    late = tables(WELL, apply=ApplyStatus(lag_seconds=9.0, freshness_missed=why))
    decision = decide(running(late), LIMITS)
    told = condition(decision, "Lagging")
    assert (told.status, told.reason, told.message) == ("True", "FreshnessMissed", f"1{why[1:]}.")
    assert truths(decision.status)["Ready"] == "True"
    much = tables(WELL, apply=ApplyStatus(lag_seconds=1000.0, freshness_missed=why))
    assert condition(decide(running(much), LIMITS), "Lagging").reason == "LagHigh"


# ---- what was assessed before the first start ----


@pytest.mark.parametrize(
    ("change", "why", "part"),
    [
        ({}, "AllExact", "12 of 12 tables can be copied; the first snapshot reads some 2,000,000 rows, in about 3m"),
        ({"inexact_columns": 3}, "ColumnsNotExact", "3 columns are not copied exactly"),
        ({"inexact_columns": 1}, "ColumnsNotExact", "1 column is not copied exactly"),
        ({"copied": 11, "refused": ("public.b: no key",)}, "TablesNotCopied", "not copied: public.b: no key"),
    ],
)
def test_the_assessment_is_told_and_stays_when_another_driver_no_longer_tells_it(
    change: dict[str, Any], why: str, part: str
) -> None:
    plain = {"at": NOW, "tables": 12, "copied": 12, "rows": 2_000_000, "seconds": 180.0}
    first = decide(running(tables(WELL, assessment=Assessment.model_validate({**plain, **change}))), LIMITS)
    told = condition(first, "Assessed")
    assert (told.status, told.reason) == ("True", why) and part in told.message
    later = decide(replace(running(tables(WELL)), status=first.status), LIMITS)
    assert condition(later, "Assessed") == told


# ---- one table among many ----


def test_a_table_that_fails_beside_others_degrades_and_does_not_hold_up_a_sync() -> None:
    decision = decide(running(tables(WELL, STOPPED)), LIMITS)
    assert (decision.status.state, reason(decision)) == ("Degraded", "Degraded")
    assert truths(decision.status)["Ready"] == "True" and "Reconciling" not in kinds(decision)
    healthy = condition(decision, "TablesHealthy")
    assert (healthy.status, healthy.reason) == ("False", "TablesStopped")
    assert "Not replicating: 1 of 2 tables (0 failing, 1 stopped); first public.b: NoKey: " in healthy.message
    assert "Add one." in healthy.message
    assert emitted(decision) == [("Warning", "Degraded")]
    assert truths(decide(running(tables(WELL)), LIMITS).status)["TablesHealthy"] == "True"


def test_a_table_that_stops_after_others_is_told_by_an_event_with_its_error_and_one_cause_once() -> None:
    def stopped(name: str, error: str, message: str) -> TableStatus:
        fault = Fault(name=error, message=message, fix="Do it.", where="target")
        return TableStatus(name=name, state="STOPPED", fault=fault, read=True)

    first = decide(running(tables(WELL, STOPPED)), LIMITS)
    changed = stopped("public.c", "TargetChanged", "public.c was replaced")
    second = decide(replace(running(tables(WELL, STOPPED, changed)), status=first.status), LIMITS)
    assert emitted(second) == [("Warning", "TablesStopped")]
    assert second.events[0].message == "public.c is stopped: TargetChanged: public.c was replaced. Fix: Do it."
    again = decide(replace(running(tables(WELL, STOPPED, changed)), status=second.status), LIMITS)
    assert emitted(again) == []
    full = [stopped(f"public.{n}", "StorageFull", f"no room at /lake/public/{n}") for n in "def"]
    known = second.status
    told = []
    for some in (full[:2], full):
        decision = decide(replace(running(tables(WELL, STOPPED, changed, *some)), status=known), LIMITS)
        known = decision.status
        told += [event.message for event in decision.events]
    assert told == ["2 more tables are stopped, first public.d: StorageFull: no room at /lake/public/d. Fix: Do it."]


def test_a_stop_beyond_those_that_the_status_lists_is_told_and_none_twice() -> None:
    def stopped(number: int, error: str = "TargetChanged") -> TableStatus:
        fault = Fault(name=error, message=f"t{number:02} was replaced", fix="Resync it.", where="target")
        return TableStatus(name=f"public.t{number:02}", state="STOPPED", fault=fault, read=True)

    known = decide(running(tables(WELL, *map(stopped, range(1, 20)))), LIMITS).status

    def told(*found: TableStatus) -> list[str]:
        nonlocal known
        decision = decide(replace(running(tables(WELL, *found)), status=known), LIMITS)
        known = decision.status
        assert {event.reason for event in decision.events} <= {"TablesStopped"}
        return [event.message for event in decision.events]

    twenty = [stopped(number) for number in range(1, 21)]
    assert told(*twenty) == ["public.t20 is stopped: TargetChanged: t20 was replaced. Fix: Resync it."]
    assert told(*twenty, stopped(21)) == ["public.t21 is stopped: TargetChanged: t21 was replaced. Fix: Resync it."]
    assert told(*twenty, stopped(21)) == []
    assert told(*twenty, stopped(21), stopped(22)) == ["1 more table is stopped."]
    assert told(*twenty, stopped(21), stopped(22), stopped(0)) == [
        "public.t00 is stopped: TargetChanged: t00 was replaced. Fix: Resync it."
    ]
    assert told(*twenty[1:], stopped(21), stopped(22), stopped(0)) == [], "t01 is well: the list names an old one now"
    assert told(*twenty[2:], stopped(21), stopped(22), stopped(0), stopped(1)) == [
        "public.t01 is stopped: TargetChanged: t01 was replaced. Fix: Resync it."
    ], "as many as before, and one of them would have been listed"
    full = [stopped(number, "StorageFull") for number in range(50, 60)]
    assert told(*twenty[2:], stopped(0), stopped(1), stopped(21), stopped(22), *full) == ["10 more tables are stopped."]
    assert told(*twenty[2:], stopped(0), stopped(1), stopped(21), stopped(22), *full) == []


def test_a_stop_that_a_driver_told_before_it_fell_silent_is_no_news() -> None:
    known = decide(running(tables(WELL, STOPPED)), LIMITS).status
    other = TableStatus(name="public.c", state="STOPPED", fault=NO_KEY.model_copy(update={"message": "no key"}))
    silent = running(tables(WELL, STOPPED, other))
    silent = replace(silent, status=known, driver=replace(silent.driver, silent_since=NOW - 1))
    assert decide(silent, LIMITS).events == ()


def test_a_stop_is_told_in_the_look_in_which_another_ends() -> None:
    first = decide(running(tables(WELL, STOPPED)), LIMITS).status
    other = TableStatus(name="public.c", state="STOPPED", fault=NO_KEY.model_copy(update={"message": "no key"}))
    later = decide(replace(running(tables(WELL, other)), status=first), LIMITS)
    assert [event.message for event in later.events] == ["public.c is stopped: NoKey: no key. Fix: Add one."]


def test_an_objective_is_met_while_enough_changes_were_in_time_and_no_table_fails() -> None:
    def with_objective(met: float, *found: TableStatus) -> ReplicatorStatus:
        left = 1 - (100 - met) / (100 - 99)
        asked = ObjectiveStatus(within_seconds=10, percent=99, met_percent=met, remaining=left)
        return decide(running(tables(*found, objective=asked)), LIMITS).status

    well, missed = with_objective(99.75, WELL), with_objective(98.5, WELL)
    assert (truths(well)["SLOMet"], well.objective) == ("True", "99.75% (99% within 10s), 75% left")
    assert (truths(missed)["SLOMet"], missed.objective) == ("False", "98.50% (99% within 10s), 0% left")
    told = next(c for c in missed.conditions if c.type == "SLOMet")
    assert told.message == "Fewer than 99% of the changes became visible within 10s."
    assert truths(with_objective(99.75, WELL, STOPPED))["SLOMet"] == "False"
    slow = WELL.model_copy(update={"lag_seconds": 1000.0})
    assert truths(with_objective(99.75, slow))["SLOMet"] == "True", "one late moment is not the window"


def test_rows_that_differ_from_the_source_are_told_until_a_verification_finds_none() -> None:
    def after(status: ReplicatorStatus, missing: int) -> Decision[ReplicatorStatus]:
        found = Verification(snapshot="v", at=NOW, record=4, compared=ComparedRows(rows=10, missing=missing))
        verified = WELL.model_copy(update={"verified": found})
        other = WELL.model_copy(update={"name": "public.b"})
        return decide(replace(running(tables(verified, other)), status=status), LIMITS)

    assert "Verified" not in truths(decide(running(tables(WELL)), LIMITS).status), "nothing was compared"
    first = after(running(tables(WELL)).status, 2)
    told = condition(first, "Verified")
    assert (told.status, told.reason) == ("False", "CopyDiffers")
    assert "in 1 of 1 tables (public.a)" in told.message and "mode Repair" in told.message
    assert ("Warning", "CopyDiffers") in emitted(first)
    again = after(first.status, 3)
    assert not [e for e in again.events if e.reason == "CopyDiffers"] and condition(again, "Verified") == told
    away = decide(replace(running(), driver=ObservedDriver(), status=again.status), LIMITS)
    assert condition(away, "Verified") == told, "it stays so while no driver tells"
    well = condition(after(away.status, 0), "Verified")
    assert (well.status, well.reason) == ("True", "CopyEqual") and "1 of 2 tables" in well.message


def test_the_last_cut_is_in_the_status() -> None:
    cuts = CutsStatus(kept=96, last="20261128_120000", made=NOW, complete=True)
    found = decide(running(tables(WELL).model_copy(update={"cuts": cuts})), LIMITS).status.cuts
    assert found is not None
    assert (found.kept, found.last, found.complete, found.made_at is None) == (96, "20261128_120000", True, False)
    assert decide(running(tables(WELL)), LIMITS).status.cuts is None


def test_the_obstacle_of_a_cutover_is_said() -> None:
    waits = CutoverStatus(message="waiting: a session may write")
    refused = CutoverStatus(message="verifying", fault=Fault(name="CutoverRefused", message="no", fix="Wait."))
    for found, said in ((waits, waits.message), (refused, "CutoverRefused: no. Fix: Wait."), (None, None)):
        driver = running(tables(WELL).model_copy(update={"cutover": found}))
        assert decide(driver, LIMITS).status.cutover == said


def test_values_that_became_null_are_told_once_for_each_column_and_hold_up_nothing() -> None:
    def after(status: ReplicatorStatus, table: TableStatus) -> Decision[ReplicatorStatus]:
        return decide(replace(running(tables(table)), status=status), LIMITS)

    well = decide(running(tables(WELL)), LIMITS)
    assert truths(well.status)["ValuesCopied"] == "True"
    first = after(well.status, with_nulled(WELL, until=3))
    told = condition(first, "ValuesCopied")
    assert (told.status, told.reason) == ("False", "ValuesNulled")
    assert "in 1 of 1 tables (public.a: until)" in told.message and "spec.options[].as" in told.message
    assert truths(first.status)["Ready"] == "True"
    assert emitted(first) == [("Warning", "ValuesNulled")]
    more = after(first.status, with_nulled(WELL, until=4))
    assert more.events == () and condition(more, "ValuesCopied") == told, "nothing is written because a number grew"
    away = decide(replace(running(), driver=ObservedDriver(), status=more.status), LIMITS)
    assert condition(away, "ValuesCopied") == told, "it stays so while no driver tells"
    assert not [e for e in after(away.status, with_nulled(WELL, until=4)).events if e.reason == "ValuesNulled"]
    again = after(more.status, with_nulled(WELL, until=4, total=1))
    assert len(again.events) == 1 and "public.a: until, total" in again.events[0].message


def with_nulled(table: TableStatus, **columns: int) -> TableStatus:
    nulled = tuple(NulledColumn(column=column, values=values) for column, values in columns.items())
    return table.model_copy(update={"nulled": nulled})


def test_where_it_is_asked_for_a_failing_table_is_not_ready() -> None:
    strict = {**SPEC, "onTableFailure": "NotReady"}
    decision = decide(running(tables(WELL, STOPPED), spec=strict), LIMITS)
    assert (truths(decision.status)["Ready"], reason(decision)) == ("False", "TablesFailing")
    assert "Stalled" not in kinds(decision)
    assert truths(decision.status)["TablesHealthy"] == "False"


@pytest.mark.parametrize("policy", ["Degrade", "NotReady"])
def test_all_tables_stopped_are_a_persons_to_cure(policy: str) -> None:
    decision = decide(running(tables(STOPPED), spec={**SPEC, "onTableFailure": policy}), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled.reason == "TablesStopped" and "Add one." in stalled.message
    assert (decision.status.state, truths(decision.status)["Ready"]) == ("Failing", "False")


def test_a_table_that_only_waits_is_no_table_that_works() -> None:
    """The target is away: what still waits does not work either, it has only not been tried."""
    away = Fault(name="Retry", message="503", where="target")
    failing = TableStatus(name="public.a", state="FAILING", fault=away, read=True)
    waits = TableStatus(name="public.b", state="WAITING", lag_seconds=0.0, read=False)
    decision = decide(running(tables(failing, waits)), LIMITS)
    assert (truths(decision.status)["Ready"], decision.status.state) == ("False", "Failing")
    assert decision.status.lag is None and truths(decision.status)["Lagging"] == "Unknown"
    first = decide(running(tables(waits)), LIMITS)
    assert first.status.lag is None and "Lagging" not in kinds(first), "nothing has arrived yet"


def test_tables_that_are_all_retried_come_right_by_themselves() -> None:
    retried = replace_state(STOPPED, "FAILING")
    decision = decide(running(tables(retried)), LIMITS)
    assert truths(decision.status)["Ready"] == "False" and "Stalled" not in kinds(decision)
    assert reason(decision) == "SourceUnreachable"


def replace_state(table: TableStatus, state: str) -> TableStatus:
    return TableStatus.model_validate({**table.model_dump(), "state": state})


def test_what_a_failing_table_means_is_no_part_of_the_drivers_template() -> None:
    """Also what an operator knows that is newer than the Replicator, whose spec it fills with its default."""
    plain = running()
    for policy in ("Degrade", "NotReady"):
        other = replace(plain, spec={**SPEC, "onTableFailure": policy})
        assert template(other) == template(plain)
        documents = [a for a in decide(other, LIMITS).actions if "StatefulSet" in str(a)]
        assert not documents
    strict = decide(replace(plain, spec={**SPEC, "onTableFailure": "NotReady"}), LIMITS)
    assert "onTableFailure" not in str(strict.actions), "a driver of an older image refuses what it does not know"


def test_with_an_invalid_spec_what_it_says_of_failing_tables_counts() -> None:
    odd = {**SPEC, "retry": {"time": "soon"}, "onTableFailure": "NotReady"}
    observed = running(tables(WELL, STOPPED), spec=odd, running_spec=SPEC)
    assert decide(observed, LIMITS).status.state == "Running", "the invalid spec comes first"


# ---- the initial snapshots ----


def after(before: ObservedReplicator, status: Status | None) -> ReplicatorStatus:
    """The next status, when the driver says `status`; None: it does not answer yet."""
    driver = ObservedDriver(status, NOW) if status is not None else ObservedDriver()
    return decide(replace(before, driver=driver), LIMITS).status


def initial(state: str) -> SnapshotStatus:
    return SnapshotStatus.model_validate({"id": "initial-1", "reason": "initial", "state": state})


@pytest.mark.parametrize("told", [True, None])
def test_completed_initial_snapshots_stay_so_through_a_restart(told: bool | None) -> None:
    """`told` None: by a driver of an older image."""
    read = WELL.model_copy(update={"read": told})
    begun = running(tables(read))
    done = decide(begun, LIMITS).status
    assert truths(done)["InitialSnapshotCompleted"] == "True"
    later = replace(begun, status=done)
    unopened = replace_state(read, "WAITING")
    for said in (None, reported(state="Starting", tables_total=0), tables(unopened, state="Starting")):
        later = replace(later, status=after(later, said))
        assert truths(later.status)["InitialSnapshotCompleted"] == "True", said
    since = [c.last_transition_time for c in later.status.conditions if c.type == "InitialSnapshotCompleted"]
    assert since == [c.last_transition_time for c in done.conditions if c.type == "InitialSnapshotCompleted"]


def test_initial_snapshots_are_not_completed_before_a_table_has_been_read() -> None:
    waits = TableStatus(name="public.a", state="WAITING", read=False)
    under_way = replace_state(waits, "SNAPSHOTTING")
    assert truths(decide(running(tables(waits)), LIMITS).status)["InitialSnapshotCompleted"] == "False"
    reading = tables(under_way, snapshots=(initial("Running"),))
    assert truths(decide(running(reading), LIMITS).status)["InitialSnapshotCompleted"] == "False"


def test_initial_snapshots_are_completed_once_every_table_replicates() -> None:
    """`TABLES 1/2` does not stand beside a snapshot that is said to be completed."""
    read = TableStatus(name="public.b", state="SNAPSHOTTING", read=True)
    begun = running(tables(WELL, read))
    early = decide(begun, LIMITS).status
    assert (early.tables_summary, truths(early)["InitialSnapshotCompleted"]) == ("1/2", "False")
    late = after(replace(begun, status=early), tables(WELL, replace_state(read, "REPLICATING")))
    assert (late.tables_summary, truths(late)["InitialSnapshotCompleted"]) == ("2/2", "True")
    again = after(replace(begun, status=late), tables(WELL, read))
    assert truths(again)["InitialSnapshotCompleted"] == "True", "a SnapshotRequest reads it again"


def test_initial_snapshots_are_not_completed_while_the_target_takes_no_rows() -> None:
    """All is read, and nothing of it has arrived."""
    away = Fault(name="Retry", message="503", where="target")
    failing = TableStatus(name="public.b", state="FAILING", fault=away, read=True)
    begun = running(tables(failing))
    early = decide(begun, LIMITS).status
    assert truths(early)["InitialSnapshotCompleted"] == "False"
    late = after(replace(begun, status=early), tables(WELL))
    assert truths(late)["InitialSnapshotCompleted"] == "True"
    again = after(replace(begun, status=late), tables(failing))
    assert truths(again)["InitialSnapshotCompleted"] == "True", "what was done stays done"


def test_a_table_that_comes_later_is_read_before_they_are_completed_again() -> None:
    done = decide(running(tables(WELL)), LIMITS).status
    new = TableStatus(name="public.new", state="WAITING", read=False)
    assert truths(after(replace(running(), status=done), tables(WELL, new)))["InitialSnapshotCompleted"] == "False"


def test_a_change_log_of_an_older_version_that_does_not_know_what_was_read_takes_nothing_back() -> None:
    done = decide(running(tables(WELL)), LIMITS).status
    untold = tables(WELL.model_copy(update={"read": False}))
    assert truths(after(replace(running(), status=done), untold))["InitialSnapshotCompleted"] == "True"
    assert truths(decide(running(untold), LIMITS).status)["InitialSnapshotCompleted"] == "False"


@pytest.mark.parametrize("told", [False, None])
def test_a_failed_initial_snapshot_is_not_completed(told: bool | None) -> None:
    fault = Fault(name="SnapshotFailed", message="permission denied for table a", where="source")
    failed = TableStatus(name="public.a", state="FAILING", fault=fault, read=told)
    found = condition(
        decide(running(tables(failed, snapshots=(initial("Failed"),))), LIMITS), "InitialSnapshotCompleted"
    )
    assert found is not None and (found.status, found.reason) == ("False", "SnapshotFailed")
    assert "public.a" in found.message


def test_a_table_that_is_stopped_before_it_was_read_has_not_been_read() -> None:
    decision = decide(running(tables(WELL, STOPPED)), LIMITS)
    assert verdict(decision, "InitialSnapshotCompleted") == ("False", "SnapshotFailed")
    later = STOPPED.model_copy(update={"read": True})
    assert truths(decide(running(tables(WELL, later)), LIMITS).status)["InitialSnapshotCompleted"] == "True"


# ---- a driver that no longer answers ----


@pytest.mark.parametrize("silent", [5.0, 60.0])
def test_a_hung_driver_that_is_suspended_has_each_condition_once(silent: float) -> None:
    """The API server refuses a status with two of a type, and nothing is done before the status is written."""
    said = tables(WELL, capture=CaptureStatus(alive=True, lag_seconds=0.0, retained_bytes=20 << 30))
    driver = ObservedDriver(said, answered_at=NOW - silent, silent_since=NOW - silent + 1, error="TimeoutError")
    observed = replace(running(said, spec={**SPEC, "suspend": True}), driver=driver)
    decision = decide(replace(observed, status=decide(running(said), LIMITS).status), LIMITS)
    kinds = [c.type for c in decision.status.conditions]
    assert len(kinds) == len(set(kinds)), kinds
    assert ("Lagging" in kinds) == (silent < LIMITS.silent_seconds), "what it said a minute ago is no longer told"


# ---- effects of foreign keys ----


def test_children_whose_rows_are_to_be_read_again_are_named_while_they_are() -> None:
    late = WELL.model_copy(update={"name": "shop.lines", "converging_since": NOW - 90})
    later = late.model_copy(update={"name": "shop.notes", "converging_since": NOW - 10})
    found = condition(decide(running(tables(later, WELL, late)), LIMITS), "Converging")
    assert (found.status, found.reason) == ("True", "RowsReadAgain")
    assert "shop.lines since" in found.message and "and 1 more tables" in found.message
    assert "Converging" not in kinds(decide(running(tables(WELL)), LIMITS))


# ---- followers ----


def test_a_follower_for_which_the_log_is_kept_while_it_does_not_read_it_is_named() -> None:
    reads = FollowerReport(name="other/shop", record=7, renewed=NOW - 9, held=True)
    still = FollowerReport(name="mart/shop", record=5, renewed=1_764_374_400.0, held=True, silent=True)
    gone = FollowerReport(name="old/shop", record=2, renewed=NOW - 900_000, held=False)
    found = condition(decide(running(tables(WELL, followers=(reads,))), LIMITS), "FollowersReading")
    assert (found.status, found.reason, found.message) == ("True", "FollowersRead", "")
    found = condition(decide(running(tables(WELL, followers=(reads, still, gone))), LIMITS), "FollowersReading")
    assert (found.status, found.reason) == ("False", "FollowerSilent")
    assert found.message == (
        "Follower mart/shop has not read the change log since 2025-11-29 00:00:00Z, and what comes after record 5 is"
        " kept for it until 2025-12-06 00:00:00Z; follower old/shop has not read the change log for seven days, which"
        " is no longer kept for it; start it and run `tailrace resync --all` (in Kubernetes, a"
        " SnapshotRequest with resync: true and tables: ['*.*']), or delete its file in followers/."
    )
    assert "FollowersReading" not in kinds(decide(running(tables(WELL)), LIMITS))
