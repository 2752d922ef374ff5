"""Whether a target that is found is this table's, to be replaced, or refused."""

import pytest

from support.journals import table_schema
from tailrace.batch.applied import Generation
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import TargetChanged, TargetRefused
from tailrace.targets.lake.model import belongs

ORDERS = table_schema(1).model_copy(update={"table_name": "Orders"})
NAMESAKE = table_schema(2).model_copy(update={"table_name": "orders"})


def test_two_tables_of_one_record_that_meet_in_one_folder_do_not_replace_each_other_in_turn() -> None:
    found = Generation(RecordNumber(4), Seq(30)).begin(ORDERS, "log")
    assert belongs(Generation(RecordNumber(4), Seq(30)), found, ORDERS, ORDERS.name)
    with pytest.raises(TargetRefused, match=r"orders .table 2. holds table 1.* same record 4.* case"):
        belongs(Generation(RecordNumber(4), Seq(30)), found, NAMESAKE, NAMESAKE.name)


def test_a_table_that_came_later_takes_the_place_and_the_former_is_over() -> None:
    found = Generation(RecordNumber(4), Seq(30)).begin(ORDERS, "log")
    assert not belongs(Generation(RecordNumber(5), Seq(40)), found, NAMESAKE, NAMESAKE.name)
    with pytest.raises(TargetChanged, match="since record 4"):
        belongs(Generation(RecordNumber(3), Seq(20)), found, NAMESAKE, NAMESAKE.name)
