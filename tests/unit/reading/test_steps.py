"""The steps of a snapshot, where they translate what the source says."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from support.apply_loop import table
from support.states import chunk
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.state import SnapshotTable
from tailrace.contract.resources import TableOptions
from tailrace.errors import ReadRefused, Retry, SourceRefused
from tailrace.reading.steps import Tools, look_up, read
from tailrace.snapshot.chunks import begin
from tailrace.snapshot.ranges import Range
from tailrace.sources.api import Session, Table


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


def test_a_chunk_that_is_registered_with_another_range_is_not_taken_for_the_one_that_is_to_be_read() -> None:
    """Else the rest of the range would never be read, and its rows be removed at the snapshot's end."""
    done = chunk(7, 1, upper=("4",), rows=3)
    logged = SnapshotTable(table_id=7, started=True, max_key=("9",), chunks=AppendList([done]))
    snapshot = type("Snapshot", (), {"ended": None, "tables": {7: logged}})
    journal = type("Journal", (), {"refresh": lambda self: type("State", (), {"snapshots": {"s": snapshot}})})()
    tools = cast(Tools, type("OnlyJournal", (), {"journal": journal})())
    run, of_table = begin("s", logged, None, None), cast(Table, type("Named", (), {"name": "s.t"}))
    assert read(tools, run, Range(1, None, ("4",)), of_table).rows == 3
    with pytest.raises(Retry, match=r"chunk 1 of s\.t is registered with another range"):
        read(tools, run, Range(1, None, ("6",)), of_table)
