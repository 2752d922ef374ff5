import pytest

from support.lake import table_schema
from tailrace.targets.snowflake import types


@pytest.mark.parametrize(
    ("logical", "kind"),
    [
        ("decimal(38,9)", "NUMBER(38,9)"),
        ("decimal(38,37)", "NUMBER(38,37)"),
        ("decimal(38,38)", "VARCHAR"),
        ("decimal(39,0)", "VARCHAR"),
        ("int32", "NUMBER(10,0)"),
        ("int64", "NUMBER(19,0)"),
        ("float32", "FLOAT"),
        ("timestamp", "TIMESTAMP_NTZ(6)"),
        ("timestamptz", "TIMESTAMP_LTZ(6)"),
        ("binary", "BINARY"),
        ("list<string>", "VARCHAR"),
    ],
)
def test_a_type_holds_every_value_or_is_text(logical: str, kind: str) -> None:
    (column,) = table_schema([("a", logical)], []).columns
    assert types.type_of(column) == kind


def test_a_number_of_more_digits_is_wider_with_as_many_behind_the_point() -> None:
    assert types.widens("NUMBER(10,0)", "NUMBER(19,0)") and types.widens("NUMBER(9,2)", "NUMBER(38,2)")
    assert not types.widens("NUMBER(9,2)", "NUMBER(12,3)") and not types.widens("NUMBER(19,0)", "NUMBER(10,0)")
    assert not types.widens("NUMBER(19,0)", types.TEXT) and not types.widens("FLOAT", "NUMBER(19,0)")
