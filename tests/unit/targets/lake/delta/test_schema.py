"""Delta's types of ours, there and back."""

import json

import pytest

from support.lake import table_schema
from tailrace.errors import TargetChanged
from tailrace.targets.lake.delta.schema import delta_type, evolved, logical_type, new_metadata

PAIR = 'struct<"at":timestamp,"n, m":decimal(9,2)>'
LOGICAL = ("bool", "int64", "decimal(9,2)", "string", "timestamp", "list<decimal(9,2)>", "list<timestamp>", PAIR)
"""Types that Tailrace writes."""


@pytest.mark.parametrize("logical", LOGICAL)
def test_a_type_is_read_back(logical: str) -> None:
    assert logical_type(json.loads(json.dumps(delta_type(logical, [7, 8] if logical == PAIR else ())))) == logical


def test_types_of_others_are_none_of_ours() -> None:
    array = {"type": "array", "containsNull": True}
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": array | {"elementType": "long"}}]
    assert logical_type({"type": "struct", "fields": fields[:1]}) == 'struct<"a":int64>'
    assert logical_type({"type": "struct", "fields": fields}) is None
    for delta in ("void", {"type": "struct", "fields": []}, array | {"elementType": array | {"elementType": "long"}}):
        assert logical_type(delta) is None


def test_a_list_of_times_needs_the_feature_that_its_elements_need_and_has_no_statistics() -> None:
    metadata = new_metadata(table_schema([("id", "int64"), ("at", "list<timestamp>"), ("v", "string")], ["id"]), "x", 0)
    assert metadata["configuration"]["delta.feature.timestampNtz"] == "supported"
    assert metadata["configuration"]["delta.dataSkippingStatsColumns"] == "`id`,`v`"


def test_a_structs_fields_have_ids_of_their_own_and_no_statistics_and_the_feature_of_their_types() -> None:
    metadata = new_metadata(table_schema([("id", "int64"), ("p", PAIR), ("v", "string")], ["id"]), "x", 0)
    (_, pair, _) = json.loads(metadata["schemaString"])["fields"]
    keys = "delta.columnMapping.id", "delta.columnMapping.physicalName"
    assert [tuple(f["metadata"][key] for key in keys) for f in pair["type"]["fields"]] == [(3, "at"), (4, "n, m")]
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "5"
    assert metadata["configuration"]["delta.feature.timestampNtz"] == "supported"
    assert metadata["configuration"]["delta.dataSkippingStatsColumns"] == "`id`,`v`"


def test_a_struct_that_another_program_has_added_is_not_written_to() -> None:
    """Its fields have other names in data files."""
    before, schema = table_schema([("id", "int64")], ["id"]), table_schema([("id", "int64"), ("p", PAIR)], ["id"])
    foreign = new_metadata(schema, "x", 0)
    doc = json.loads(foreign["schemaString"])
    doc["fields"][1]["type"]["fields"][0]["metadata"]["delta.columnMapping.physicalName"] = "col-1"
    columns = new_metadata(before, "x", 0)["configuration"]["tailrace.columns"]
    changed = {
        "schemaString": json.dumps(doc),
        "configuration": foreign["configuration"] | {"tailrace.columns": columns},
    }
    with pytest.raises(TargetChanged, match="column 'p' of the target was added, or its fields renamed"):
        evolved(foreign | changed, schema)
