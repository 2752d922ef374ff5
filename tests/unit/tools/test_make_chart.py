"""The chart's README and `Chart.yaml`: current, complete, and what Artifact Hub reads."""

import base64
from typing import Any

import pytest
import yaml

import make_chart
import make_crds
from tailrace import __version__

CHART: dict[str, Any] = yaml.safe_load(make_chart.MANIFEST.read_text())
ANNOTATIONS: dict[str, str] = CHART["annotations"]


def leaves(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        below = isinstance(value, dict) and value and f"{path}{name}" not in listed()
        found |= leaves(value, f"{path}{name}.") if below else {f"{path}{name}": value}
    return found


def listed() -> dict[str, Any]:
    """The values of the README that have a default, by path."""
    found = make_chart.values(make_chart.VALUES.read_text())
    return {value.path: yaml.safe_load(value.default) for value in found if value.default is not None}


def test_readme_and_icon_are_current() -> None:
    assert make_chart.README.read_text() == make_chart.readme(), "run `make crds`"
    assert make_chart.MANIFEST.read_text() == make_chart.manifest(), "run `make crds`"


def test_the_readme_lists_every_value_with_its_default() -> None:
    assert listed() == leaves(yaml.safe_load(make_chart.VALUES.read_text()))


def test_every_value_is_explained() -> None:
    found = make_chart.values(make_chart.VALUES.read_text())
    assert [value.path for value in found if not value.comment] == []


def test_a_value_that_the_readme_could_not_show_is_refused() -> None:
    with pytest.raises(ValueError, match="on one line: - a"):
        list(make_chart.values("# Names.\nnames:\n- a\n"))


def test_the_icon_is_seen_without_fetching_anything() -> None:
    kind, _, data = CHART["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == make_chart.ICON.read_bytes()


def test_artifact_hub_is_told_of_each_resource_and_image() -> None:
    definitions = make_crds.definitions().values()
    ours = {(d["spec"]["names"]["kind"], d["metadata"]["name"], d["spec"]["versions"][0]["name"]) for d in definitions}
    crds = yaml.safe_load(ANNOTATIONS["artifacthub.io/crds"])
    assert {(crd["kind"], crd["name"], crd["version"]) for crd in crds} == ours
    assert all(crd["displayName"] and crd["description"] for crd in crds)
    images = {image["image"] for image in yaml.safe_load(ANNOTATIONS["artifacthub.io/images"])}
    assert images == {f"tailrace-operator:{__version__}", f"tailrace-spark:{__version__}"}
