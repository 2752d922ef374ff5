"""Records of copies: which of several of one place is its copy's."""

from typing import cast

from support.lake import table_schema
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.targets.sql.session import Place, TargetSession
from tailrace.targets.sql.state import SCHEMA, copies_at, copy_name, text_of

PLACE = ("shop", "item")
Row = tuple[object, ...]


class Records:
    """The session of a warehouse, whose records no key keeps apart."""

    def __init__(self, rows: list[Row], there: dict[Place, int]) -> None:
        self._rows, self._there = rows, there

    def rows(self, statement: str, *values: object) -> list[Row]:
        return self._rows

    def relation(self, place: Place) -> int | None:
        return self._there.get(place)


def hidden(generation: int, relation: int) -> tuple[Row, Place]:
    """The record of a new copy beside the place, and where its table is."""
    applied = AppliedState("log-1", Seq(0), RecordNumber(0), table_id=7, generation=RecordNumber(generation))
    schema = table_schema([("id", "int64")], ["id"], name="item")
    row = (*PLACE, True, relation, False, 0, text_of(applied), schema.model_dump_json(), "log-1")
    return row, (SCHEMA, copy_name(applied))


def test_of_two_new_copies_whose_tables_are_both_there_the_later_generation_counts() -> None:
    """An overtaken driver's table, which came late, is not taken for the newer driver's."""
    (old, old_place), (new, new_place) = hidden(3, 11), hidden(5, 12)
    both = {old_place: 11, new_place: 12}
    for there, expected in ((both, 5), ({old_place: 11}, 3), ({new_place: 12}, 5), ({}, 5)):
        for rows in ([old, new], [new, old]):
            found = copies_at(cast(TargetSession, Records(rows, there)), PLACE)
            assert [copy.applied.generation for copy in found.values()] == [expected], there
