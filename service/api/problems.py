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
from typing import Any

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from service import errors

MEDIA_TYPE = "application/problem+json"
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
    files: list[dict[str, Any]] | None = Field(None, description="what became of each file of an import, as in a 201")
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


class NoSuchResource(HttpProblem):
    code, title, status = "no_such_resource", "No resource has this path", 404


class MethodNotAllowed(HttpProblem):
    code, title, status = "method_not_allowed", "The resource does not answer this method", 405


class InternalError(HttpProblem):
    code, title, status = "internal_error", "The service failed", 500


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


class DatabaseUnavailable(HttpProblem):
    code, title, status = "database_unavailable", "The database does not answer", 503


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


def problem_kinds() -> dict[str, type[errors.ServiceError] | type[HttpProblem]]:
    """Every kind of problem by its code: what ``type`` refers to."""
    waiting: list[type[Any]] = [errors.ServiceError, HttpProblem]
    kinds: dict[str, type[Any]] = {}
    while waiting:
        kind = waiting.pop()
        kinds.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return dict(sorted(kinds.items()))


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


def http_problem_response(
    scope: Scope, error: HttpProblem, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    field_errors = [] if error.path is None else [{"pointer": json_pointer(error.path), "detail": error.detail}]
    return problem_response(
        scope,
        status=status or error.status,
        code=error.code,
        title=error.title,
        detail=error.detail,
        field_errors=field_errors,
        headers=headers,
    )
