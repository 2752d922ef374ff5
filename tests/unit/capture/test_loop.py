"""Capture's loop, where its parts meet."""

import pytest

from tailrace.capture.loop import LOOKS_SHARE, Nudges, Timing
from tailrace.changelog.records.terms import Position


def test_looks_that_take_long_become_rarer_and_never_stop() -> None:
    timing = Timing()
    assert timing.between_looks(0.01) == 3.0
    assert timing.between_looks(1.0) == LOOKS_SHARE
    assert timing.between_looks(60.0) == 30.0, "the first look reads every partition: it says little of the next one"
    assert Timing(poll=50.0).between_looks(60.0) == 50.0


def test_a_quiet_stream_is_read_more_rarely_the_more_time_a_record_has() -> None:
    quiet, busy = 0.001, 0.02
    timing = Timing()
    assert timing.gather_seconds(quiet, 1.35) == pytest.approx(0.03375)
    assert timing.gather_seconds(quiet, 0.13) == 0.03
    assert timing.gather_seconds(quiet, 0.05) == 0.0125
    assert timing.gather_seconds(quiet, 0.02) == 0.005
    assert timing.gather_seconds(busy, 1.35) == 0.005, "what the server has to send must not wait in the socket"


def test_a_chunk_that_begins_to_wait_gets_a_heartbeat_at_once_and_one_that_still_waits_gets_few() -> None:
    """Two hundred small tables waited for a fifth of a second each."""
    nudges = Nudges(Timing(waiting_heartbeat=0.2, new_heartbeat=0.05))
    assert not nudges.due(None, 10.0)
    assert nudges.due(Position(7), 10.0)
    assert not nudges.due(Position(7), 10.1), "the source is slow, or busy"
    assert nudges.due(Position(7), 10.21)
    assert not nudges.due(Position(9), 10.24)
    assert nudges.due(Position(9), 10.27)
    assert not nudges.due(Position(5), 10.4)
