"""What the operator does about a Replicator that is being deleted: driver, slot, data, and what stays behind."""

from dataclasses import replace
from typing import Any

import pytest

from support.seen import LIMITS, NOW, SPEC, applied, meta, running
from tailrace_operator.decide.model import Delete, SetFinalizers
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import Child, ReplicatorSeen
from tailrace_operator.status.models import ReplicatorStatus


def deleting(**change: Any) -> ReplicatorSeen:
    observed = running(meta=meta(deleted_at=NOW), **change)
    return replace(observed, status=ReplicatorStatus(applied_template_hash="x", deletion_started_at=None))


def test_a_deleted_replicators_driver_ends_before_its_slot_is_dropped() -> None:
    first = decide(deleting(), LIMITS)
    assert [type(a) for a in first.actions] == [Delete]
    assert first.intent and first.status.deletion_started_at is not None
    gone = replace(deleting(), pods=(), children={}, status=first.status)
    second = decide(gone, LIMITS)
    job = applied(second.actions)["Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][1] == "drop"
    assert "--data" not in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_deletion_policy_delete_takes_the_data_too() -> None:
    observed = deleting(spec={**SPEC, "deletionPolicy": "Delete"})
    job = applied(decide(replace(observed, pods=(), children={}), LIMITS).actions)["Job"]
    assert "--data" in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_end_of_the_clean_up_releases_the_object() -> None:
    done = Child("Job", "shop-drop", "j", "1", "", succeeded=True)
    decision = decide(replace(deleting(), pods=(), children={"Job/shop-drop": done}), LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert decision.says[0].reason == "CleanedUp"


@pytest.mark.parametrize("how", ["failed", "late", "namespace"])
def test_what_stays_behind_is_named_and_the_object_is_released_all_the_same(how: str) -> None:
    observed = replace(deleting(), pods=(), children={})
    match how:
        case "failed":
            job = Child("Job", "shop-drop", "j", "1", "", failed=True)
            observed = replace(observed, children={"Job/shop-drop": job})
        case "late":
            begun = ReplicatorStatus(applied_template_hash="x", deletion_started_at="2027-01-01T00:00:00Z")
            observed = replace(observed, status=begun)
        case "namespace":
            observed = replace(observed, namespace_ends=True)
    decision = decide(observed, LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert decision.says[0].reason == "LeftBehind"
    assert "slot tailrace_shop" in decision.says[0].message


def test_a_replicator_that_never_had_a_driver_is_released_at_once() -> None:
    observed = replace(deleting(), status=ReplicatorStatus())
    assert decide(observed, LIMITS).actions == (SetFinalizers(()),)


def test_a_replicator_whose_specs_are_all_invalid_by_now_is_released_and_says_what_may_stay() -> None:
    """A newer operator may be stricter than the one that started the driver."""
    observed = replace(deleting(), spec={**SPEC, "retry": {"time": "soon"}}, running_spec=None)
    decision = decide(observed, LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert (decision.says[0].type, decision.says[0].reason) == ("Warning", "LeftBehind")
    assert "slot tailrace_shop" in decision.says[0].message
