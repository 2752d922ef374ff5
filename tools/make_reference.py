"""Writes `docs/reference.md`: every field of the two resources with its type, bounds, default and text.

Called by `make crds`; a unit test compares. Made of the same schema as the CRDs.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from make_crds import ROOT, definitions

PAGE = ROOT / "docs" / "reference.md"
HEADER = """\
# Fields of the resources

<!-- Generated from the models by `make crds`; do not edit. -->

Version `tailrace.dev/v1alpha1`. The same documents go to `kubectl apply` and to `tailrace run -f`. Outside Kubernetes
fields of pods and images are ignored, except `cores`, `memory` and `scratch` of `driver`. Unknown fields are errors.
"""
Json = dict[str, Any]


def fields(node: Json, path: str = "") -> Iterator[tuple[str, Json, bool]]:
    """Path, schema and whether it is required, parents before children."""
    required = node.get("required", [])
    for name, inner in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, inner, name in required
        yield from fields(inner, here)
        if inner["type"] == "array":
            yield from fields(inner["items"], f"{here}[]")


def kind_of(node: Json) -> str:
    if node["type"] == "array":
        return f"list of {kind_of(node['items'])}"
    if "additionalProperties" in node:
        return "map of string"
    if "enum" in node:
        return " \\| ".join(f"`{value}`" if value else "empty" for value in node["enum"])
    if "minimum" in node or "maximum" in node:
        above, below = ">" * bool(node.get("exclusiveMinimum")), "<" * bool(node.get("exclusiveMaximum"))
        return f"{node['type']} {above}{node.get('minimum', '')}…{below}{node.get('maximum', '')}"
    return str(node["type"])


def row(path: str, node: Json, required: bool) -> str:
    default = "required" if required else ""
    if "default" in node and node["default"] not in ({}, []):
        default = f"`{json.dumps(node['default'])}`"
    text = node.get("description", "").replace("|", "\\|")
    return f"| `{path}` | {kind_of(node)} | {default} | {text} |"


def table(node: Json) -> str:
    rows = [row(*field) for field in fields(node)]
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows]) + "\n"


def rules(node: Json) -> Iterator[str]:
    """Messages of the rules, in the order of the fields."""
    for rule in node.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for inner in (*node.get("properties", {}).values(), node.get("items")):
        if isinstance(inner, dict):
            yield from rules(inner)


def text() -> str:
    parts = [HEADER]
    for definition in definitions().values():
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind, short = definition["spec"]["names"]["kind"], definition["spec"]["names"]["shortNames"][0]
        spec, status = schema["properties"]["spec"], schema["properties"]["status"]
        said = "\n".join(f"* {message}" for message in dict.fromkeys(rules(schema)))
        parts.append(f"## {kind} (`{short}`)\n\n{schema['description']}\n\n### spec\n\n{table(spec)}")
        parts.append(f"The API server also refuses:\n{said}\n")
        parts.append(f"### status\n\nWritten by the operator.\n\n{table(status)}")
    return "\n".join(parts)


def main() -> int:
    PAGE.write_text(text(), encoding="utf-8")
    print(f"reference: wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
