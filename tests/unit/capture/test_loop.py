"""Capture's loop, where its parts meet."""

from tailrace.capture.loop import LOOKS_SHARE, Timing


def test_looks_that_take_long_become_rarer_and_never_stop() -> None:
    timing = Timing()
    assert timing.between_looks(0.01) == 3.0
    assert timing.between_looks(1.0) == LOOKS_SHARE
    assert timing.between_looks(60.0) == 30.0, "the first look reads every partition: it says little of the next one"
    assert Timing(poll=50.0).between_looks(60.0) == 50.0
