"""Turns whatever a route raises into a problem."""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from service import errors
from service.api.explained_errors import plain_message
from service.api.problems import (
    REQUEST_ID_KEY,
    DatabaseUnavailable,
    HttpProblem,
    MethodNotAllowed,
    NoSuchResource,
    RequestInvalid,
    UnresolvedName,
    http_problem_response,
    json_pointer,
    problem_response,
    status_of,
)
from service.api.request_forms import UNION_TAGS

log = logging.getLogger("sizing")

WITHOUT_BODY = ("GET", "HEAD")  # a field of theirs is a query parameter
LONGEST_DETAIL = 2000  # a message may list every field that is known


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ServiceError)  # noqa: S101 - the handler is registered for this class only
    field_errors = []
    if isinstance(error, errors.Invalid) and error.field:
        place = "query" if request.method in WITHOUT_BODY else "body"
        field_errors = [_field_error((place, *error.field), error.detail)]
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
    field_errors = [_field_error(each["loc"], plain_message(each)) for each in error.errors()[:100]]
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
    detail = message[:LONGEST_DETAIL]
    if place == "body":
        return {"pointer": json_pointer(path), "detail": detail}
    return {"parameter": ".".join(str(part)[:200] for part in path), "detail": detail}


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the handler is registered for this class only
    if isinstance(error, HttpProblem):
        return http_problem_response(request.scope, error)
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return http_problem_response(
                request.scope,
                NoSuchResource("/openapi.json and /docs list all paths; a name with a slash is asked for as ?name="),
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:  # the framework's Allow names the first route of the path only
            allowed = ", ".join(allowed_methods(request.app, request.scope))
            return http_problem_response(
                request.scope, MethodNotAllowed(f"this resource answers {allowed}"), headers={"Allow": allowed}
            )
        case _:
            return http_problem_response(request.scope, HttpProblem(error.detail), status=error.status_code)


async def _on_database_error(request: Request, error: Exception) -> Response:
    log.warning("request %s met a database that does not answer: %s", request.scope.get(REQUEST_ID_KEY), error)
    problem = DatabaseUnavailable(
        "read the record to see whether it was written, and send the request again in a while"
    )
    return http_problem_response(request.scope, problem, headers={"Retry-After": "5"})


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
    app.add_exception_handler(OperationalError, _on_database_error)
