"""What the operator does when a driver ends: leaves it to the kubelet, stops it, or tries it again."""

import json
from dataclasses import replace
from typing import Any

import pytest

from support.observed import (
    HASHES,
    LIMITS,
    NOW,
    SPEC,
    after_end,
    applied,
    condition,
    ended,
    kinds,
    meta,
    observed,
    pod,
    reason,
    recorded,
    replicas,
    reported,
    running,
    template,
    with_driver,
)
from tailrace.contract.manifest import parse as parse_manifest
from tailrace.contract.pod_template import CONTAINER
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import Fault, SnapshotStatus, Status
from tailrace_operator.decide.driver_history import ON_CHANGE, error_of
from tailrace_operator.decide.model import ApplyChild, Cancel, Decision
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import REQUESTED_AT, Eviction, ObservedDriver, ObservedReplicator, ObservedResync
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Reason
from tailrace_operator.status.models import Failures, Halt, ReplicatorStatus


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (2, "InvalidManifest"),
        (10, "ConfigurationRefused"),
        (11, "AuthenticationFailed"),
        (12, "PositionLost"),
        (13, "Fenced"),
    ],
)
def test_exit_codes_that_a_person_must_cure_stop_the_driver_at_once(code: int, word: str) -> None:
    observed = with_driver(running())
    fault = Fault(name="SourceRefused", message="wal_level is replica", fix="Set wal_level = logical.", where="source")
    decision = decide(after_end(observed, code, fault), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled.reason == word
    assert "Set wal_level = logical." in stalled.message
    assert replicas(decision) == 0
    assert decision.intent
    assert decision.status.driver.last_exit_code == code
    assert decision.status.state == "Stopped"


CUT_OVER = Fault(
    name="CutOver", message="the cutover is done: programs may write to new", fix="Delete this Replicator."
)


def after_cutover() -> tuple[ObservedReplicator, Decision[ReplicatorStatus]]:
    """A driver that ended after its cutover, and the decision about that."""
    waits = recorded(with_driver(running()), cutover="waiting: the source is not read-only.")
    ended = after_end(waits, 10, CUT_OVER)
    return ended, decide(ended, LIMITS)


def test_a_driver_whose_copies_were_handed_over_has_succeeded() -> None:
    _, decision = after_cutover()
    status = decision.status
    assert (status.state, reason(decision), replicas(decision)) == ("Succeeded", "CutOver", 0)
    ready = condition(decision, "Ready")
    assert ready.status == "True" and "programs may write to new" in ready.message
    assert "Delete this Replicator." in ready.message
    assert not {"Stalled", "Reconciling"} & kinds(decision)
    assert status.failures == Failures() and status.last_error is None
    assert status.cutover == ready.message, "it does not wait any longer"
    assert [(event.type, event.reason) for event in decision.events if event.reason != "Streaming"] == [
        ("Normal", "CutOver")
    ]


def test_a_replicator_that_is_suspended_after_its_cutover_has_still_succeeded() -> None:
    observed, decision = after_cutover()
    gone = replace(observed, pods=(), status=decision.status)
    found = decide(replace(gone, spec=running(spec={**SPEC, "suspend": True}).spec), LIMITS)
    assert (found.status.state, reason(found)) == ("Succeeded", "CutOver")
    assert found.status.cutover == condition(found, "Ready").message == condition(decision, "Ready").message
    assert condition(found, "Suspended").status == "True"
    assert not found.events


def test_the_status_still_says_that_the_cutover_is_done_while_reconciliation_is_paused() -> None:
    observed, decision = after_cutover()
    gone = replace(observed, pods=(), status=decision.status)
    found = decide(replace(gone, meta=replace(gone.meta, paused=True, generation=gone.meta.generation + 1)), LIMITS)
    assert found.status.cutover == condition(decision, "Ready").message
    assert found.status.message != found.status.cutover, "why the change is not applied is told beside it"


@pytest.mark.parametrize("edited", [0, 1])
def test_a_cutover_that_ends_while_reconciliation_is_paused_is_no_crash(edited: int) -> None:
    observed, _ = after_cutover()
    observed = replace(observed, status=decide(running(), LIMITS).status)
    generation = observed.meta.generation + edited
    paused = replace(observed, meta=replace(observed.meta, paused=True, generation=generation))
    first = decide(paused, LIMITS)
    again = after_end(replace(paused, status=first.status), 10, CUT_OVER, restarts=4)  # nobody scales it down
    for found in (first, decide(again, LIMITS)):
        assert (found.status.state, reason(found)) == ("Succeeded", "ReconciliationPaused" if edited else "CutOver")
        assert "programs may write to new" in str(found.status.cutover)
        assert found.actions == () and found.status.failures == Failures() and found.status.last_error is None
        assert not {"DriverEnded", "DriverCrashLoop"} & {event.reason for event in found.events}
    over = decide(replace(again, status=first.status, meta=replace(paused.meta, paused=False)), LIMITS)
    assert (over.status.state, replicas(over)) == ("Succeeded", 0)


def test_a_cutover_after_failures_is_not_told_as_one_more() -> None:
    """By a change of the target its tables are Tailrace's again, and the kubelet has started its container again."""
    working = running()
    failing = recorded(working, failures=Failures(count=4, since=times.text(NOW - 60)))
    again = pod(template_hash=template(working), restarts=1, ended=ended(10, CUT_OVER), running_since=NOW - 1)
    found = decide(replace(failing, pods=(again,)), LIMITS)
    assert reason(found) == "Streaming" and "DriverEnded" not in {event.reason for event in found.events}


def test_spec_recover_after_a_cutover_is_told_to_be_of_no_help() -> None:
    observed, decision = after_cutover()
    asked = parse.recovery("shop", meta().uid, {"recover": {"mode": "Resnapshot", "nonce": 1}})
    found = decide(replace(observed, pods=(), status=decision.status, recovery=asked), LIMITS)
    assert (found.status.state, reason(found)) == ("Succeeded", "CutOver")
    said = condition(decision, "Ready").message
    assert found.status.message == f"{said} spec.recover does not help here: it is for PositionLost only."
    assert found.status.cutover == said


NEW = {"type": "postgresql", "host": "new", "database": "shop", "username": "t", "credentials": {"secretName": "lake"}}


def test_after_a_cutover_only_another_place_or_an_explicit_request_starts_a_driver_again() -> None:
    """Each would end at once: not one that is retried, nor one for a new image or by Flux, nor one by the manifest
    without its `cutover`, as it may come from Git the day after."""
    declared = {**SPEC, "target": NEW, "cutover": {}}
    ended = after_end(with_driver(running(spec=declared)), 10, CUT_OVER)
    gone = replace(ended, pods=(), status=decide(ended, LIMITS).status, now=NOW + 86_400)
    assert gone.status.state == "Succeeded"
    asked = replace(gone, meta=replace(gone.meta, requested_at="again"))
    image = replace(LIMITS, image="tailrace:newer")

    def edited(**change: Any) -> ObservedReplicator:
        spec = {name: value for name, value in {**declared, **change}.items() if value is not None}
        later = replace(gone.meta, generation=gone.meta.generation + 1)
        return replace(gone, spec=running(spec=spec).spec, meta=later)

    tables = edited(tables={"include": ["public.*"], "exclude": ["public.b"]})
    for later in (gone, asked, edited(cutover=None), tables, edited(target={**NEW, "adopt": True})):
        for limits in (LIMITS, image):
            found = decide(later, limits)
            assert (found.status.state, reason(found), replicas(found) or 0) == ("Succeeded", "CutOver", 0)
            assert found.status.observed_generation == later.meta.generation
            assert "programs may write to new" in str(found.status.cutover)
            again = decide(replace(later, status=found.status), limits)
            assert (again.status.state, replicas(again) or 0) == ("Succeeded", 0)
    for later in (edited(restartNonce=2), edited(target={**NEW, "host": "newer"})):
        assert replicas(decide(later, LIMITS)) == 1


def test_a_driver_that_came_right_by_itself_is_not_stopped_for_an_old_end() -> None:
    """Its password was wrong for a minute while no operator was there to see it."""
    observed = with_driver(running())
    alive = pod(template_hash=template(observed), restarts=1, ended=ended(11, at=NOW - 3600), running_since=NOW - 3500)
    decision = decide(replace(observed, pods=(alive,)), LIMITS)
    assert (decision.status.halt, reason(decision)) == (None, "Streaming")
    assert decision.status.driver.restarts == 1
    mute = decide(replace(observed, pods=(alive,), driver=ObservedDriver()), LIMITS)
    assert mute.status.halt is not None


def test_a_driver_fenced_by_its_own_successor_is_no_reason_to_stop() -> None:
    observed = with_driver(running())
    old = pod(template_hash=template(observed), running_since=None, ready=False, ended=ended(13))
    newer = pod(uid="p2", name="shop-driver-0", created=NOW, deleting=True, running_since=None)
    decision = decide(replace(observed, pods=(old, newer)), LIMITS)
    assert decision.status.halt is None


def test_any_other_end_is_left_to_the_kubelets_back_off_until_the_limit() -> None:
    observed = with_driver(running(spec={**SPEC, "retry": {"time": "10m"}}))
    first = decide(after_end(observed, 1), LIMITS)
    assert reason(first) == "DriverCrashLoop"
    assert first.status.halt is None and first.status.failures.count == 1
    many = first.status.model_copy(update={"failures": Failures(count=6, since=first.status.failures.since)})
    sooner = replace(after_end(observed, 1, restarts=1), status=many, now=NOW + 300)
    assert decide(sooner, LIMITS).status.halt is None, "the retry time has not passed"
    later = replace(sooner, now=NOW + 700)
    halt = decide(later, LIMITS).status.halt
    assert halt is not None and halt.reason == "RestartLimitExceeded"


def test_ends_are_counted_once_however_often_they_are_seen() -> None:
    observed = with_driver(running())
    down = after_end(observed, 137, ended=ended(137, reason="OOMKilled"))
    first = decide(down, LIMITS).status
    again = decide(replace(down, status=first), LIMITS).status
    back = replace(down.pods[0], restarts=1, running_since=NOW, ready=True)
    restarted = decide(replace(observed, pods=(back,), status=again), LIMITS).status
    assert (first.driver.restarts, again.driver.restarts, restarted.driver.restarts) == (1, 1, 1)
    assert restarted.last_error is not None and restarted.last_error.name == "OutOfMemory"


def test_the_end_of_an_evicted_pod_is_no_failure() -> None:
    """Also if the operator sees it before the pod is gone."""
    down = after_end(with_driver(running()), 0)
    other = Eviction("shop-driver-0", "another", "The node was low on resource: memory.", NOW - 5)
    mine = replace(other, uid=down.pods[0].uid)
    counts = [decide(replace(down, evicted=evicted), LIMITS).status.failures.count for evicted in (mine, other, None)]
    assert counts == [0, 1, 1]


def test_a_healthy_while_forgets_earlier_ends() -> None:
    observed = with_driver(running(), failures=Failures(count=3, since="2027-01-01T00:00:00Z"))
    old = replace(observed.pods[0], running_since=NOW - 700)
    assert decide(replace(observed, pods=(old,)), LIMITS).status.failures == Failures()


def given_up(code: int, message: str = "", driver: ObservedDriver | None = None, **terminated: object) -> str:
    """The status of a Replicator whose driver failed too often; its last container left this termination message."""
    observed = with_driver(running(spec={**SPEC, "retry": {"time": "10m"}}))
    since = times.text(NOW - 700)
    observed = recorded(observed, failures=Failures(count=6, since=since))
    end = {"exitCode": code, "reason": "Error", "finishedAt": times.text(NOW - 5), "message": message, **terminated}
    state = {"name": CONTAINER, "restartCount": 0, "state": {"terminated": end}}
    document = {"metadata": {"name": "shop-driver-0", "uid": "p-uid"}, "status": {"containerStatuses": [state]}}
    dead = replace(parse.pod(document), template_hash=template(observed))
    decision = decide(replace(observed, pods=(dead,), driver=driver or ObservedDriver()), LIMITS)
    assert decision.status.halt is not None
    assert replicas(decision) == 0, "its pod goes, and the log with it"
    return decision.status.message


def test_a_driver_that_is_given_up_has_its_reason_in_the_status_for_its_log_is_gone() -> None:
    native = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File x\n"
    line = json.dumps({"time": "t", "level": "info", "logger": "tailrace", "message": "applied to record 7"})
    away = Fault(name="Retry", message="bucket lake does not answer", fix="Check the network.", where="target")
    told = ObservedDriver(reported(state="Failing", fault=away), NOW - 60, silent_since=NOW - 30)
    for text, words in (
        (given_up(139, native), ("exit code 139", "last line of its log: File x")),
        (given_up(137, f"{line}\n{line}\n"), ("exit code 137", "last line of its log: applied to record 7")),
        (given_up(1, "", told), ("exit code 1", "before: Retry: bucket lake does not answer. Fix: Check the network.")),
        (given_up(1), ("exit code 1", "it left no message")),
        (given_up(10), ("exit code 10", "Remove the cause.", f"Retried {ON_CHANGE}, and at ")),
    ):
        assert all(word in text for word in words), text
        assert "restartNonce" in text and "See the log" not in text, text


@pytest.mark.parametrize(("code", "why", "asks"), [(255, "Unknown", False), (255, "Error", True), (1, "Unknown", True)])
def test_a_driver_that_ended_with_its_node_asks_nobody_to_do_anything(code: int, why: str, asks: bool) -> None:
    end = {"exitCode": code, "reason": why, "finishedAt": times.text(NOW - 5)}
    again = {"running": {"startedAt": times.text(NOW - 4)}}
    state = {"name": CONTAINER, "restartCount": 1, "state": again, "lastState": {"terminated": end}}
    document = {"metadata": {"name": "shop-driver-0", "uid": "p-uid"}, "status": {"containerStatuses": [state]}}
    error = error_of(parse.pod(document))
    assert error is not None and error.name == "DriverEnded"
    assert ("restartNonce" in error.fix) is asks and ("was restarted" in error.message) is not asks


HALT = Halt(reason="PositionLost", message="gone", at="2027-01-01T00:00:00Z")


def halted(**change: Any) -> ObservedReplicator:
    asked = tuple(r.uid for r in change.get("resyncs", ()))
    return replace(observed(requests=asked, **change), status=ReplicatorStatus(halt=HALT))


def stopped(code: int) -> ReplicatorStatus:
    """The status after a driver ended with this code."""
    seen = with_driver(running())
    decision = decide(after_end(seen, code), LIMITS)
    assert decision.status.halt is not None
    return decision.status


NONCE = {"spec": {**SPEC, "restartNonce": 1}}
ASKED = {"meta": meta(requested_at="2027-01-02T00:00:00Z")}
TABLES = {"spec": {**SPEC, "tables": {"include": ["sales.*"]}}}
ANNOTATED = {"spec": {**SPEC, "executors": {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}}}}
ROTATED = {"data_hashes": {**HASHES, "Secret/shop-db": "new"}}
UPGRADED = {"limits": replace(LIMITS, image="registry.example/tailrace-spark:2")}
KEPT = {"spec": {**SPEC, "deletionPolicy": "Delete"}}


@pytest.mark.parametrize(
    ("code", "change", "lifted"),
    [
        *((code, NONCE, True) for code in (2, 10, 11, 12, 13)),
        *((code, TABLES, True) for code in (2, 10, 11, 12)),
        *((code, ASKED, True) for code in (2, 10, 11, 12)),
        *((code, ROTATED, True) for code in (10, 11)),
        *((code, UPGRADED, True) for code in (2, 10, 11)),
        *((code, KEPT, False) for code in (2, 10, 11, 12, 13)),
        *((12, change, False) for change in (ROTATED, UPGRADED)),
        *((13, change, False) for change in (ROTATED, UPGRADED, TABLES, ANNOTATED, ASKED)),
    ],
)
def test_a_stopped_driver_is_tried_again_when_what_stopped_it_may_be_another_now(
    code: int, change: dict[str, Any], lifted: bool
) -> None:
    """Fenced: the one that started again would take the change log from its new owner."""
    status = stopped(code)
    stays = decide(observed(status=status), LIMITS)
    assert replicas(stays) == 0
    plain = {name: value for name, value in change.items() if name != "limits"}
    decision = decide(observed(status=status, **plain), change.get("limits", LIMITS))
    assert (decision.status.halt is None) == lifted
    assert replicas(decision) == int(lifted)


def test_a_halt_of_an_older_operator_stays_and_is_then_lifted_as_any_other() -> None:
    """It did not store what would lift it: that the operator is another now must not."""
    decision = decide(halted(**ROTATED), LIMITS)
    halt = decision.status.halt
    assert halt is not None and decision.intent
    assert decide(observed(status=decision.status, **NONCE), LIMITS).status.halt is None


def retried(code: int, seconds: float, spec: dict[str, Any] = SPEC, **change: Any) -> Decision[ReplicatorStatus]:
    """What is decided so many seconds after a driver ended with this code; its pod is gone."""
    status = stopped(code)
    return decide(observed(status=status, now=NOW + seconds, spec=spec, **change), LIMITS)


@pytest.mark.parametrize(("code", "again"), [(2, False), (10, True), (11, True), (12, False), (13, False)])
def test_what_was_refused_is_tried_again_slowly_and_stays_stalled_until_it_works(code: int, again: bool) -> None:
    early = retried(code, 1795)
    assert replicas(early) == 0
    assert (early.again <= 5) == again, "the next round comes in time"
    late = retried(code, 1805)
    assert replicas(late) == int(again)
    assert "Stalled" in kinds(late) and late.status.state == "Stopped"
    assert late.intent or not again


def on_trial(**change: Any) -> ObservedReplicator:
    """A driver that was refused, half an hour later, with the pod of its second attempt."""
    begun = retried(11, 1805).status
    seen = running(now=NOW + 1830)
    second = pod(uid="p2-uid", template_hash=template(seen), created=NOW + 1806, running_since=NOW + 1810)
    return replace(seen, status=begun, pods=(second,), **change)


def test_a_trial_that_works_ends_the_halt() -> None:
    starting = decide(on_trial(driver=ObservedDriver()), LIMITS)
    assert starting.status.halt is not None and replicas(starting) is None
    decision = decide(on_trial(driver=ObservedDriver(reported(), NOW + 1830)), LIMITS)
    assert (decision.status.halt, reason(decision)) == (None, "Streaming")
    assert decision.status.failures == Failures()


def test_a_trial_that_fails_alike_waits_again_without_a_flap() -> None:
    seen = on_trial(driver=ObservedDriver())
    end = ended(11, Fault(name="AuthenticationFailed", message="still no", fix="Correct it."), at=NOW + 1829)
    dead = replace(seen.pods[0], running_since=None, ready=False, ended=end)
    decision = decide(replace(seen, pods=(dead,)), LIMITS)
    halt, before = decision.status.halt, seen.status.halt
    assert halt is not None and before is not None
    assert (halt.reason, halt.retried_at, halt.at) == ("AuthenticationFailed", None, times.text(NOW + 1830))
    assert replicas(decision) == 0
    assert "still no" in decision.status.message
    assert condition(decision, "Stalled").last_transition_time == times.text(NOW)
    assert not [event for event in decision.events if event.reason == "AuthenticationFailed"], "it is no news"


def test_a_trial_that_ends_otherwise_goes_on_until_it_works_or_is_given_up() -> None:
    """The kubelet starts it again; what stopped it first may be as it was."""
    seen = on_trial(driver=ObservedDriver())
    dead = replace(seen.pods[0], running_since=None, ready=False, ended=ended(1, at=NOW + 1829))
    decision = decide(replace(seen, pods=(dead,)), LIMITS)
    halt = decision.status.halt
    assert halt is not None and (halt.reason, halt.retried_at) == ("AuthenticationFailed", times.text(NOW + 1805))
    assert replicas(decision) is None, "it is not stopped"
    many = decision.status.model_copy(update={"failures": Failures(count=6, since=times.text(NOW + 1829))})
    given_up = decide(replace(seen, pods=(replace(dead, restarts=1),), status=many, now=NOW + 9000), LIMITS)
    assert given_up.status.halt is not None and given_up.status.halt.reason == "RestartLimitExceeded"


def test_a_fenced_driver_whose_pod_was_to_be_replaced_meanwhile_is_stopped_all_the_same() -> None:
    """Its successor would take the change log back."""
    seen = with_driver(running(data_hashes={**HASHES, "Secret/shop-db": "new"}))
    decision = decide(after_end(seen, 13, template_hash="of before"), LIMITS)
    assert decision.status.halt is not None and decision.status.halt.reason == "Fenced"
    assert replicas(decision) == 0
    assert decide(after_end(seen, 11, template_hash="of before"), LIMITS).status.halt is None


@pytest.mark.parametrize(
    ("spec", "count"), [({"retry": {"halted": "1m"}}, 1), ({"retry": {"halted": "0s"}}, 0), ({"suspend": True}, 0)]
)
def test_how_slowly_is_the_users_to_say(spec: dict[str, Any], count: int) -> None:
    asked = {**SPEC, **spec}
    seen = with_driver(running(spec=asked))
    status = decide(after_end(seen, 10), LIMITS).status
    decision = decide(observed(status=status, spec=asked, now=NOW + 65), LIMITS)
    assert replicas(decision) == count


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, f"Retried {ON_CHANGE}."),
        (10, f"Retried {ON_CHANGE}, and at {times.text(NOW + 1800)}."),
        (11, f"Retried {ON_CHANGE}, and at {times.text(NOW + 1800)}."),
        (12, "Set spec.recover, or create a SnapshotRequest with resync: true and tables: ['*.*']."),
        (13, "Stop the other writer, then change spec.restartNonce."),
    ],
)
def test_a_halt_says_what_lifts_it(code: int, words: str) -> None:
    """The fix of the error alone is not enough: nothing would start the driver again."""
    for fix in (None, "Grant it.", "Create a SnapshotRequest with resync: true and tables: ['*.*']."):
        fault = Fault(name="SourceRefused", message="no", fix=fix) if fix is not None else None
        seen = with_driver(running())
        message = decide(after_end(seen, code, fault), LIMITS).status.message
        assert words in message, message


@pytest.mark.parametrize("code", [2, 10, 11, 12, 13, 139])
@pytest.mark.parametrize("what", ["Secret", "nonce", "spec"])
def test_what_a_halt_says_that_lifts_it_does(code: int, what: str) -> None:
    """And what does not is not said."""
    seen = with_driver(running(), failures=Failures(count=6, since=times.text(NOW - 7200)))
    fault = Fault(name="SomeFault", message="no", fix="Do it.")
    status = decide(after_end(seen, code, fault), LIMITS).status
    assert status.halt is not None
    changes: dict[str, dict[str, Any]] = {
        "Secret": {"data_hashes": {**HASHES, "Secret/shop-db": "p2"}},
        "nonce": {"spec": {**SPEC, "restartNonce": 7}, "meta": meta(generation=2)},
        "spec": {"spec": {**SPEC, "sparkConf": [{"name": "spark.x", "value": "1"}]}, "meta": meta(generation=2)},
    }
    assert f"Retried {ON_CHANGE}" in status.message or code in (12, 13)
    assert code not in (12, 13) or "Retried" not in status.message
    lifted = decide(observed(status=status, **changes[what]), LIMITS).status.halt is None
    assert lifted == (code not in (12, 13) or (code, what) in {(12, "nonce"), (12, "spec"), (13, "nonce")})


ALL = SnapshotRequestSpec.model_validate({"replicator": "shop", "tables": ["*.*"], "resync": True})
AGAIN = ObservedResync("again", "22222222-2222-4222-8222-222222222222", ALL, taken=False)
OTHER = replace(AGAIN, name="other", uid="11111111-1111-4111-8111-111111111111")
"""Younger, though its uid sorts first."""


def handed_over(decision: Decision[ReplicatorStatus]) -> str | None:
    """The name of the request that the driver starts with."""
    text = applied(decision.actions)["ConfigMap"]["data"].get("resync.yaml")
    return None if text is None else parse_manifest(text, "the ConfigMap").requests[0].metadata.name


def test_a_resync_of_every_table_brings_back_a_driver_whose_position_is_lost() -> None:
    decision = decide(halted(resyncs=(AGAIN,)), LIMITS)
    assert (decision.status.halt, decision.status.resync_uid, decision.intent) == (None, AGAIN.uid, True)
    assert handed_over(decision) == "again"
    kinds = [a.document["kind"] for a in decision.actions if isinstance(a, ApplyChild)]
    assert kinds.index("ConfigMap") < kinds.index("StatefulSet"), "the pod must find it"
    assert replicas(decision) == 1


def test_recover_stands_for_such_a_request_once_for_each_number() -> None:
    uid = meta().uid
    first, second = (parse.recovery("shop", uid, {"recover": {"mode": "Resnapshot", "nonce": n}}) for n in (1, 2))
    assert first is not None and second is not None and parse.recovery("shop", uid, {}) is None
    halt, lost, handed = halted().status.halt, halted(), []
    # Lost again each time, and each time with what is new since: a number, nothing, a request, nothing, a number.
    for recovery, requests in ((first, ()), (first, ()), (first, (AGAIN,)), (first, (AGAIN,)), (second, (AGAIN,))):
        known = tuple(r.uid for r in requests)
        decision = decide(replace(lost, recovery=recovery, resyncs=requests, requests=known), LIMITS)
        handed.append(handed_over(decision) if decision.status.halt is None else None)
        lost = replace(lost, status=decision.status.model_copy(update={"halt": halt}))
    assert handed == ["recover-1", None, "again", None, "recover-2"]


def test_who_sets_recover_in_vain_is_told_why() -> None:
    """Its number has been used, or it is for something else than what happened."""
    asked = parse.recovery("shop", meta().uid, {"recover": {"mode": "Resnapshot", "nonce": 1}})
    assert asked is not None
    lost = replace(halted(), recovery=asked)
    assert lost.status.halt is not None
    used = recorded(lost, recovery_uid=asked.uid)
    assert decide(used, LIMITS).status.message.endswith(" The number in spec.recover has been used: set another.")
    for kind in (Reason.FENCED, Reason.AUTHENTICATION_FAILED, Reason.RESTART_LIMIT_EXCEEDED):
        other = lost.status.halt.model_copy(update={"reason": kind.value, "lifted_by": ""})
        for held, told in ((lost, True), (used, False)):
            status = held.status.model_copy(update={"halt": other})
            decision = decide(replace(held, status=status), LIMITS)
            assert decision.status.halt is not None and decision.status.recovery_uid == status.recovery_uid
            assert ("spec.recover does not help here: it is for PositionLost only." in decision.status.message) == told


def test_a_snapshot_of_recover_goes_on_when_the_field_is_removed() -> None:
    found = parse.recovery("shop", meta().uid, {"recover": {"mode": "Resnapshot", "nonce": 1}})
    assert found is not None
    shot = SnapshotStatus(id=found.uid, name=found.name, reason="resync", state="Running")
    assert not [a for a in decide(running(reported(snapshots=(shot,))), LIMITS).actions if isinstance(a, Cancel)]


@pytest.mark.parametrize(
    ("product", "name", "starts"),
    [("mysql", "SourceRefused", True), ("mysql", "TargetRefused", False), ("postgresql", "SourceRefused", False)],
)
def test_a_resync_of_every_table_goes_to_a_mysql_server_that_was_refused(product: str, name: str, starts: bool) -> None:
    source = {k: v for k, v in SPEC["source"].items() if product == "postgresql" or k != "database"}
    spec = {**SPEC, "source": {**source, "type": product}}
    asked = observed(requests=(AGAIN.uid,), resyncs=(AGAIN,), spec=spec)
    halt = Halt(reason="ConfigurationRefused", message=f"{name}: another server", at=times.text(NOW))
    decision = decide(replace(asked, status=ReplicatorStatus(halt=halt)), LIMITS)
    assert (decision.status.halt is None, handed_over(decision)) == (starts, "again" if starts else None)
    advance = parse.recovery("shop", meta().uid, {"recover": {"mode": "Resnapshot", "nonce": 1}})
    decision = decide(replace(asked, status=ReplicatorStatus(halt=halt), recovery=advance, resyncs=()), LIMITS)
    assert decision.status.halt is not None, "it may be a wrong server: recover is for a lost position only"


def test_a_request_is_handed_over_once_and_a_later_loss_needs_another() -> None:
    lost = halted(resyncs=(AGAIN,))
    again = recorded(lost, resync_uid=AGAIN.uid)
    assert decide(again, LIMITS).status.halt is not None
    decision = decide(replace(again, resyncs=(AGAIN, OTHER), requests=(AGAIN.uid, OTHER.uid)), LIMITS)
    assert (decision.status.halt, handed_over(decision)) == (None, "other")


def test_of_several_requests_each_is_handed_over_once_and_then_the_driver_stays_stopped() -> None:
    lost = halted(resyncs=(AGAIN, OTHER))
    handed, halt = [], lost.status.halt
    for _ in range(3):
        decision = decide(lost, LIMITS)
        handed.append(handed_over(decision) if decision.status.halt is None else None)
        lost = replace(lost, status=decision.status.model_copy(update={"halt": halt}))  # and its position is lost again
    assert handed == ["again", "other", None]
    ended = replace(lost, resyncs=(AGAIN,))
    assert decide(ended, LIMITS).status.halt is not None, "the last one is over; the one before had its turn"


def test_what_was_handed_over_stays_for_further_starts_until_it_is_over() -> None:
    """A start that could not reach the source has done nothing yet; the change log knows what was done."""
    observed = with_driver(running(resyncs=(replace(AGAIN, taken=True),)), resync_uid=AGAIN.uid)
    assert handed_over(decide(observed, LIMITS)) == "again"
    assert handed_over(decide(replace(observed, resyncs=()), LIMITS)) is None
    assert decide(replace(observed, resyncs=()), LIMITS).status.halt is None


@pytest.mark.parametrize(
    "change",
    [
        {"resyncs": (replace(AGAIN, taken=True),)},
        {"resyncs": (AGAIN,), "pods": (pod(template_hash=template(observed()), ended=ended(12), running_since=None),)},
    ],
    ids=["a driver had it", "the old pod is still there"],
)
def test_no_request_is_handed_over(change: dict[str, Any]) -> None:
    decision = decide(halted(**change), LIMITS)
    assert decision.status.halt is not None and handed_over(decision) is None
    assert replicas(decision) == 0


def test_no_request_is_handed_over_to_a_driver_that_was_stopped_for_another_reason() -> None:
    lost = halted(resyncs=(AGAIN,))
    fenced = HALT.model_copy(update={"reason": "Fenced"})
    decision = decide(replace(lost, status=ReplicatorStatus(halt=fenced)), LIMITS)
    assert decision.status.halt is not None and handed_over(decision) is None


@pytest.mark.parametrize(
    ("spec", "status", "found"),
    [
        ({}, {}, (False,)),
        ({}, {"record": 7}, (True,)),
        ({}, {"startedAt": "2027-01-01T00:00:00Z"}, (True,)),
        ({}, {"state": "Completed"}, ()),
        ({"suspend": True}, {}, ()),
        ({"resync": False}, {}, ()),
        ({"tables": ["public.*"]}, {}, ()),
    ],
)
def test_only_a_request_for_every_table_that_is_not_over_counts(
    spec: dict[str, Any], status: dict[str, Any], found: tuple[bool, ...]
) -> None:
    plain = {"replicator": "shop", "tables": ["*.*"], "resync": True}
    document = {"metadata": {"name": "again", "uid": AGAIN.uid}, "spec": plain | spec, "status": status}
    seen_ = parse.resync(document)
    assert (() if seen_ is None else (seen_.taken,)) == found


@pytest.mark.parametrize("text", ["x", "x" * 200])
def test_a_request_of_flux_is_handled_once(text: str) -> None:
    document = {"metadata": {"namespace": "team", "name": "shop", "uid": "u", "annotations": {REQUESTED_AT: text}}}
    again = halted(meta=meta(requested_at=parse.meta(document).requested_at))
    handled = decide(again, LIMITS).status
    assert handled.halt is None and handled.last_handled_reconcile_at == text[:128]
    again = recorded(again, last_handled_reconcile_at=handled.last_handled_reconcile_at)
    assert decide(again, LIMITS).status.halt is not None


def test_a_driver_that_another_version_stopped_for_a_reason_of_its_own_stays_stopped() -> None:
    newer = ReplicatorStatus(halt=HALT.model_copy(update={"reason": "SomethingNewer", "message": "in words"}))
    decision = decide(observed(status=newer), LIMITS)
    stalled = condition(decision, "Stalled")
    assert (stalled.reason, stalled.message) == ("Failing", "In words.")
    assert decision.status.halt is not None and decision.status.halt.reason == "SomethingNewer"


def test_the_last_words_of_a_driver_stay_in_the_status_while_it_waits_to_be_started_again() -> None:
    fault = Fault(name="Retry", message="shop-db refuses connections", fix="Start it.", where="source")
    observed = with_driver(running())
    observed = after_end(observed, 1, fault)
    first = decide(observed, LIMITS)
    second = decide(replace(observed, status=first.status), LIMITS)
    assert "Retry: shop-db refuses connections" in second.status.message
    assert second.status == first.status


# ---- crash loops ----


def crashing(code: int = 1, restarts: int = 0, **change: Any) -> ObservedReplicator:
    """Its container has ended and waits to be started again."""
    observed = with_driver(running(), **change)
    fault = Fault(name="Retry", message="shop-db refuses connections", fix="Start it.", where="source")
    waits = {"waiting": "CrashLoopBackOff", "waiting_message": "back-off 40s restarting failed container"}
    return after_end(observed, code, fault, restarts=restarts, **waits)


def up(observed: ObservedReplicator, seconds: float, status: Status | None = None) -> ObservedReplicator:
    """The kubelet has started the container again, `seconds` ago."""
    (dead,) = observed.pods
    alive = replace(dead, running_since=observed.now - seconds, restarts=dead.restarts + 1, waiting=None)
    driver = ObservedDriver(status, observed.now) if status is not None else ObservedDriver()
    return replace(observed, pods=(alive,), driver=driver)


def test_a_crash_loop_has_one_reason_one_message_and_warnings_that_count_up() -> None:
    """Between its ends the container runs for seconds; what is told must not change with each of them."""
    observed, told, events = crashing(), [], []
    for restart in range(6):
        (dead,) = observed.pods
        down = replace(observed, pods=(replace(dead, restarts=restart),))
        starting = reported(state="Starting", tables_total=0, message="waiting for capture")
        for seen in (down, replace(down, pods=(replace(dead, restarts=restart, waiting=None),)), up(down, 2)):
            for sight in (seen, up(down, 5, starting)):
                decision = decide(replace(sight, status=observed.status), LIMITS)
                told.append((decision.status.state, reason(decision), decision.status.message))
                events += [(e.type, e.reason, e.message) for e in decision.events]
                observed = replace(observed, status=decision.status, now=observed.now + 3)
    assert set(told) == {
        (
            "Failing",
            "DriverCrashLoop",
            "The driver failed and is restarted; last: Retry: shop-db refuses connections. Fix: Start it.",
        )
    }
    assert {kind for kind, _, _ in events} == {"Warning"}
    assert sum(word == "DriverCrashLoop" for _, word, _ in events) == 1
    assert len(set(events)) == 2, "each end counts up the same event"


def test_a_driver_that_failed_once_is_ready_as_soon_as_it_works() -> None:
    first = crashing()
    failed = replace(first, status=decide(first, LIMITS).status)
    assert reason(decide(up(failed, 3, reported()), LIMITS)) == "Streaming"


def test_a_driver_that_failed_again_and_again_has_to_work_for_a_while() -> None:
    failures = Failures(count=4, since=times.text(NOW - 200))
    first = crashing(failures=failures)
    failed = replace(first, status=decide(first, LIMITS).status)
    assert reason(decide(up(failed, 20, reported()), LIMITS)) == "DriverCrashLoop"
    assert reason(decide(up(failed, 31, reported()), LIMITS)) == "Streaming"


def test_a_driver_that_stands_still_after_a_failure_tells_what_it_waits_for() -> None:
    first = crashing()
    failed = replace(first, status=decide(first, LIMITS).status)
    waits = reported(state="Starting", tables_total=0, message="waiting for transaction 812 of pid 77")
    decision = decide(up(failed, 200, waits), LIMITS)
    assert (reason(decision), decision.status.message) == ("DriverStarting", "Waiting for transaction 812 of pid 77.")
