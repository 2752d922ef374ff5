"""The definition of a table comes out of the journal as the catalog showed it, as far as rows in the log need it."""

import pytest

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import CorruptLog
from tailrace.sources.mysql.log import definitions
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, number_of
from tailrace.sources.mysql.types import ColumnType, Form, logical

TYPES = {
    "id": ColumnType("int", "int unsigned", precision=10, scale=0),
    "e": ColumnType("enum", "enum('a''b','ü ,\"')", length=24, charset="latin1"),
    "x": ColumnType("time", "time(3)", fraction=3),
    "left_out": ColumnType("money", "money"),
}
COLUMNS = tuple(
    Column(
        name=n, id=number_of(n), source_type=TYPES[n].text, type=kind, nullable=n != "id", key=0 if n == "id" else None
    )
    for n, kind in (("id", "int64"), ("e", "string"), ("x", "string"))
)
SCHEMA = TableSchema(table_id=7, schema_name="d", table_name="t", version=3, columns=COLUMNS)


def table() -> MysqlTable:
    kinds = {c.name: c.type for c in COLUMNS}

    def column(name: str, type: ColumnType) -> MysqlColumn:
        form, key = Form(kinds.get(name, ""), type.fraction), 0 if name == "id" else None
        return MysqlColumn(name, type, form, logical(type), name != "id", key, False, name in kinds)

    columns = tuple(column(name, type) for name, type in TYPES.items())
    return MysqlTable("d", "t", columns, "PRIMARY", SCHEMA, None)


def test_a_definition_comes_back_from_its_fingerprint() -> None:
    found = definitions.remembered(
        SCHEMA, definitions.with_announced(definitions.parts_of(table()), {"later"}), nulls=False
    )
    assert found is not None and found.columns == table().columns


def test_a_fingerprint_without_all_columns_of_the_version_is_no_definition() -> None:
    """One of before the types were in it, too."""
    parts = definitions.parts_of(table())
    del parts["type"]["x"]
    assert definitions.remembered(SCHEMA, parts, nulls=False) is None
    assert definitions.remembered(SCHEMA, {"column type": {"id": "int"}}, nulls=False) is None


def test_columns_that_were_announced_are_kept_until_they_are_there() -> None:
    parts = definitions.parts_of(table())
    told = definitions.with_announced(parts, {"b", "a"})
    assert definitions.announced(told) == {"a", "b"} and definitions.announced(parts) == set()
    assert definitions.with_announced(told, set()) == parts


@pytest.mark.parametrize("text", ["", "7", '["int"]', '{"a": 1}', "[1,2,3,4,5,6,7,8,9]"])
def test_what_cannot_be_read_is_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLog, match=r"fingerprint of d\.t"):
        definitions.remembered(SCHEMA, {"type": dict.fromkeys(TYPES, text)}, nulls=False)
