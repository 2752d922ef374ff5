"""The table of differences: complete, and the same in the documentation."""

import re
from pathlib import Path

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import SchemaChangeUnsupported
from tailrace.sources.postgresql.fingerprint import KINDS
from tailrace.sources.postgresql.log.differences import (
    DIFFERENCES,
    IMPLIED,
    Action,
    differences,
    first_stop,
    schema_parts,
)

DOCUMENT = Path(__file__).parents[5] / "docs" / "postgresql.md"
OF_ONE_ITEM = {
    "name",
    "membership",
    "publication",
    "key order",
    "key index",
    "row security",
    "attributes",
    "selection",
    "copied as",
    "type",
    "row filter",
    "history",
}
"""Their item is always there, as long as the table or the column is."""


def schema(*columns: Column) -> TableSchema:
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=columns)


def test_every_difference_that_can_be_has_exactly_one_rule() -> None:
    kinds = {*KINDS, *schema_parts(schema())}
    rules = [(rule.kind, rule.change) for rule in DIFFERENCES]
    assert len(rules) == len(set(rules))
    assert {kind for kind, _ in rules} == kinds
    for kind in kinds:
        for change in ("changed",) if kind in OF_ONE_ITEM else ("added", "removed", "changed"):
            assert (kind, change) in rules or (kind, change) in IMPLIED, (kind, change)


def test_the_documentation_shows_the_same_table() -> None:
    rows = re.findall(
        r"^\| ([a-z ]+) \| ([a-z ]+) \| (nothing|read again|stops) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    assert rows == [(rule.kind, rule.change, str(rule.action)) for rule in DIFFERENCES]


def test_a_kind_that_one_side_does_not_know_is_not_compared() -> None:
    assert list(differences({"file": {"1": "a"}}, {"file": {"1": "a"}, "enum label": {"2": "x"}})) == []


def test_texts_name_people_s_words_and_not_transactions() -> None:
    (found,) = differences({"enum label": {"7": "open @12"}}, {"enum label": {"7": "ajar @13"}})
    assert found.rule.action is Action.READ_AGAIN
    assert found.text("s.t", {}) == "enum label open of a column of s.t was renamed to ajar"


def test_the_first_column_that_cannot_be_followed_stops_the_table() -> None:
    before = schema(*(Column(name=n, id=i, source_type="int", type="int32") for i, n in enumerate("abc", 1)))
    now = schema(Column(name="a", id=1, source_type="text", type="string"), before.columns[2])
    stop = first_stop(before, now)
    assert isinstance(stop, SchemaChangeUnsupported)
    assert stop.message == "column 'b' of s.t was dropped"
