"""Every error that leaves the service: RFC 9457 problem details, and the one table from fact to status.

::

    {"type": "/problems/unknown_accelerator", "title": "Unknown accelerator", "status": 404,
     "detail": "there is no accelerator 'gb20'; names that begin alike: gb200-nvl72",
     "code": "unknown_accelerator", "instance": "/accelerators/gb20", "request_id": "…",
     "errors": [{"pointer": "/parallelism/tp", "detail": "…"}]}

The text is for people, ``code`` for programs; both are stable. Values that were sent are not repeated.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from service import errors

MEDIA_TYPE = "application/problem+json"
UNION_TAGS = ("(value)", "(object)")  # which form of a union was meant: in pydantic's paths, not in the body
REQUEST_ID_KEY = "sizing.request_id"

STATUS: Mapping[type[Exception], int] = {
    errors.NotFound: 404,
    errors.RecordRetired: 410,
    errors.AmbiguousName: 422,
    errors.Invalid: 422,
    errors.Conflict: 409,
    errors.RevisionMismatch: 412,
    errors.RevisionRequired: 428,
    errors.CatalogueFileInvalid: 422,
    errors.ServiceError: 400,
}


class FieldError(BaseModel):
    """One thing that is wrong with the request, and where."""

    pointer: str | None = Field(None, description="JSON pointer into the request body; empty for the body itself")
    parameter: str | None = Field(None, description="name of the query, path or header parameter")
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details. Members are only added; `code` is the stable name of the problem."""

    type: str = Field(description="URI reference of the kind of problem")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="what is wrong with this request, and what to do next")
    code: str
    instance: str = Field(description="path of the request")
    request_id: str = Field(description="also in the X-Request-ID header; quote it when asking for help")
    errors: list[FieldError] = Field(description="what is wrong, field by field; empty when no field is to blame")
    candidates: list[str] | None = Field(None, description="the slugs that an ambiguous name may mean")


class HttpProblem(HTTPException):
    """A fact about the HTTP message rather than about accelerators and models."""

    code = "http_error"
    title = "The request cannot be answered"
    status = 400

    def __init__(self, detail: str, *, path: tuple[str | int, ...] | None = None) -> None:
        super().__init__(self.status, detail)
        self.path = path

    def __str__(self) -> str:
        return self.detail


class MalformedBody(HttpProblem):
    code, title, status = "malformed_body", "The body is not acceptable JSON", 400


class BodyTooLarge(HttpProblem):
    code, title, status = "body_too_large", "The body is too large", 413


class MediaTypeNotSupported(HttpProblem):
    code, title, status = "media_type_not_supported", "The media type is not supported", 415


class RequestInvalid(HttpProblem):
    code, title, status = "request_invalid", "The request does not match the contract", 422


class PreconditionInvalid(HttpProblem):
    code, title, status = "precondition_invalid", "If-Match is not an ETag of this service", 400


class NotReady(HttpProblem):
    code, title, status = "not_ready", "The service is not ready", 503


class UnresolvedName(errors.Invalid):
    """A name in a request body that leads to no record: the body is at fault, not the path."""

    def __init__(self, cause: errors.ServiceError, field: tuple[str | int, ...]) -> None:
        super().__init__(cause.detail, field=field)
        self.cause, self.code, self.title = cause, cause.code, cause.title


@contextmanager
def named_in_body(*field: str | int) -> Iterator[None]:
    """Resolve a name that stands at ``field`` of the body: unknown is then a 422 with a pointer, not a 404."""
    try:
        yield
    except (errors.NotFound, errors.AmbiguousName) as cause:
        raise UnresolvedName(cause, field) from cause


@contextmanager
def within_body(*prefix: str | int) -> Iterator[None]:
    """Put ``prefix`` before the field of an error about a part of the body, such as ``model`` before ``config``."""
    try:
        yield
    except errors.Invalid as error:
        error.field = (*prefix, *error.field)
        raise


def status_of(error: type[Exception]) -> int:
    """Of the nearest ancestor in the table.

    >>> status_of(errors.UnknownAccelerator), status_of(errors.RevisionMismatch), status_of(MalformedBody)
    (404, 412, 400)
    """
    if issubclass(error, HttpProblem):
        return error.status
    return next(STATUS[ancestor] for ancestor in error.__mro__ if ancestor in STATUS)


def problem_responses(*kinds: type[errors.ServiceError] | type[HttpProblem]) -> dict[int | str, dict[str, Any]]:
    """The ``responses=`` of a route that may answer with these problems, from the table that serves them."""
    by_status: dict[int, list[type[errors.ServiceError] | type[HttpProblem]]] = {}
    for kind in kinds:
        by_status.setdefault(status_of(kind), []).append(kind)
    return {
        status: {
            "description": "; ".join(f"{kind.title} (`{kind.code}`)" for kind in by_status[status]),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(by_status)
    }


def json_pointer(path: Iterable[str | int]) -> str:
    """RFC 6901.

    >>> json_pointer(("parallelism", "tp")), json_pointer(("config", "a/b", 0)), json_pointer(())
    ('/parallelism/tp', '/config/a~1b/0', '')
    """
    return "".join("/" + str(part)[:200].replace("~", "~0").replace("/", "~1") for part in path)


def problem_response(
    scope: Scope,
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    field_errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    document = {
        "type": f"/problems/{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "instance": scope.get("path", ""),
        "request_id": scope.get(REQUEST_ID_KEY, ""),
        "errors": list(field_errors),
        **members,
    }
    # Plain ASCII with escapes: whatever text ended up in a detail, it can be encoded.
    return Response(json.dumps(document), status, headers, MEDIA_TYPE)


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ServiceError)  # noqa: S101 - the handler is registered for this class only
    field_errors = []
    if isinstance(error, errors.Invalid) and error.field:
        field_errors = [{"pointer": json_pointer(error.field), "detail": error.detail}]
    cause = error.cause if isinstance(error, UnresolvedName) else error
    members: dict[str, Any] = {}
    if isinstance(cause, errors.AmbiguousName):
        members["candidates"] = list(cause.candidates)
    return problem_response(
        request.scope,
        status=status_of(type(error)),
        code=error.code,
        title=error.title,
        detail=error.detail,
        field_errors=field_errors,
        **members,
    )


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the handler is registered for this class only
    field_errors = [_field_error(each["loc"], each["msg"]) for each in error.errors()[:100]]
    first = field_errors[0]
    where = first.get("pointer") or first.get("parameter") or "the body"
    more = f" (and {len(field_errors) - 1} more, see errors)" if len(field_errors) > 1 else ""
    return problem_response(
        request.scope,
        status=RequestInvalid.status,
        code=RequestInvalid.code,
        title=RequestInvalid.title,
        detail=f"{where}: {first['detail']}{more}",
        field_errors=field_errors,
    )


def _field_error(location: Sequence[str | int], message: str) -> dict[str, str]:
    place, *path = (part for part in location if part not in UNION_TAGS)
    detail = message.removeprefix("Value error, ")[:500]
    if place == "body":
        return {"pointer": json_pointer(path), "detail": detail}
    return {"parameter": ".".join(str(part)[:200] for part in path), "detail": detail}


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the handler is registered for this class only
    if isinstance(error, HttpProblem):
        field_errors = [{"pointer": json_pointer(error.path), "detail": error.detail}] if error.path is not None else []
        return problem_response(
            request.scope,
            status=error.status,
            code=error.code,
            title=error.title,
            detail=error.detail,
            field_errors=field_errors,
            headers=error.headers,
        )
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _method_not_allowed(request)
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "no resource has this path; /openapi.json and /docs list them all"
    phrase = HTTPStatus(error.status_code).phrase
    return problem_response(
        request.scope,
        status=error.status_code,
        code=phrase.lower().replace(" ", "_"),
        title=phrase,
        detail=detail,
        headers=error.headers,
    )


def _method_not_allowed(request: Request) -> Response:
    """The framework's Allow names the first route of the path only; this one unites them."""
    allowed = allowed_methods(request.app, request.scope)
    return problem_response(
        request.scope,
        status=405,
        code="method_not_allowed",
        title="Method Not Allowed",
        detail=f"this resource answers {', '.join(allowed)}",
        headers={"Allow": ", ".join(allowed)},
    )


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """Every method that some route answers at the path, HEAD beside GET."""
    methods = []
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        asked = {**scope, "method": method, "path_params": {}}
        if any(route.matches(dict(asked))[0] is Match.FULL for route in app.router.routes):
            methods += ["GET", "HEAD"] if method == "GET" else [method]
    return methods


def install(app: FastAPI) -> None:
    app.add_exception_handler(errors.ServiceError, _on_service_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
