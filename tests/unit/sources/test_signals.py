"""Rows of the signal table: what is too long for the journal or the status is refused by column."""

import pytest

from tailrace.sources.signals import SignalRow, signal_row


@pytest.mark.parametrize(("place", "most"), [(0, 255), (1, 255), (2, 65_536)], ids=["id", "type", "data"])
def test_a_column_that_is_too_long_is_named_and_kept_out_of_the_journal(place: int, most: int) -> None:
    """The driver's status has id and type of the last ones, and the operator reads 8 MiB of it."""
    row = ["a", "log", "x"]
    row[place] = "\x01" * most
    assert signal_row(row) == SignalRow(*row)
    row[place] += "\x01"
    found = signal_row(row)
    assert found is not None and found.fault is not None and (found.id, found.type, found.data) == (None,) * 3
    assert f"column {place + 1} has more than {most} characters. Fix: " in found.fault
