"""Reading request bodies: JSON as RFC 8259 has it, and nothing that two readers could understand differently.

The framework's reader takes ``NaN``, ``1e999``, lone surrogates and repeated keys, and some of them end as
a ``null`` or a 500 later. Here they are refused where they enter. The one exception is a ``config`` member:
published config.json files hold a bare ``Infinity`` (a time step limit, say), so there non-finite numbers
pass as floats; no such number reaches an answer.
"""

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from email.message import Message
from math import isfinite
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from service.api.explained_errors import explained
from service.api.problems import MalformedBody, MediaTypeNotSupported
from service.api.unknown_fields import fields_at, unknown_field

MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1
MAX_VALUES = 100_000  # members and items of a body in all; what is beyond would hold up everybody else
LENIENT_MEMBER = "config"

Path = tuple[str | int, ...]

T = TypeVar("T")
Choice = Annotated[T, Field(strict=False)]
"""An enum or date field of a ``RequestModel``: it arrives as a JSON string."""


class RequestModel(BaseModel):
    """A request body: unknown members are refused, ``"12"`` and ``true`` are not numbers, nor is NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def read_json(body: bytes, *, lenient: bool = False) -> Any:
    """The document, or ``MalformedBody`` saying what and, where it can be told, which member.

    ``lenient`` when the whole document is a config.json.

    >>> read_json(b'{"tp": 2, "config": {"time_step_limit": [0.0, Infinity]}}')
    {'tp': 2, 'config': {'time_step_limit': [0.0, inf]}}
    >>> read_json(b'{"tp": 2, "tp": 4}')
    Traceback (most recent call last):
    service.api.problems.MalformedBody: the member 'tp' is given twice in one object
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MAX_VALUES:
        raise MalformedBody(f"the body holds more than {MAX_VALUES} values")
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_unique_members)
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise MalformedBody(f"the body is nested more than {MAX_DEPTH} deep") from None
    except ValueError:  # Python bounds the digits that it converts
        raise MalformedBody("the body holds an integer of thousands of digits") from None
    _check(document, (), lenient=lenient)
    return document


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise MalformedBody(f"the member {name[:100]!a} is given twice in one object")
            seen.add(name)
    return members


def _check(value: Any, path: Path, *, lenient: bool) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is int:
        if not lenient and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise MalformedBody("an integer beyond 64 bits", path=path)
    elif kind is float:
        if not lenient and not isfinite(value):
            raise MalformedBody("not a finite number; JSON has no NaN and no Infinity", path=path)
    elif kind is dict:
        _check_depth(path)
        for name, member in value.items():
            _check_text(name, path)
            _check(member, (*path, name), lenient=lenient or name == LENIENT_MEMBER)
    elif kind is list:
        _check_depth(path)
        for index, item in enumerate(value):
            _check(item, (*path, index), lenient=lenient)


def _check_depth(path: Path) -> None:
    if len(path) >= MAX_DEPTH:
        raise MalformedBody(f"the body is nested more than {MAX_DEPTH} deep")


def _check_text(text: str, path: Path) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedBody("a text with half of a surrogate pair, which is no Unicode text", path=path) from None


class StrictRequest(Request):
    """The framework asks its request for ``json()``; this one reads strictly."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = read_json(await self.body())
        return self._json


class StrictJsonRoute(APIRoute):
    """The route class of every router here: ``APIRouter(route_class=StrictJsonRoute)``.

    What it does not know it refuses, in the query as in the body, rather than answer another question than was asked.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        parameters = dict(_query_parameters(self.dependant))
        body_form = self.body_field.field_info.annotation if self.body_field else None
        forms = {"body": body_form, "query": tuple(each.field_info.annotation for each in self.dependant.query_params)}

        async def handler(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            if request.scope["query_string"] and (errors := list(_query_errors(strict.query_params, parameters))):
                raise RequestValidationError(errors)
            if body_form is not None and await strict.body() and not _is_json(strict.headers.get("content-type")):
                raise MediaTypeNotSupported("send the body as Content-Type: application/json")
            try:
                return await answer(strict)
            except RequestValidationError as error:
                raise RequestValidationError(
                    [explained(each, form) if (form := forms.get(each["loc"][0])) else each for each in error.errors()]
                ) from None  # without a form it is of a document that the route has read, and explained, itself

        return handler


def _query_parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Of the route and of what it depends on, and whether each may be given several times.

    The fields of a model are parameters of their own.
    """
    for field in dependant.query_params:
        fields = fields_at(field.field_info.annotation) or {field.alias: field.field_info}
        for name, info in fields.items():
            yield name, list in (get_origin(form) for form in (info.annotation, *get_args(info.annotation)))
    for each in dependant.dependencies:
        yield from _query_parameters(each)


def _query_errors(given: QueryParams, parameters: Mapping[str, bool]) -> Iterator[dict[str, Any]]:
    """In pydantic's form. The framework takes the last of several values, and reads some empty ones as left out."""
    for name in given:
        values = given.getlist(name)
        if name not in parameters:
            yield unknown_field(("query", name), list(parameters))
        elif len(values) > 1 and not parameters[name]:
            yield {"type": "given_twice", "loc": ("query", name), "msg": "it is given more than once: give one value"}
        elif "" in values:
            yield {"type": "empty", "loc": ("query", name), "msg": "it has no value: give one, or leave it out"}


def _is_json(content_type: str | None) -> bool:
    if content_type == "application/json":
        return True
    message = Message()
    message["content-type"] = content_type or "application/octet-stream"
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
