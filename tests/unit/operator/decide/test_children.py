"""Whether a new spec goes to the running driver or to a new pod."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import HASHES, LIMITS, SPEC, applied, kinds, meta, reason, replicas, reported, running
from tailrace.contract.driver import Problem
from tailrace_operator.decide.model import ChangeSpec
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import DriverAnswer, ObservedReplicator

LIVE: list[dict[str, Any]] = [
    {"tables": {"include": ["public.*"], "exclude": ["public.secret"]}},
    {"options": [{"match": "public.*", "columns": ["id"]}]},
    {"snapshot": {"parallelism": 1}},
    {"apply": {"suspend": True}},
    {"retry": {"time": "2h"}},
    {"retention": {"time": "7d"}},
    {"deletionPolicy": "Delete"},
]


def edited(change: dict[str, Any], generation: int | None, **more: Any) -> ObservedReplicator:
    """The spec was changed to generation 2 while the driver works by `generation`."""
    before = running(reported(generation=generation))
    return replace(before, meta=meta(generation=2), spec=SPEC | change, **more)


def told(observed: ObservedReplicator) -> list[ChangeSpec]:
    return [a for a in decide(observed, LIMITS).actions if isinstance(a, ChangeSpec)]


@pytest.mark.parametrize("change", LIVE, ids=lambda change: str(next(iter(change))))
def test_the_running_driver_is_told_and_no_pod_is_replaced(change: dict[str, Any]) -> None:
    decision = decide(edited(change, 1), LIMITS)
    (action,) = told(edited(change, 1))
    assert (action.generation, action.spec.suspend) == (2, False)
    assert replicas(decision) is None
    assert '"generation": 2' in applied(decision.actions)["ConfigMap"]["data"]["replicator.yaml"]
    assert (reason(decision), decision.status.state) == ("ApplyingSpec", "Running")
    assert "Reconciling" in kinds(decision)


def test_it_is_ready_once_the_driver_works_by_it_and_is_told_no_more() -> None:
    done = edited(LIVE[0], 2)
    assert (told(done), reason(decide(done, LIMITS))) == ([], "Streaming")


def test_why_it_takes_a_while_is_said() -> None:
    busy = DriverAnswer(accepted=False, problem=Problem(name="Retry", message="chunks are being read"), code=503)
    decision = decide(edited(LIVE[0], 1, spec_answer=busy), LIMITS)
    assert decision.status.message == "The driver takes over generation 2: chunks are being read."


def test_a_spec_that_drops_most_tables_stays_refused_until_it_is_confirmed() -> None:
    problem = Problem(name="RemovalUnconfirmed", message="no longer select 9 of 9 tables: s.a", fix="Set it.")
    refused = DriverAnswer(accepted=False, problem=problem, code=422)
    decision = decide(edited(LIVE[0], 1, spec_answer=refused), LIMITS)
    assert (reason(decision), decision.status.state) == ("InvalidManifest", "Running")
    assert "Stalled" in kinds(decision)
    said = "RemovalUnconfirmed: no longer select 9 of 9 tables: s.a. Fix: Set it."
    assert decision.status.message == f"The driver continues with the former spec: {said}"


def test_what_needs_another_pod_gets_one_and_the_old_driver_is_told_nothing() -> None:
    rolled = edited({"driver": {"cores": 2}} | LIVE[0], 1)
    assert told(rolled) == [] and "StatefulSet" in applied(decide(rolled, LIMITS).actions)
    rotated = edited(LIVE[0], 1, data_hashes={**HASHES, "Secret/shop-db": "p2"})
    assert told(rotated) == [] and "StatefulSet" in applied(decide(rotated, LIMITS).actions)


def test_a_silent_driver_and_one_that_knows_no_generations_are_told_nothing() -> None:
    old = edited(LIVE[0], None)
    assert told(old) == []
    silent = edited(LIVE[0], 1)
    assert told(replace(silent, driver=replace(silent.driver, silent_since=silent.now - 1))) == []
    invalid = edited({"tables": {"include": []}}, 1)
    assert told(invalid) == [], "the last valid spec keeps running"
