"""Table patterns and the SQL about keys, without a server."""

import fnmatch
import pickle
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.ownership import made_name
from tailrace.contract.resources import SourceSpec, TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.errors import Retry
from tailrace.sources.patterns import idle, matches, of_other_case, options_of, selected
from tailrace.sources.postgresql.keys import in_list, in_range
from tailrace.sources.postgresql.model import CatalogColumn, Operators, PgTable


@pytest.mark.parametrize(
    ("pattern", "schema", "table", "expected"),
    [
        ("public.*", "public", "orders", True),
        ("public.*", "public2", "orders", False),
        ("a_b.t", "axb", "t", False),
        ("a?b.t", "axb", "t", True),
        ("public.Orders", "public", "orders", False),
        ('s.My"T_x.1', "s", 'My"T_x.1', True),
        ("s.a.b", "s.a", "b", False),
        ("*.[x]+", "s", "[x]+", True),
        ("s.*", "s", "two\nlines", True),
        ("s.tmp_*", "s", "tmpx1", False),
    ],
)
def test_a_pattern_is_literal_but_for_star_and_question_mark(
    pattern: str, schema: str, table: str, expected: bool
) -> None:
    assert matches(pattern, schema, table) is expected


@given(st.text("ab?*", max_size=8), st.text("ab\n", max_size=8))
def test_a_pattern_means_what_the_shell_means_by_it(pattern: str, name: str) -> None:
    assert matches(f"s.{pattern}", "s", name) is fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize("pattern", ["*?" * 120, "?*" * 120, "*a" * 120, "*a?" * 80, "*" * 250, "*aa?b" * 50])
def test_a_hostile_pattern_costs_no_more_than_a_long_one(pattern: str) -> None:
    def seconds(one: str) -> float:
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            for name in ("a" * 63, "a" * 62 + "b", "ab" * 31):
                matches(f"s.{one}", "s", name)
            took.append(time.perf_counter() - begun)
        return min(took)

    assert seconds(pattern) < 200 * seconds("b" * len(pattern)) + 0.001


def test_exclude_wins_and_the_first_matching_options_count() -> None:
    tables = TablesSpec(include=("public.*",), exclude=("public.tmp_*",))
    assert selected(tables, "public", "a") and not selected(tables, "public", "tmp_a")
    first, second = TableOptions(match="public.a", as_text=("x",)), TableOptions(match="public.*")
    assert options_of((first, second), "public", "a") is first
    assert options_of((first, second), "public", "b") is second
    assert options_of((first,), "public", "b") is None


def column(name: str, key: int, schema: str = "pg_catalog") -> CatalogColumn:
    names = [(schema, o) for o in ("<", "<=", "=", ">=", ">")]
    return CatalogColumn(
        name=name,
        attnum=key + 1,
        source_type="x",
        base_type=(schema, "x"),
        domain=False,
        output=(schema, "xout"),
        logical="string",
        native="string",
        nullable=False,
        key=key,
        operators=Operators(*names),
        collation=None,
        has_default=False,
        has_missing=False,
    )


def table(*columns: CatalogColumn) -> PgTable:
    schema = TableSchema(table_id=1, schema_name="s", table_name="t", version=0, columns=())
    return PgTable(1, "s", "t", False, "me", (), columns, schema, None)


def test_a_key_of_one_operator_family_is_compared_as_a_row() -> None:
    text = in_range(table(column("a", 0), column("b", 1)), ("1", "o'k"), None).as_string(None)
    assert 'ROW("t"."a", "t"."b") OPERATOR("pg_catalog".>) ROW(' in text
    assert "'o''k'" in text


def test_operators_of_two_schemas_are_spelled_out_column_by_column() -> None:
    text = in_range(table(column("a", 0, "public"), column("b", 1)), None, ("1", "2")).as_string(None)
    assert "ROW" not in text
    assert text.startswith('"t"."a" OPERATOR("public".<=)')
    assert '"t"."b" OPERATOR("pg_catalog".<=)' in text


def test_a_key_with_the_wrong_number_of_columns_is_refused_and_no_keys_mean_no_rows() -> None:
    with pytest.raises(Retry, match="has 1 columns now, not 2"):
        in_list(table(column("a", 0)), [("1", "2")])
    assert in_list(table(column("a", 0)), []).as_string(None) == "false"
    assert in_range(table(column("a", 0)), None, None).as_string(None) == "true"


def test_a_configuration_travels_to_executors_without_the_password() -> None:
    source = SourceSpec(
        type="postgresql",
        host="db",
        database="shop",
        username="u",
        credentials={"secretName": "shop-db"},  # type: ignore[arg-type]  # as in a manifest: pydantic makes the model
    )
    config = PgConfig.of(source, secrets=Path("/secrets"))
    assert config.password_file == "/secrets/shop-db/password"
    assert pickle.loads(pickle.dumps(config.bound_to("7", 1))) == config.bound_to("7", 1)


def test_the_default_slot_name_has_only_letters_that_a_slot_may_have() -> None:
    assert re.fullmatch("tailrace_shop_eu_v2_[0-9a-f]{8}", made_name("shop-eu.v2", "uid"))
    assert len(made_name("x" * 100, "uid")) == 63
    assert made_name("shop", "one uid") != made_name("shop", "another")


def test_a_pattern_that_matches_no_table_is_told() -> None:
    tables = TablesSpec(include=("public.*", "sales.ordrs"))
    options = [TableOptions(match="public.users"), TableOptions(match="public.usres", columns=("id",))]
    found = [("public", "users"), ("public", "items")]
    assert idle(tables, options, found) == [
        "tables.include: pattern sales.ordrs matches no table yet",
        "options[].match: pattern public.usres matches no table yet",
    ]


ALL = [("shop", "orders"), ("shop", "Items"), ("CRM", "users")]


@pytest.mark.parametrize(
    ("include", "told"),
    [
        (
            "Shop.orders",
            ["tables.include: pattern Shop.orders matches no table because case counts: write shop.orders"],
        ),
        ("SHOP.*", ["tables.include: pattern SHOP.* matches no table because case counts: write shop.*"]),
        ("shop.items", ["tables.include: pattern shop.items matches no table because case counts: write shop.Items"]),
        ("crm.*", ["tables.include: pattern crm.* matches no table because case counts: write CRM.users"]),
        ("shop.*", []),
        ("shop.other", []),
    ],
)
def test_a_pattern_in_another_case_is_told_with_the_case_to_write(include: str, told: list[str]) -> None:
    tables = TablesSpec(include=(include,))
    found = [table for table in ALL if selected(tables, *table)]
    assert of_other_case(tables, (), found, lambda: ALL) == told


def test_so_is_one_that_excludes_nothing_and_an_options_one() -> None:
    tables, options = TablesSpec(include=("shop.*",), exclude=("shop.ORDERS",)), [TableOptions(match="shop.ITEMS")]
    assert of_other_case(tables, options, ALL[:2], lambda: ALL) == [
        "options[].match: pattern shop.ITEMS matches no table because case counts: write shop.Items",
        "tables.exclude: pattern shop.ORDERS matches no table because case counts: write shop.orders",
    ]
    two = [("shop", "orders"), ("shop", "ORDERS")]
    assert of_other_case(tables, (), two[:1], lambda: two) == [], "there is such a table: the other one is wanted"
