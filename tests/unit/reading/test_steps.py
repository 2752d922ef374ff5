"""The steps of a snapshot, where they translate what the source says."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from support.apply_loop import table
from tailrace.contract.resources import TableOptions
from tailrace.errors import ReadRefused, SourceRefused
from tailrace.reading.steps import Tools, look_up
from tailrace.sources.api import Session


class Refusing:
    """A session whose role lacks a right that one table alone needs."""

    def table(self, table_id: int, options: Sequence[TableOptions]) -> None:
        raise SourceRefused(f"looking at the table {table_id}: permission denied", "grant what is missing")


def test_a_look_at_one_table_that_is_refused_stops_that_table_and_not_the_driver() -> None:
    tools = cast(Tools, type("NoOptions", (), {"options": lambda self: ()})())
    with pytest.raises(ReadRefused) as told:
        look_up(tools, cast(Session, cast(Any, Refusing())), table(7))
    assert told.value.table == "s.t7"
    assert (told.value.message, told.value.fix) == (
        "looking at the table 7: permission denied",
        "grant what is missing",
    )
