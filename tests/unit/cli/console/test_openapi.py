import json
from pathlib import Path

import pytest

from tailrace.cli.console import openapi
from tailrace.cli.console.app import ConsoleApp
from tailrace.cli.console.endpoints import ENDPOINTS, Endpoint

ROOT = Path(__file__).resolve().parents[4]


def test_the_document_in_docs_is_that_of_the_models() -> None:
    kept = (ROOT / "docs" / "console-api.json").read_text()
    assert kept == openapi.text(), "run tools/make_console_api.py (make crds)"


def test_every_reference_of_the_document_leads_to_a_schema() -> None:
    document = openapi.document()
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    schemas = document["components"]["schemas"]
    assert named <= schemas.keys() and {"Problem", "ConsoleFleet", "TableView", "ActionBody"} <= schemas.keys()
    fields = schemas["FleetEntry"]["properties"]
    assert "lagSeconds" in fields and "oldest change" in fields["lagSeconds"]["description"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.act)
def test_every_path_has_a_method_that_answers_with_its_model(endpoint: Endpoint) -> None:
    answer = getattr(ConsoleApp, endpoint.act).__annotations__["return"]
    assert answer is endpoint.answer or answer == endpoint.answer.__name__
