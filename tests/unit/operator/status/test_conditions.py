"""Whatever the operator sees, in whatever order: its conditions keep the rules that GitOps tools rely on."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.observed import HASHES, LIMITS, MADE, NOW, SPEC, ended, meta, observed, pod, reported, request, template
from tailrace.contract.driver import Problem
from tailrace.contract.status import CaptureStatus, Fault, SnapshotStatus, State, TableState, TableStatus
from tailrace_operator.decide import executors, replicator, rollout, summary
from tailrace_operator.decide import request as requests
from tailrace_operator.decide.claims import ASSESSED, INITIAL
from tailrace_operator.decide.desired import resolve
from tailrace_operator.decide.model import ApplyChild
from tailrace_operator.observe.model import FINALIZER, Child, DriverAnswer, ObservedDriver, ObservedReplicator, Refusal
from tailrace_operator.status.conditions import bounded, clause, sentence, violations
from tailrace_operator.status.models import FINAL, MAX_CONDITIONS, ReplicatorStatus

WHERE = st.sampled_from([None, "source", "target", "storage", "capture", "driver"])
CODES = st.sampled_from([0, 1, 2, 10, 11, 12, 13, 137, 143])
faults = st.none() | st.builds(Fault, name=st.sampled_from(["SourceGone", "TargetSlow", "Odd"]), message=st.text())

tables = st.builds(
    TableStatus,
    name=st.text(max_size=300),
    state=st.sampled_from(get_args(TableState)),
    read=st.sampled_from([None, True, False]),
    fault=faults,
)


@st.composite
def worlds(draw: st.DrawFn, generation: int, now: float) -> ObservedReplicator:
    """Any state of a cluster around one Replicator."""
    spec: dict[str, Any] = {**SPEC, "suspend": draw(st.booleans()), "restartNonce": draw(st.integers(0, 2))}
    spec["onTableFailure"] = draw(st.sampled_from(["Degrade", "NotReady"]))
    if draw(st.integers(0, 5)) == 0:
        spec = {**spec, "retry": {"time": "soon"}}
    hashes = {place: draw(st.sampled_from(["a", "b"])) for place in HASHES if draw(st.integers(0, 9))}
    asked, paused = draw(st.sampled_from([None, "x", "y"])), draw(st.sampled_from([False, False, True]))
    head = meta(generation=generation, requested_at=asked, paused=paused)
    base = observed(now=now, meta=head, spec=spec, data_hashes=hashes, running_spec=draw(st.sampled_from([None, SPEC])))
    desired = resolve(base, LIMITS).template_hash or "none"
    template_hash = draw(st.sampled_from([desired, desired, "other"]))
    pods = draw(st.lists(pods_of(template_hash, now), max_size=2))
    children = dict(MADE)
    if draw(st.booleans()):
        child = Child("StatefulSet", "shop-driver", "s", "1", "", template_hash, draw(st.integers(0, 1)))
        children["StatefulSet/shop-driver"] = child
    answer = reported(
        state=draw(st.sampled_from(get_args(State))),
        message=draw(st.text(max_size=3000)),
        tables_failing=draw(st.integers(0, 2)),
        tables=tuple(draw(st.lists(tables, max_size=3))),
        capture=CaptureStatus(
            lag_seconds=draw(st.sampled_from([None, 0.0, 1000.0])),
            retained_bytes=draw(st.sampled_from([None, 0, 20 << 30])),
        ),
        fault=draw(faults),
    )
    driver = draw(
        st.sampled_from(
            [ObservedDriver(), ObservedDriver(answer, now), ObservedDriver(answer, now - 20, now - 15, "E")]
        )
    )
    refusal = draw(st.sampled_from([None, None, Refusal("StatefulSet x", "h", "no")]))
    executors = tuple(draw(st.lists(pods_of(template_hash, now), max_size=2)))
    return replace(base, pods=tuple(pods), executors=executors, children=children, driver=driver, refusal=refusal)


@st.composite
def pods_of(draw: st.DrawFn, template_hash: str, now: float) -> Any:
    runs = draw(st.booleans())
    faults = st.none() | st.builds(Fault, name=st.text(max_size=300), message=st.text(max_size=100), where=WHERE)
    end = draw(st.none() | st.builds(ended, CODES, faults, st.just(now - 3)))
    return pod(
        uid=draw(st.sampled_from(["p1", "p2"])),
        template_hash=template_hash,
        ready=runs and draw(st.booleans()),
        deleting=draw(st.booleans()),
        created=now - draw(st.floats(1, 1000)),
        running_since=now - draw(st.floats(0, 1000)) if runs else None,
        phase="Running" if runs else draw(st.sampled_from(["Pending", "Failed"])),
        unscheduled=None if runs else draw(st.none() | st.text(max_size=2000)),
        waiting=None if runs else draw(st.sampled_from([None, "CrashLoopBackOff", "ImagePullBackOff"])),
        restarts=draw(st.integers(0, 5)),
        ended=end,
    )


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_conditions_keep_the_rules_through_any_history(data: st.DataObject) -> None:
    status, now, generation = ReplicatorStatus(), NOW, 1
    for _ in range(data.draw(st.integers(1, 5))):
        generation += data.draw(st.integers(0, 1))
        now += data.draw(st.floats(0, 4000))
        observed = replace(data.draw(worlds(generation, now)), status=status)
        decision = replicator.decide(observed, LIMITS)
        found = decision.status
        assert violations(found.conditions, found.observed_generation, generation) == []
        assert [e.message for e in decision.events] == [sentence(e.message) for e in decision.events]
        assert len(found.model_dump_json()) < 100_000
        _times_move_with_the_status_only(status, found)
        initial = {c.type for c in status.conditions} & {INITIAL}
        assert initial <= {c.type for c in found.conditions}, "what was read is not forgotten while no driver tells"
        ReplicatorStatus.model_validate(found.model_dump(mode="json", by_alias=True))
        status = found


def _times_move_with_the_status_only(before: ReplicatorStatus, after: ReplicatorStatus) -> None:
    old = {c.type: c for c in before.conditions}
    for condition in after.conditions:
        was = old.get(condition.type)
        if was is not None and was.status == condition.status:
            assert was.last_transition_time == condition.last_transition_time


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_stopped_driver_stays_stopped_until_something_it_depends_on_changes(data: st.DataObject) -> None:
    observed = data.draw(worlds(1, NOW))
    decision = replicator.decide(observed, LIMITS)
    if decision.status.halt is None:
        return
    later = replace(observed, status=decision.status, now=NOW + 1000, refusal=None)
    again = replicator.decide(later, LIMITS)
    assert again.status.halt == decision.status.halt
    counts = [a.document["spec"]["replicas"] for a in again.actions if isinstance(a, ApplyChild) and _is_set(a)]
    assert all(count == 0 for count in counts)


def _is_set(action: ApplyChild) -> bool:
    return bool(action.document["kind"] == "StatefulSet")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_deciding_again_on_the_same_sight_changes_nothing(data: st.DataObject) -> None:
    observed = data.draw(worlds(1, NOW))
    first = replicator.decide(observed, LIMITS)
    second = replicator.decide(replace(observed, status=first.status), LIMITS)
    assert second.status == first.status
    assert not second.intent


snapshots = st.none() | st.builds(
    SnapshotStatus,
    id=st.just("22222222-2222-4222-8222-222222222222"),
    reason=st.just("request"),
    state=st.sampled_from(["Pending", "Running", "Paused", "Completed", "Failed", "Stopped"]),
    rows_done=st.integers(0, 10),
    rows_estimated=st.integers(0, 10),
    fault=faults,
)
answers = st.none() | st.builds(
    DriverAnswer,
    accepted=st.booleans(),
    record=st.none() | st.integers(0, 9),
    problem=st.none() | st.builds(Problem, name=st.just("Conflict"), message=st.text()),
    code=st.sampled_from([0, 200, 401, 404, 409, 422, 500, 503]),
)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_requests_conditions_keep_the_rules_and_its_end_is_final(data: st.DataObject) -> None:
    observed = request(meta=replace(request().meta, finalizers=(FINALIZER,)))
    for generation in range(1, data.draw(st.integers(2, 5))):
        observed = replace(
            observed,
            meta=replace(observed.meta, generation=generation),
            spec={**observed.spec, "suspend": data.draw(st.booleans())},
            replicator=data.draw(st.booleans()),
            replicator_idle=data.draw(st.sampled_from([None, "it is suspended."])),
            driver=data.draw(st.sampled_from([ObservedDriver(), ObservedDriver(reported(), NOW)])),
            snapshot=data.draw(snapshots),
            answer=data.draw(answers),
        )
        was_final = observed.status.state in FINAL
        decision = requests.decide(observed, LIMITS)
        found = decision.status
        assert violations(found.conditions, found.observed_generation, generation) == []
        assert [e.message for e in decision.events] == [sentence(e.message) for e in decision.events]
        assert not was_final or found.state == observed.status.state
        observed = replace(observed, status=found)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the driver's pod is starting", "The driver's pod is starting."),
        ("spec.suspend is true; the source keeps its log meanwhile.", None),
        ("spec: tables.include: at least 1 item.", None),
        ("PositionLost: the slot is gone. Fix: Resync.", None),
        ("3 tables\n are failing", "3 tables are failing."),
        ("", None),
    ],
)
def test_conditions_and_events_are_sentences(said: str, shown: str | None) -> None:
    assert sentence(said) == (said if shown is None else shown)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("", ""),
        ("spec.suspend is true; the source keeps its log.", "spec.suspend is true"),
        ("waiting for the driver's pod.", "Waiting for the driver's pod"),
        ("the driver failed and is restarted; last: OutOfMemory: it was killed", "The driver failed and is restarted"),
        ("PositionLost: slot a.b is gone. Fix: Resync.", "PositionLost: slot a.b is gone"),
        ("x" * 200, f"X{'x' * 75} …"),
        (
            "pod a cannot be scheduled: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity",
            "Pod a cannot be scheduled: 0/3 nodes are available: 3 node(s) didn't match …",
        ),
    ],
)
def test_a_column_shows_the_first_clause(said: str, shown: str) -> None:
    assert clause(said) == shown


@given(st.text(max_size=5000))
def test_a_clause_is_short_and_one_line(text: str) -> None:
    found = clause(text)
    assert len(found) <= 80 and "\n" not in found
    assert bool(found) <= bool(text.strip())


@given(st.text(max_size=5000))
def test_a_sentence_said_again_stays_the_same(text: str) -> None:
    assert sentence(sentence(text)) == sentence(text)


@given(st.text(max_size=5000))
def test_messages_are_one_bounded_line(text: str) -> None:
    line = bounded(text)
    assert len(line.encode()) <= 1024
    assert "\n" not in line


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_only_a_finished_snapshot_shows_a_hundred_percent(done: int, estimated: int) -> None:
    assert summary.percentage(done, estimated, False) != "100%"
    assert summary.percentage(done, estimated, True) == "100%"


def test_the_rules_themselves_bite() -> None:
    decision = replicator.decide(observed(), LIMITS)
    good = decision.status.conditions
    ready = next(c for c in good if c.type == "Ready").model_copy(update={"status": "True"})
    bad = tuple(ready if c.type == "Ready" else c for c in good)
    assert violations(good, 1, 1) == []
    assert "Ready is not True while Reconciling or Stalled" in violations(bad, 1, 1)
    assert "Ready is not True for an older generation" in violations(bad, 1, 2)
    assert "Ready is present" in violations((), 1, 1)


def test_the_template_is_the_same_for_the_same_sight() -> None:
    assert template(observed()) == template(observed())


def test_there_is_room_for_all_conditions_at_once() -> None:
    """The API server refuses a status with more."""
    folder = Path(replicator.__file__).parents[1]
    text = "\n".join(path.read_text() for room in ("decide", "status") for path in (folder / room).rglob("*.py"))
    types = set(re.findall(r'Claim\(\s*"([A-Za-z]+)"', text)) | {rollout.TYPE, executors.TYPE, ASSESSED, INITIAL}
    assert len(types) >= 15 and len(types) <= MAX_CONDITIONS, types
