"""Capture's lag: true under load, growing when it stands still, bounded in memory."""

from tailrace.capture import lag
from tailrace.capture.lag import Behind
from tailrace.changelog.records.terms import Position


def test_under_steady_writing_the_lag_is_what_capture_is_behind_and_does_not_grow() -> None:
    """The source writes ten bytes a second, capture is always twenty behind its end."""
    behind = Behind()
    lags = [behind.seconds(now, Position(10 * now), Position(10 * now - 20)) for now in range(1000)]
    assert lags[0] == 0 and set(lags[5:]) == {1}


def test_a_capture_that_stands_still_falls_behind_until_it_has_caught_up() -> None:
    behind = Behind()
    assert [behind.seconds(now, Position(10 * now), Position(50)) for now in (5, 6, 7, 100)] == [0, 0, 1, 94]
    assert behind.seconds(101, Position(1010), Position(1000)) == 0
    assert behind.seconds(102, Position(1010), Position(1010)) == 0


def test_an_idle_source_is_no_lag() -> None:
    behind = Behind()
    assert [behind.seconds(now, Position(70), Position(70)) for now in range(5)] == [0] * 5


def test_days_of_lag_need_no_more_memory_and_keep_the_oldest_place() -> None:
    behind = Behind()
    for now in range(1, 50_000):
        assert behind.seconds(now, Position(now), Position(0)) == now - 1
    assert len(behind._ends) <= lag.SAMPLES
