"""What has changed between two states, by the identity of values."""

from random import Random

import pytest

from support.journals import Journal
from tailrace.changelog.changed import changed
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.state import LogState, fold


def test_new_keys_and_other_values_are_named_in_the_order_of_the_new_state_and_gone_keys_are_not() -> None:
    same, one, other = ["same"], ["value"], ["value"]
    before = {"gone": same, "same": same, "other": one}
    assert one == other and changed(before, {"new": same, "same": same, "other": other}) == ["new", "other"]
    assert changed(before, {}) == [] == changed(before, before)
    assert changed({}, before) == ["gone", "same", "other"]


@pytest.mark.parametrize("seed", range(5))
def test_after_each_record_it_names_the_tables_and_snapshots_that_have_changed_and_after_a_heartbeat_none(
    seed: int,
) -> None:
    state, resting = LogState(), 0
    for record in Journal(Random(seed)).records(100):
        before, state = state, fold(state, record)
        tables, snapshots = changed(before.tables, state.tables), changed(before.snapshots, state.snapshots)
        assert {i for i, table in state.tables.items() if before.tables.get(i) != table} <= set(tables)
        assert {i for i, one in state.snapshots.items() if before.snapshots.get(i) != one} <= set(snapshots)
        if record.events == (Heartbeat(),):
            resting += 1
            assert (tables, snapshots) == ([], [])
    assert resting > 0
