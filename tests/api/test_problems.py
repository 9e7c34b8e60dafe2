"""The whole application answers every error as a problem, with its request id and the caller's CORS headers."""

import gzip

import pytest
from fastapi.testclient import TestClient

from tests.api.assertions import assert_problem


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/models/",
        "/accelerators/gb200-nvl72/nothing",
        "/models/meta-llama/Llama-3.3-70B-Instruct",
        "/%2e%2e/etc/passwd",
        "/docs-assets/../settings.py",
        "/docs-assets/nothing.js",
    ],
)
def test_a_path_that_is_no_resource_is_a_404(client: TestClient, path: str) -> None:
    assert_problem(client.get(path), 404, "no_such_resource")


@pytest.mark.parametrize("path", ["/models/{}", "/models/{}/memory", "/models/{}/revisions", "/accelerators/{}"])
@pytest.mark.parametrize("name", ["nothing", "a%00b", "%F0%9F%98%80", "%ED%A0%80", "x" * 150, "..%2f", "'%20OR%201=1"])
def test_a_strange_name_in_a_path_is_a_404_or_a_422_and_never_a_failure(
    client: TestClient, path: str, name: str
) -> None:
    for method in ("GET", "DELETE"):
        answer = client.request(method, path.format(name), headers={"If-Match": "*"})
        assert answer.status_code in {404, 405, 422}, answer.text
        assert_problem(answer, answer.status_code, answer.json()["code"])


def test_an_unknown_slug_says_what_begins_alike(client: TestClient) -> None:
    document = assert_problem(client.get("/accelerators/gb20"), 404, "unknown_accelerator")
    assert "gb200-nvl72" in document["detail"]
    assert document["instance"] == "/accelerators/gb20"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/models", "GET, HEAD, POST"),
        ("/models/gpt-oss-20b", "GET, HEAD, PUT, DELETE"),
        ("/accelerators", "GET, HEAD, POST"),
        ("/sizing", "POST"),
        ("/health/live", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_a_405_that_allows_every_method_of_the_path(
    client: TestClient, path: str, allowed: str
) -> None:
    for method in ("PATCH", "OPTIONS", "TRACE", "BREW"):
        answer = client.request(method, path)
        assert_problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


def test_an_unknown_name_in_a_body_is_a_422_with_a_pointer(client: TestClient) -> None:
    answer = client.post("/sizing", json={"model": "gpt-oss-20b", "accelerator": "gb20"})
    document = assert_problem(answer, 422, "unknown_accelerator")
    assert [each["pointer"] for each in document["errors"]] == ["/accelerator"]


def test_a_failure_says_nothing_of_the_inside_and_keeps_the_headers(client: TestClient) -> None:
    client.app.state.catalogue = None  # type: ignore[attr-defined]  # nothing a caller can send breaks the code
    answer = client.get("/models", headers={"Origin": "https://dashboard.example"})
    document = assert_problem(answer, 500, "internal_error")
    assert "NoneType" not in answer.text
    assert document["request_id"]
    assert answer.headers["access-control-allow-origin"] == "https://dashboard.example"


def test_a_page_of_the_allowed_origin_may_call_and_another_may_not(client: TestClient) -> None:
    preflight = {"Origin": "https://dashboard.example", "Access-Control-Request-Method": "PUT"}
    answer = client.options("/models/gpt-oss-20b", headers={**preflight, "Access-Control-Request-Headers": "If-Match"})
    assert answer.headers["access-control-allow-origin"] == "https://dashboard.example"
    stranger = client.get("/health/live", headers={"Origin": "https://stranger.example"})
    assert "access-control-allow-origin" not in stranger.headers


def test_large_answers_are_compressed_for_those_who_ask(client: TestClient) -> None:
    with client.stream("GET", "/models", headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    plain = client.get("/models", headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 2
    small = client.get("/health/live", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers


def test_the_type_of_a_problem_leads_to_its_kind(client: TestClient) -> None:
    problem = client.get("/accelerators/nothing").json()
    kind = client.get(problem["type"]).json()
    assert kind == {"code": problem["code"], "title": problem["title"], "status": 404}
    listed = client.get("/problems").json()["items"]
    assert kind in listed
    assert {each["code"] for each in listed} >= {"malformed_body", "revision_mismatch", "request_invalid"}
