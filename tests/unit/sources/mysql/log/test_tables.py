import pytest

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
