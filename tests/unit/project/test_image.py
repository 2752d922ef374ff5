"""The Spark image runs every source that a manifest may name, and the operator's image the console."""

import re
from pathlib import Path
from typing import get_args

from tailrace.contract.resources import SourceSpec

ROOT = Path(__file__).parents[3]


def test_the_image_has_the_client_of_every_source_and_of_lineage() -> None:
    (extras,) = re.findall(r"requirements\.py (spark .*?) >", (ROOT / "Dockerfile").read_text())
    assert set(extras.split()) == {
        "spark",
        "bigquery",
        "snowflake",
        "lineage",
        *get_args(SourceSpec.model_fields["type"].annotation),
    }


def test_the_operators_image_has_the_consoles_web_server() -> None:
    (extras,) = re.findall(r"requirements\.py (operator .*?) >", (ROOT / "Dockerfile").read_text())
    assert extras.split() == ["operator", "console"]
