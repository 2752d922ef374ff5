"""Writes the CustomResourceDefinitions out of the models: `crds/`, and the chart's copy of them.

Called by `make crds`; a unit test compares what it would write with what is there. The models of `tailrace.contract`
give `spec`, those of `tailrace_operator.status` give `status`; what pydantic calls a schema becomes a structural one:
no references, no unions with null, no titles, numbers as OpenAPI 3.0 writes their bounds.
"""

import sys
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from typing_extensions import override

from tailrace.contract.base import FORMS, GROUP, LOCATION, TABLE, VERSION, VERSIONS, api_versions
from tailrace.contract.resources import Replicator, ReplicatorSpec, SnapshotRequest, SnapshotRequestSpec
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus

ROOT = Path(__file__).resolve().parent.parent
PLACES = (ROOT / "crds", ROOT / "charts" / "tailrace" / "files" / "crds")
HEADER = "# Generated from the models by `make crds`; do not edit.\n"
Json = dict[str, Any]

# With `-driver` it names a StatefulSet, whose pods carry that name and a hash of 11 characters in a label of 63.
NAME_RULE = {
    "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 45",
    "message": "metadata.name becomes part of host names: at most 45 of a-z, 0-9 and -, beginning with a letter",
}

IN_WORDS = {
    LOCATION: ("location", f"self.matches('{LOCATION}')"),
    TABLE: ("pattern", "self.indexOf('.') > 0 && self.indexOf('.') < size(self) - 1"),
}
"""Rules in place of the patterns that people meet most: of a pattern the API server shows the regular expression."""

_DROPPED = {"title", "additionalProperties", "$defs", "default", "exclusiveMinimum", "exclusiveMaximum", "const"}


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any], defaults: bool) -> Json:
    """One schema node as the API server takes it; `defaults` only in spec: the operator writes all of status."""
    if "$ref" in schema:
        named = definitions[schema["$ref"].rsplit("/", 1)[1]]
        return structural({**named, **{k: v for k, v in schema.items() if k != "$ref"}}, definitions, defaults)
    if "anyOf" in schema:
        (one,) = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
        return structural({**one, **{k: v for k, v in schema.items() if k != "anyOf"}}, definitions, defaults)
    node: Json = {k: deepcopy(v) for k, v in schema.items() if k not in _DROPPED}
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if schema.get("pattern") in IN_WORDS:
        pattern = node.pop("pattern")
        what, rule = IN_WORDS[pattern]
        node["x-kubernetes-validations"] = [{"rule": rule, "message": f"{what}: {FORMS[pattern]}"}]
    if "const" in schema:
        node["enum"] = [schema["const"]]
    for bound, kind in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in schema:
            node |= {kind: schema[bound], bound: True}
    if node["type"] == "integer":
        node.setdefault("format", "int64")
    if "properties" in node:
        node["properties"] = {k: structural(v, definitions, defaults) for k, v in node["properties"].items()}
    if "items" in node:
        node["items"] = structural(node["items"], definitions, defaults)
    if isinstance(schema.get("additionalProperties"), dict):
        node["additionalProperties"] = structural(schema["additionalProperties"], definitions, defaults)
    if defaults and schema.get("default") is not None:
        # Of an object only `{}`: the API server then fills in the defaults of its fields, which stand there already.
        node["default"] = {} if node["type"] == "object" else deepcopy(schema["default"])
    return node


def of_model(model: type[BaseModel], defaults: bool) -> Json:
    schema = model.model_json_schema(by_alias=True)
    return structural(schema, schema.get("$defs", {}), defaults)


def column(name: str, path: str, text: str, kind: str = "string", priority: int = 0) -> Json:
    shown = {"name": name, "type": kind, "jsonPath": path, "description": text}
    return shown | ({"priority": priority} if priority else {})


def condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


AGE = column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")
REPLICATOR_COLUMNS = [
    column("State", ".status.state", "Its state in one word."),
    column("Ready", condition("Ready", "status"), "Whether it does what its spec says."),
    column("Lag", ".status.lag", "How far the target is behind the source."),
    column("Tables", ".status.tablesSummary", "Replicating tables, of all tables."),
    column("Executors", ".status.executorsSummary", "Running executors, of those that should run."),
    column("Snapshot", ".status.snapshotSummary", "Share of the rows of running snapshots that is read."),
    AGE,
    column("Message", ".status.messageSummary", "The reason in one clause; status.message has all of it.", priority=1),
    column("Restarts", ".status.driver.restarts", "Restarts of the driver's container.", "integer", 1),
    column("Source", ".status.source", "The source.", priority=1),
    column("Target", ".status.target", "The target.", priority=1),
]
REQUEST_COLUMNS = [
    column("Replicator", ".spec.replicator", "The Replicator of the tables."),
    column("State", ".status.state", "Its state in one word."),
    column("Tables", ".status.tablesSummary", "Finished tables, of all tables."),
    column("Progress", ".status.progress", "Share of the rows that is read."),
    column("Rows", ".status.rowsDone", "Rows read.", "integer"),
    AGE,
    column("Message", ".status.messageSummary", "The reason in one clause; status.message has all of it.", priority=1),
    # As text: of a date kubectl shows how long ago it was, and `<invalid>` for one that is still to come.
    column("End", ".status.estimatedEnd", "Estimated end at the current speed.", priority=1),
]


def definition(
    kind: type[BaseModel], short: str, spec: type[BaseModel], status: type[BaseModel], columns: list[Json]
) -> Json:
    singular = kind.__name__.lower()
    root: Json = {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{api_versions()}."},
            "kind": {"type": "string", "description": f"{kind.__name__}."},
            "metadata": {"type": "object"},
            "spec": of_model(spec, defaults=True),
            # kstatus: an object that nobody has looked at yet must not count as done.
            "status": of_model(status, defaults=False) | {"default": {"observedGeneration": -1}},
        },
    }
    if kind is Replicator:
        root["x-kubernetes-validations"] = [NAME_RULE]
    form = {
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    versions = [{"name": one, "served": True, "storage": one == VERSION, **form} for one in VERSIONS]
    names = {
        "kind": kind.__name__,
        "listKind": f"{kind.__name__}List",
        "plural": f"{singular}s",
        "singular": singular,
        "shortNames": [short],
        "categories": ["tailrace"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{GROUP}", "labels": {"app.kubernetes.io/name": "tailrace"}},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": versions},
    }


def definitions() -> dict[str, Json]:
    """File name -> definition."""
    made = (
        definition(Replicator, "repl", ReplicatorSpec, ReplicatorStatus, REPLICATOR_COLUMNS),
        definition(SnapshotRequest, "snapreq", SnapshotRequestSpec, SnapshotRequestStatus, REQUEST_COLUMNS),
    )
    return {f"{one['spec']['names']['plural']}.yaml": one for one in made}


class _Plain(yaml.SafeDumper):
    """Two equal parts are written twice: YAML's aliases confuse readers."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        return True


def dump(document: Json) -> str:
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def files() -> dict[Path, str]:
    """Everything that `make crds` writes."""
    texts = {name: HEADER + dump(document) for name, document in definitions().items()}
    return {place / name: text for place in PLACES for name, text in texts.items()}


def main() -> int:
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"crds: wrote {path.relative_to(ROOT)} ({len(text.encode())} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
