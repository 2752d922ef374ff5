"""Each field of a Replicator's spec has one effect, by the lists and rules that the driver and the API server use."""

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.contract import change
from tailrace.contract.change import effect, immutable, refusal
from tailrace.contract.resources import ReplicatorSpec


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("tables.include", "live"),
        ("onSchemaChange", "live"),
        ("onTableDrop", "live"),
        ("deletionPolicy", "operator"),
        ("suspend", "operator"),
        ("driver.memory", "restart"),
        ("source.host", "restart"),
        ("storage.region", "restart"),
        ("source.database", "refused"),
        ("source.postgresql.slot", "refused"),
        ("storage.location", "refused"),
        ("target.type", "refused"),
    ],
)
def test_a_field_has_its_effect(field: str, expected: change.Effect) -> None:
    assert effect(field) == expected
    assert (refusal(field) is not None) == (expected == "refused")


def _fields(schema: dict[str, Any], defs: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, found in schema.get("properties", {}).items():
        yield path + name
        for option in (found, *found.get("anyOf", ())):
            if "$ref" in option:
                yield from _fields(defs[option["$ref"].rpartition("/")[2]], defs, f"{path}{name}.")


def test_each_rule_about_the_former_value_names_a_field_that_there_is() -> None:
    schema = ReplicatorSpec.model_json_schema()
    assert set(immutable()) <= set(_fields(schema, schema["$defs"])) and len(immutable()) >= 7
    assert all(why.startswith(f"{field} is immutable: ") for field, why in immutable().items())
