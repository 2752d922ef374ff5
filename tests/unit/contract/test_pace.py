"""The division of a promise of freshness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.contract.pace import AT_ONCE, FEW_COMMITS, LONGEST_RECORD, MARGIN, NOTICE, WRITING, Pace
from tailrace.contract.resources import ApplySpec, ReplicatorSpec
from tailrace.contract.target import TargetSpec


@given(st.floats(0.1, 3600.0))
def test_the_steps_of_a_change_s_way_take_less_time_than_was_promised(freshness: float) -> None:
    pace = Pace.of(freshness)
    assert min(pace.record, pace.look, pace.hold) > 0
    assert pace.record + min(pace.look, NOTICE) + pace.hold <= freshness * (1 - MARGIN) + 1e-9


@pytest.mark.parametrize(
    ("freshness", "record", "look", "hold"),
    [(0.5, 0.1025, 0.05, 0.3225), (5.0, 1.025, 0.25, 3.675), (60.0, 1.2, 0.25, 55.75)],
)
def test_a_longer_promise_holds_changes_for_longer(freshness: float, record: float, look: float, hold: float) -> None:
    pace = Pace.of(freshness)
    assert (pace.record, pace.look, pace.hold) == pytest.approx((record, look, hold))


@given(st.floats(0.1, 3600.0), st.floats(0.0, 3600.0))
def test_records_are_longer_the_later_tables_are_committed_up_to_a_bound(freshness: float, late: float) -> None:
    pace = Pace.of(freshness)
    assert pace.record == pace.record_when(0.0) <= pace.record_when(late) <= min(LONGEST_RECORD, pace.record + late)
    assert pace.record_when(5.0) == LONGEST_RECORD


@given(st.floats(0.1, 3600.0), st.floats(0.0, 60.0), st.floats(0.0, 60.0))
def test_with_commits_that_take_little_a_change_waits_for_its_record_alone(
    freshness: float, longest: float, together: float
) -> None:
    usual, pace = Pace.of(freshness), Pace.of(freshness).for_commits(longest, together)
    if pace != usual:
        assert pace.hold == longest
        assert usual.record < pace.record <= LONGEST_RECORD
        assert pace.record + WRITING + pace.hold == pytest.approx(usual.record + usual.hold)
        assert together <= (usual.record + usual.hold) * FEW_COMMITS


@pytest.mark.parametrize(
    ("freshness", "longest", "together", "record"),
    [
        (0.2, 0.025, 0.00625, 0.135),
        (0.2, 0.2, 0.05, 0.041),  # no record is committed before the next one comes
        (1.0, 0.05, 0.0125, 0.84),
        (1.0, 0.033, 1.65, 0.205),  # two hundred tables: as few commits as possible
        (5.0, 0.033, 0.01, 1.025),
        (2.0, 0.033, 0.01, 0.41),  # several records for a commit in any case
    ],
)
def test_records_are_as_long_as_the_promise_allows_if_each_is_committed_at_once(
    freshness: float, longest: float, together: float, record: float
) -> None:
    assert Pace.of(freshness).for_commits(longest, together).record == pytest.approx(record)


def test_a_short_run_has_its_own_pace() -> None:
    assert AT_ONCE.for_commits(0.0, 0.0) is AT_ONCE


@given(st.floats(1.0, 3600.0))
def test_three_further_records_arrive_well_before_a_table_is_due(freshness: float) -> None:
    """If one arrives at just that moment, chance decides how many make a commit."""
    pace = Pace.of(freshness)
    assert pace.hold >= 3.2 * pace.record


@pytest.mark.parametrize(
    ("target", "apply", "seconds"),
    [
        ("delta", {}, 5.0),
        ("postgresql", {}, 5.0),
        ("bigquery", {}, 60.0),
        ("snowflake", {}, 60.0),
        ("bigquery", {"freshness": "10s"}, 10.0),
    ],
)
def test_a_warehouse_is_given_more_time_unless_the_manifest_says_otherwise(
    target: str, apply: dict[str, str], seconds: float
) -> None:
    """Each batch there is a few statements that are billed."""
    spec = ReplicatorSpec.model_construct(
        target=TargetSpec.model_construct(type=target), apply=ApplySpec.model_validate(apply)
    )
    assert spec.freshness == seconds
