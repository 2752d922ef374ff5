"""The note of a rewrite in the state of a copy's record."""

import pytest

from tailrace.targets.bigquery.begun import begun_by, begun_in, noted, without_begun

STATES = [
    '{"format":3,"holes":[]}',
    '{"format":3,"columns":{"\\",\\"rewrite\\":\\"tailrace_0\\"}":1}}',
]


@pytest.mark.parametrize("state", STATES)
def test_the_note_of_a_rewrite_is_added_to_a_state_read_and_taken_out(state: str) -> None:
    begun = begun_by(state, "tailrace_1a")
    assert begun_in(state) is None and begun_in(begun) == "tailrace_1a"
    assert without_begun(begun) == without_begun(state) == state


def test_a_record_is_noted_only_if_it_is_what_was_read() -> None:
    change = noted(5, "before", "after")
    assert list(change.values) == ["after", 5, "before"]
    assert change.one is not None and list(change.one.values) == [5, "before"]
    assert change.statement.endswith(f" WHERE {change.one.where}") and change.one.table in change.statement
