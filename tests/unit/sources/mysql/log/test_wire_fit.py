import pytest

from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.collations import BINARY
from tailrace.sources.mysql.log.table_map import MapColumn
from tailrace.sources.mysql.log.wire_fit import fits, same_text
from tailrace.sources.mysql.types import ColumnType

LABELS = ColumnType("enum", "enum('a','é')", charset="utf8mb4")


def test_labels_that_are_no_text_are_not_those_of_the_catalog() -> None:
    assert same_text(LABELS, None, (b"a", "é".encode()), {})
    assert not same_text(LABELS, None, (b"a", b"\xff"), {})
    assert not same_text(LABELS, None, (), {})


@pytest.mark.parametrize("name, width", [("uuid", 16), ("inet4", 4), ("inet6", 16)])
def test_bytes_of_another_length_or_with_a_collation_are_no_address_and_no_uuid(name: str, width: int) -> None:
    """A column that was `inet4` when the catalog was read, and is `inet6` or `char(4)` in the row."""
    type = ColumnType(name, name)
    assert fits(type, MapColumn(wire.STRING, width), None)
    assert not fits(type, MapColumn(wire.STRING, {16: 4, 4: 16}[width]), None)
    assert not fits(type, MapColumn(wire.STRING, 144), None)
    assert same_text(type, BINARY, (), {}) and same_text(type, None, (), {})
    assert not same_text(type, 8, (), {8: "latin1"})
