"""What the status says of the source's log while no driver tells."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.observed import LIMITS, NOW, SPEC, condition, kinds, observed, pod, reported, running, template, verdict
from tailrace.contract.status import CaptureStatus
from tailrace_operator.decide.model import ApplyChild, Delete
from tailrace_operator.decide.replicator import decide
from tailrace_operator.handlers.gauges import Gauges
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import Child, LogCheck, ObservedReplicator, Refusal
from tailrace_operator.status import times
from tailrace_operator.status.load import dump
from tailrace_operator.status.models import Halt, ReplicatorStatus

SUSPENDED: dict[str, Any] = {**SPEC, "suspend": True}
HALT = Halt(reason="PositionLost", message="gone", at=times.text(NOW))


def ran(spec: Mapping[str, Any] = SPEC) -> ReplicatorStatus:
    """Of a driver that has just said that 5 MiB are kept."""
    told = reported(capture=CaptureStatus(alive=True, retained_bytes=5 << 20))
    decision = decide(running(told, spec=spec), LIMITS)
    kept = condition(decision, "SourceLogAtRisk")
    assert kept is None or kept.status == "False"
    return decision.status


def away(**change: Any) -> ObservedReplicator:
    """Its pod is gone; it last answered eight seconds ago."""
    plain = {"status": ran(), "driver_answered_at": NOW - 8, "now": NOW + 30}
    return observed(**{**plain, **change})


@pytest.mark.parametrize(
    "change",
    [{"spec": SUSPENDED}, {"status": ran().model_copy(update={"halt": HALT})}],
    ids=["suspended", "stopped"],
)
def test_nobody_knows_it_while_no_driver_is_meant_to_run(change: dict[str, Any]) -> None:
    first = decide(away(**change), LIMITS)
    assert verdict(first, "SourceLogAtRisk") == ("Unknown", "NotObserved")
    later = decide(away(**{**change, "status": first.status}, now=NOW + 7200), LIMITS)
    assert later.status.capture is not None
    assert (later.status.capture.retained_bytes, later.status.capture.retained_at) == (5 << 20, times.text(NOW - 8))
    assert f"(5 MiB at {times.text(NOW - 8)})" in condition(later, "SourceLogAtRisk").message


@pytest.mark.parametrize(("kept", "truth"), [(12 << 20, "False"), (20 << 30, "True"), (None, "False")])
def test_while_no_driver_is_meant_to_run_a_check_tells_it(kept: int | None, truth: str) -> None:
    check = LogCheck(NOW + 900, kept)
    decision = decide(away(spec=SUSPENDED, log_check=check, now=NOW + 960), LIMITS)
    said = condition(decision, "SourceLogAtRisk")
    assert said.status == truth
    assert ("and no driver runs; its disk may fill" in said.message) == (truth == "True")
    capture = decision.status.capture
    assert capture is not None
    assert (capture.retained_bytes, capture.retained_at) == (kept, times.text(NOW + 900))
    late = decide(away(spec=SUSPENDED, log_check=check, status=decision.status, now=NOW + 900 + 2701), LIMITS)
    assert condition(late, "SourceLogAtRisk").reason == "NotObserved", "checks have ended, too"


def test_a_check_in_vain_says_why_and_changes_no_number() -> None:
    check = LogCheck(NOW + 900, None, "SourceUnreachable: no route to db:5432")
    decision = decide(away(spec=SUSPENDED, log_check=check, now=NOW + 960), LIMITS)
    said = condition(decision, "SourceLogAtRisk")
    assert said.reason == "NotObserved" and "no route to db:5432" in said.message
    assert decision.status.capture is not None and decision.status.capture.retained_bytes == 5 << 20


IN_THE_WAY: dict[str, tuple[dict[str, Any], str]] = {
    "the CronJob is refused": ({"refusal": Refusal("CronJob shop-check", "h", "exceeded quota")}, "exceeded quota"),
    "its pod is refused": ({"refused_pods": {"Job/shop-check-29384": "exceeded quota: pods"}}, "quota: pods"),
    "a Secret is missing": ({"data_hashes": {}}, "Secret"),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_keeps_a_check_from_asking_is_told_and_the_replicator_stays_suspended(case: str) -> None:
    change, words = IN_THE_WAY[case]
    decision = decide(away(spec=SUSPENDED, **change), LIMITS)
    said = condition(decision, "SourceLogAtRisk")
    assert said.reason == "NotObserved"
    assert "It cannot be asked: " in said.message and words in said.message
    assert verdict(decision, "Ready") == ("True", "Suspended")


def test_another_object_that_is_refused_is_told_of_a_suspended_replicator_too() -> None:
    refusal = Refusal("StatefulSet shop-driver", "h", "denied")
    decision = decide(away(spec=SUSPENDED, refusal=refusal), LIMITS)
    ready = condition(decision, "Ready")
    assert ready.reason == "ObjectRefused" and "denied" in ready.message


def test_the_check_is_there_while_no_driver_is_meant_to_run_and_then_only() -> None:
    def applied(found: ObservedReplicator) -> list[str]:
        return [a.document["kind"] for a in decide(found, LIMITS).actions if isinstance(a, ApplyChild)]

    assert "CronJob" in applied(away(spec=SUSPENDED))
    assert "CronJob" in applied(away(status=ran().model_copy(update={"halt": HALT})))
    assert "CronJob" not in applied(away())
    assert "CronJob" not in applied(observed(spec=SUSPENDED)), "it never ran, so the source keeps nothing"
    there = Child("CronJob", "shop-check", "c1", "1", "hash")
    resumed = decide(away(children={"CronJob/shop-check": there}), LIMITS)
    assert Delete("CronJob", "shop-check", "c1") in resumed.actions


def test_an_operator_that_never_heard_the_driver_takes_no_younger_time_than_is_known() -> None:
    decision = decide(away(spec=SUSPENDED, driver_answered_at=None), LIMITS)
    assert decision.status.capture is not None
    assert decision.status.capture.retained_at == times.text(NOW - 90), "the start of its container"


def test_a_restart_is_too_short_to_tell_and_a_long_one_is_told() -> None:
    dead = pod(template_hash=template(observed()), running_since=None, ready=False, waiting="CrashLoopBackOff")
    short = decide(away(pods=(dead,)), LIMITS)
    assert "SourceLogAtRisk" not in kinds(short)
    long = decide(away(pods=(dead,), status=short.status, now=NOW + 700), LIMITS)
    assert condition(long, "SourceLogAtRisk").reason == "NotObserved"


def test_a_driver_that_answers_again_tells_it() -> None:
    silent = decide(away(spec=SUSPENDED), LIMITS).status
    told = reported(capture=CaptureStatus(alive=True, retained_bytes=20 << 30))
    decision = decide(replace(running(told), status=silent), LIMITS)
    assert condition(decision, "SourceLogAtRisk").status == "True"
    assert decision.status.capture is not None and decision.status.capture.retained_at is None


def test_of_a_source_that_keeps_no_log_and_of_one_that_was_never_read_nothing_is_said() -> None:
    source = {k: v for k, v in SPEC["source"].items() if k != "database"}
    mysql = {**SUSPENDED, "source": {**source, "type": "mysql"}}
    assert "SourceLogAtRisk" not in kinds(decide(away(spec=mysql), LIMITS))
    fresh = decide(observed(spec=SUSPENDED), LIMITS)
    assert "SourceLogAtRisk" not in kinds(fresh)


def test_an_old_number_is_no_metric() -> None:
    index = Index(lambda _: None)
    registry = CollectorRegistry()
    registry.register(Gauges(index))
    head = {"namespace": "team", "name": "shop", "uid": "u"}
    labels = {"namespace": "team", "name": "shop"}
    for version, status, value in (("1", ran(), 5 << 20), ("2", decide(away(spec=SUSPENDED), LIMITS).status, None)):
        index.put("Replicator", {"metadata": {**head, "resourceVersion": version}, "status": dump(status)})
        assert registry.get_sample_value("tailrace_replicator_retained_bytes", labels) == value
    check = LogCheck(NOW + 900, 7 << 20)
    told = decide(away(spec=SUSPENDED, log_check=check, now=NOW + 960), LIMITS).status
    index.put("Replicator", {"metadata": {**head, "resourceVersion": "3"}, "status": dump(told)})
    assert registry.get_sample_value("tailrace_replicator_retained_bytes", labels) == 7 << 20
    index.put("Replicator", {"metadata": {**head, "resourceVersion": "4"}, "status": dump(status)})
    unknown = {**labels, "type": "SourceLogAtRisk", "reason": "NotObserved"}
    assert registry.get_sample_value("tailrace_replicator_condition", unknown) == 0.0, "what the alert looks for"
    hidden = CollectorRegistry()
    hidden.register(Gauges(index, lambda key: False))
    assert not [sample for family in hidden.collect() for sample in family.samples], "of what is not watched"
