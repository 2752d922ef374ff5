"""CPU seconds of a family of processes of which some end while they are measured."""

from typing import Any, cast

import pytest

from bench.measure import spent_between


@pytest.mark.parametrize(
    ("before", "after", "spent"),
    [
        ({"a": (1.0, 0.0)}, {"a": (3.0, 0.0), "b": (0.5, 0.0)}, 2.5),
        ({"a": (1.0, 0.0), "b": (4.0, 0.0)}, {"a": (2.0, 4.5)}, 1.5),
        ({"a": (1.0, 0.0), "b": (4.0, 0.0)}, {"a": (2.0, 0.0)}, 1.0),
        ({"a": (1.0, 0.0)}, {"a": (1.0, 2.0)}, 2.0),
    ],
    ids=["begun", "ended and waited for", "ended and not waited for", "begun and ended"],
)
def test_processes_that_end_neither_vanish_nor_count_twice(
    before: dict[str, Any], after: dict[str, Any], spent: float
) -> None:
    assert spent_between(cast(Any, before), cast(Any, after)) == spent
