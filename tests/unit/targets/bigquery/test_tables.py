"""The definition of a copy, and what its description says of it."""

from tailrace.targets.bigquery.tables import CopyTable
from tailrace.targets.sql.described import mark

DEFINITIONS = (
    f"`id` INT64 NOT NULL{mark(1)}, `price` NUMERIC(38,9){mark(-2)}, `at` TIME NOT NULL{mark(3)},"
    " PRIMARY KEY (`at`, `id`)"
)


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
