"""Row filters in the simulation: which rows are copied, and what the change log has of a filtered table's rows.

`logged` is `tailrace.selection.rows` in plain code; a test compares the two. The classes at the end break it.
"""

from dataclasses import replace

from model.capture import Capture
from model.source import State
from typing_extensions import override

from tailrace.batch.rule import UNCHANGED, Change, Values


def number(value: object) -> int:
    """Of a value `x12`; of one that a row had at the start, `jx` or `x3`, something as good."""
    digits = "".join(filter(str.isdigit, str(value)))
    return int(digits or 0)


class FilteredCapture(Capture):
    """Rows whose x is not divisible by three."""

    columns: tuple[int, ...] = (0,)
    """Places of the filter's columns."""

    def passes(self, values: Values) -> bool:
        return number(values[0]) % 3 != 0

    @override
    def copied(self, rows: State) -> State:
        return {key: values for key, values in rows.items() if self.passes(values)}

    @override
    def logged(self, rows: list[Change[int]]) -> list[Change[int]]:
        return [change for row in rows for change in self.change(row)]

    def change(self, row: Change[int]) -> list[Change[int]]:
        if row.op in "DT":
            return [row]
        if any(row.values[place] is UNCHANGED for place in self.columns):
            return self.undecided(row)
        if self.passes(row.values):
            return self.matching(row)
        return self.leaving(row) if row.op == "U" else []

    def undecided(self, row: Change[int]) -> list[Change[int]]:
        return [replace(row, op="I")]

    def matching(self, row: Change[int]) -> list[Change[int]]:
        return [replace(row, op="I")] if row.op == "U" else [row]

    def leaving(self, row: Change[int]) -> list[Change[int]]:
        return [Change(row.seq, "D", row.key)]


class ByLarge(FilteredCapture):
    """The filter's only column is one that the log may not carry."""

    columns = (1,)

    @override
    def passes(self, values: Values) -> bool:
        return number(values[1]) % 3 != 0


class ByEither(FilteredCapture):
    """A row may match by a column that the log does not carry."""

    columns = (0, 1)

    @override
    def passes(self, values: Values) -> bool:
        return number(values[0]) % 3 == 0 or number(values[1]) % 2 == 0


FILTERS: tuple[type[FilteredCapture], ...] = (FilteredCapture, ByLarge, ByEither)


class UpdatesStay(FilteredCapture):
    """An update that matches may be of a row that the target lacks."""

    @override
    def matching(self, row: Change[int]) -> list[Change[int]]:
        return [row]


class LeavingIsDropped(FilteredCapture):
    """A row that leaves the filter stays in the target."""

    @override
    def leaving(self, row: Change[int]) -> list[Change[int]]:
        return []


class UndecidedStays(ByEither):
    """A change whose filter column is not known is taken as it is."""

    @override
    def undecided(self, row: Change[int]) -> list[Change[int]]:
        return [row]


class UndecidedMoveStays(ByEither):
    """A key change takes the filter's column from a row that matched for another reason."""

    @override
    def undecided(self, row: Change[int]) -> list[Change[int]]:
        return [row] if row.op == "M" else super().undecided(row)


class UndecidedIsDropped(ByEither):
    """What is not known is taken for a row that does not match."""

    @override
    def undecided(self, row: Change[int]) -> list[Change[int]]:
        return []


class ChunksAreNotFiltered(FilteredCapture):
    """The log is; chunks bring every row."""

    @override
    def read(self, rows: State) -> State:
        return rows


MUTANTS: tuple[type[FilteredCapture], ...] = (
    UpdatesStay, LeavingIsDropped, UndecidedStays, UndecidedMoveStays, UndecidedIsDropped, ChunksAreNotFiltered,
)  # fmt: skip
