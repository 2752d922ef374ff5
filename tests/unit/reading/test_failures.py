"""What the snapshot runner does about steps that fail: how often they are tried, what is logged, and when a table is
stopped."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from support.snapshot_rounds import PARALLELISM, Begin, turn_until
from tailrace.errors import AuthenticationFailed, Locked, Retry, met_at
from tailrace.reading import steps
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile
from tailrace.snapshot.chunks import TableRun
from tailrace.snapshot.ranges import Range


@pytest.mark.parametrize("asked", ["find_start", "find_cut", "read"])
def test_a_table_that_a_migration_locks_for_longer_than_the_retry_time_is_waited_for_and_said(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    real, tries, held = getattr(steps, asked), list[float](), [True]

    def locked(*of: Any) -> object:
        tries.append(around.now)
        if held[0]:
            raise Locked("a lock on s.t: backend 7 ('psql') holds AccessExclusiveLock on s.t")
        return real(*of)

    monkeypatch.setattr(steps, asked, locked)
    with caplog.at_level("INFO", "tailrace"):
        # The last try may be under way just now, and its result not heard.
        turn_until(runner, around, lambda: len(tries) >= 10 and runner.waiting_for is not None, 20)
    assert runner.waiting_for == "a lock on s.t: backend 7 ('psql') holds AccessExclusiveLock on s.t"
    told = [r.getMessage() for r in caplog.records if "backend 7" in r.getMessage()]
    assert set(told) == {f"a snapshot waits for {runner.waiting_for}"} and len(told) <= 2, "not with every try"
    assert tries[-1] - tries[0] > 60 and all(s.ended is None for s in around.refresh().snapshots.values())
    held[0] = False
    turn_until(runner, around, lambda: all(s.ended is not None for s in around.refresh().snapshots.values()), 20)
    runner.stop()
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    assert runner.waiting_for is None


def test_a_clock_that_is_set_back_by_a_day_holds_no_retry_up(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, around = begin(10)
    around.running_xid = 11
    wall, real, tries = [time.time()], steps.find_start, list[float]()

    def fails_once(*of: Any) -> Start:
        tries.append(wall[0])
        if len(tries) == 1:
            raise Retry("away")
        return real(*of)

    for part in (runner, runner._failures):
        monkeypatch.setattr(part, "_clock", lambda: wall[0])
    monkeypatch.setattr(steps, "find_start", fails_once)
    turn_until(runner, around, lambda: len(tries) == 1)
    wall[0] -= 86_400
    turn_until(runner, around, lambda: len(tries) == 2)
    runner.stop()


@pytest.mark.parametrize("asked", ["check_edge", "find_start", "find_cut", "read"])
@pytest.mark.parametrize("seconds", [40, 80])
def test_a_password_that_is_being_rotated_has_a_minute_to_reach_its_file(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, asked: str, seconds: int
) -> None:
    """The first connection between the two changes ended the run. A server may lock who tries too often, however many
    tables there are."""
    runner, around = begin(*[10] * 30)
    around.running_xid = 11
    began, refused = list[float](), list[float]()

    def guarded(name: str) -> Callable[..., object]:
        real = getattr(steps, name)

        def step(*of: Any) -> object:
            if name == asked and not began:
                began.append(around.now)
            if began and around.now - began[0] < seconds:
                refused.append(around.now)
                raise AuthenticationFailed("db as 'u': password authentication failed")
            return real(*of)

        return step

    def over() -> bool:
        known = around.refresh().snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    for name in ("check_edge", "find_start", "find_cut", "read"):
        monkeypatch.setattr(steps, name, guarded(name))
    if seconds > 60:
        with pytest.raises(AuthenticationFailed):
            turn_until(runner, around, over)
        assert 60 < around.now - began[0] < 90
    else:
        turn_until(runner, around, over)
        assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    assert len([at for at in refused if at > began[0] + 5]) <= 7, refused
    runner.stop()


@pytest.mark.parametrize("asked", ["check_edge", "find_start", "find_cut", "read"])
def test_a_source_that_is_away_is_tried_once_a_pause_and_told_once_a_try_however_many_tables_wait(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    """With 70 tables the log took 200 warnings a minute, and the server 3.4 connections a second."""
    runner, around = begin(*[10] * 30)
    around.running_xid = 11
    began, tries = list[float](), list[float]()

    def cut_off(name: str) -> Callable[..., object]:
        real = getattr(steps, name)

        def step(*of: Any) -> object:
            if name == asked and not began:
                began.append(around.now)
            if began and around.now - began[0] < 300:
                tries.append(around.now)
                with met_at("source"):
                    raise Retry.of_place("cannot connect to db:5432")
            return real(*of)

        return step

    def over() -> bool:
        known = around.refresh().snapshots
        return len(known) > 0 and all(s.ended is not None for s in known.values())

    monkeypatch.setattr(runner._failures, "_retry_seconds", lambda: 600.0)
    for name in ("check_edge", "find_start", "find_cut", "read"):
        monkeypatch.setattr(steps, name, cut_off(name))
    with caplog.at_level("WARNING", "tailrace"):
        turn_until(runner, around, over)
    runner.stop()
    assert {s.ended.outcome for s in around.state.snapshots.values() if s.ended is not None} == {"completed"}
    told = [record for record in caplog.records if "cannot connect" in record.getMessage()]
    assert len(told) <= 16 and tries[-1] - began[0] > 250, "pauses of 30 s at most"
    assert len(set(tries)) <= 32 and len(tries) <= 16 * 2 * (PARALLELISM + 2)


def test_an_outage_that_lasts_longer_than_the_retry_time_ends_every_tables_wait(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of tables that have not tried yet: a short run ends."""
    runner, around = begin(*[10] * 40)
    around.running_xid = 11

    def away(*of: Any) -> Start:
        with met_at("source"):
            raise Retry.of_place("cannot connect to db:5432")

    def over() -> bool:
        return len(around.refresh().snapshots) > 0 and all(s.ended for s in around.state.snapshots.values())

    monkeypatch.setattr(runner._failures, "_retry_seconds", lambda: 60.0)
    monkeypatch.setattr(steps, "find_start", away)
    turn_until(runner, around, over, 5)
    runner.stop()
    assert around.now < 1000 + 60 + 10 * 45


def test_a_target_that_is_still_being_opened_is_waited_for_without_a_warning(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As at each start."""
    runner, around = begin(10)
    around.running_xid = 11
    tries = [Retry("away"), steps.TargetNotOpen("the target of s.t is not open yet")]

    def late(tools: Tools, run: TableRun, part: Range, table: object, small: bool = False) -> ChunkFile:
        if tries:
            raise tries.pop()
        return around.read(tools, run, part, table)

    monkeypatch.setattr(steps, "read", late)
    turn_until(runner, around, lambda: any(s.ended is not None for s in around.refresh().snapshots.values()))
    runner.stop()
    assert tries == []
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert told == ["snapshot step failed: Retry: away"]
