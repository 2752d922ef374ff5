"""The definition of a copy, and what its description says of it."""

import json
import re

import pytest

from tailrace.targets.bigquery.tables import DESCRIPTION_CHARACTERS, CopyTable
from tailrace.targets.bigquery.types import field_of
from tailrace.targets.sql.described import mark
from tailrace.targets.sql.session import Alteration, AlteredColumn

DEFINITIONS = (
    f"`id` INT64 NOT NULL{mark(1)}, `price` NUMERIC(38,9){mark(-2)}, `at` TIME NOT NULL{mark(3)},"
    " PRIMARY KEY (`at`, `id`)"
)


KEYED = f"`id` INT64 NOT NULL{mark(1)}"


def resource(copy: CopyTable) -> dict[str, object]:
    kinds = {"INT64": "INTEGER", "NUMERIC(38,9)": "NUMERIC"}
    fields = [{"name": column.name, "type": kinds.get(column.kind, column.kind)} for column in copy.columns]
    return {"description": copy.description, "schema": {"fields": fields}}


def test_a_copy_is_known_by_its_description() -> None:
    copy = CopyTable.of_definitions(77, DEFINITIONS)
    assert [(c.name, c.kind, c.id) for c in copy.columns] == [
        ("id", "INT64", 1), ("price", "NUMERIC(38,9)", -2), ("at", "TIME", 3),
    ]  # fmt: skip
    assert CopyTable.of_resource(resource(copy)) == copy
    assert all(CopyTable.of_resource({"description": text}) is None for text in ("", "a table", "{}", "[1]"))


def test_a_copy_with_an_array_is_known_by_its_description() -> None:
    copy = CopyTable.of_definitions(77, f"{KEYED}, `tags` ARRAY<STRING>{mark(2)}, `n` ARRAY<NUMERIC(38,9)>{mark(3)}")
    assert [column.kind for column in copy.columns] == ["INT64", "ARRAY<STRING>", "ARRAY<NUMERIC(38,9)>"]
    fields = [field_of(column.name, column.kind) for column in copy.columns]
    assert CopyTable.of_resource({"description": copy.description, "schema": {"fields": fields}}) == copy


def test_it_is_clustered_by_those_columns_of_the_key_that_it_can_be() -> None:
    copy = CopyTable.of_definitions(77, DEFINITIONS)
    assert copy.created("`d`.`t`").startswith(
        "CREATE TABLE `d`.`t` (`id` INT64, `price` NUMERIC(38,9), `at` TIME) CLUSTER BY `id` OPTIONS(description='{"
    )
    remade = copy.remade("`d`.`t`", ["`id`", "NULL", "`x`"], "`d`.`s`")
    assert remade.startswith("CREATE OR REPLACE TABLE `d`.`t` CLUSTER BY `id`")
    assert remade.endswith(" AS SELECT `id` AS `id`, NULL AS `price`, `x` AS `at` FROM `d`.`s`")


def test_a_column_that_another_program_added_is_none_of_the_copy() -> None:
    copy = CopyTable.of_definitions(77, DEFINITIONS)
    found = resource(copy)
    found["schema"] = {"fields": [{"name": "mine", "type": "STRING"}, {"name": "at", "type": "TIME"}]}
    read = CopyTable.of_resource(found)
    assert read is not None and [column.name for column in read.columns] == ["at"]


COPY = CopyTable.of_definitions(
    77, f"`id` INT64 NOT NULL{mark(1)}, `a` STRING{mark(2)}, `b` INT64{mark(3)}, PRIMARY KEY (`id`)"
)


def renamed(old: str, new: str, kind: str, column: int) -> AlteredColumn:
    return AlteredColumn(f"`{old}`", f"`{new}`", None, f"`{new}` {kind}{mark(column)}")


def retyped(name: str, kind: str, column: int, new: str = "") -> AlteredColumn:
    return AlteredColumn(f"`{name}`", f"`{new or name}`", kind, f"`{new or name}` {kind}{mark(column)}")


ADDED = f"`c` DATE{mark(4)}"
DROP, TELL, RENAME = "DROP COLUMN", "SET OPTIONS", "RENAME COLUMN"
IN_PLACE = [
    (Alteration([], [], [ADDED]), [TELL, "ADD COLUMN"]),
    (Alteration(["`b`"], [], []), [DROP, TELL]),
    (Alteration([], [renamed("a", "c", "STRING", 2)], []), [TELL, RENAME, TELL]),
    (Alteration([], [retyped("b", "NUMERIC(38,9)", 3)], []), ["ALTER COLUMN `b` SET DATA TYPE NUMERIC"]),
    (Alteration(["`b`"], [], [ADDED]), [DROP, TELL, "ADD COLUMN"]),
]


@pytest.mark.parametrize(("change", "wanted"), IN_PLACE)
def test_a_change_of_columns_that_stops_anywhere_leaves_each_its_id(change: Alteration, wanted: list[str]) -> None:
    statements, (after, _) = COPY.altering("`d`.`t`", change) or [], COPY.altered(change)
    assert [one.removeprefix("ALTER TABLE `d`.`t` ")[: len(two)] for one, two in zip(statements, wanted, strict=True)]
    held = {column.name: column.id for column in COPY.columns}
    """The id whose values a column has, by its name."""
    told, ids = json.loads(COPY.description)["columns"], {column.name: column.id for column in after.columns}
    for statement in statements:
        if TELL in statement:
            found = re.search(r"description='(.*)'", statement)
            told = json.loads(found[1])["columns"] if found else {}
        for old, new in re.findall(r"RENAME COLUMN `(\w+)` TO `(\w+)`", statement):
            held[new] = held.pop(old)
        for name in re.findall(r"DROP COLUMN `(\w+)`", statement):
            del held[name]
        held |= {name: ids[name] for name in re.findall(r"ADD COLUMN `(\w+)`", statement)}
        assert {name: told[name] for name in held} == held, statement
    assert held == told == ids


@pytest.mark.parametrize(
    "change",
    [
        Alteration([], [renamed("id", "key", "INT64", 1)], []),
        Alteration([], [retyped("id", "NUMERIC(38,9)", 1)], []),
        Alteration(["`b`"], [], [f"`B` DATE{mark(4)}"]),
        Alteration([], [renamed("a", "b", "STRING", 2), renamed("b", "a", "INT64", 3)], []),
        Alteration([], [renamed("a", "A", "STRING", 2)], []),
        Alteration([], [retyped("b", "STRING", 3)], []),
        Alteration(["`b`"], [renamed("a", "d", "STRING", 2)], []),
        Alteration([], [retyped("b", "BIGNUMERIC(76,38)", 3, "e")], []),
        Alteration(["`b`"], [retyped("a", "BIGNUMERIC(76,38)", 2)], []),
        Alteration([], [], [f"`{'c' * 290}{at}` DATE{mark(at)}" for at in range(10, 70)]),
    ],
)
def test_what_bigquery_does_not_do_without_the_rows_is_known(change: Alteration) -> None:
    assert COPY.altering("`d`.`t`", change) is None


def test_a_copy_is_not_altered_more_often_than_bigquery_allows_beside_a_batch() -> None:
    """Which deletes and inserts: five updates of a table in all."""
    columns = ", ".join(f"`n{at}` INT64{mark(at)}" for at in range(6))
    copy = CopyTable.of_definitions(77, columns)
    wider = [retyped(f"n{at}", "NUMERIC(38,9)", at) for at in range(6)]
    assert len(copy.altering("t", Alteration([], wider[:3], [])) or []) == 3
    assert copy.altering("t", Alteration([], wider[:4], [])) is None
    assert len(copy.description) < DESCRIPTION_CHARACTERS
