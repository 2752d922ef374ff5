"""While no driver tells, the status shows nothing that only a running driver can know."""

from dataclasses import replace
from typing import Any

import pytest

from support.observed import LIMITS, NOW, SPEC, meta, pod, reported, running
from tailrace.contract.status import ApplyStatus, CaptureStatus, Fault, SnapshotStatus, Status, TableStatus
from tailrace_operator.decide.replicator import decide
from tailrace_operator.observe.model import ObservedDriver, ObservedReplicator
from tailrace_operator.status import times
from tailrace_operator.status.models import Halt, ReplicatorStatus

STOPPED = TableStatus(
    name="public.c", state="STOPPED", fault=Fault(name="NoKey", message="public.c has no key", where="source")
)
FAILING = TableStatus(
    name="public.b", state="FAILING", fault=Fault(name="Retry", message="the target is away", where="target")
)
BUSY = reported(
    state="Failing",
    tables=(TableStatus(name="public.a", state="REPLICATING", lag_seconds=90.0), FAILING, STOPPED),
    tables_total=3,
    tables_replicating=1,
    tables_failing=1,
    capture=CaptureStatus(
        alive=True, lag_seconds=1.0, lag_bytes=9, rows_per_second=5.0, waiting_for="transaction 7", log_held_by="x"
    ),
    snapshots=(SnapshotStatus(id="s", name="s", reason="request", state="Running", rows_done=1, rows_estimated=9),),
)


def worked() -> ObservedReplicator:
    """One that was told all this in the round before."""
    before = running(BUSY)
    return replace(before, status=decide(before, LIMITS).status)


def without(how: str) -> ObservedReplicator:
    observed = worked()
    gone = replace(observed, pods=(), driver=ObservedDriver())
    match how:
        case "suspended":
            return replace(gone, spec={**SPEC, "suspend": True}, meta=meta(generation=2))
        case "halted":
            halt = Halt(reason="PositionLost", message="PositionLost: gone", at=times.text(NOW))
            return replace(gone, status=observed.status.model_copy(update={"halt": halt}))
        case "crashed":
            return replace(gone, pods=(pod(running_since=None, waiting="CrashLoopBackOff", restarts=1),))
        case "deleted":
            return replace(gone, meta=meta(deleted_at=NOW))
        case "paused":
            return replace(gone, meta=meta(paused=True))
        case "Starting" | "Failing" | "Stopped":
            first = reported(state=how, tables_total=0, tables_replicating=0)
            return replace(observed, driver=ObservedDriver(first, NOW))
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize(
    ("change", "moving"),
    [
        ({}, False),
        ({"snapshots": BUSY.snapshots}, True),
        ({"snapshots": (SnapshotStatus(id="s", reason="request", state="Paused"),)}, False),
        ({"tables": (TableStatus(name="public.a", state="SNAPSHOTTING"),)}, True),
        ({"tables": (TableStatus(name="public.a", state="WAITING"),)}, True),
        ({"tables": (TableStatus(name="public.a", state="WAITING"),), "apply": ApplyStatus(suspended=True)}, False),
    ],
)
def test_a_driver_is_asked_every_second_while_something_moves(change: dict[str, Any], moving: bool) -> None:
    decision = decide(running(reported(**change)), LIMITS)
    assert (decision.asks, decision.again) == (("moving", 1.0) if moving else ("steady", 2.0))


def test_a_driver_whose_answers_are_long_is_asked_less_often() -> None:
    assert decide(running(reported(tables_total=4000, snapshots=BUSY.snapshots)), LIMITS).again == 4.0
    assert decide(running(reported(tables_total=4000)), LIMITS).again == LIMITS.poll_seconds


def stale(status: ReplicatorStatus) -> dict[str, Any]:
    """What only a running driver can know; empty: nothing of it is told."""
    tables, capture, apply = status.tables, status.capture, status.apply
    assert tables is not None and capture is not None and apply is not None
    counts = (tables.replicating, tables.waiting, tables.snapshotting, tables.failing)
    told = {
        "lag": status.lag,
        "snapshot": status.snapshot or status.snapshot_summary,
        "counts": any(counts),
        "worst": [t.name for t in tables.worst if t.state != "STOPPED"],
        "waits": capture.waiting_for or capture.log_held_by,
        "lags": capture.lag_seconds or capture.lag_bytes or apply.lag_seconds,
        "rates": capture.rows_per_second or apply.rows_per_second,
    }
    return {name: value for name, value in told.items() if value}


def test_what_a_driver_tells_is_told() -> None:
    told = worked().status
    assert stale(told).keys() >= {"snapshot", "counts", "worst", "waits", "lags", "rates"}
    assert told.tables_summary == "1/3"


@pytest.mark.parametrize("how", ["suspended", "halted", "crashed", "deleted", "paused"])
def test_without_a_driver_no_table_replicates_and_what_the_change_log_holds_stays(how: str) -> None:
    observed = without(how)
    status = decide(observed, LIMITS).status
    assert stale(status) == {}
    assert status.tables_summary == "0/3"
    assert status.tables is not None and (status.tables.total, status.tables.stopped) == (3, 1)
    assert [t.name for t in status.tables.worst] == ["public.c"] and not status.tables.truncated
    if how != "crashed":
        assert (status.driver.pod, status.driver.ready) == (None, False)
    again = decide(replace(observed, status=status), LIMITS).status
    assert (again.tables, again.tables_summary) == (status.tables, "0/3")


def test_how_many_replicate_is_unknown_beside_a_driver_that_does_not_answer_for_long() -> None:
    def silent(seconds: float) -> ReplicatorStatus:
        since = NOW - seconds
        driver = ObservedDriver(BUSY, answered_at=since, silent_since=since)
        return decide(replace(worked(), driver=driver), LIMITS).status

    assert silent(1).tables_summary == "1/3", "one answer that is late changes nothing"
    late = silent(LIMITS.silent_seconds)
    assert (late.tables_summary, stale(late)) == ("?/3", {})


@pytest.mark.parametrize("how", ["Starting", "Failing", "Stopped"])
def test_a_driver_that_has_not_read_its_change_log_does_not_make_the_tables_none(how: str) -> None:
    status = decide(without(how), LIMITS).status
    assert status.tables is not None and (status.tables.total, status.tables_summary) == (3, "0/3")
    first: Status = reported(state=how, tables_total=0, tables_replicating=0)
    assert decide(running(first), LIMITS).status.tables_summary is None, "nobody knows yet"


def test_a_replicator_that_never_had_a_driver_shows_no_tables() -> None:
    fresh = replace(running(), pods=(), driver=ObservedDriver(), status=ReplicatorStatus())
    status = decide(fresh, LIMITS).status
    assert (status.tables, status.tables_summary) == (None, None)
