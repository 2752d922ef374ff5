"""The script of a batch, and the table that a fault is about."""

import pytest

from tailrace.targets.bigquery.rest import CHANGED
from tailrace.targets.bigquery.script import ScriptLine, script_of, table_of_fault

LINES = (
    ScriptLine("INSERT INTO `d`.`item` (`a`) SELECT 1", 7),
    ScriptLine("INSERT INTO `d`.`item_2` (`a`) SELECT 1", 8),
    ScriptLine("UPDATE `d_tailrace`.`tables` SET a = 1"),
)


@pytest.mark.parametrize(
    ("said", "table"),
    [
        ("Query error: Bad int64 value: x at [2:1]", 7),
        ("Query error: Not found: Table p:d.item was not found in location EU at [3:9]", 8),
        ("Query error: no such column at [4:1]", None),
        ("Not found: Table p:d.item_2 was not found in location EU", 8),
        ("Access Denied: Table p:d.item: User does not have permission", 7),
        ("Access Denied: Table p:d.item_22: User does not have permission", None),
        (f"Query error: {CHANGED} at [2:4]", None),
        ("Transaction is aborted due to concurrent update", None),
        ("Query error: whatever at [99:1]", None),
        ("Query error: whatever at [1:1]", None),
    ],
)
def test_a_fault_is_about_the_table_of_its_line_or_of_its_words(said: str, table: int | None) -> None:
    assert script_of(LINES).split("\n")[1].startswith(LINES[0].text)
    assert table_of_fault(said, LINES) == table
