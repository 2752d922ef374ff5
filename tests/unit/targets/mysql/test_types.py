"""Each logical type has one in MySQL that holds its values; texts of a key share what an index can hold."""

import pytest

from support.lake import table_schema
from tailrace.targets.mysql.types import type_of


@pytest.mark.parametrize(
    ("logical", "kind"),
    [
        ("bool", "tinyint(1)"),
        ("decimal(20,0)", "decimal(20,0)"),
        ("decimal(38,30)", "decimal(38,30)"),
        ("decimal(38,31)", "longtext"),
        ("timestamptz", "datetime(6)"),
        ("string", "longtext"),
        ("list<int32>", "longtext"),
        ('struct<"a":int32>', "longtext"),
    ],
)
def test_a_type_is_the_nearest_that_is_exact(logical: str, kind: str) -> None:
    schema = table_schema([("id", "int64"), ("value", logical)], ["id"])
    assert type_of(schema, schema.columns[1]) == kind


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        (["string"], ["varchar(768)"]),
        (["binary"], ["varbinary(3072)"]),
        (["string", "int64", "string"], ["varchar(381)", "bigint", "varchar(381)"]),
        (["decimal(38,31)", "date"], ["varchar(763)", "date"]),
    ],
)
def test_texts_of_a_key_have_the_length_that_is_left(kinds: list[str], found: list[str]) -> None:
    columns = [(f"c{number}", kind) for number, kind in enumerate(kinds)]
    schema = table_schema(columns, [name for name, _ in columns])
    assert [type_of(schema, column) for column in schema.columns] == found
