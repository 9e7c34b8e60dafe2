"""The OpenAPI document: what FastAPI derives, with the errors as they really are; committed as openapi/openapi.json."""

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.import_schemas import ImportMetadata
from service.api.problems import (
    BodyTooLarge,
    DatabaseUnavailable,
    MalformedBody,
    MediaTypeNotSupported,
    Problem,
    RequestInvalid,
    problem_responses,
)

DESCRIPTION = """\
Figures are in base units, named at the end of each field: bytes, seconds, FLOP, watts, tokens. `null` is unknown.

Every error is `application/problem+json` with a stable `code`. Names (slugs and aliases) resolve exactly, never by
likeness. Records have revisions: a write needs `If-Match` with the `ETag` that was read. Lists come in pages with
an opaque `next_cursor`. Request bodies are `application/json` in UTF-8, without repeated keys, NaN or Infinity.
Fields and query parameters that are not known are refused, with the one that is near or the list of those there are.
"""

STORED = {"accelerators", "models", "benchmark runs"}  # tags of the operations that may need the database
FRAMEWORK_SCHEMAS = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> dict[str, Any]:
    """Made once per application."""
    if app.openapi_schema is None:
        app.openapi_schema = _with_problems(
            get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
        )
    return app.openapi_schema


def _with_problems(contract: dict[str, Any]) -> dict[str, Any]:
    schemas = contract.setdefault("components", {}).setdefault("schemas", {})
    for name in FRAMEWORK_SCHEMAS:
        schemas.pop(name, None)
    for form in (Problem, ImportMetadata):  # no route's own body or answer, as the framework sees it
        schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs"))
        schemas[form.__name__] = schema
    for operations in contract["paths"].values():
        for operation in operations.values():
            _add_general_problems(operation)
    return contract


def _add_general_problems(operation: dict[str, Any]) -> None:
    """What any operation may answer, beside what its route declares. All of them refuse unknown parameters."""
    general: tuple[Any, ...] = (RequestInvalid,)
    if "requestBody" in operation:
        general = (MalformedBody, BodyTooLarge, MediaTypeNotSupported, *general)
    if not STORED.isdisjoint(operation.get("tags", ())):
        general = (*general, DatabaseUnavailable)
    responses = operation["responses"]
    if "HTTPValidationError" in json.dumps(responses.get("422", {})):
        del responses["422"]
    for status, response in problem_responses(*general).items():
        declared = responses.setdefault(str(status), response)
        if declared is not response:
            declared["description"] += f"; {response['description']}"
    operation["responses"] = dict(sorted(responses.items()))


def contract_text(app: FastAPI) -> str:
    """Byte for byte what is committed."""
    return json.dumps(document(app), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
