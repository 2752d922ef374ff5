"""Which columns cannot name rows."""

import pytest

from tailrace.sources.mysql.model import MysqlColumn
from tailrace.sources.mysql.refused_keys import refused
from tailrace.sources.mysql.types import ColumnType, Form

MEMBERS = ",".join(f"'m{i}'" for i in range(63))


def column(type: ColumnType, key: int | None = 0) -> MysqlColumn:
    return MysqlColumn("k", type, Form("string"), "string", False, key, False, True)


@pytest.mark.parametrize(
    ("type", "what"),
    [
        (ColumnType("varchar", "varchar(9)", charset="sjis"), "the character set sjis"),
        (ColumnType("enum", "enum('a','?')"), "a label with `?` in it"),
        (ColumnType("enum", "enum('','a')"), "an empty label"),
        (ColumnType("set", "set('a','')"), "an empty label"),
        (ColumnType("set", f"set({MEMBERS},'m63')"), "64 members"),
    ],
)
def test_a_column_that_cannot_name_rows_is_refused_in_a_key_alone(type: ColumnType, what: str) -> None:
    found = refused("d.t", [column(type)])
    assert found is not None and what in found.message and found.fix.endswith(", or exclude the table.")
    assert refused("d.t", [column(type, key=None)]) is None


@pytest.mark.parametrize("type", [ColumnType("set", f"set({MEMBERS})"), ColumnType("varchar", "varchar(9)")])
def test_other_columns_are_fit(type: ColumnType) -> None:
    assert refused("d.t", [column(type)]) is None
