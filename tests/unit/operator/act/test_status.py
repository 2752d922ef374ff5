"""The writer of status: what is written at once, what waits, and what a budget for all objects does to it."""

import asyncio
import time
from collections import Counter
from typing import Any, cast

import pytest

from support.observed import meta
from tailrace_operator.act.status import QUIET_SECONDS, Status, StatusWriter
from tailrace_operator.kube import Document, Kube, Where
from tailrace_operator.observe.model import ObjectKey
from tailrace_operator.status.models import (
    Condition,
    ReplicatorStatus,
    SnapshotProgress,
    SnapshotRequestStatus,
    TableCounts,
)

KEY = ObjectKey("Replicator", "team", "shop")


class Api:
    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.written: list[tuple[float, str]] = []

    async def call(self, method: str, where: Where, **given: Any) -> Document:
        self.written.append((self.now, str(given["body"]["metadata"]["uid"])))
        return {}


def writer(api: Api, rate: float = 20) -> StatusWriter:
    return StatusWriter(cast(Kube, api), rate, lambda: api.now)


def tells(made: StatusWriter, new: Status, old: Status, uid: str = "u", *, intent: bool = False) -> bool:
    return asyncio.run(made.write(KEY, meta(uid=uid), new, old, intent)) is not None


def reading(percent: int, **change: Any) -> ReplicatorStatus:
    read = SnapshotProgress(running=1, rows_done=percent, rows_estimated=100)
    return ReplicatorStatus(snapshot=read, snapshot_summary=f"{percent}%", **change)


def test_every_percent_of_a_snapshot_is_written_when_it_comes() -> None:
    api = Api()
    made = writer(api)
    for percent in range(1, 100):
        api.now += 1.0
        assert tells(made, reading(percent), reading(percent - 1))
    assert len(api.written) == 99


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ReplicatorStatus(tables_summary="6/7"), ReplicatorStatus(tables_summary="7/7")),
        (ReplicatorStatus(tables=TableCounts(waiting=1)), ReplicatorStatus(tables=TableCounts(snapshotting=1))),
        (ReplicatorStatus(executors_summary="0/1"), ReplicatorStatus(executors_summary="1/1")),
        (SnapshotRequestStatus(progress="1%"), SnapshotRequestStatus(progress="2%")),
        (SnapshotRequestStatus(tables_summary="0/1"), SnapshotRequestStatus(tables_summary="1/1")),
    ],
)
def test_steps_are_written_at_once_and_the_lag_after_half_a_minute(old: Status, new: Status) -> None:
    api = Api()
    made = writer(api)
    assert tells(made, old, type(old)(message="first"))
    api.now += 1.0
    assert tells(made, new, old)
    late = new.model_copy(update={"message": "further"})
    api.now += 1.0
    assert not tells(made, late, new)
    assert made.wait("u", late, new) == QUIET_SECONDS - 1.0
    api.now += QUIET_SECONDS - 1.0
    assert tells(made, late, new)
    assert made.wait("u", late, late) is None


def test_beyond_the_budget_a_step_waits_for_its_place_and_a_condition_does_not() -> None:
    api = Api()
    made = writer(api, rate=1)
    told = [tells(made, reading(2), reading(1), uid) for uid in "abcde"]
    assert told == [True, True, True, False, False], "two seconds' worth of places were free"
    assert [made.wait(uid, reading(2), reading(1)) for uid in "de"] == [1.0, 2.0]
    ready = Condition(type="Ready", status="True", reason="Streaming", last_transition_time="2026-01-01T00:00:00Z")
    assert tells(made, reading(3, conditions=(ready,)), reading(1), "e")
    assert tells(made, reading(3), reading(1), "f", intent=True)
    api.now += 1.0
    assert tells(made, reading(9), reading(1), "d"), "with what is newest by then"


def test_five_hundred_snapshots_at_once_stay_within_the_budget_and_none_is_ahead() -> None:
    api = Api()
    made = writer(api)
    uids = [f"u{number}" for number in range(500)]
    shown, states = dict.fromkeys(uids, 0), [reading(second) for second in range(101)]

    async def history() -> None:
        for second in range(1, 101):
            api.now += 1.0
            for uid in uids:
                old = states[shown[uid]]
                if await made.write(KEY, meta(uid=uid), states[second], old, False) is not None:
                    shown[uid] = second

    asyncio.run(history())
    counts = Counter(uid for _, uid in api.written)
    assert len(api.written) <= 20 * 103
    assert max(counts.values()) - min(counts.values()) <= 1
    assert min(shown.values()) >= 100 - 500 / 20 - 1


def test_a_clock_that_is_set_back_does_not_silence_progress() -> None:
    """Pauses are not of the wall clock."""
    assert vars(StatusWriter(cast(Kube, Api()), 20))["_clock"] is time.monotonic
