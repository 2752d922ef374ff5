from tailrace.sources.mysql.log.wire_fit import same_text
from tailrace.sources.mysql.types import ColumnType

LABELS = ColumnType("enum", "enum('a','é')", charset="utf8mb4")


def test_labels_that_are_no_text_are_not_those_of_the_catalog() -> None:
    assert same_text(LABELS, None, (b"a", "é".encode()), {})
    assert not same_text(LABELS, None, (b"a", b"\xff"), {})
    assert not same_text(LABELS, None, (), {})
