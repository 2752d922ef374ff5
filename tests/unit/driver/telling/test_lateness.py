"""A promise that is not kept is told when that lasts, with what takes the time."""

from typing import Any

import pytest

from tailrace.contract.status import ApplyStatus, CaptureStatus, SnapshotStatus, Status, TableStatus
from tailrace.driver.telling.lateness import LASTING_SECONDS, Lateness

READING = SnapshotStatus(id="a", reason="initial", state="Running")


def status(*lags: float, captured: float = 0.1, **change: Any) -> Status:
    tables = tuple(TableStatus(name=f"s.t{i}", state="REPLICATING", lag_seconds=lag) for i, lag in enumerate(lags))
    plain = {"name": "shop", "state": "Running", "started_at": 0.0, "updated_at": 0.0}
    parts = {"tables": tables, "tables_total": len(tables), "capture": CaptureStatus(alive=True, lag_seconds=captured)}
    return Status.model_validate({**plain, **parts, **change})


def told(*at: tuple[float, Status], freshness: float | None = 5.0) -> list[str | None]:
    lateness = Lateness()
    return [lateness.told(seen, freshness, now).apply.freshness_missed for now, seen in at]


def test_what_is_late_again_and_again_for_a_minute_is_told_until_it_is_in_time() -> None:
    late, well = status(9.4, 1.0), status(4.0, 1.0)
    why = "1 of 2 tables are late, by up to 9 s, and apply.freshness promises 5 s: the commits take longer than that"
    assert told((0, late), (30, well), (59, late), (60, late), (61, well)) == [None, None, None, why, None]


def test_what_was_in_time_for_a_minute_begins_anew() -> None:
    late = status(9.4)
    assert told((0, late), (50, late), (50 + LASTING_SECONDS + 1, late), (170, late))[:3] == [None, None, None]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (status(9.0, snapshots=(READING,)), "1 of 1 tables are late, by up to 9 s, {}: a snapshot is under way"),
        (status(2.0, captured=7.0), "all tables are late, by 9 s, {}: the source's log is read late"),
    ],
)
def test_what_takes_the_time_is_named(seen: Status, why: str) -> None:
    expected = why.format("and apply.freshness promises 5 s")
    assert told((0, seen), (LASTING_SECONDS, seen)) == [None, expected]


def test_the_message_says_it_where_nothing_else_is_to_be_said() -> None:
    lateness = Lateness()
    for now in (0.0, LASTING_SECONDS):
        plain = lateness.told(status(9.0), 5.0, now)
        other = lateness.told(status(9.0, message="the source keeps much log"), 5.0, now)
    assert plain.message == plain.apply.freshness_missed != ""
    assert other.message == "the source keeps much log" and other.apply.freshness_missed is not None


def test_nothing_is_missed_where_nothing_is_promised_or_the_target_stands_still() -> None:
    late = status(9.0)
    assert told((0, late), (LASTING_SECONDS, late), freshness=None) == [None, None]
    still = status(9.0, apply=ApplyStatus(suspended=True))
    assert told((0, still), (LASTING_SECONDS, still)) == [None, None]
