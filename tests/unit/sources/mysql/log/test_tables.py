import pytest

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import LogIncomplete
from tailrace.sources.mysql.log.events import UnknownEvent
from tailrace.sources.mysql.log.table_map import head_of
from tailrace.sources.mysql.log.tables import CapturedTables
from tailrace.sources.mysql.model import identity, number_of


def test_a_table_map_whose_names_are_no_text_is_refused_by_name() -> None:
    tables = CapturedTables(lambda _: None, {}, mariadb=False)
    whole = head_of("shop", "plain")
    assert tables.number(whole) == number_of(identity("shop", "plain"))
    with pytest.raises(UnknownEvent, match="TABLE_MAP"):
        tables.number(whole.replace(b"o", b"\x85"))


@pytest.mark.parametrize(
    ("kind", "meta", "fix"), [(20, b"\x08", "JSON array"), (20, b"\x0f\x50\x00\x00", "JSON array"), (150, b"", "FORCE")]
)
def test_a_column_of_an_unknown_type_stops_its_table_alone(kind: int, meta: bytes, fix: str) -> None:
    """What it has between the other columns' metadata cannot be told from theirs."""
    tables = CapturedTables(lambda _: None, {}, mariadb=False)
    column = Column(name="v", id=1, source_type="varchar(9)", type="string", key=0)
    number = number_of(identity("shop", "plain"))
    schema = {"table_id": number, "schema_name": "shop", "table_name": "plain", "version": 1, "columns": (column,)}
    tables.add(TableSchema.model_validate(schema))
    types, sizes = bytes([kind, 15]), meta + b"\x24\x00"
    form = head_of("shop", "plain") + b"\x02" + types + bytes([len(sizes)]) + sizes + b"\x00\x02\x01\x2d"
    with pytest.raises(LogIncomplete, match=f"a column of the type {kind}, .*{fix}"):
        tables.form_of(form)
