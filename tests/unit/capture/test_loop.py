"""Capture's loop, where its parts meet."""

import pytest

from tailrace.capture.loop import LOOKS_SHARE, Timing


def test_looks_that_take_long_become_rarer_and_never_stop() -> None:
    timing = Timing()
    assert timing.between_looks(0.01) == 3.0
    assert timing.between_looks(1.0) == LOOKS_SHARE
    assert timing.between_looks(60.0) == 30.0, "the first look reads every partition: it says little of the next one"
    assert Timing(poll=50.0).between_looks(60.0) == 50.0


def test_a_quiet_stream_is_read_more_rarely_the_more_time_a_record_has() -> None:
    quiet, busy = 0.001, 0.02
    assert Timing(record=1.35).gather_seconds(quiet) == pytest.approx(0.03375)
    assert Timing(record=0.05).gather_seconds(quiet) == 0.005
    assert Timing(record=1.35).gather_seconds(busy) == 0.005, "what the server has to send must not wait in the socket"
