import pytest

from support.lake import table_schema
from tailrace.targets.bigquery import types


@pytest.mark.parametrize(
    ("logical", "kind"),
    [
        ("decimal(38,9)", "NUMERIC(38,9)"),
        ("decimal(9,2)", "NUMERIC(38,9)"),
        ("decimal(38,0)", "BIGNUMERIC(76,38)"),
        ("decimal(20,10)", "BIGNUMERIC(76,38)"),
        ("decimal(60,10)", "STRING"),
        ("decimal(60,39)", "STRING"),
        ("int32", "INT64"),
        ("timestamp", "DATETIME"),
        ("timestamptz", "TIMESTAMP"),
        ("list<string>", "STRING"),
    ],
)
def test_a_type_holds_every_value_or_is_text(logical: str, kind: str) -> None:
    (column,) = table_schema([("a", logical)], []).columns
    assert types.type_of(column) == kind
    assert types.statement_type(types.api_type(kind)) == kind


@pytest.mark.parametrize(
    ("logical", "kind", "field"),
    [
        ("list<int32>", "ARRAY<INT64>", {"type": "INT64", "mode": "REPEATED"}),
        ("list<decimal(9,2)>", "ARRAY<NUMERIC(38,9)>", {"type": "NUMERIC", "mode": "REPEATED"}),
        ("int32", "INT64", {"type": "INT64"}),
        ('struct<"a":int32>', "STRING", {"type": "STRING"}),
    ],
)
def test_a_list_is_an_array_where_that_is_asked_for(logical: str, kind: str, field: dict[str, str]) -> None:
    (column,) = table_schema([("a", logical)], []).columns
    assert types.type_of(column, repeated=True) == kind
    assert types.field_of("a", kind) == {"name": "a", **field}
    assert types.kind_of(types.field_of("a", kind)) == kind


def test_a_type_that_holds_more_is_wider_if_bigquery_gives_it_without_a_look_at_the_rows() -> None:
    assert types.widens("INT64", types.NUMERIC) and types.widens(types.NUMERIC, types.BIGNUMERIC)
    assert not types.widens("INT64", "FLOAT64"), "which has not all of its digits"
    assert not types.widens(types.BIGNUMERIC, types.NUMERIC) and not types.widens("INT64", types.TEXT)
