"""A new default image restarts a few drivers at a time; what users change waits for nothing."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import HASHES, LIMITS, MADE, NOW, SPEC, applied, condition, kinds, pod, reason, running
from tailrace_operator.decide.model import Decision
from tailrace_operator.decide.replicator import decide
from tailrace_operator.decide.rollout import LONGEST_SECONDS
from tailrace_operator.handlers.turns import Turns
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import Child, ObjectKey, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.models import ReplicatorStatus

NEWER = replace(LIMITS, image="registry.example/tailrace-spark:2")


def upgraded(turn: bool, **change: Any) -> ObservedReplicator:
    """It runs the image of before."""
    base = running()
    child = replace(base.children["StatefulSet/shop-driver"], image=LIMITS.image)
    return replace(base, children={**MADE, "StatefulSet/shop-driver": child}, turn=turn, **change)


def image(decision: Decision[ReplicatorStatus]) -> str | None:
    """That the driver is restarted with."""
    made = applied(decision.actions).get("StatefulSet")
    return made["spec"]["template"]["spec"]["containers"][0]["image"] if made is not None else None


def test_a_driver_waits_for_its_turn_runs_on_and_says_so() -> None:
    decision = decide(upgraded(turn=False), NEWER)
    assert image(decision) is None and decision.status.rollout_since is None
    assert NEWER.image in condition(decision, "RolloutPending").message
    assert reason(decision) == "Streaming"


def test_whose_turn_it_is_restarts_and_holds_it_until_it_works() -> None:
    begun = decide(upgraded(turn=True), NEWER)
    assert image(begun) == NEWER.image
    assert begun.status.rollout_since == times.text(NOW) and begun.intent, "written before the restart"
    assert "RolloutPending" not in kinds(begun)
    on = replace(upgraded(turn=False), status=begun.status)
    assert image(decide(on, NEWER)) == NEWER.image, "its turn stays its own"
    works = replace(running(), status=begun.status)
    assert decide(works, LIMITS).status.rollout_since is None


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {**SPEC, "restartNonce": 1}},
        {"spec": {**SPEC, "suspend": True}},
        {"data_hashes": {**HASHES, "Secret/lake": "l2"}},
    ],
)
def test_what_users_change_waits_for_nothing(change: dict[str, Any]) -> None:
    decision = decide(upgraded(turn=False, **change), NEWER)
    assert image(decision) == NEWER.image
    assert decision.status.rollout_since is None, "and takes no turn of others"


def test_a_pod_that_does_not_come_up_ends_its_turn_after_a_while() -> None:
    began = ReplicatorStatus(rollout_since=times.text(NOW - LONGEST_SECONDS))
    waits = replace(running(), pods=(replace(running().pods[0], ready=False, running_since=None),), status=began)
    assert decide(waits, LIMITS).status.rollout_since is None
    young = replace(waits, status=ReplicatorStatus(rollout_since=times.text(NOW - LONGEST_SECONDS + 5)))
    assert decide(young, LIMITS).status.rollout_since is not None


def test_an_image_that_nobody_can_pull_stops_there() -> None:
    began = ReplicatorStatus(rollout_since=times.text(NOW - 100 * LONGEST_SECONDS))
    hash_of = running().pods[0].template_hash
    stuck = pod(template_hash=hash_of, ready=False, running_since=None, waiting="ImagePullBackOff")
    assert decide(replace(running(), pods=(stuck,), status=began), LIMITS).status.rollout_since is not None


def test_a_stateful_set_of_an_unknown_image_is_brought_to_the_desired_one() -> None:
    base = running()
    child = Child("StatefulSet", "shop-driver", "s-uid", "1", "", "other", 1, image="by-hand")
    other = replace(base, children={**MADE, "StatefulSet/shop-driver": child}, turn=False)
    assert image(decide(other, LIMITS)) == LIMITS.image


def test_turns_are_as_many_as_the_limit_and_are_found_in_the_statuses() -> None:
    index = Index(lambda key: None)
    keys = [ObjectKey("Replicator", "team", name) for name in "abc"]
    for key in keys[:2]:
        head = {"namespace": "team", "name": key.name, "uid": key.name}
        index.put("Replicator", {"metadata": head, "status": {"rolloutSince": "2026-01-01T00:00:00Z"}})
    turns = Turns(index, 2)
    assert not turns.free(keys[2]) and turns.free(keys[0]), "its own stands in nobody's way"
    turns.note(keys[0], False)
    assert turns.free(keys[2])
    turns.note(keys[0], True)
    assert not turns.free(keys[2])
    assert Turns(index, 2, lambda key: key != keys[1]).free(keys[2]), "nobody waits for one that cannot be followed"
