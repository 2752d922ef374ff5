"""Logical types of MySQL's columns, and enum labels as information_schema escapes them."""

import pytest

from tailrace.sources.mysql.types import ColumnType, labels, logical


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (ColumnType("tinyint", "tinyint(1)"), "int32"),
        (ColumnType("int", "int unsigned"), "int64"),
        (ColumnType("bigint", "bigint unsigned zerofill"), "decimal(20,0)"),
        (ColumnType("decimal", "decimal(38,10)", precision=38, scale=10), "decimal(38,10)"),
        (ColumnType("decimal", "decimal(65,30)", precision=65, scale=30), "string"),
        (ColumnType("bit", "bit(1)", precision=1), "bool"),
        (ColumnType("bit", "bit(63)", precision=63), "int64"),
        (ColumnType("bit", "bit(64)", precision=64), "decimal(20,0)"),
        (ColumnType("timestamp", "timestamp(6)", fraction=6), "timestamptz"),
        (ColumnType("time", "time"), "string"),
        (ColumnType("polygon", "polygon"), "binary"),
        (ColumnType("hologram", "hologram"), None),
    ],
)
def test_a_logical_type_holds_every_value(type: ColumnType, expected: str | None) -> None:
    assert logical(type) == expected


def test_labels_are_read_with_their_quotes_commas_and_escapes() -> None:
    assert labels(r"enum('a','b''c',',','','\\','x\ny','''')") == ("a", "b'c", ",", "", "\\", "x\ny", "'")
