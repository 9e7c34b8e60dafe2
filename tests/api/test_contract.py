"""The committed contract is what the service does: regenerated, its examples asked, its errors problems."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api.contract import contract_text, document
from service.api.strict_json import StrictJsonRoute
from service.app import ROUTERS, create_app
from service.settings import Settings
from tests.api.assertions import assert_problem

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
METHODS_WITH_ETAG = ("put", "delete")
RECORDS = {
    "models": "gpt-oss-20b",
    "accelerators": "h100-sxm",
    "problems": "name_taken",
    "benchmark-runs": "00wes1q2ct9knnn315",
}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings(database_url="sqlite:////never-opened.db"))


@pytest.fixture(scope="module")
def contract(app: FastAPI) -> dict[str, Any]:
    return document(app)


def url_of(path: str) -> str:
    """The path with a record that is there."""
    record = RECORDS.get(path.split("/")[1], "")
    return path.format(slug=record, code=record, id=record)


def operations(contract: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in contract["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_committed_contract_is_the_generated_one(app: FastAPI) -> None:
    assert COMMITTED.read_text(encoding="utf-8") == contract_text(app), "run: sizing openapi > openapi/openapi.json"


def test_the_contract_is_openapi_3_1_and_every_schema_in_it_is_one(contract: dict[str, Any]) -> None:
    assert contract["openapi"].startswith("3.1")
    for schema in contract["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_operation_is_described_and_named_once(contract: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(contract)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(contract):
        assert operation.get("summary"), (method, path)
        assert operation.get("tags"), (method, path)


def test_every_error_is_declared_as_a_problem(contract: dict[str, Any]) -> None:
    for path, method, operation in operations(contract):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (method, path, status)
    assert "HTTPValidationError" not in contract["components"]["schemas"]


def test_every_route_reads_bodies_strictly() -> None:
    for router in ROUTERS:
        assert router.routes
        for route in router.routes:
            assert isinstance(route, StrictJsonRoute), route


def test_every_object_that_a_request_may_hold_refuses_unknown_members(contract: dict[str, Any]) -> None:
    schemas = contract["components"]["schemas"]
    reached: set[str] = set()
    waiting = {
        name for _, _, operation in operations(contract) for name in _references(operation.get("requestBody", {}))
    }
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= set(_references(schemas[name])) - reached
    open_objects = {
        name
        for name in reached
        if schemas[name].get("type") == "object" and schemas[name].get("additionalProperties") is not False
    }
    assert open_objects == set()


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def test_every_example_is_answered_as_the_contract_says(client: TestClient, contract: dict[str, Any]) -> None:
    asked = 0
    for path, method, operation in operations(contract):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for name, example in body.get("examples", {}).items():
            url = url_of(path)
            headers = {"If-Match": "*"} if method in METHODS_WITH_ETAG else {}
            answer = client.request(method, url, json=example["value"], headers=headers)
            assert answer.status_code < 300, (method, path, name, answer.text)
            validate(contract, operation, answer.status_code, answer.json())
            asked += 1
    assert asked >= 4


def test_every_read_is_answered_as_the_contract_says(client: TestClient, contract: dict[str, Any]) -> None:
    for path, method, operation in operations(contract):
        if method == "get":
            answer = client.get(url_of(path))
            assert answer.status_code == 200, (path, answer.text)
            validate(contract, operation, 200, answer.json())
            head = client.head(url_of(path))
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers.get("content-length") == answer.headers.get("content-length")


def test_every_operation_refuses_a_query_parameter_that_it_does_not_know(
    client: TestClient, contract: dict[str, Any]
) -> None:
    for path, method, operation in operations(contract):
        answer = client.request(method, url_of(path), params={"colour": "red"}, headers={"If-Match": "*"})
        document = assert_problem(answer, 422, "request_invalid")
        assert [each["parameter"] for each in document["errors"]] == ["colour"], (method, path)
        assert "422" in operation["responses"], (method, path)


def test_every_shipped_model_and_accelerator_is_answered_as_the_contract_says(
    client: TestClient, contract: dict[str, Any]
) -> None:
    for collection in ("/models", "/accelerators"):
        operation = contract["paths"][f"{collection}/{{slug}}"]["get"]
        validator = _validator(contract, operation, 200)
        items = client.get(collection, params={"limit": 200}).json()["items"]
        assert len(items) > 20
        for item in items:
            validator.validate(client.get(f"{collection}/{item['slug']}").json())


def validate(contract: dict[str, Any], operation: dict[str, Any], status: int, answer: Any) -> None:
    _validator(contract, operation, status).validate(answer)


def _validator(contract: dict[str, Any], operation: dict[str, Any], status: int) -> Any:
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": contract["components"]})


def test_the_docs_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http://" not in page.text.replace("http://localhost", "")
    assert "https://" not in page.text
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert f"/docs-assets/{asset}" in page.text
        assert client.get(f"/docs-assets/{asset}").status_code == 200
    assert client.get("/openapi.json").json() == json.loads(COMMITTED.read_text(encoding="utf-8"))
