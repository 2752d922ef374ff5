"""Signals in Debezium's form: what their lines mean, and which are ignored by name."""

import json
from typing import Any

import pytest

from support.states import keyed, table_log
from tailrace.driver.asking import signals
from tailrace.driver.asking.signals import SignalIgnored, execution, parse, where_of

DIALECTS = ("postgres", "mysql")


def asked(data: dict[str, Any], dialect: str = "postgres") -> signals.Execution:
    return execution(data, dialect)


def table(schema: str, name: str) -> Any:
    return table_log(keyed(7, name, schema))


def test_data_is_an_object_or_a_text_that_holds_one() -> None:
    """As in Debezium's file and Kafka channels, and as in its table."""
    data = {"data-collections": ["public.a"], "type": "INCREMENTAL"}
    for given in (data, json.dumps(data)):
        signal = parse(json.dumps({"id": "ad-hoc", "type": "execute-snapshot", "data": given}))
        assert (signal.id, signal.type, signal.data) == ("ad-hoc", "execute-snapshot", data)
    assert parse('{"id": "d", "type": "pause-snapshot"}').data == {}
    assert parse('{"id": "d", "type": "log", "data": ""}').data == {}
    for ignored in ('"as you like"', "[1]", '{"type": "incremental"}'):
        assert parse(f'{{"id": "d", "type": "resume-snapshot", "data": {ignored}}}').data == {}
    assert parse('{"id": 5, "type": "log"}').id == "5", "as its file channel has it"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no JSON object"),
        ('{"type": "log"}', "no id"),
        ('{"id": true, "type": "log"}', "no id"),
        ('{"id": "a"}', "'a' has no type"),
        ('{"id": "a", "type": "log", "data": "{"}', "data of signal 'a' is not JSON"),
        ('{"id": "a", "type": "log", "data": [1]}', "data of signal 'a' is no JSON object"),
    ],
)
def test_a_broken_line_is_named(line: str, why: str) -> None:
    with pytest.raises(SignalIgnored, match=why):
        parse(line)


def test_names_are_regular_expressions_matched_as_a_whole() -> None:
    orders = [table("public", "orders")]

    def named(patterns: list[str]) -> bool:
        return signals.matches(asked({"data-collections": patterns}).tables, orders) == orders

    assert named(["public.orders"])
    assert named(["public\\.ord.*"])
    assert named(['"public"."orders"']) and named(['public."orders"']) and named(["public.`orders`"])
    assert not named(["public.order", "orders", "PUBLIC.ORDERS"])


@pytest.mark.parametrize("name", ["My.Table", "Order (old)", "my table", "a+b", "MyFirstTable"])
def test_names_with_other_characters_are_written_in_quotes(name: str) -> None:
    """As the connectors' documentation has it: `public."My.Table"`."""
    tables = [table("public", name), table("public", "Other")]
    for written in (f'public."{name}"', f"public.`{name}`", f'"public"."{name}"'):
        assert signals.matches(asked({"data-collections": [written]}).tables, tables) == tables[:1]


def test_each_table_has_the_filter_that_names_it() -> None:
    """The example of Debezium's documentation for several tables."""
    conditions = [
        {"data-collection": "db1.products", "filter": "color='blue'"},
        {"data-collection": "db1.orders", "filter": "quantity > 10"},
    ]
    made = asked({"data-collections": ["db1.*"], "additional-conditions": conditions}, dialect="mysql")
    found = [made.where(table("db1", name)) for name in ("products", "orders", "others")]
    assert found == ["color='blue'", "quantity > 10", None]
    older = asked({"data-collections": ["db1.*"], "additional-condition": "color='blue'"})
    assert older.where(table("db1", "others")) == "color='blue'"
    assert asked({"data-collections": ["db1.*"], "additional-condition": ""}).conditions == ()


def test_data_collections_of_conditions_are_expressions_in_any_case() -> None:
    """As in Debezium; one that concerns none of the tables is told."""
    one, other = {"data-collection": "DB1\\.Prod.*", "filter": "a = 1"}, {"data-collection": "db1.x", "filter": "a = 2"}
    made = asked({"data-collections": ["db1.*"], "additional-conditions": [one, other]})
    assert made.where(table("db1", "products")) == "a = 1"
    assert made.unused([table("db1", "products")]) == ["db1.x"]


def test_a_select_from_another_table_is_refused() -> None:
    conditions = [{"data-collection": "s.*", "filter": "SELECT * FROM [s].[Orders] WHERE id > 1"}]
    made = asked({"data-collections": ["s.*"], "type": "blocking", "additional-conditions": conditions})
    assert made.where(table("s", "orders")) == "id > 1"
    with pytest.raises(SignalIgnored, match=r"selects from s\.Orders instead of this table"):
        made.where(table("s", "other"))


@pytest.mark.parametrize("named", ["archive.orders", '"archive"."orders"', "[shop].[archive].[orders]"])
def test_a_select_from_a_table_of_the_same_name_in_another_schema_is_refused(named: str) -> None:
    conditions = [{"data-collection": ".*", "filter": f"SELECT * FROM {named} WHERE id > 1"}]
    made = asked({"data-collections": [".*"], "type": "blocking", "additional-conditions": conditions})
    assert made.where(table("archive", "orders")) == "id > 1"
    with pytest.raises(SignalIgnored, match=r"selects from archive\.orders instead of this table"):
        made.where(table("s", "orders"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_filter_is_a_condition_or_a_select_of_one_tables_rows(dialect: str) -> None:
    assert where_of("color='blue' AND quantity>10", dialect) == "color='blue' AND quantity>10"
    assert where_of("SELECT * FROM shop.orders WHERE a = 'x' OR b = 2;", dialect) == "a = 'x' OR b = 2"
    assert where_of("select * from orders", dialect) is None
    # Debezium's example of a blocking snapshot.
    theirs = "SELECT * FROM [schema1].[table1] WHERE column1 = 0 ORDER BY column2 DESC"
    assert where_of(theirs, dialect) == "column1 = 0"
    assert where_of('SELECT * FROM "My schema"."t" ORDER BY id', dialect) is None
    inner = "id IN (SELECT id FROM u ORDER BY id) AND a = ' ORDER BY '"
    assert where_of(f"SELECT * FROM t WHERE {inner} ORDER BY id;", dialect) == inner


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "given",
    [
        "color = ",
        "1 = 1; DROP TABLE orders",
        "1 = 1) OR (1 = 1",
        "id > 1 ORDER BY id",
        "id > 1 LIMIT 5",
        "id > 1 UNION SELECT 1",
        "SELECT id FROM orders WHERE id > 1",
        "SELECT * FROM a JOIN b ON a.id = b.id WHERE a.id > 1",
        "SELECT * FROM orders WHERE id > 1 LIMIT 5",
        "SELECT * FROM orders WHERE id > 1 ORDER BY id LIMIT 5",
        "SELECT * FROM orders WHERE id > 1 ORDER BY id FOR UPDATE",
        "SELECT * FROM orders LIMIT 5",
        "SELECT * FROM orders o WHERE o.id > 1",
        "",
        5,
    ],
)
def test_a_filter_that_is_no_condition_is_refused(dialect: str, given: object) -> None:
    with pytest.raises(SignalIgnored, match="filter"):
        where_of(given, dialect)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "data-collections is missing"),
        ({"data-collections": ""}, "data-collections is missing"),
        ({"data-collections": "public.a"}, "no list"),
        ({"data-collections": ["("]}, "no regular expression"),
        ({"data-collections": ["a.b)|(c"]}, "no regular expression"),
        ({"data-collections": ["(?=a).*"]}, "no regular expression"),
        ({"data-collections": [5]}, "no name of a data collection"),
        ({"data-collections": ["a.b"], "type": "full"}, "'full' is no type of snapshot"),
        ({"data-collections": ["a.b"], "additional-conditions": {}}, "no list"),
        ({"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.b"}]}, "no filter"),
    ],
)
def test_wrong_data_of_execute_snapshot_is_named(data: dict[str, Any], why: str) -> None:
    with pytest.raises(SignalIgnored, match=why):
        execution(data, "postgres")


def test_an_expression_that_another_engine_tries_for_years_is_matched_at_once() -> None:
    """Behind so many letters an engine that goes back has 2^60 ways to try."""
    long = [table("public", "a" * 60)]
    assert signals.matches(asked({"data-collections": ["public.(a+)+b"]}).tables, long) == []
    assert signals.matches(asked({"data-collections": ["public.(a+)+"]}).tables, long) == long


def test_a_filter_is_measured_before_it_is_read() -> None:
    with pytest.raises(SignalIgnored, match="more than 4096 characters"):
        where_of("(" * 5000, "postgres")
