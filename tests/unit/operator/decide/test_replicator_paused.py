"""A Replicator whose reconciliation is paused: told as ever, and left alone."""

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
    kinds,
    meta,
    observed,
    pod,
    reason,
    replicas,
    running,
    template,
)
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import PAUSED, ObservedDriver, ObservedReplicator, ObservedResync
from tailrace_operator.status import times
from tailrace_operator.status.models import Halt, ReplicatorStatus

CHANGED: dict[str, Any] = {**SPEC, "restartNonce": 5}


def settled() -> ReplicatorStatus:
    """Of a driver that runs generation 1."""
    return decide(running(), LIMITS).status


def paused(generation: int = 1, **change: Any) -> ObservedReplicator:
    return replace(running(), status=settled(), meta=meta(generation=generation, paused=True), **change)


@pytest.mark.parametrize(("value", "found"), [("true", True), ("false", False), ("", False), (None, False)])
def test_only_the_word_true_pauses(value: str | None, found: bool) -> None:
    annotations = {} if value is None else {PAUSED: value}
    head = {"namespace": "team", "name": "shop", "uid": "u", "annotations": annotations}
    assert parse.meta({"metadata": head}).paused is found


def test_a_driver_that_is_to_be_suspended_goes_on_and_so_says_the_status() -> None:
    decision = decide(paused(2, spec={**SPEC, "suspend": True}), LIMITS)
    assert condition(decision, "Suspended").status == "False" and decision.status.state == "Running"
    assert decision.actions == () and reason(decision) == "ReconciliationPaused"
    applied_now = decide(replace(paused(2, spec={**SPEC, "suspend": True}), meta=meta(generation=2)), LIMITS)
    assert condition(applied_now, "Suspended").status == "True"
    away = replace(
        paused(3, spec=SPEC),
        pods=(),
        driver=ObservedDriver(),
        status=applied_now.status,
        meta=meta(generation=3, paused=True),
    )
    assert condition(decide(away, LIMITS), "Suspended").status == "True", "what was suspended before stays so"


def test_what_runs_is_told_and_a_change_waits() -> None:
    decision = decide(paused(2, spec=CHANGED), LIMITS)
    assert decision.actions == ()
    assert (reason(decision), decision.status.state) == ("ReconciliationPaused", "Running")
    assert (decision.status.observed_generation, decision.status.applied_generation) == (2, 1)
    assert condition(decision, "ReconciliationPaused").status == "True"
    assert "Reconciling" not in kinds(decision) and "Stalled" not in kinds(decision)
    assert decision.status.tables_summary == "2/2"
    resumed = decide(replace(paused(2, spec=CHANGED), meta=meta(generation=2), status=decision.status), LIMITS)
    assert "StatefulSet" in applied(resumed.actions) and "ReconciliationPaused" not in kinds(resumed)
    assert resumed.status.applied_generation == 2


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"data_hashes": {**HASHES, "Secret/shop-db": "new"}},
        {"children": {}},
        {"executors": (pod(name="old", created=NOW - 1000),)},
    ],
    ids=["nothing", "a rotated Secret", "deleted children", "an old executor"],
)
def test_nothing_is_done_and_what_works_stays_ready(change: dict[str, Any]) -> None:
    decision = decide(paused(**change), LIMITS)
    assert decision.actions == () and decision.status.applied_template_hash == template(running())
    assert reason(decision) in ("Streaming", "Starting")


def test_a_stopped_driver_stays_stopped_whatever_asks_for_it() -> None:
    halt = Halt(reason="PositionLost", message="gone", lifted_by="x", at=times.text(NOW - 5000))
    every = SnapshotRequestSpec.model_validate({"replicator": "shop", "tables": ["*.*"], "resync": True})
    asked = ObservedResync("again", "22222222-2222-4222-8222-222222222222", every, taken=False)
    head = meta(paused=True, requested_at="now")
    status = settled().model_copy(update={"halt": halt})
    seen = observed(spec=CHANGED, meta=head, status=status, resyncs=(asked,), requests=(asked.uid,))
    decision = decide(seen, LIMITS)
    assert (decision.actions, decision.status.halt, decision.status.resync_uid) == ((), halt, None)
    assert decision.status.last_handled_reconcile_at is None, "it is handled once it may be"
    resumed = decide(replace(seen, meta=meta(requested_at="now"), status=decision.status), LIMITS)
    assert resumed.status.halt is None and replicas(resumed) == 1


def test_one_that_is_paused_from_the_start_is_not_taken_up() -> None:
    decision = decide(observed(meta=meta(paused=True, finalizers=())), LIMITS)
    assert decision.actions == () and reason(decision) == "ReconciliationPaused"
    assert decision.status.state == "Pending"


def test_a_deletion_goes_on() -> None:
    status = settled()
    decision = decide(replace(running(), status=status, meta=meta(paused=True, deleted_at=NOW)), LIMITS)
    assert decision.actions
