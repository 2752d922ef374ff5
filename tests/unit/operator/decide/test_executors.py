"""Executors that do not run are told, with why."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, MADE, NOW, SPEC, condition, emitted, ended, kinds, pod, reported, running, verdict
from tailrace_operator.decide.model import Decision
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import ObservedPod, ObservedReplicator
from tailrace_operator.status.models import ExecutorsSummary, ReplicatorStatus

READY = "ExecutorsReady"
TWO = {**SPEC, "executors": {"min": 2, "max": 2}}
NOWHERE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


def executor(name: str = "e1", **change: Any) -> ObservedPod:
    return pod(**{"name": name, "uid": name, "created": NOW - 80, **change})


def waiting(name: str = "e1", **change: Any) -> ObservedPod:
    return executor(name, **{"phase": "Pending", "ready": False, "running_since": None, "ip": None, **change})


def with_executors(*pods: ObservedPod, **change: Any) -> ObservedReplicator:
    return replace(running(spec=TWO), executors=pods, **change)


def summary(decision: Decision[ReplicatorStatus]) -> ExecutorsSummary:
    assert decision.status.executors is not None
    return decision.status.executors


def test_executors_that_run_are_counted() -> None:
    decision = decide(with_executors(executor("e1"), executor("e2")), LIMITS)
    assert summary(decision) == ExecutorsSummary(desired=2, running=2)
    assert decision.status.executors_summary == "2/2"
    assert verdict(decision, READY) == ("True", "ExecutorsRunning")
    assert decision.status.message == ""


def test_executors_that_no_node_takes_are_told_with_the_schedulers_words() -> None:
    observed = with_executors(waiting("e1", unscheduled=NOWHERE), waiting("e2", unscheduled=NOWHERE))
    decision = decide(observed, LIMITS)
    found = summary(decision)
    assert (found.desired, found.running, found.pending, found.reason) == (2, 0, 2, "PodPending")
    assert "0 of 2 executors run" in found.message and "didn't match Pod's node affinity/selector" in found.message
    assert verdict(decision, READY) == ("False", "PodPending")
    assert [(e.type, e.reason) for e in decision.events if e.reason == "PodPending"] == [("Warning", "PodPending")]
    assert decision.status.message == found.message, "the stream itself runs, and its message says what does not"
    again = decide(replace(observed, status=decision.status, now=NOW + 10), LIMITS)
    assert not again.events and again.status == decision.status, "it is told once"
    over = decide(replace(observed, status=decision.status, executors=(executor("e1"), executor("e2"))), LIMITS)
    assert emitted(over) == [("Normal", "ExecutorsRunning")]


@pytest.mark.parametrize(
    ("trouble", "word"),
    [
        (waiting(waiting="ImagePullBackOff", waiting_message="no such image"), "ImagePullFailed"),
        (waiting(waiting="CreateContainerConfigError", waiting_message="no secret"), "PodPending"),
        (executor(phase="Failed", running_since=None, ended=ended(137, reason="OOMKilled")), "ExecutorFailed"),
    ],
)
def test_why_an_executor_does_not_run(trouble: ObservedPod, word: str) -> None:
    decision = decide(with_executors(trouble, executor("e2")), LIMITS)
    assert (summary(decision).running, summary(decision).reason) == (1, word)
    assert "1 of 2 executors run" in summary(decision).message


ON_DEMAND = {**SPEC, "executors": {"max": 3}}


def on_demand(wanted: int, *pods: ObservedPod, **change: Any) -> ObservedReplicator:
    return replace(running(reported(executors_wanted=wanted), spec=ON_DEMAND), executors=pods, **change)


def test_a_manifest_that_says_count_has_as_many_at_most_and_is_told_the_new_name() -> None:
    decision = decide(running(reported(), spec={**SPEC, "executors": {"count": 3}}), LIMITS)
    found = condition(decision, READY)
    assert found.reason == "ExecutorsNotNeeded"
    assert found.message.endswith("write max: 3, and min: 3 if they are to stay.")
    many = decide(running(reported(executors_wanted=50), spec={**SPEC, "executors": {"count": 3}}), LIMITS)
    assert summary(many).desired == 3
    told = decide(running(reported(), spec={**SPEC, "executors": {"count": 3, "max": 2}}), LIMITS)
    assert "count" not in str([c.message for c in told.status.conditions])


@pytest.mark.parametrize(
    ("wanted", "pods", "counts", "word"),
    [
        (0, (), "0/0", ("True", "ExecutorsNotNeeded")),
        (1, (), "0/1", ("False", "ExecutorsStarting")),
        (3, (), "0/3", ("False", "ExecutorsStarting")),
        (50, (), "0/3", ("False", "ExecutorsStarting")),
        (0, (executor(), waiting("gone", phase="Succeeded")), "1/1", ("True", "ExecutorsRunning")),
    ],
    ids=["nobody needs one", "one", "three", "as many as there may be", "one without work"],
)  # fmt: skip
def test_executors_on_demand_are_as_many_as_tasks_need_and_as_there_may_be(
    wanted: int, pods: tuple[ObservedPod, ...], counts: str, word: tuple[str, str]
) -> None:
    decision = decide(on_demand(wanted, *pods), LIMITS)
    assert (decision.status.executors_summary, verdict(decision, READY)) == (counts, word)
    assert not [e for e in decision.events if e.reason.startswith("Executor")]


def test_executors_on_demand_that_a_quota_refuses_are_missing_although_there_is_no_pod() -> None:
    first = decide(on_demand(1), LIMITS)
    late = decide(on_demand(1, status=first.status, now=NOW + 61), LIMITS)
    assert verdict(late, READY) == ("False", "ExecutorsMissing")
    assert (
        "0 of 1 executors run" in late.status.message
        and "quotas" in late.status.message
        and "executors.podTemplate" in late.status.message
    )
    assert emitted(late) == [("Warning", "ExecutorsMissing")]
    over = decide(on_demand(0, status=late.status, now=NOW + 90), LIMITS)
    assert verdict(over, READY) == ("True", "ExecutorsNotNeeded")
    assert [(e.type, e.message) for e in over.events] == [("Normal", "No executor is needed any longer.")]


def test_of_a_driver_that_is_silent_nobody_knows_whether_it_needs_executors() -> None:
    """Else a word of comfort would follow each warning, and the alert would wait anew."""
    missing = decide(on_demand(1, status=decide(on_demand(1), LIMITS).status, now=NOW + 61), LIMITS)
    observed = on_demand(1, status=missing.status)
    silent = replace(observed.driver, answered_at=NOW - 4000, silent_since=NOW - 3000)
    unknown = decide(replace(observed, driver=silent), LIMITS)
    assert summary(unknown).desired == 0 and READY not in kinds(unknown)
    assert not [e for e in unknown.events if e.reason.startswith("Executor")]
    some = decide(replace(observed, driver=silent, executors=(executor("e1"),)), LIMITS)
    assert verdict(some, READY) == ("True", "ExecutorsRunning")


def test_an_older_driver_wants_all_its_executors_always() -> None:
    """The operator is upgraded first; where a quota refuses them there is no pod to see."""
    observed = running(reported(executors_wanted=None), spec={**SPEC, "executors": {"count": 2}})
    first = decide(observed, LIMITS)
    assert (summary(first).desired, verdict(first, READY)) == (2, ("False", "ExecutorsStarting"))
    late = decide(replace(observed, status=first.status, now=NOW + 61), LIMITS)
    assert verdict(late, READY) == ("False", "ExecutorsMissing")
    both = decide(replace(observed, executors=(executor("e1"), executor("e2"))), LIMITS)
    assert verdict(both, READY) == ("True", "ExecutorsRunning")


def test_executors_have_a_while_to_start_and_are_missing_then() -> None:
    first = decide(with_executors(), LIMITS)
    assert verdict(first, READY) == ("False", "ExecutorsStarting")
    assert not [e for e in first.events if e.reason.startswith("Executor")]
    soon = decide(with_executors(status=first.status, now=NOW + 59), LIMITS)
    assert verdict(soon, READY) == ("False", "ExecutorsStarting")
    late = decide(with_executors(status=soon.status, now=NOW + 61), LIMITS)
    assert verdict(late, READY) == ("False", "ExecutorsMissing")
    assert emitted(late) == [("Warning", "ExecutorsMissing")]
    later = decide(with_executors(status=late.status, now=NOW + 4000), LIMITS)
    assert later.status.executors == late.status.executors, "the text does not count: each count would be a write"


def test_executors_of_an_earlier_boot_and_those_on_their_way_out_do_not_count() -> None:
    decision = decide(with_executors(executor("old", created=NOW - 300), executor("going", deleting=True)), LIMITS)
    assert summary(decision).running == 0


@pytest.mark.parametrize(
    "observed",
    [
        replace(running(spec=TWO), pods=()),
        replace(running(spec={**TWO, "suspend": True}), pods=()),
        running(spec={**SPEC, "executors": {"max": 0}}),
        running(reported(executors_wanted=None), spec={**SPEC, "executors": {"count": 0}}),
        replace(running(spec=TWO), pods=(), children=MADE),
    ],
)
def test_where_nobody_asks_for_executors_nothing_is_claimed(observed: ObservedReplicator) -> None:
    decision = decide(observed, LIMITS)
    assert READY not in kinds(decision) and summary(decision).reason is None


def test_a_suspended_replicator_wants_none() -> None:
    assert decide(running(spec={**TWO, "suspend": True}), LIMITS).status.executors_summary == "0/0"


def test_an_executors_pod_is_read_as_spark_makes_it() -> None:
    document = {
        "metadata": {"name": "shop-exec-1", "uid": "u", "namespace": "team"},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": "tailrace", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
        },
    }
    assert parse.pod(document).waiting == "ImagePullBackOff"
