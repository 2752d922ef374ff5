"""What the operator does about a Replicator, case by case, on frozen observations."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from support.observed import (
    HASHES,
    LIMITS,
    MADE,
    NOW,
    OWN,
    SPEC,
    applied,
    condition,
    kinds,
    meta,
    observed,
    pod,
    reason,
    replicas,
    reported,
    running,
    verdict,
    with_driver,
)
from support.resources import template
from tailrace.contract.status import ApplyStatus, CaptureStatus, Fault, SnapshotStatus, Status, TableStatus
from tailrace.errors import Where
from tailrace_operator.decide.model import ApplyChild, Cancel, Delete, MakeSecret, SetFinalizers, TryPod
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import FINALIZER, ObservedDriver, Refusal
from tailrace_operator.resources import names
from tailrace_operator.status.load import known, load
from tailrace_operator.status.models import ReplicatorStatus

STATEFUL_SET = "StatefulSet/shop-driver"


def test_the_finalizer_comes_before_anything_that_has_to_be_cleaned_up() -> None:
    decision = decide(observed(meta=meta(finalizers=("other/one",))), LIMITS)
    assert decision.actions == (SetFinalizers(("other/one", FINALIZER)),)


def test_a_new_replicator_gets_its_secrets_before_the_driver_that_reads_them() -> None:
    without = {k: v for k, v in HASHES.items() if k not in OWN}
    decision = decide(observed(data_hashes=without, children={}), LIMITS)
    assert [a for a in decision.actions if isinstance(a, MakeSecret)] == [MakeSecret(n) for n in names.secrets("shop")]
    assert set(applied(decision.actions)) == {"ConfigMap", "ServiceAccount", "RoleBinding", "Service"}
    assert decision.intent, "what runs is recorded before it is made"
    foreign = decide(observed(children={}), LIMITS)
    assert replicas(foreign) is None, "a Secret of that name that is not ours is of no use"
    later = decide(observed(), LIMITS)
    assert replicas(later) == 1


def test_a_running_driver_is_left_alone_and_ready() -> None:
    decision = decide(running(), LIMITS)
    assert replicas(decision) is None
    assert (reason(decision), decision.status.state) == ("Streaming", "Running")
    assert "Reconciling" not in kinds(decision)
    assert decision.status.tables_summary == "2/2"


def test_another_version_of_the_operator_renders_differently_and_restarts_nothing() -> None:
    observed = running()
    other = replace(observed.children[STATEFUL_SET], content_hash="of another version")
    decision = decide(replace(observed, children={**observed.children, STATEFUL_SET: other}), LIMITS)
    assert replicas(decision) is None


def test_a_driver_from_before_its_executors_had_to_prove_themselves_is_restarted_once_with_the_secret() -> None:
    secret = "Secret/shop-spark"
    young = {place: value for place, value in HASHES.items() if place != secret}
    old = running(data_hashes=young)
    old = replace(old, children={place: child for place, child in old.children.items() if place != secret})
    made = decide(old, LIMITS)
    assert MakeSecret("shop-spark") in made.actions
    assert replicas(made) is None, "its pod could not be made yet"
    there = replace(old, data_hashes=HASHES, children={**old.children, secret: MADE[secret]})
    restarted = decide(there, LIMITS)
    child = applied(restarted.actions)["StatefulSet"]
    assert MakeSecret("shop-spark") not in restarted.actions
    template_hash = child["metadata"]["annotations"][names.TEMPLATE_HASH]
    new = replace(old.children[STATEFUL_SET], template_hash=template_hash)
    later = decide(replace(there, children={**there.children, STATEFUL_SET: new}), LIMITS)
    assert replicas(later) is None


@pytest.mark.parametrize("place", ["Secret/shop-db", "Secret/lake", "Secret/shop-driver", "Secret/shop-spark"])
def test_a_rotated_secret_rolls_the_driver(place: str) -> None:
    observed = running()
    decision = decide(replace(observed, data_hashes={**HASHES, place: "new"}), LIMITS)
    assert "StatefulSet" in applied(decision.actions)
    assert reason(decision) == "RollingOut"
    assert "Reconciling" in kinds(decision)


def test_a_missing_secret_is_named_and_what_runs_runs_on() -> None:
    decision = decide(replace(running(), data_hashes=OWN), LIMITS)
    assert (reason(decision), decision.status.state) == ("SecretNotFound", "Running")
    assert decide(observed(data_hashes=OWN), LIMITS).status.state == "Pending"
    assert "'lake' does not exist in namespace team" in decision.status.message
    assert replicas(decision) is None


def test_an_invalid_spec_keeps_the_last_valid_one_running_and_says_so() -> None:
    observed = running(spec={**SPEC, "retry": {"time": "soon"}}, running_spec=SPEC, meta=meta(generation=3))
    observed = with_driver(observed, applied_generation=2)
    decision = decide(observed, LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled.reason == "InvalidSpec"
    assert "retry.time" in stalled.message and "Generation 2 keeps running." in stalled.message
    assert decision.status.observed_generation == 3
    assert decision.status.applied_generation == 2
    assert replicas(decision) is None


def test_a_fault_of_the_spec_shows_a_value_but_no_block_and_nothing_of_the_environment() -> None:
    secret = template([{"env": [{"name": "HOME", "value": "hush"}]}], hostNetwork=True)
    odd = {**SPEC, "retry": {"time": "soon"}, "driver": {"podTemplate": secret}}
    odd["source"] = {**SPEC["source"], "credentials": {"secretName": "a", "file": "hush"}}
    message = decide(observed(spec=odd), LIMITS).status.message
    assert "found 'soon'" in message and "source.credentials" in message
    assert "driver.podTemplate.spec: hostNetwork (found true): " in message and ".env: HOME: " in message
    misplaced = {"password": "hush", "credentials": "hush", "tls": {"password": "hush"}}
    message = decide(observed(spec={**SPEC, "source": {**SPEC["source"], **misplaced}}), LIMITS).status.message
    assert "source.password" in message and "source.tls.password" in message and "hush" not in message
    assert "hush" not in message


def test_a_pod_that_the_cluster_refuses_is_named_until_it_is_there() -> None:
    waits = replace(running(), pods=(), driver=ObservedDriver())
    assert reason(decide(waits, LIMITS)) == "Starting"
    refused = replace(waits, refused_pods={STATEFUL_SET: 'pods "shop-driver-0" is forbidden: exceeded quota: tight'})
    decision = decide(refused, LIMITS)
    assert reason(decision) == "PodPending" and "exceeded quota: tight" in decision.status.message
    assert "Reconciling" in kinds(decision), "it goes on by itself"
    assert reason(decide(replace(running(), refused_pods=refused.refused_pods), LIMITS)) == "Streaming"


def test_a_pod_that_the_cluster_refuses_is_tried_again_every_minute() -> None:
    """Its controller alone would wait twice as long each time."""
    waits = replace(running(), pods=(), driver=ObservedDriver())
    refused = replace(waits, refused_pods={STATEFUL_SET: "exceeded quota"})
    again = TryPod("shop-driver")
    assert again not in decide(waits, LIMITS).actions
    assert again in decide(refused, LIMITS).actions
    for ago, due in ((59.0, False), (60.0, True)):
        child = replace(refused.children[STATEFUL_SET], tried_at=NOW - ago)
        decision = decide(replace(refused, children={**refused.children, STATEFUL_SET: child}), LIMITS)
        assert (again in decision.actions) is due
        assert decision.again <= 60
    assert again not in decide(replace(refused, spec={**SPEC, "suspend": True}), LIMITS).actions
    assert again not in decide(replace(running(), refused_pods=refused.refused_pods), LIMITS).actions


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("source", "SourceUnreachable"),
        ("target", "TargetUnreachable"),
        ("storage", "StorageUnreachable"),
        ("capture", "CaptureEnded"),
        ("driver", "Failing"),
        (None, "Failing"),
    ],
)
def test_the_reason_of_a_fault_is_where_it_happened_whatever_its_name(where: Where | None, word: str) -> None:
    for name in ("SourceRefused", "TargetRefused", "StorageFull", "CaptureEnded", "Retry"):
        fault = Fault(name=name, message="away", fix="Check it.", where=where)
        decision = decide(running(reported(state="Failing", fault=fault, message="away")), LIMITS)
        assert condition(decision, "Ready").message == "away. Fix: Check it."
        assert reason(decision) == word
        assert decision.status.last_error is not None and decision.status.last_error.where == where


def test_tables_that_all_fail_at_one_part_name_it_and_others_are_counted() -> None:
    away = Fault(name="Retry", message="503", where="target")
    failing = [TableStatus(name=f"public.{name}", state="FAILING", fault=away) for name in "ab"]
    healthy = TableStatus(name="public.c", state="REPLICATING")
    stopped = TableStatus(name="public.d", state="STOPPED", fault=away.model_copy(update={"name": "TargetRefused"}))
    for tables, word in (
        (failing, "TargetUnreachable"),
        ([*failing, healthy], "TablesFailing"),
        ([*failing, stopped], "TablesFailing"),
    ):
        status = reported(state="Failing", tables_failing=len(tables), tables=tuple(tables))
        assert reason(decide(running(status, spec={**SPEC, "onTableFailure": "NotReady"}), LIMITS)) == word


def test_a_name_that_kubernetes_cannot_use_for_a_driver_is_refused_before_anything_is_made() -> None:
    decision = decide(observed(meta=meta(name="a" * 46)), LIMITS)
    assert reason(decision) == "InvalidSpec"
    assert decision.actions == ()


def test_suspend_is_ready_once_the_pod_is_gone() -> None:
    observed = running(spec={**SPEC, "suspend": True})
    going = decide(observed, LIMITS)
    assert replicas(going) == 0
    assert (reason(going), going.status.state) == ("Suspending", "Suspended")
    gone = decide(replace(observed, pods=()), LIMITS)
    ready, suspended = condition(gone, "Ready"), condition(gone, "Suspended")
    assert ready is not None and (ready.status, ready.reason) == ("True", "Suspended")
    assert suspended is not None and suspended.status == "True"


def test_a_suspended_replicator_says_what_becomes_of_the_log_that_it_does_not_read() -> None:
    mysql = {"type": "mysql", "host": "db", "username": "u", "credentials": {"secretName": "shop-db"}}
    for source, text in ((SPEC["source"], "keeps its log meanwhile."), (mysql, "only until it expires.")):
        spec = {**SPEC, "suspend": True, "source": source}
        assert condition(decide(replace(running(spec=spec), pods=()), LIMITS), "Ready").message.endswith(text)


def test_suspend_stops_the_driver_also_while_a_secret_is_missing() -> None:
    """Whoever takes the keys away wants it to stop, and the wanted template cannot be known without them."""
    observed = running(spec={**SPEC, "suspend": True})
    decision = decide(replace(observed, data_hashes={}), LIMITS)
    assert replicas(decision) == 0
    child = replace(observed.children[STATEFUL_SET], replicas=0)
    stopped = replace(observed, data_hashes={}, children={**observed.children, STATEFUL_SET: child})
    assert replicas(decide(stopped, LIMITS)) is None
    resumed = decide(replace(stopped, spec=SPEC, data_hashes=HASHES), LIMITS)
    assert replicas(resumed) == 1
    assert replicas(decide(replace(stopped, spec=SPEC), LIMITS)) is None


def test_a_silent_driver_shows_within_half_a_minute() -> None:
    observed = running()
    last = ObservedDriver(reported(), answered_at=NOW, silent_since=NOW + 10, error="TimeoutError")
    decision = decide(replace(observed, driver=last, now=NOW + 25), LIMITS)
    assert verdict(decision, "Ready") == ("Unknown", "DriverUnreachable")
    assert decision.status.lag is None, "a lag that nobody measures is not shown"
    assert decision.again <= 10


def test_an_operator_that_just_started_believes_the_status_until_a_driver_has_been_silent_for_a_while() -> None:
    """Asking a thousand drivers at once, some answers come late: that is no reason to tell everybody."""
    observed = running()
    observed = replace(observed, pods=(replace(observed.pods[0], running_since=NOW - 3600),))
    before = decide(observed, LIMITS).status
    late = ObservedDriver(silent_since=NOW + 100, error="TimeoutError")
    restarted = replace(observed, status=before, driver=late, now=NOW + 105)
    assert reason(decide(restarted, LIMITS)) == "Streaming"
    assert reason(decide(replace(restarted, now=NOW + 113), LIMITS)) == "DriverUnreachable"
    newer = replace(restarted, meta=meta(generation=2))
    other = replace(restarted, pods=(replace(observed.pods[0], running_since=NOW - 3000),))
    for changed in (newer, other):
        assert reason(decide(changed, LIMITS)) == "DriverUnreachable"


def test_what_a_dead_driver_measured_is_not_told_as_if_it_were_so() -> None:
    well = reported(
        capture=CaptureStatus(position="0/1", lag_seconds=0.2, lag_bytes=5, retained_bytes=9, rows_per_second=7.0),
        apply=ApplyStatus(lag_seconds=0.3, record=4, rows_per_second=7.0),
    )
    before = decide(running(well), LIMITS).status
    silent = ObservedDriver(well, answered_at=NOW, silent_since=NOW + 10, error="TimeoutError")
    after = decide(replace(running(), status=before, driver=silent, now=NOW + 25), LIMITS).status
    assert before.capture is not None and after.capture is not None and after.apply is not None
    assert (after.capture.lag_seconds, after.capture.lag_bytes, after.capture.rows_per_second) == (None, None, 0.0)
    assert (after.apply.lag_seconds, after.apply.rows_per_second) == (None, 0.0)
    assert (after.capture.position, after.capture.retained_bytes, after.apply.record) == ("0/1", 9, 4)
    met = {c.type for c in before.conditions} - {c.type for c in after.conditions}
    assert {"SLOMet", "Lagging"} <= met


def test_failing_tables_are_named_worst_first_and_bounded() -> None:
    fault = Fault(name="NoKey", message="no key", fix="add one")
    tables = [TableStatus(name=f"public.t{n:02}", state="FAILING", fault=fault) for n in range(30)]
    tables.append(TableStatus(name="public.stopped", state="STOPPED", fault=fault))
    status = reported(
        state="Failing", message="31 tables fail", tables=tuple(tables), tables_total=31, tables_failing=31
    )
    decision = decide(running(status), LIMITS)
    counts = decision.status.tables
    assert counts is not None
    assert (len(counts.worst), counts.truncated, counts.worst[0].name) == (20, True, "public.stopped")
    assert (counts.failing, counts.stopped) == (30, 1)
    assert reason(decision) == "TablesFailing"
    assert "Stalled" not in kinds(decision)


def test_lag_and_snapshots_have_conditions_of_their_own_and_do_not_feed_ready() -> None:
    snapshot = SnapshotStatus(id="initial-1", reason="initial", state="Running", rows_done=63, rows_estimated=100)
    status = reported(
        capture=CaptureStatus(alive=True, lag_seconds=900.0, retained_bytes=20 << 30, log_held_by="pid 7"),
        snapshots=(snapshot,),
        tables=(TableStatus(name="public.a", state="SNAPSHOTTING"),),
    )
    decision = decide(running(status), LIMITS)
    truths = {c.type: c.status for c in decision.status.conditions}
    assert truths["Ready"] == "True"
    assert truths["Lagging"] == "True" and truths["SourceLogAtRisk"] == "True" and truths["SLOMet"] == "False"
    risk = condition(decision, "SourceLogAtRisk").message
    assert "of log for this Replicator because of pid 7; its disk may fill" in risk
    assert decision.status.capture is not None and decision.status.capture.log_held_by == "pid 7"
    assert truths["InitialSnapshotCompleted"] == "False"
    assert decision.status.snapshot_summary == "63%"
    assert decision.status.lag == "15m"


def test_executors_of_an_earlier_boot_are_reaped_and_those_of_this_one_are_not() -> None:
    observed = running()
    old = pod(name="old", uid="e1", created=NOW - 300, phase="Succeeded")
    hanging = pod(name="hanging", uid="e2", created=NOW - 300)
    new = pod(name="new", uid="e3", created=NOW - 60)
    decision = decide(replace(observed, executors=(old, hanging, new)), LIMITS)
    assert [a for a in decision.actions if isinstance(a, Delete)] == [
        Delete("Pod", "old", "e1"),
        Delete("Pod", "hanging", "e2"),
    ]


def test_a_snapshot_whose_request_is_gone_is_stopped_and_those_of_the_command_line_are_not() -> None:
    gone, kept = "33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"
    snapshots = tuple(
        SnapshotStatus(id=i, reason="request", state="Running") for i in (gone, kept, "orders-again-1f2e3d4c")
    )
    decision = decide(running(reported(snapshots=snapshots), requests=(kept,)), LIMITS)
    assert [a for a in decision.actions if isinstance(a, Cancel)] == [Cancel(gone)]


def test_what_the_api_server_refused_is_looked_at_again_soon() -> None:
    refusal = Refusal("StatefulSet shop-driver", "hash", "exceeded quota")
    decision = decide(observed(refusal=refusal), LIMITS)
    assert decide(running(refusal=refusal), LIMITS).status.state == "Running"
    assert reason(decision) == "ObjectRefused" and "exceeded quota" in decision.status.message
    assert decision.again <= 30


def test_what_the_api_server_refused_stays_told_while_it_is_sent_again() -> None:
    first = decide(observed(), LIMITS)
    content = next(
        a.content_hash for a in first.actions if isinstance(a, ApplyChild) and a.document["kind"] == "Service"
    )
    refusal = Refusal("Service shop-driver", content, "exceeded quota", again_at=NOW + 60)
    waits = decide(observed(refusal=refusal), LIMITS)
    tries = decide(observed(refusal=refusal, now=NOW + 61, status=waits.status), LIMITS)
    assert "Service" not in applied(waits.actions) and "Service" in applied(tries.actions)
    assert tries.status.conditions == waits.status.conditions


# ---- documents of other versions ----


def test_a_newer_drivers_answer_is_read_without_the_fields_that_are_new() -> None:
    document = reported(tables=(TableStatus(name="public.a", state="REPLICATING"),)).model_dump(
        mode="json", by_alias=True
    )
    document["later"] = 1
    document["tables"][0]["alsoLater"] = {"deep": True}
    assert known(Status, document).tables[0].name == "public.a"
    with pytest.raises(ValidationError):
        known(Status, {**document, "state": "Dancing"})


def test_a_status_of_another_version_keeps_what_is_understood() -> None:
    kept = load(ReplicatorStatus, {"appliedSpecHash": "h", "state": "Dancing", "later": 1})
    assert (kept.applied_spec_hash, kept.state) == ("h", "Pending")
