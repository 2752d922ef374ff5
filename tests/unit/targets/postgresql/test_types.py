"""The types of a copy's columns."""

import pytest

from tailrace.changelog.records.terms import Column
from tailrace.targets.postgresql.types import general_type, own_type


@pytest.mark.parametrize(
    ("logical", "kind"),
    [
        ("decimal(38,10)", "numeric(38,10)"),
        ("list<string>", "text[]"),
        ("list<decimal(4,1)>", "numeric(4,1)[]"),
        ('struct<"a":int32>', "jsonb"),
        ("timestamptz", "timestamp with time zone"),
    ],
)
def test_every_logical_type_has_one(logical: str, kind: str) -> None:
    assert general_type(logical) == kind


@pytest.mark.parametrize(
    ("source", "logical", "mask", "kind"),
    [
        ("numeric(12,2)", "decimal(12,2)", None, "numeric(12,2)"),
        ("character varying(20)", "string", None, "character varying(20)"),
        ("timestamp(3) with time zone", "timestamptz", None, "timestamp(3) with time zone"),
        ("integer[]", "list<int32>", None, "integer[]"),
        ("numeric(12,2)", "string", None, "numeric(12,2)"),
        ("timestamp with time zone", "string", None, "timestamp with time zone"),
        ("public.mood", "string", None, "public.mood"),
        ('public."Odd ""one"[]', "string", None, 'public."Odd ""one"[]'),
        ("public.vector(3)", "string", None, "public.vector(3)"),
        ("public.small", "int32", None, None),
        ("numeric(12,2)", "float64", None, None),
        ("integer", "decimal(12,2)", None, None),
        ("uuid", "binary", None, None),
        ('"char"', "string", None, None),
        ("regclass", "string", None, None),
        ("aclitem[]", "list<string>", None, None),
        ("integer", "string", "Hash", None),
        ("integer); DROP TABLE x; --", "string", None, None),
    ],
)
def test_a_column_keeps_a_type_of_the_system(source: str, logical: str, mask: str | None, kind: str | None) -> None:
    assert own_type(Column(name="c", id=1, source_type=source, type=logical, mask=mask)) == kind
