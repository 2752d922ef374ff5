"""Examples and documentation: every manifest in them is one that Tailrace takes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.resources import examples, manifests_in
from tailrace.contract.resources import Replicator, SnapshotRequest

ROOT = Path(__file__).resolve().parents[3]
MODELS: dict[str, type[Replicator] | type[SnapshotRequest]] = {
    "Replicator": Replicator,
    "SnapshotRequest": SnapshotRequest,
}
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("document", examples("Replicator", "SnapshotRequest"), ids=lambda d: d["metadata"]["name"])
def test_a_resource_of_the_examples_is_valid(document: dict[str, Any]) -> None:
    MODELS[document["kind"]].model_validate(document)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_resource_in_the_documentation_is_valid(page: Path) -> None:
    for document in manifests_in(page.read_text(encoding="utf-8")):
        MODELS[document["kind"]].model_validate(document)


def test_the_documentation_has_manifests_at_all() -> None:
    assert sum(len(manifests_in(page.read_text(encoding="utf-8"))) for page in PAGES) >= 4


def test_a_request_of_the_examples_names_a_replicator_of_the_examples() -> None:
    replicators = {document["metadata"]["name"] for document in examples("Replicator")}
    assert {document["spec"]["replicator"] for document in examples("SnapshotRequest")} <= replicators


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_file_that_the_documentation_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    linked = [page.parent / found for found in re.findall(r"\]\((?!https?:)([^)#]+)", text)]
    named = [ROOT / found for found in re.findall(r"\b((?:examples|charts|crds|manifests|argocd)/[\w./-]*\w)", text)]
    assert [str(path) for path in (*linked, *named) if not path.exists()] == []


def test_secrets_of_the_examples_hold_no_secret() -> None:
    values = {v for document in examples("Secret") for v in document["stringData"].values()}
    assert values == {"change-me"}


def test_every_example_is_yaml_with_a_kind_or_values() -> None:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        assert path.name == "values.yaml" or all({"apiVersion", "kind"} <= d.keys() for d in documents), path
