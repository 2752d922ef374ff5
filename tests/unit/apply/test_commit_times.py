"""What commits have taken lately."""

import pytest

from tailrace.apply.commit_times import KEPT, LATELY, CommitTimes
from tailrace.apply.units import FIRST_GUESS, ApplyUnit


def test_a_unit_that_changes_no_longer_counts_no_longer() -> None:
    times, one, other = CommitTimes(threads=4), ApplyUnit(took=0.2), ApplyUnit(took=0.4)
    assert (times.longest, times.together) == (FIRST_GUESS, 0.0)
    times.committed(one, 100.0)
    times.committed(other, 101.0)
    assert (times.longest, times.together) == pytest.approx((0.4, 0.15))
    one.took = 0.1
    times.committed(one, 101.0 + LATELY + 0.1)
    assert (times.longest, times.together) == pytest.approx((0.1, 0.025))
    times.committed(other, 107.0)
    assert times.longest == 0.4
    times.forget(other)
    times.committed(one, 107.0)
    assert times.longest == 0.1


def test_those_that_were_committed_last_are_known() -> None:
    times = CommitTimes(threads=1)
    units = [ApplyUnit(took=float(number)) for number in range(KEPT + 1, 0, -1)]
    for at, unit in enumerate(units):
        times.committed(unit, float(at))
    assert times.longest == LATELY + 1
    assert times.together == sum(range(1, int(LATELY) + 2))
