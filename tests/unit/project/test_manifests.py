"""The plain manifests are written from the chart by hand (`make manifests`): they must not stay behind."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_the_plain_manifests_have_the_definitions_of_the_chart() -> None:
    plain = list(yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()))
    found = {d["metadata"]["name"]: d["spec"] for d in plain if d["kind"] == "CustomResourceDefinition"}
    ours = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert found == {d["metadata"]["name"]: d["spec"] for d in ours}, "run `make manifests`"
