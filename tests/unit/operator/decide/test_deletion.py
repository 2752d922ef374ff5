"""What the operator does about a Replicator that is being deleted: driver, slot, data, and what stays behind."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, NOW, SPEC, applied, emitted, ended, meta, pod, recorded, reported, running
from tailrace.contract.driver import DropAnswer, DropReport, Problem
from tailrace.contract.ownership import made_name
from tailrace.contract.status import Fault
from tailrace_operator.decide.model import Delete, DropSource, SetFinalizers
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import Child, ObservedDriver, ObservedDrop, ObservedReplicator
from tailrace_operator.resources import drop, names
from tailrace_operator.status import times
from tailrace_operator.status.models import DriverSummary, Halt, ReplicatorStatus

UID = meta().uid
NAME = made_name("shop", UID)
MADE = (f"replication slot {NAME}", f"publication {NAME}")


ORPHAN: dict[str, Any] = {"spec": {**SPEC, "deletionPolicy": "Orphan"}}
DATABASE = {"type": "mysql", "host": "db", "username": "u", "credentials": {"secretName": "shop-db"}}
MYSQL = {"spec": {**SPEC, "source": DATABASE, "tables": {"include": ["shop.*"]}}}


def report(**change: Any) -> DropReport:
    plain = DropReport(owner=f"team/shop@{UID}", complete=True, dropped=MADE)
    return plain.model_copy(update=change)


def deleting(begun: float = 0.0, **change: Any) -> ObservedReplicator:
    """`begun`: seconds ago."""
    observed = running(reported(made=MADE), meta=meta(deleted_at=NOW), **change)
    since = times.text(NOW - begun) if begun else None
    return replace(observed, status=ReplicatorStatus(applied_template_hash="x", deletion_started_at=since))


def without_driver(observed: ObservedReplicator) -> ObservedReplicator:
    """It has ended; what it said is in the status."""
    status = observed.status.model_copy(update={"made": MADE})
    return replace(observed, pods=(), children={}, driver=ObservedDriver(), status=status)


def job_of(observed: ObservedReplicator, **change: Any) -> Child:
    """The Job that is made for this one."""
    made = applied(decide(replace(observed, cleaners=(), children={}), LIMITS).actions)["Job"]
    return Child("Job", "shop-drop", "j", "1", "", made["metadata"]["annotations"][names.TEMPLATE_HASH], **change)


def arguments(observed: ObservedReplicator) -> list[str]:
    """The command of the Job."""
    job = applied(decide(observed, LIMITS).actions)["Job"]
    found: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_the_running_driver_is_asked_first_and_released_once_it_has_dropped() -> None:
    """Its Secret may be gone already; its process has the credentials."""
    observed = deleting()
    first = decide(observed, LIMITS)
    assert first.actions == (DropSource("Retain"),)
    assert first.intent and first.status.deletion_started_at is not None
    under_way = ObservedDrop(NOW, DropAnswer(done=False, message="Retry: the source is away"), code=200)
    second = decide(replace(observed, status=first.status, dropping=under_way), LIMITS)
    assert second.actions == (DropSource("Retain"),)
    assert "the source is away" in second.status.message
    done = ObservedDrop(NOW, DropAnswer(done=True, report=report()), code=200)
    third = decide(replace(observed, status=first.status, dropping=done), LIMITS)
    assert third.actions == (SetFinalizers(()),)
    assert emitted(third) == [("Normal", "CleanedUp")]
    assert NAME in third.events[0].message


@pytest.mark.parametrize(
    ("policy", "command", "data"), [("Retain", "drop", False), ("Delete", "drop", True), ("Orphan", "release", False)]
)
def test_the_policy_goes_to_the_driver_and_to_the_job_of_one_without(policy: str, command: str, data: bool) -> None:
    observed = deleting(spec={**SPEC, "deletionPolicy": policy})
    assert [a.policy for a in decide(observed, LIMITS).actions if isinstance(a, DropSource)] == [policy]
    given = arguments(without_driver(observed))
    assert given[:2] == ["tailrace", command] and ("--data" in given) is data


@pytest.mark.parametrize("why", ["silent", "old", "slow", "gone", "waits"])
def test_where_no_driver_drops_it_is_ended_and_a_job_does_it(why: str) -> None:
    observed = deleting(begun=10)
    match why:
        case "silent":
            observed = replace(observed, driver=ObservedDriver(silent_since=NOW - 60))
        case "old":
            refusal = ObservedDrop(NOW, problem=Problem(name="NotFound", message="no such path"), code=404)
            observed = replace(observed, dropping=refusal)
        case "slow":
            observed = deleting(begun=LIMITS.cleanup_seconds / 2)
        case "gone":
            observed = replace(observed, pods=(pod(deleting=True),))
        case "waits":
            observed = replace(observed, pods=(pod(running_since=None, waiting="ImagePullBackOff"),))
        case _:
            raise AssertionError(why)
    assert [type(a) for a in decide(observed, LIMITS).actions] == [Delete]
    made = applied(decide(without_driver(observed), LIMITS).actions)
    assert "Job" in made
    assert UID in made["ConfigMap"]["data"]["replicator.yaml"], "the Job proves whose it is"


def test_a_driver_that_does_not_answer_once_is_asked_again() -> None:
    missed = ObservedDrop(NOW, problem=Problem(name="DriverUnreachable", message="no answer"))
    assert decide(replace(deleting(begun=5), dropping=missed), LIMITS).actions == (DropSource("Retain"),)


def test_a_driver_that_released_the_change_log_names_what_fills_a_disk() -> None:
    observed = deleting(**ORPHAN)
    first = decide(observed, LIMITS)
    assert "waiting for the driver to release the change log" in first.status.message.lower()
    done = ObservedDrop(NOW, DropAnswer(done=True, report=report(dropped=(), released=True)), code=200)
    last = decide(replace(observed, status=first.status, dropping=done), LIMITS)
    assert last.actions == (SetFinalizers(()),) and emitted(last) == [("Normal", "Released")]
    assert "s3://" in last.events[0].message and all(what in last.events[0].message for what in MADE)


def test_an_orphan_of_a_change_log_that_is_anothers_releases_nothing() -> None:
    kept = report(dropped=(), kept=("change log s3://l: the change log at s3://l belongs to team/other@1",))
    observed = replace(without_driver(deleting(begun=5, **ORPHAN)), reports=(kept,))
    events = decide(observed, LIMITS).events
    assert [s.reason for s in events] == ["CleanedUp", "Kept"] and "belongs to team/other@1" in events[1].message


@pytest.mark.parametrize("spent", [0, 17, 580])
def test_the_job_tries_for_the_whole_time_that_a_deletion_waits(spent: int) -> None:
    observed = without_driver(deleting(begun=spent))
    job = applied(decide(observed, LIMITS).actions)["Job"]["spec"]
    left = int(LIMITS.cleanup_seconds) - spent
    assert job["activeDeadlineSeconds"] == left
    given = arguments(observed)
    assert given[given.index("--wait") + 1] == f"{max(left - drop.LAST_SECONDS, 0)}s"
    pauses = sum(min(10 * 2**n, 360) for n in range(job["backoffLimit"]))
    assert pauses > LIMITS.cleanup_seconds, "pods that die do not use up its attempts before its time"


def test_what_was_kept_because_nothing_proves_it_is_told_in_an_event() -> None:
    kept = report(dropped=(), kept=("replication slot x: the change log at s3://l belongs to team/other@1",))
    observed = replace(without_driver(deleting(begun=5)), reports=(kept,))
    decision = decide(observed, LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert emitted(decision) == [("Normal", "CleanedUp"), ("Warning", "Kept")]
    assert "replication slot x: the change log at s3://l belongs to team/other@1" in decision.events[1].message


def test_the_last_words_of_a_namesake_or_of_an_unfinished_drop_release_nothing() -> None:
    others = (report(owner="team/shop@another"), report(complete=False))
    observed = replace(without_driver(deleting(begun=5)), reports=others)
    assert "Job" in applied(decide(observed, LIMITS).actions)


def test_the_last_words_of_a_driver_whose_namespace_ends_are_enough() -> None:
    observed = replace(without_driver(deleting()), namespace_ends=True, reports=(report(),))
    assert [s.reason for s in decide(observed, LIMITS).events] == ["CleanedUp"]


@pytest.mark.parametrize(("spec", "word"), [({}, "CleanedUp"), (ORPHAN, "Released")])
def test_the_end_of_the_clean_up_releases_the_object(spec: dict[str, Any], word: str) -> None:
    done = Child("Job", "shop-drop", "j", "1", "", succeeded=True)
    decision = decide(replace(without_driver(deleting(**spec)), children={"Job/shop-drop": done}), LIMITS)
    assert decision.actions == (SetFinalizers(()),) and emitted(decision) == [("Normal", word)]


def stays(how: str, observed: ObservedReplicator) -> ObservedReplicator:
    match how:
        case "failed":
            job = job_of(observed, failed=True)
            dead = pod(name="shop-drop-x", ended=ended(1, Fault(name="Retry", message="no route to host")))
            return replace(observed, children={"Job/shop-drop": job}, cleaners=(dead,))
        case "late":
            begun = observed.status.model_copy(update={"deletion_started_at": "2027-01-01T00:00:00Z"})
            return replace(observed, status=begun)
        case _:
            return replace(observed, namespace_ends=True)


LEFT: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, str], tuple[str, ...]]] = {
    "what it made": ({}, MADE, ("Warning", "LeftBehind"), MADE),
    "nothing, as the first start did not come so far": ({}, (), ("Normal", "NothingKnown"), (NAME,)),
    "nothing, as in this source nothing is made": (MYSQL, (), ("Normal", "NothingLeft"), ("nothing at db:3306",)),
    "what continues": (ORPHAN, MADE, ("Warning", "NotReleased"), (f"storage.adopt to 'team/shop@{UID}'", *MADE)),
    "nothing that could continue": (ORPHAN, (), ("Normal", "NothingKnown"), (NAME,)),
}


@pytest.mark.parametrize("how", ["failed", "late", "namespace"])
@pytest.mark.parametrize("case", LEFT)
def test_what_stays_behind_is_named_and_the_object_is_released_all_the_same(case: str, how: str) -> None:
    spec, made, event, words = LEFT[case]
    decision = decide(stays(how, recorded(without_driver(deleting(**spec)), made=made)), LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert emitted(decision) == [event]
    message = decision.events[0].message
    assert all(word in message for word in words)
    assert event[1] != "LeftBehind" or (how == "failed") == ("no route to host" in message)


OVER = Halt(reason="CutOver", message="The cutover is done. Fix: Delete this Replicator.", at=times.text(NOW))
WITH_DATA: dict[str, Any] = {"spec": {**SPEC, "deletionPolicy": "Delete"}}


def after_cutover(**change: Any) -> ObservedReplicator:
    """Its tables are to be deleted, as far as the spec says."""
    return recorded(without_driver(deleting(**{**WITH_DATA, **change})), halt=OVER)


@pytest.mark.parametrize("how", ["failed", "late", "namespace"])
def test_nobody_is_told_to_drop_tables_that_programs_write_to_since_a_cutover(how: str) -> None:
    before, after = (
        decide(stays(how, seen), LIMITS).events[0] for seen in (recorded(after_cutover(), halt=None), after_cutover())
    )
    assert before.reason == after.reason == "LeftBehind"
    assert "tables at" in before.message and "tables at" not in after.message
    assert "the tables stay: since the cutover programs write to them" in after.message
    assert all(what in after.message for what in (*MADE, "change log at s3://"))


@pytest.mark.parametrize("leaving", [False, True])
def test_a_cutover_that_is_done_after_the_deletion_has_begun_is_recorded(leaving: bool) -> None:
    """The driver was asked to drop what it had made, and ended with its success instead."""
    over = Fault(name="CutOver", message="the cutover is done", fix="Delete this Replicator.")
    ends = pod(running_since=None, ready=False, ended=ended(10, over), deleting=leaving)
    first = decide(replace(deleting(5, **WITH_DATA), pods=(ends,)), LIMITS)
    halt = first.status.halt
    assert halt is not None and (halt.reason, halt.message) == (
        "CutOver",
        "the cutover is done. Fix: Delete this Replicator.",
    )
    assert first.intent, "before the pod is gone"
    later = without_driver(deleting(LIMITS.cleanup_seconds, **WITH_DATA))
    message = decide(recorded(later, halt=halt), LIMITS).events[0].message
    assert "tables at" not in message and "the tables stay: since the cutover programs write to them" in message
    again = decide(replace(deleting(6, **WITH_DATA), pods=(ends,), status=first.status), LIMITS)
    assert again.status.halt == halt and not again.intent
    other = Fault(name="PositionLost", message="the slot is gone")
    plain = replace(deleting(5), pods=(replace(ends, ended=ended(12, other)),))
    assert decide(plain, LIMITS).status.halt is None


def test_tables_of_a_declared_cutover_are_named_with_care_where_its_end_was_not_seen() -> None:
    """A driver that starts again after a changed spec, say, and has not ended again."""
    target = {"type": "postgresql", "host": "new", "database": "shop", "username": "t", "adopt": True}
    spec = {**WITH_DATA["spec"], "target": {**target, "credentials": {"secretName": "lake"}}, "cutover": {}}
    unseen = recorded(after_cutover(spec=spec), halt=None)
    message = decide(stays("late", unseen), LIMITS).events[0].message
    assert "tables at new:5432/shop (not if programs write to them since a cutover), change log" in message


def test_the_clean_up_after_a_cutover_does_not_claim_that_the_tables_are_deleted() -> None:
    done = Child("Job", "shop-drop", "j", "1", "", succeeded=True)
    by_job = decide(replace(after_cutover(), children={"Job/shop-drop": done}), LIMITS)
    by_report = decide(replace(after_cutover(), reports=(report(),)), LIMITS)
    for found in (by_job, by_report):
        assert emitted(found) == [("Normal", "CleanedUp")]
        message = found.events[0].message
        assert "tables and change log are deleted" not in message
        assert "the tables stay: since the cutover programs write to them" in message


def test_a_secret_that_is_missing_is_named_while_the_clean_up_waits_for_it() -> None:
    observed = replace(without_driver(deleting(begun=5)), data_hashes={})
    assert "'lake'" in decide(observed, LIMITS).status.message or "'shop-db'" in decide(observed, LIMITS).status.message


def test_what_the_driver_made_stays_known_when_it_is_silent() -> None:
    first = decide(deleting(), LIMITS)
    assert first.status.made == MADE
    silent = replace(deleting(), status=first.status, driver=ObservedDriver(silent_since=NOW - 60))
    assert decide(silent, LIMITS).status.made == MADE


def test_a_replicator_that_never_had_a_driver_is_released_at_once() -> None:
    observed = replace(deleting(), status=ReplicatorStatus())
    assert decide(observed, LIMITS).actions == (SetFinalizers(()),)


def test_a_replicator_whose_specs_are_all_invalid_by_now_is_released_and_says_what_may_stay() -> None:
    """A newer operator may be stricter than the one that started the driver."""
    observed = replace(deleting(), spec={**SPEC, "retry": {"time": "soon"}}, running_spec=None)
    decision = decide(observed, LIMITS)
    assert decision.actions == (SetFinalizers(()),)
    assert (decision.events[0].type, decision.events[0].reason) == ("Warning", "LeftBehind")
    assert NAME in decision.events[0].message


def with_job(begun: float, **change: Any) -> ObservedReplicator:
    """Its clean-up Job has a pod."""
    job = job_of(without_driver(deleting()))
    cleaner = pod(name="shop-drop-x", ready=False, phase="Pending", ip=None, running_since=None)
    return replace(
        without_driver(deleting(begun)), children={"Job/shop-drop": job}, cleaners=(replace(cleaner, **change),)
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unscheduled": 'persistentvolumeclaim "shop-data" not found'}, 'claim "shop-data" not found'),
        ({"waiting": "ImagePullBackOff", "waiting_message": "no such image"}, "ImagePullBackOff: no such image"),
        ({"ended": ended(11, Fault(name="AuthenticationFailed", message="wrong password"))}, "wrong password"),
    ],
)
def test_what_the_clean_up_waits_for_is_named_and_until_when(change: dict[str, Any], why: str) -> None:
    decision = decide(with_job(60, **change), LIMITS)
    assert why in decision.status.message
    assert times.text(NOW - 60 + LIMITS.cleanup_seconds) in decision.status.message
    late = decide(with_job(LIMITS.cleanup_seconds, **change), LIMITS)
    assert late.actions == (SetFinalizers(()),) and why in late.events[0].message


@pytest.mark.parametrize("change", [{"waiting": "ImagePullBackOff"}, {"unscheduled": "no nodes"}, {}])
def test_the_clean_up_after_a_driver_that_never_started_waits_only_a_minute_for_its_own_pod(
    change: dict[str, Any],
) -> None:
    """What kept the driver from starting keeps the Job's pod as well, and nothing was made."""

    def after(seconds: float, **more: Any) -> ObservedReplicator:
        observed = with_job(seconds, **(change | more))
        return recorded(observed, made=())

    assert decide(after(59), LIMITS).actions == ()
    late = decide(after(61), LIMITS)
    assert late.actions == (SetFinalizers(()),)
    assert emitted(late) == [("Normal", "NothingKnown")]
    assert "No driver has ever started, nor can the clean-up" in late.events[0].message
    none = replace(after(61), cleaners=())
    assert decide(none, LIMITS).actions == (SetFinalizers(()),)
    running = after(61, running_since=NOW - 5)
    assert decide(running, LIMITS).actions == (), "the Job may find what no operator saw"
    assert decide(after(61, created=NOW - 20), LIMITS).actions == (), "it has hardly had the time"
    failed = after(61, ended=ended(1))
    assert decide(failed, LIMITS).actions == ()
    ran = after(61).status.model_copy(update={"driver": DriverSummary(has_run=True)})
    assert decide(replace(after(61), status=ran), LIMITS).actions == ()


@pytest.mark.parametrize("how", [{"running_since": NOW - 5}, {"running_since": None, "ended": ended(1)}])
def test_that_a_driver_has_run_is_remembered_when_its_pod_is_gone(how: dict[str, Any]) -> None:
    fresh = replace(running(), status=ReplicatorStatus(), driver=ObservedDriver())
    waiting = replace(fresh, pods=(pod(running_since=None, waiting="ImagePullBackOff"),))
    assert not decide(waiting, LIMITS).status.driver.has_run
    seen = decide(replace(fresh, pods=(pod(**how),)), LIMITS).status
    assert decide(replace(fresh, status=seen, pods=()), LIMITS).status.driver.has_run
    between = replace(fresh, meta=meta(deleted_at=NOW), status=ReplicatorStatus(applied_template_hash="x"))
    first = decide(replace(between, pods=(pod(**how, deleting=True),)), LIMITS).status
    assert first.driver.has_run, "the first to see it may be the one that deletes it"


def test_a_job_whose_pod_cannot_even_be_made_sends_the_reader_to_its_events() -> None:
    """A quota of no pods: Job and pod say nothing, only an event does."""
    alone = replace(with_job(60), cleaners=())
    assert "job shop-drop has no pod" in decide(alone, LIMITS).status.message
    refused = replace(alone, refused_pods={"Job/shop-drop": 'pods "shop-drop-" is forbidden: exceeded quota: tight'})
    assert "exceeded quota: tight" in decide(refused, LIMITS).status.message


def test_while_the_job_runs_what_stopped_the_driver_is_told() -> None:
    halt = Halt(reason="AuthenticationFailed", message="AuthenticationFailed: no", at=times.text(NOW))
    observed = with_job(60, running_since=NOW - 50, ip="127.0.0.3", phase="Running")
    observed = recorded(observed, halt=halt)
    assert "AuthenticationFailed: no" in decide(observed, LIMITS).status.message


def test_a_cutover_is_not_told_as_what_the_clean_up_waits_for() -> None:
    observed = with_job(60, running_since=NOW - 50, ip="127.0.0.3", phase="Running")
    waits, late = (decide(recorded(seen, halt=OVER), LIMITS) for seen in (observed, stays("late", observed)))
    assert "clean-up of source and storage; at" in waits.status.message
    assert "within 10m;" in late.events[0].message
    for text in (waits.status.message, late.events[0].message):
        assert "stopped by" not in text and "Delete this Replicator" not in text
