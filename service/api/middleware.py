"""What holds for every request, in plain ASGI: its id, its size, HEAD, and an answer when the code fails.

Plain ASGI since the framework's own class of middleware costs more than the arithmetic of a sizing.
"""

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import REQUEST_ID_KEY, BodyTooLarge, InternalError, http_problem_response

log = logging.getLogger("sizing")

SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")
NO_OTHER_LIMITS: Mapping[str, int] = MappingProxyType({})
SECURITY_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY"}


class RequestIds:
    """Takes the caller's ``X-Request-ID`` when it is a sane one, makes one otherwise, and answers with it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if SANE_REQUEST_ID.fullmatch(given) else uuid4().hex
        scope[REQUEST_ID_KEY] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_id)


class Failures:
    """Answers a failure of the code with a problem that says nothing of its inside, and logs the trace."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, send_noting_start)
        except ClientDisconnect:
            log.debug("request %s: the caller has left", scope[REQUEST_ID_KEY])
        except Exception:
            log.exception("request %s failed: %s %s", scope[REQUEST_ID_KEY], scope["method"], scope["path"])
            if started:
                raise
            response = http_problem_response(
                scope, InternalError("the failure is ours, and is logged under the request_id")
            )
            await response(scope, receive, send)


class BodyLimit:
    """Refuses a large body by its declared length before reading it, and an undeclared one as soon as it is large.

    ``at_path`` has the limits of paths that take more than the others.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, at_path: Mapping[str, int] = NO_OTHER_LIMITS) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.at_path = at_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit_bytes = self.at_path.get(scope["path"], self.max_body_bytes)
        error = BodyTooLarge(f"a request body may have at most {limit_bytes} bytes here")
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limit_bytes:
            await http_problem_response(scope, error)(scope, receive, send)
            return
        received_bytes = 0

        async def receive_up_to_limit() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > limit_bytes:
                raise error
            return message

        await self.app(scope, receive_up_to_limit, send)


class HeadAsGet:
    """HEAD is GET without the body, on every path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, "method": "GET"}, receive, send_without_body)
