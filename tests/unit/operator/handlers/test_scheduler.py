"""The operator's queue and index: nobody is forgotten or worked on twice at once, changes wake whom they concern."""

import asyncio
import logging
from typing import Any

import pytest

from tailrace.errors import Retry
from tailrace_operator.handlers import scheduler as schedulers
from tailrace_operator.handlers.scheduler import Scheduler
from tailrace_operator.kube import ApiRefused, ApiUnavailable
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import ObjectKey

A, B = ObjectKey("Replicator", "team", "a"), ObjectKey("Replicator", "team", "b")


async def run_for(scheduler: Scheduler, work: Any, seconds: float, workers: int = 2) -> None:
    task = asyncio.create_task(scheduler.run(work, workers))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_an_object_that_is_woken_while_it_is_worked_on_is_worked_on_again_and_never_twice_at_once() -> None:
    scheduler = Scheduler()
    running, most, rounds = 0, 0, 0

    async def work(key: ObjectKey) -> float | None:
        nonlocal running, most, rounds
        running, rounds = running + 1, rounds + 1
        most = max(most, running)
        if rounds == 1:
            scheduler.wake(key, 0)
        await asyncio.sleep(0.05)
        running -= 1
        return None

    scheduler.wake(A, 0)
    asyncio.run(run_for(scheduler, work, 0.4))
    assert (rounds, most) == (2, 1)


def test_an_object_whose_status_may_not_be_written_is_told_once_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An admission rule, say. What it is refused is told again as soon as it is another."""
    monkeypatch.setattr(schedulers, "FIRST_PAUSE", 0.001)
    caplog.set_level(logging.INFO)
    scheduler = Scheduler()
    tries = others = 0

    async def work(key: ObjectKey) -> float | None:
        nonlocal tries, others
        if key == B:
            others += 1
            return 0.001
        tries += 1
        if tries == 4:
            return 0.001
        raise ApiRefused(403, "Forbidden", "status is closed" if tries < 4 else "another rule")

    async def history() -> None:
        task = asyncio.create_task(scheduler.run(work, 2))
        while tries < 7:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    scheduler.wake(A, 0)
    scheduler.wake(B, 0)
    asyncio.run(history())
    assert others > 3
    told = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert told == ["status is closed", "another rule"]


def test_a_failing_object_is_tried_again_with_growing_pauses_and_holds_up_no_other() -> None:
    scheduler = Scheduler()
    observed: list[ObjectKey] = []

    async def work(key: ObjectKey) -> float | None:
        observed.append(key)
        if key == A:
            raise Retry("not now")
        return 0.05

    scheduler.wake(A, 0)
    scheduler.wake(B, 0)
    asyncio.run(run_for(scheduler, work, 0.9))
    assert 2 <= observed.count(A) <= 3
    assert observed.count(B) > 8


def test_a_server_that_names_a_time_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "FIRST_PAUSE", 0.05)
    scheduler = Scheduler()
    count = 0

    async def work(key: ObjectKey) -> float | None:
        nonlocal count
        count += 1
        raise ApiUnavailable("too many requests", after=5.0)

    scheduler.wake(A, 0)
    asyncio.run(run_for(scheduler, work, 0.3))
    assert count == 1


def test_the_earlier_of_two_times_counts() -> None:
    now = 100.0
    scheduler = Scheduler(lambda: now)
    scheduler.wake(A, 50)
    scheduler.wake(A, 10)
    scheduler.wake(A, 90)
    now = 130.0
    assert scheduler.overdue() == 20.0
    assert scheduler.length() == 1


def test_work_that_hangs_is_overdue() -> None:
    now = 100.0
    scheduler = Scheduler(lambda: now)
    observed: list[float] = []

    async def work(key: ObjectKey) -> float | None:
        nonlocal now
        now += 200
        observed.append(scheduler.overdue())
        return None

    scheduler.wake(A, 0)
    asyncio.run(run_for(scheduler, work, 0.1))
    assert observed == [200.0]


# ---- the index ----


def document(kind: str, name: str, version: int = 1, **change: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"u-{name}", "resourceVersion": str(version), "generation": 1}
    return {"kind": kind, "metadata": {**metadata, **change.pop("metadata", {})}, **change}


def pod(name: str, version: int = 1, **change: Any) -> dict[str, Any]:
    return document("Pod", name, version, metadata={"labels": {"tailrace.dev/replicator": "a"}}, **change)


def test_a_change_wakes_the_object_and_our_own_status_write_does_not() -> None:
    woken: list[ObjectKey] = []
    index = Index(woken.append)
    index.put("Replicator", document("Replicator", "a"))
    index.put("Replicator", document("Replicator", "a", 2, status={"state": "Running"}))
    assert woken == [A]
    index.put("Replicator", document("Replicator", "a", 3, metadata={"generation": 2}))
    assert woken == [A, A]


def test_an_older_version_that_comes_late_is_passed_over() -> None:
    index = Index(lambda key: None)
    index.put("Replicator", document("Replicator", "a", 5))
    index.put("Replicator", document("Replicator", "a", 4, spec={"old": True}))
    found = index.get(A)
    assert found is not None and "spec" not in found
    index.put_owned("Pod", pod("p", 5))
    index.put_owned("Pod", pod("p", 4, spec={"old": True}))
    assert "spec" not in index.owned("team", "a")["Pod", "p"]


def test_a_pod_of_a_driver_wakes_its_replicator_and_the_requests_wake_with_the_replicators_status() -> None:
    woken: list[ObjectKey] = []
    index = Index(woken.append)
    index.put_owned("Pod", pod("p"))
    assert woken == [A]
    index.put("SnapshotRequest", document("SnapshotRequest", "again", spec={"replicator": "a"}))
    woken.clear()
    index.put("Replicator", document("Replicator", "a", 2, status={"state": "Running"}))
    assert ObjectKey("SnapshotRequest", "team", "again") in woken
    index.remove("SnapshotRequest", "team", "again")
    assert woken[-1] == A, "a Replicator learns that a request is gone"
    assert index.requests("team", "a") == []


def test_a_successor_of_the_same_name_is_not_removed_by_the_news_of_its_predecessors_end() -> None:
    index = Index(lambda key: None)
    index.put("Replicator", document("Replicator", "a", 9, metadata={"uid": "new"}))
    index.remove("Replicator", "team", "a", "old")
    assert index.get(A) is not None
    index.put_owned("Pod", pod("p", 9))
    stale = pod("p")
    stale["metadata"] = {**stale["metadata"], "uid": "old"}
    index.remove_owned("Pod", stale)
    assert index.owned("team", "a")


def test_a_secret_wakes_those_that_use_it_until_they_no_longer_do() -> None:
    woken: list[ObjectKey] = []
    index = Index(woken.append)
    index.use_data(A, {("Secret", "db")})
    index.put_data("Secret", "team", "db", "1")
    index.put_data("Secret", "other", "db", "1")
    index.put_data("Secret", "team", "else", "1")
    assert woken == [A]
    index.use_data(A, set())
    index.put_data("Secret", "team", "db", "2")
    assert woken == [A]


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    index = Index(lambda key: None)
    for number in range(100):
        key = ObjectKey("Replicator", "team", f"preview-{number}")
        index.put("Replicator", document("Replicator", key.name))
        index.use_data(key, {("Secret", f"db-{number}")})
        index.put("SnapshotRequest", document("SnapshotRequest", key.name, spec={"replicator": key.name}))
        index.remove("SnapshotRequest", "team", key.name)
        index.remove("Replicator", "team", key.name)
        index.use_data(key, set())
    left = {name for name, value in vars(index).items() if isinstance(value, dict) and value}
    assert left == {"_objects"}, "which has its two kinds"


@pytest.mark.parametrize("steps", range(6))
def test_it_ends_when_it_is_cancelled_while_an_object_is_woken(steps: int) -> None:
    """Of Python 3.11's `wait_for` a cancellation is lost that comes after the change and before its waiter."""

    async def work(_: ObjectKey) -> float | None:
        return None

    async def ends() -> bool:
        scheduler = Scheduler()
        task = asyncio.create_task(scheduler.run(work, 1))
        await asyncio.sleep(0.01)
        scheduler.wake(A, 100)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        for left in asyncio.all_tasks() - {asyncio.current_task()}:
            left.cancel()
        return bool(done)

    assert asyncio.run(ends())
