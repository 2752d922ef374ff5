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
    applied,
    condition,
    ended,
    meta,
    observed,
    pod,
    reason,
    reported,
    running,
    template,
    with_driver,
)
from tailrace.contract.manifest import parse as parse_manifest
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import Fault
from tailrace_operator.decide.model import ApplyChild, Decision
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import REQUESTED_AT, ObservedDriver, ObservedReplicator, ObservedResync
from tailrace_operator.resources.names import CONTAINER
from tailrace_operator.status import times
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
    dead = pod(template_hash=template(observed), running_since=None, ready=False, ended=ended(code, fault))
    decision = decide(replace(observed, pods=(dead,), driver=ObservedDriver()), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled is not None and stalled.reason == word
    assert "Set wal_level = logical." in stalled.message
    assert applied(decision.actions)["StatefulSet"]["spec"]["replicas"] == 0
    assert decision.intent
    assert decision.status.driver.last_exit_code == code
    assert decision.status.state == "Stopped"


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
    dead = pod(template_hash=template(observed), running_since=None, ready=False, ended=ended(1), restarts=0)
    first = decide(replace(observed, pods=(dead,), driver=ObservedDriver()), LIMITS)
    assert reason(first) == "DriverCrashLoop"
    assert first.status.halt is None and first.status.failures.count == 1
    many = first.status.model_copy(update={"failures": Failures(count=6, since=first.status.failures.since)})
    sooner = replace(observed, status=many, pods=(replace(dead, restarts=1),), now=NOW + 300, driver=ObservedDriver())
    assert decide(sooner, LIMITS).status.halt is None, "the retry time has not passed"
    later = replace(sooner, now=NOW + 700)
    halt = decide(later, LIMITS).status.halt
    assert halt is not None and halt.reason == "RestartLimitExceeded"


def test_ends_are_counted_once_however_often_they_are_seen() -> None:
    observed = with_driver(running())
    dead = pod(template_hash=template(observed), running_since=None, ready=False, ended=ended(137, reason="OOMKilled"))
    first = decide(replace(observed, pods=(dead,), driver=ObservedDriver()), LIMITS).status
    again = decide(replace(observed, pods=(dead,), driver=ObservedDriver(), status=first), LIMITS).status
    back = replace(dead, restarts=1, running_since=NOW, ready=True)
    restarted = decide(replace(observed, pods=(back,), status=again), LIMITS).status
    assert (first.driver.restarts, again.driver.restarts, restarted.driver.restarts) == (1, 1, 1)
    assert restarted.last_error is not None and restarted.last_error.name == "OutOfMemory"


def test_a_healthy_while_forgets_earlier_ends() -> None:
    observed = with_driver(running(), failures=Failures(count=3, since="2027-01-01T00:00:00Z"))
    old = replace(observed.pods[0], running_since=NOW - 700)
    assert decide(replace(observed, pods=(old,)), LIMITS).status.failures == Failures()


def given_up(code: int, message: str = "", driver: ObservedDriver | None = None, **terminated: object) -> str:
    """The status of a Replicator whose driver failed too often; its last container left this termination message."""
    observed = with_driver(running(spec={**SPEC, "retry": {"time": "10m"}}))
    since = times.text(NOW - 700)
    observed = replace(observed, status=observed.status.model_copy(update={"failures": Failures(count=6, since=since)}))
    end = {"exitCode": code, "reason": "Error", "finishedAt": times.text(NOW - 5), "message": message, **terminated}
    state = {"name": CONTAINER, "restartCount": 0, "state": {"terminated": end}}
    document = {"metadata": {"name": "shop-driver-0", "uid": "p-uid"}, "status": {"containerStatuses": [state]}}
    dead = replace(parse.pod(document), template_hash=template(observed))
    decision = decide(replace(observed, pods=(dead,), driver=driver or ObservedDriver()), LIMITS)
    assert decision.status.halt is not None
    assert applied(decision.actions)["StatefulSet"]["spec"]["replicas"] == 0, "its pod goes, and the log with it"
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
        (given_up(10), ("exit code 10", "Remove the cause, then change restartNonce.")),
    ):
        assert all(word in text for word in words), text
        assert "restartNonce" in text and "See the log" not in text, text


HALT = Halt(reason="PositionLost", message="gone", template_hash="", at="2027-01-01T00:00:00Z")


def halted(**change: Any) -> ObservedReplicator:
    asked = tuple(r.uid for r in change.get("resyncs", ()))
    halt = HALT.model_copy(update={"template_hash": template(observed())})
    return replace(observed(requests=asked, **change), status=ReplicatorStatus(halt=halt))


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {**SPEC, "restartNonce": 1}},
        {"data_hashes": {**HASHES, "Secret/shop-db": "new"}},
        {"meta": meta(requested_at="2027-01-02T00:00:00Z")},
    ],
)
def test_a_stopped_driver_is_tried_again_when_somebody_changed_something(change: dict[str, Any]) -> None:
    stays = decide(halted(), LIMITS)
    assert applied(stays.actions)["StatefulSet"]["spec"]["replicas"] == 0
    decision = decide(halted(**change), LIMITS)
    assert decision.status.halt is None
    assert applied(decision.actions)["StatefulSet"]["spec"]["replicas"] == 1


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
    assert applied(decision.actions)["StatefulSet"]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("product", "name", "starts"),
    [("mysql", "SourceRefused", True), ("mysql", "TargetRefused", False), ("postgresql", "SourceRefused", False)],
)
def test_a_resync_of_every_table_goes_to_a_mysql_server_that_was_refused(product: str, name: str, starts: bool) -> None:
    source = {k: v for k, v in SPEC["source"].items() if product == "postgresql" or k != "database"}
    spec = {**SPEC, "source": {**source, "type": product}}
    asked = observed(requests=(AGAIN.uid,), resyncs=(AGAIN,), spec=spec)
    halt = Halt(
        reason="ConfigurationRefused", message=f"{name}: another server", template_hash=template(asked), at=HALT.at
    )
    decision = decide(replace(asked, status=ReplicatorStatus(halt=halt)), LIMITS)
    assert (decision.status.halt is None, handed_over(decision)) == (starts, "again" if starts else None)


def test_a_request_is_handed_over_once_and_a_later_loss_needs_another() -> None:
    lost = halted(resyncs=(AGAIN,))
    again = replace(lost, status=lost.status.model_copy(update={"resync_uid": AGAIN.uid}))
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
    assert applied(decision.actions)["StatefulSet"]["spec"]["replicas"] == 0


def test_no_request_is_handed_over_to_a_driver_that_was_stopped_for_another_reason() -> None:
    stopped = halted(resyncs=(AGAIN,))
    fenced = HALT.model_copy(update={"reason": "Fenced", "template_hash": template(observed())})
    decision = decide(replace(stopped, status=ReplicatorStatus(halt=fenced)), LIMITS)
    assert decision.status.halt == fenced and handed_over(decision) is None


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


def test_a_request_of_flux_is_handled_once() -> None:
    decision = decide(halted(meta=meta(requested_at="x")), LIMITS)
    assert decision.status.last_handled_reconcile_at == "x"
    again = halted(meta=meta(requested_at="x"))
    again = replace(again, status=again.status.model_copy(update={"last_handled_reconcile_at": "x"}))
    assert decide(again, LIMITS).status.halt is not None


def test_a_long_request_of_flux_is_handled_once() -> None:
    document = {"metadata": {"namespace": "team", "name": "shop", "uid": "u", "annotations": {REQUESTED_AT: "x" * 200}}}
    asked = parse.meta(document).requested_at
    again = halted(meta=meta(requested_at=asked))
    handled = decide(again, LIMITS).status.last_handled_reconcile_at
    again = replace(again, status=again.status.model_copy(update={"last_handled_reconcile_at": handled}))
    assert decide(again, LIMITS).status.halt is not None


def test_a_driver_that_another_version_stopped_for_a_reason_of_its_own_stays_stopped() -> None:
    stopped = halted()
    halt = stopped.status.halt
    assert halt is not None
    newer = ReplicatorStatus(halt=halt.model_copy(update={"reason": "SomethingNewer", "message": "in words"}))
    decision = decide(replace(stopped, status=newer), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled is not None and (stalled.reason, stalled.message) == ("Failing", "In words.")
    assert decision.status.halt == newer.halt


def test_the_last_words_of_a_driver_stay_in_the_status_while_it_waits_to_be_started_again() -> None:
    fault = Fault(name="Retry", message="shop-db refuses connections", fix="Start it.", where="source")
    observed = with_driver(running())
    dead = pod(template_hash=template(observed), running_since=None, ready=False, ended=ended(1, fault))
    observed = replace(observed, pods=(dead,), driver=ObservedDriver())
    first = decide(observed, LIMITS)
    second = decide(replace(observed, status=first.status), LIMITS)
    assert "Retry: shop-db refuses connections" in second.status.message
    assert second.status == first.status
