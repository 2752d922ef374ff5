"""The division of a promise of freshness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contract.pace import MARGIN, Pace


@given(st.floats(0.1, 3600.0))
def test_the_steps_of_a_change_s_way_take_less_time_than_was_promised(freshness: float) -> None:
    pace = Pace.of(freshness)
    assert min(pace.record, pace.look, pace.hold) > 0
    assert pace.record + 2 * pace.look + pace.hold <= freshness * (1 - MARGIN) + 1e-9


@pytest.mark.parametrize(
    ("freshness", "record", "look", "hold"), [(0.5, 0.1, 0.05, 0.25), (5.0, 1.0, 0.25, 3.0), (60.0, 1.0, 0.25, 52.5)]
)
def test_a_longer_promise_holds_changes_for_longer(freshness: float, record: float, look: float, hold: float) -> None:
    pace = Pace.of(freshness)
    assert (pace.record, pace.look, pace.hold) == pytest.approx((record, look, hold))
