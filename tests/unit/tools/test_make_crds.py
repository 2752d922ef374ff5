"""The generated CRDs: equal to what is checked in, and of the shape that API server and GitOps tools want."""

from collections.abc import Iterator
from typing import Any

import pytest

import make_crds
import make_reference

DEFINITIONS = make_crds.definitions()
KINDS = sorted(DEFINITIONS)


def schema(name: str) -> dict[str, Any]:
    version: dict[str, Any] = DEFINITIONS[name]["spec"]["versions"][0]
    return dict(version["schema"]["openAPIV3Schema"])


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path."""
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}[]")


@pytest.mark.parametrize("path", make_crds.files(), ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_the_files_are_what_the_models_say(path: Any) -> None:
    assert path.read_text(encoding="utf-8") == make_crds.files()[path], "run `make crds`"


@pytest.mark.parametrize("name", KINDS)
def test_a_definition_stays_far_below_what_the_api_server_takes(name: str) -> None:
    assert len(make_crds.dump(DEFINITIONS[name]).encode()) < 256 * 1024


@pytest.mark.parametrize("name", KINDS)
def test_every_field_is_described(name: str) -> None:
    fields = [(p, n) for p, n in nodes(schema(name)) if p and not p.endswith("[]") and p != ".metadata"]
    assert [path for path, node in fields if not node.get("description")] == []


@pytest.mark.parametrize("name", KINDS)
def test_everything_is_bounded(name: str) -> None:
    loose = []
    for path, node in nodes(schema(name)):
        if path in ("", ".apiVersion", ".kind", ".metadata"):
            continue
        bounds = {"array": "maxItems", "string": "maxLength"}.get(node["type"])
        if "additionalProperties" in node:
            bounds = "maxProperties"
        if bounds is not None and bounds not in node and "enum" not in node:
            loose.append(f"{path} lacks {bounds}")
    assert loose == []


@pytest.mark.parametrize("name", KINDS)
def test_the_schema_is_structural(name: str) -> None:
    for path, node in nodes(schema(name)):
        assert isinstance(node.get("type"), str), path
        assert not {"anyOf", "oneOf", "allOf", "$ref", "title", "const", "nullable"} & node.keys(), path
        assert not ("properties" in node and "additionalProperties" in node), path


@pytest.mark.parametrize("name", KINDS)
def test_status_is_a_subresource_that_begins_unobserved_and_keys_conditions_by_type(name: str) -> None:
    assert DEFINITIONS[name]["spec"]["versions"][0]["subresources"] == {"status": {}}
    status = schema(name)["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    conditions = status["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert [p for p, n in nodes(status) if p and "default" in n] == []


@pytest.mark.parametrize("name", KINDS)
def test_a_printer_column_shows_a_field_that_exists(name: str) -> None:
    known = {path for path, _ in nodes(schema(name))} | {".metadata.creationTimestamp"}
    known |= {f'.status.conditions[?(@.type=="Ready")].{field}' for field in ("status", "message")}
    shown = {column["jsonPath"] for column in DEFINITIONS[name]["spec"]["versions"][0]["additionalPrinterColumns"]}
    assert shown <= known


def test_defaults_of_blocks_are_left_to_their_fields() -> None:
    spec = schema("replicators.yaml")["properties"]["spec"]["properties"]
    assert spec["snapshot"]["default"] == {}
    assert spec["snapshot"]["properties"]["parallelism"]["default"] == 2
    assert spec["snapshot"]["properties"]["chunkSeconds"] == {
        "description": (
            "Chunks are sized to take about this many seconds to read; up to three times as many while their files"
            " would be smaller than 48 MiB."
        ),
        "type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 3600, "default": 10.0,
    }  # fmt: skip


def test_the_reference_is_what_the_models_say() -> None:
    assert make_reference.PAGE.read_text(encoding="utf-8") == make_reference.text(), "run `make crds`"
