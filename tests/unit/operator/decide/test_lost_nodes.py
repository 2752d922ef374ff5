"""A driver's pod that was evicted from a node which does not respond is removed by force, and no other is."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, NOW, condition, pod, reason, running
from tailrace_operator.decide.lost_nodes import PATIENCE
from tailrace_operator.decide.model import Delete
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import ObservedDriver, ObservedReplicator

EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
RUNNING = {"running": {"startedAt": "2027-01-15T07:00:00Z"}}
DEADLINE = "2027-01-15T08:00:00Z"  # NOW


def document(condition: dict[str, str], state: dict[str, Any], deleted: str | None = DEADLINE) -> dict[str, Any]:
    head = {"name": "shop-driver-0", "uid": "p-uid"} | ({"deletionTimestamp": deleted} if deleted else {})
    status = {"conditions": [condition], "containerStatuses": [{"name": "tailrace", "state": state}]}
    return {"metadata": head, "spec": {"nodeName": "far"}, "status": status}


def evicted(late: float) -> ObservedReplicator:
    """Its grace period ended `late` seconds ago."""
    gone = pod(deleting=True, node="far", evicted_until=NOW - late)
    return replace(running(), pods=(gone,), driver=ObservedDriver())


def test_what_a_pod_shows_of_a_node_that_does_not_respond() -> None:
    found = parse.pod(document(EVICTED, RUNNING))
    assert (found.node, found.evicted_until) == ("far", NOW)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(document(EVICTED, RUNNING, deleted=None), id="it is tolerated still"),
        pytest.param(document(EVICTED, {"terminated": {"exitCode": 0}}), id="its kubelet works"),
        pytest.param(document({**EVICTED, "reason": "EvictionByEvictionAPI"}, RUNNING), id="a drain"),
        pytest.param(document({"type": "Ready", "status": "False"}, RUNNING), id="somebody deleted it"),
    ],
)
def test_no_other_pod_is_taken_for_lost(other: dict[str, Any]) -> None:
    assert parse.pod(other).evicted_until is None


def test_it_is_told_when_the_kubelet_is_late_and_removed_a_while_after() -> None:
    early, late, due = (decide(evicted(seconds), LIMITS) for seconds in (-10, 1, PATIENCE))
    assert reason(early) == "Starting" and early.again == 10
    assert reason(late) == "NodeLost" and late.again == PATIENCE - 1
    assert "node far" in condition(late, "Ready").message
    assert [e.type for e in late.events if e.reason == "NodeLost"] == ["Warning"]
    forced = Delete("Pod", "shop-driver-0", "p-uid", force=True)
    assert forced not in (*early.actions, *late.actions)
    assert forced in due.actions


def test_a_pod_that_is_taken_away_says_why() -> None:
    preempted = {"reason": "PreemptionByScheduler", "message": "preempted to accommodate a higher priority pod"}
    found = parse.pod(document(EVICTED | preempted, RUNNING))
    assert (
        found.disrupted == preempted["message"]
        and not parse.pod(document({**EVICTED, "status": "False"}, {})).disrupted
    )
    ready = condition(decide(replace(running(), pods=(found,), driver=ObservedDriver()), LIMITS), "Ready")
    assert ready.reason == "Starting"
    assert ready.message == (
        f"Waiting for pod shop-driver-0 to shut down ({preempted['message']}); then the driver starts again."
    )
