"""The one assertion on the shape of an error."""

from typing import Any

from httpx2 import Response

from service.api.problems import Problem


def assert_problem(answer: Response, status: int, code: str) -> dict[str, Any]:
    """The answer is that problem, complete and consistent; its document is returned for what is particular."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    Problem.model_validate(document, strict=True)
    assert set(document) <= set(Problem.model_fields)
    assert (document["status"], document["code"]) == (status, code)
    assert document["type"] == f"/problems/{code}"
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["title"]
    assert document["detail"]
    for error in document["errors"]:
        assert ("pointer" in error) != ("parameter" in error)
    return document
