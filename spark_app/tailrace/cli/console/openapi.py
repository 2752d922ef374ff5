"""The OpenAPI document of the console's API, from its endpoints and the models of the contract."""

import json
import re
from typing import Any

from pydantic.json_schema import models_json_schema

from tailrace.cli.console.endpoints import ENDPOINTS, Endpoint, QueryField
from tailrace.contract.driver import Problem

PROBLEMS = {
    "401": "The token is missing or wrong.",
    "404": "There is no such Replicator or table.",
    "409": "The state does not allow it, or no driver answers.",
    "422": "The request or the manifest is invalid.",
    "502": "The driver does not answer in time, or refuses.",
}
Json = dict[str, Any]


def document() -> Json:
    models = {endpoint.answer for endpoint in ENDPOINTS} | {e.body for e in ENDPOINTS if e.body is not None} | {Problem}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema(
        [(model, "serialization") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tailrace console",
            "version": "1",
            "description": "What `tailrace console` shows. Within version 1 fields and paths are only added.",
        },
        "security": [{"token": []}],
        "paths": {endpoint.path: {endpoint.method.lower(): _operation(endpoint)} for endpoint in ENDPOINTS},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token that `tailrace console` prints, or that of --token-file.",
                }
            },
        },
    }


def text() -> str:
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _operation(endpoint: Endpoint) -> Json:
    names = re.findall(r"{(\w+)}", endpoint.path)
    inside = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    found: Json = {
        "operationId": endpoint.act,
        "summary": endpoint.text,
        "parameters": [*inside, *map(_parameter, endpoint.queries)],
        "responses": {"200": _content("The answer.", endpoint.answer.__name__)}
        | {code: _content(text, Problem.__name__) for code, text in PROBLEMS.items()},
    }
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, **_content("", endpoint.body.__name__)}
    return found


def _parameter(query: QueryField) -> Json:
    schema: Json = {"type": query.kind}
    if query.kind == "integer":
        schema["minimum"] = 0
    if query.most is not None:
        schema["maximum"] = query.most
    return {"name": query.name, "in": "query", "description": query.text, "schema": schema}


def _content(text: str, model: str) -> Json:
    content = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}}
    return {"description": text, **content} if text else content
