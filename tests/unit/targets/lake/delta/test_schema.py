"""Delta's types of ours, there and back."""

import json

import pytest

from support.lake import table_schema
from tailrace.targets.lake.delta.schema import delta_type, logical_type, new_metadata

LOGICAL = ("bool", "int64", "decimal(9,2)", "string", "timestamp", "list<decimal(9,2)>", "list<timestamp>")


@pytest.mark.parametrize("logical", LOGICAL)
def test_a_type_is_read_back(logical: str) -> None:
    assert logical_type(json.loads(json.dumps(delta_type(logical)))) == logical


def test_types_of_others_are_none_of_ours() -> None:
    array = {"type": "array", "containsNull": True}
    for delta in ("void", {"type": "struct", "fields": []}, array | {"elementType": array | {"elementType": "long"}}):
        assert logical_type(delta) is None


def test_a_list_of_times_needs_the_feature_that_its_elements_need_and_has_no_statistics() -> None:
    metadata = new_metadata(table_schema([("id", "int64"), ("at", "list<timestamp>"), ("v", "string")], ["id"]), "x", 0)
    assert metadata["configuration"]["delta.feature.timestampNtz"] == "supported"
    assert metadata["configuration"]["delta.dataSkippingStatsColumns"] == "`id`,`v`"
