"""The clean-up's Job: it follows the newest spec, and does not try for ten minutes what was never begun."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import HASHES, LIMITS, NOW, SPEC, applied, emitted, ended, meta, pod, reported, running
from tailrace.contract.driver import DropAnswer
from tailrace.contract.status import Fault
from tailrace_operator.decide.model import ApplyChild, Delete, DropSource, SetFinalizers
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import Child, ObservedDriver, ObservedDrop, ObservedPod, ObservedReplicator
from tailrace_operator.resources import names
from tailrace_operator.status import times
from tailrace_operator.status.models import DriverSummary, Halt, ReplicatorStatus, TableCounts

INVALID = ended(2, Fault(name="InvalidManifest", message="storage.location is bad", fix="Correct it."))
REFUSED = ("InvalidManifest", "ConfigurationRefused", "AuthenticationFailed")
MADE = ("replication slot x",)


def deleting(spent: float, halt: str | None = "InvalidManifest", **change: Any) -> ObservedReplicator:
    """No driver runs any more, and the operator stopped it for this reason."""
    found = running(meta=meta(deleted_at=NOW), **change)
    stopped = Halt(reason=halt, message=f"{halt}: no", at=times.text(NOW)) if halt is not None else None
    begun = times.text(NOW - spent)
    ran = DriverSummary(has_run=True)
    status = ReplicatorStatus(applied_template_hash="x", deletion_started_at=begun, halt=stopped, driver=ran)
    return replace(found, status=status, pods=(), children={}, driver=ObservedDriver())


def cleaner(**change: Any) -> ObservedPod:
    plain = pod(name="shop-drop-x", ready=False, ip=None, running_since=None, created=NOW - 61, phase="Failed")
    return replace(plain, **change)


def with_job(observed: ObservedReplicator, *cleaners: ObservedPod, **change: Any) -> ObservedReplicator:
    made = applied(decide(observed, LIMITS).actions)["Job"]["metadata"]["annotations"][names.TEMPLATE_HASH]
    job = Child("Job", "shop-drop", "j-uid", "1", "", made, **change)
    return replace(observed, children={"Job/shop-drop": job}, cleaners=cleaners)


def test_a_replicator_whose_manifest_never_was_valid_goes_after_a_minute_of_attempts() -> None:
    first = cleaner(created=NOW - 59, ended=INVALID)
    assert decide(with_job(deleting(70), first), LIMITS).actions == ()
    later = with_job(deleting(75), replace(first, created=NOW - 61), cleaner(created=NOW - 5, ended=INVALID))
    decision = decide(later, LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert emitted(decision) == [("Normal", "NothingKnown")]
    said = decision.events[0].message
    assert said.startswith("The clean-up fails as the driver did (InvalidManifest: storage.location is bad"), said


@pytest.mark.parametrize("halt", REFUSED)
def test_an_attempt_that_goes_on_is_not_waited_for_where_the_driver_was_refused(halt: str) -> None:
    trying = cleaner(running_since=NOW - 61, phase="Running", ip="127.0.0.3")
    assert decide(with_job(deleting(70, halt), trying), LIMITS).actions == (SetFinalizers(()),)
    assert decide(with_job(deleting(70, halt), replace(trying, running_since=NOW - 59)), LIMITS).actions == ()
    for worked in ("PositionLost", "Fenced", "RestartLimitExceeded", None):
        assert decide(with_job(deleting(70, worked), trying), LIMITS).actions == (), worked


@pytest.mark.parametrize("known", [{"made": MADE}, {"tables": TableCounts(total=1)}])
def test_what_a_driver_said_that_it_made_is_waited_for_the_whole_time(known: dict[str, Any]) -> None:
    observed = with_job(deleting(500), cleaner(ended=INVALID))
    observed = replace(observed, status=observed.status.model_copy(update=known))
    decision = decide(observed, LIMITS)
    assert decision.actions == () and "storage.location is bad" in decision.status.message


def test_a_driver_that_cannot_reach_its_source_and_never_did_is_asked_for_a_minute() -> None:
    def asked(spent: float, message: str, **status: Any) -> tuple[Any, ...]:
        fault = Fault(name="Retry", message="no route to host", where="source")
        plain: dict[str, Any] = {"state": "Failing", "fault": fault, "tables_total": 0, "tables_replicating": 0}
        observed = running(reported(**{**plain, **status}), meta=meta(deleted_at=NOW))
        before = ReplicatorStatus(applied_template_hash="x", deletion_started_at=times.text(NOW - spent))
        answer = ObservedDrop(NOW, DropAnswer(done=False, message=message), code=200)
        return decide(replace(observed, status=before, dropping=answer), LIMITS).actions

    again = (DropSource("Retain"),)
    assert asked(59, "Retry: no route to host") == again
    assert asked(61, "Retry: no route to host") == (SetFinalizers(()),)
    assert asked(61, "the driver finishes its work first") == again, "it may be making something right now"
    assert asked(61, "Retry: no route to host", made=MADE) == again
    assert asked(61, "Retry: no route to host", tables_total=1) == again


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {**SPEC, "storage": {**SPEC["storage"], "location": "s3://lake/other"}}},
        {"spec": {**SPEC, "deletionPolicy": "Delete"}},
        {"spec": {**SPEC, "image": "another"}},
        {"data_hashes": {**HASHES, "Secret/lake": "l2"}},
    ],
)
@pytest.mark.parametrize("failed", [False, True])
def test_a_change_during_the_deletion_reaches_the_job(change: dict[str, Any], failed: bool) -> None:
    """By a new one, once the pods of the old one are gone: what they said counts no longer."""
    old = with_job(deleting(300), cleaner(created=NOW - 200, ended=INVALID), failed=failed)
    edited = replace(old, **change)
    assert decide(edited, LIMITS).actions == (Delete("Job", "shop-drop", "j-uid"),)
    assert decide(replace(edited, children={}), LIMITS).actions == ()
    made = applied(decide(replace(edited, children={}, cleaners=()), LIMITS).actions)
    assert made.keys() >= {"Job", "ConfigMap"}
    location = change.get("spec", SPEC)["storage"]["location"]
    assert location in made["ConfigMap"]["data"]["replicator.yaml"]
    assert made["Job"]["spec"]["activeDeadlineSeconds"] == LIMITS.cleanup_seconds - 300


def test_a_secret_that_appears_during_the_deletion_is_used_and_one_that_goes_ends_nothing() -> None:
    lacks = {place: found for place, found in HASHES.items() if place != "Secret/lake"}
    waiting = with_job(replace(deleting(10), data_hashes=lacks), cleaner(phase="Pending", created=NOW - 5))
    assert decide(waiting, LIMITS).actions == ()
    assert decide(replace(waiting, data_hashes=HASHES), LIMITS).actions == (Delete("Job", "shop-drop", "j-uid"),)
    works = with_job(deleting(10), cleaner(phase="Running", running_since=NOW - 5))
    assert decide(replace(works, data_hashes=lacks), LIMITS).actions == ()
    own = {**HASHES, "Secret/shop-driver": "t2", "Secret/shop-spark": "s2"}
    assert decide(replace(works, data_hashes=own), LIMITS).actions == (), "the Job has none of the driver's own"


def test_the_newest_pod_says_what_the_clean_up_meets() -> None:
    """Their names are random."""
    older = cleaner(name="shop-drop-z", created=NOW - 40, ended=ended(1, Fault(name="Retry", message="no route")))
    newer = cleaner(name="shop-drop-a", created=NOW - 20, ended=ended(1, Fault(name="Retry", message="no such host")))
    said = decide(with_job(deleting(50), newer, older), LIMITS).status.message
    assert "no such host" in said and "no route" not in said
    assert not any(isinstance(a, ApplyChild) for a in decide(with_job(deleting(50), newer, older), LIMITS).actions)
