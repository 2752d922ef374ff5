"""What a statement made of a table's columns, as far as its text and the catalog behind it agree."""

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.sources.mysql.log.in_place import step
from tailrace.sources.mysql.log.statements import column_actions
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, number_of
from tailrace.sources.mysql.types import ColumnType, Form, logical

TYPES = {
    "int": ColumnType("int", "int", 10, 0),
    "bigint": ColumnType("bigint", "bigint", 19, 0),
    "text": ColumnType("text", "text", length=65535, charset="utf8mb4"),
    "short": ColumnType("varchar", "varchar(9)", length=36, charset="utf8mb4"),
    "long": ColumnType("varchar", "varchar(20)", length=80, charset="utf8mb4"),
    "latin": ColumnType("varchar", "varchar(20)", length=20, charset="latin1"),
}


def table(columns: str, left_out: Sequence[str] = (), where: str | None = None, **more: Any) -> MysqlTable:
    """`columns`: names and types; `!` behind one: it is NOT NULL. The first is the key."""
    found = []
    for place, column in enumerate(columns.split(", ")):
        name, _, kind = column.partition(" ")
        type = TYPES[kind.rstrip("!")]
        form = Form(logical(type) or "", sets_null=place > 0)
        key = None if place else 0
        nullable = not kind.endswith("!")
        found.append(MysqlColumn(name, type, form, logical(type), nullable, key, False, name not in left_out, **more))
    copied = tuple(
        Column(name=c.name, id=c.id, source_type=c.type.text, type=c.form.logical, nullable=c.nullable, key=c.key)
        for c in found
        if c.copied
    )
    schema = TableSchema(table_id=7, schema_name="d", table_name="t", version=3, columns=copied, where=where)
    return MysqlTable("d", "t", tuple(found), "PRIMARY", schema, None)


def ids(statement: str, before: MysqlTable, now: MysqlTable) -> dict[str, str] | None:
    """The former name of each column of the new version, empty: it is a new one; None: it is not followed."""
    found = step(before.schema, before, now, column_actions(f"ALTER TABLE t {statement}"))
    names = {c.id: c.name for c in before.schema.columns}
    return None if found is None else {c.name: names.get(c.id, "") for c in found.schema.columns}


WAS = table("id int, a int, b int, c text")


@pytest.mark.parametrize(
    ("statement", "now", "expected"),
    [
        ("DROP a", "id int, b int, c text", {"id": "id", "b": "b", "c": "c"}),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id int, b int, a int, c text", {"a": "b", "b": "a"}),
        ("DROP a, RENAME COLUMN b TO a", "id int, a int, c text", {"a": "b"}),
        ("ADD a int NULL, DROP a", "id int, b int, c text, a int", {"a": "", "b": "b"}),
        ("RENAME COLUMN a TO d, ADD a int NULL", "id int, d int, b int, c text, a int", {"d": "a", "a": ""}),
        ("DROP A", "id int, b int, c text", {"b": "b"}),
        ("DROP COLUMN IF EXISTS x, DROP IF EXISTS a", "id int, b int, c text", {"b": "b"}),
        ("MODIFY a bigint", "id int, a bigint, b int, c text", {"a": "", "b": "b"}),
        ("CHANGE a d bigint", "id int, d bigint, b int, c text", {"d": "", "b": "b"}),
        ("CHANGE a d int", "id int, d int, b int, c text", {"d": "a", "b": "b"}),
    ],
)
def test_each_column_is_the_one_that_the_statement_says(statement: str, now: str, expected: dict[str, str]) -> None:
    found = ids(statement, WAS, table(now))
    assert found is not None and expected.items() <= found.items()
    assert found.keys() == {c.name for c in table(now).columns}


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        ("DROP a", "id int, a int, b int, c text"),
        ("DROP a", "id int, b int, c text, d int"),
        ("DROP a", "id int, c text"),
        ("DROP a", "id int, b bigint, c text"),
        ("DROP a", "id int, b int!, c text"),
        ("DROP x", "id int, a int, b int, c text"),
        ("DROP id", "a int, b int, c text"),
        ("RENAME COLUMN id TO x", "x int, a int, b int, c text"),
        ("RENAME COLUMN a TO A", "id int, A int, b int, c text"),
        ("RENAME COLUMN a TO d, DROP a", "id int, d int, b int, c text"),
        ("RENAME COLUMN a TO d", "id int, d bigint, b int, c text"),
        ("CHANGE a d bigint", "id int, a int, b int, c text"),
        ("MODIFY a int", "id int, a int, b int, c text"),
        ("ADD d int NULL", "id int, a int, b int, c text"),
    ],
)
def test_what_the_catalog_does_not_show_so_is_not_followed(statement: str, now: str) -> None:
    assert ids(statement, WAS, table(now)) is None


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("short", "long", False),
        ("short", "long!", None),
        ("short!", "long", False),
        ("short", "latin", None),
        ("long", "short", None),
    ],
)
def test_a_longer_text_is_followed_if_it_keeps_every_value(was: str, now: str, expected: bool | None) -> None:
    before = table(f"id int, v {was}")
    actions = column_actions(f"ALTER TABLE t MODIFY v varchar({9 if now == 'short' else 20})")
    found = step(before.schema, before, table(f"id int, v {now}"), actions)
    assert (None if found is None else found.reread) is expected
    renamed = column_actions(f"ALTER TABLE t CHANGE v w varchar({9 if now == 'short' else 20})")
    found = step(before.schema, before, table(f"id int, w {now}"), renamed)
    assert found is not None and found.reread is (expected is None) and not found.additive


def test_what_is_left_out_is_no_column_of_the_version() -> None:
    before = table("id int, a int, b int", left_out=["b"])
    assert ids("DROP b", before, table("id int, a int")) == {"id": "id", "a": "a"}
    assert ids("RENAME COLUMN b TO d", before, table("id int, a int, d int", left_out=["d"])) is not None
    assert ids("RENAME COLUMN b TO d", before, table("id int, a int, d int")) is None


def test_a_condition_holds_its_columns() -> None:
    before = table("id int, a int, b int", where="a > 0")
    assert ids("DROP b", before, table("id int, a int", where="a > 0")) is not None
    assert ids("MODIFY a bigint", before, table("id int, a bigint, b int", where="a > 0")) is None
    assert ids("DROP b", before, table("id int, a int")) is None


def test_a_number_is_never_given_twice() -> None:
    statement = column_actions("ALTER TABLE t DROP a, ADD a int NULL")
    one = step(WAS.schema, WAS, WAS, statement)
    assert one is not None
    other = step(one.schema, WAS, WAS, statement)
    assert other is not None and number_of("a") in {c.id for c in WAS.schema.columns}
    assert len({next(c.id for c in s.columns if c.name == "a") for s in (WAS.schema, one.schema, other.schema)}) == 3
