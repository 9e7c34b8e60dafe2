"""Request bodies: what two readers could understand differently is refused where it enters."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response

from service.api import problem_handlers
from service.api.middleware import BodyLimit, Failures, HeadAsGet, RequestIds
from service.api.problems import MalformedBody
from service.api.strict_json import RequestModel, StrictJsonRoute, read_json
from tests.api.assertions import assert_problem

router = APIRouter(route_class=StrictJsonRoute)


class Question(RequestModel):
    tp: int = 1
    rate_per_s: float = 1.0
    name: str = ""
    config: dict[str, Any] | None = None


@router.post("/questions")
async def ask(question: Question) -> dict[str, Any]:
    return {"tp": question.tp, "rate_per_s": question.rate_per_s}


@router.get("/failure")
async def fail() -> int:
    return 1 // int("0")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI(redirect_slashes=False)
    problem_handlers.install(app)
    app.include_router(router)
    app.add_middleware(BodyLimit, max_body_bytes=100_000)
    app.add_middleware(Failures)
    app.add_middleware(HeadAsGet)
    app.add_middleware(RequestIds)
    with TestClient(app) as client:
        yield client


def post(client: TestClient, body: bytes, content_type: str | None = "application/json") -> Response:
    headers = {"content-type": content_type} if content_type else {}
    return client.post("/questions", content=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"rate_per_s": NaN}', "/rate_per_s"),
        (b'{"rate_per_s": Infinity}', "/rate_per_s"),
        (b'{"rate_per_s": -Infinity}', "/rate_per_s"),
        (b'{"rate_per_s": 1e999}', "/rate_per_s"),
        (b'{"name": "\\ud800"}', "/name"),
        (b'{"tp": 99999999999999999999}', "/tp"),
    ],
)
def test_a_value_that_json_readers_disagree_on_is_refused_with_its_place(
    client: TestClient, body: bytes, pointer: str
) -> None:
    document = assert_problem(post(client, body), 400, "malformed_body")
    assert [each["pointer"] for each in document["errors"]] == [pointer]


@pytest.mark.parametrize(
    "body",
    [
        b'{"tp": 2, "tp": 4}',
        b'{"tp": 2',
        b"\xff\xfe",
        b"{" * 5,
        b"[" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"tp": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        b'{"\\udfff": 1}',
        b"nul",
    ],
)
def test_a_body_that_is_not_proper_json_is_a_400(client: TestClient, body: bytes) -> None:
    assert_problem(post(client, body), 400, "malformed_body")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"tp": "12"}', "/tp"),
        (b'{"tp": true}', "/tp"),
        (b'{"tp": 2.0}', "/tp"),
        (b'{"rate_per_s": "1"}', "/rate_per_s"),
        (b'{"rate_per_s": false}', "/rate_per_s"),
        (b'{"surprise": 1}', "/surprise"),
        (b"[]", ""),
        (b"null", ""),
        (b"", ""),
    ],
)
def test_a_value_of_another_type_or_an_unknown_member_is_a_422_with_a_pointer(
    client: TestClient, body: bytes, pointer: str
) -> None:
    document = assert_problem(post(client, body), 422, "request_invalid")
    assert [each["pointer"] for each in document["errors"]] == [pointer]


def test_what_was_sent_is_not_repeated(client: TestClient) -> None:
    secret = "s3cret-value"  # noqa: S105 - not one
    assert secret not in post(client, json.dumps({"tp": secret}).encode()).text
    assert secret not in post(client, b'{"tp": "' + secret.encode()).text


def test_a_published_config_may_hold_a_bare_infinity(client: TestClient) -> None:
    # Nemotron's config.json has "time_step_limit": [0.0, Infinity]
    answer = post(client, b'{"config": {"time_step_limit": [0.0, Infinity], "n": 12345678901234567890123}}')
    assert answer.status_code == 200
    assert_problem(post(client, b'{"config": {"a": 1, "a": 1}}'), 400, "malformed_body")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "nonsense"])
def test_another_content_type_is_a_415(client: TestClient, content_type: str | None) -> None:
    assert_problem(post(client, b'{"tp": 2}', content_type), 415, "media_type_not_supported")


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "application/x+json"])
def test_json_content_types_are_read(client: TestClient, content_type: str | None) -> None:
    assert post(client, b'{"tp": 2}', content_type).json() == {"tp": 2, "rate_per_s": 1.0}


def test_a_large_body_is_a_413_by_its_declared_length(client: TestClient) -> None:
    assert_problem(post(client, b'{"name": "' + b"x" * 200_000 + b'"}'), 413, "body_too_large")


def test_a_large_body_of_undeclared_length_is_a_413_as_soon_as_it_is_large(client: TestClient) -> None:
    chunks = (b"x" * 1000 for _ in range(1000))
    answer = client.post("/questions", content=chunks, headers={"content-type": "application/json"})
    assert_problem(answer, 413, "body_too_large")


def test_an_unknown_path_a_wrong_method_and_a_failure_are_problems_too(client: TestClient) -> None:
    assert_problem(client.get("/nothing"), 404, "no_such_resource")
    assert_problem(client.get("/questions/"), 404, "no_such_resource")
    answer = client.delete("/questions")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    document = assert_problem(client.get("/failure"), 500, "internal_error")
    assert "ZeroDivision" not in json.dumps(document)
    assert client.head("/failure").status_code == 500


def test_a_sane_request_id_is_kept_and_another_replaced(client: TestClient) -> None:
    assert client.get("/nothing", headers={"X-Request-ID": "order-42"}).headers["x-request-id"] == "order-42"
    made = client.get("/nothing", headers={"X-Request-ID": "a b\t<script>"}).headers["x-request-id"]
    assert len(made) == 32
    assert made.isalnum()


def test_a_body_of_too_many_values_is_refused_before_it_is_judged() -> None:
    with pytest.raises(MalformedBody, match="more than"):
        read_json(b'{"z": [' + b"0," * 200_000 + b"0]}")


class Layout(RequestModel):
    prefill_gpu_count: int = 1
    decode_gpu_count: int = 1


class System(RequestModel):
    layouts: list[Layout] | None = None
    names: dict[str, str] | None = None


@router.post("/systems")
async def describe(system: System, detailed: bool = False) -> bool:
    return detailed and bool(system.layouts)


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({"layout": []}, "/layout", "not known here; did you mean layouts?"),
        ({"colour": 1}, "/colour", "not known here; known are layouts, names"),
        (
            {"layouts": [{}, {"decode-gpu-cuont": 1}]},
            "/layouts/1/decode-gpu-cuont",
            "not known here; did you mean decode_gpu_count?",
        ),
        (
            {"layouts": [{"tp": 1}]},
            "/layouts/0/tp",
            "not known here; known are prefill_gpu_count, decode_gpu_count",
        ),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_is_meant_or_all_there_are(
    client: TestClient, body: dict[str, Any], pointer: str, detail: str
) -> None:
    document = assert_problem(client.post("/systems", json=body), 422, "request_invalid")
    assert document["errors"] == [{"pointer": pointer, "detail": detail}]
    assert document["detail"] == f"{pointer}: {detail}"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/systems?detailled=true", "not known here; did you mean detailed?"),
        ("/systems?colour=red", "not known here; known are detailed"),
        ("/questions?tp=2", "not known here; nothing can be given"),
    ],
)
def test_an_unknown_query_parameter_is_refused_by_every_route(client: TestClient, path: str, detail: str) -> None:
    document = assert_problem(client.post(path, json={}), 422, "request_invalid")
    assert document["errors"] == [{"parameter": path.partition("?")[2].partition("=")[0], "detail": detail}]
    assert client.post("/systems?detailed=true", json={}).json() is False


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/systems?detailed=true&detailed=false", "it is given more than once: give one value"),
        ("/systems?detailed=", "it has no value: give one, or leave it out"),
        ("/systems?detailed", "it has no value: give one, or leave it out"),
    ],
)
def test_a_query_parameter_without_one_value_is_refused_by_every_route(
    client: TestClient, path: str, detail: str
) -> None:
    document = assert_problem(client.post(path, json={}), 422, "request_invalid")
    assert document["errors"] == [{"parameter": "detailed", "detail": detail}]
