"""What every request passes: limits on its body, headers for browsers, metrics, and errors as problem+json (RFC
9457).
"""

import math
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from pymongo.errors import PyMongoError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eden_memory.access.admission_store import Refused, TooMany, Turned, Unknown
from eden_memory.api.gateway.chat_formats import FORMATS
from eden_memory.errors import Conflict, EdenError, Invalid, MemoryRestored, NotFound
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import HTTP_REQUESTS, HTTP_SECONDS
from eden_memory.telemetry.spans import RequestSpan

log = LibraryLogger("eden.http")

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:eden-memory:problem:"
AGAIN_SECONDS = 5
MOST_FAULTS = 20
CODES: Mapping[type[EdenError], tuple[int, str]] = {
    Unknown: (401, "key-needed"),
    TooMany: (429, "too-many-requests"),
    Turned: (403, "not-let-in"),
    Refused: (403, "refused"),
    NotFound: (404, "not-found"),
    Conflict: (409, "conflict"),
    Invalid: (422, "invalid"),
    MemoryRestored: (503, "restored"),
    EdenError: (409, "cannot"),
}
"""The first that fits."""


METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
PLAIN_PATHS = frozenset(
    (
        "/livez",
        "/readyz",
        "/health",
        "/metrics",
        "/openapi.json",
        "/mcp",
        "/v1/models",
        *(f"/v1{spoken.path}" for spoken in FORMATS),
    )
)
"""Paths in which no id stands."""
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Fault(BaseModel):
    """A fault of a request."""

    where: str
    what: str


class Problem(BaseModel):
    """A problem (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:eden-memory:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no fact of this id that could be seen here",
                }
            ]
        }
    )

    type: str
    """`urn:eden-memory:problem:<code>`: what programs go by."""
    title: str
    status: int
    detail: str
    hint: str | None = None
    """What to do next."""
    errors: list[Fault] | None = None
    """Of a request that is not valid: what is wrong where."""


def problem(
    status: int,
    code: str,
    detail: str,
    hint: str = "",
    *,
    errors: list[Fault] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the problem response."""
    body = Problem(
        type=TYPE + code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        hint=hint or None,
        errors=errors,
    )
    return JSONResponse(
        body.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def problem_of(error: EdenError) -> JSONResponse:
    """Return the problem response for an error."""
    status, code = _code_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Unknown):
        headers["WWW-Authenticate"] = 'Bearer realm="eden"'
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(math.ceil(error.seconds))
    if isinstance(error, MemoryRestored):
        headers["Retry-After"] = str(AGAIN_SECONDS)
    return problem(status, code, error.what, error.hint, headers=headers)


def status_of(error: EdenError) -> int:
    """Return the HTTP status of an error."""
    return _code_of(error)[0]


def _code_of(error: EdenError) -> tuple[int, str]:
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def register(app: FastAPI) -> None:
    """Register handlers that answer every error of the app as a problem."""
    app.add_exception_handler(EdenError, _cannot)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(PyMongoError, _away)
    app.add_exception_handler(Exception, _broken)


async def _cannot(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, EdenError)
    return problem_of(error)


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(fault["type"] == "json_invalid" for fault in found):
        return problem(400, "not-json", "the body is not valid JSON")
    faults = [
        Fault(where=".".join(map(str, fault["loc"])), what=fault["msg"]) for fault in found[:MOST_FAULTS]
    ]
    return problem(422, "invalid", "the request is not valid", errors=faults)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    detail = {404: "there is no such path", 405: f"{request.method} is not possible here"}
    said: Any = detail.get(error.status_code) or error.detail
    hint = "The inspector is at /ui, all paths are in /openapi.json." if error.status_code == 404 else ""
    return problem(error.status_code, code, str(said), hint, headers=error.headers)


async def _away(request: Request, error: Exception) -> JSONResponse:
    log.warning("MongoDB does not answer", path=_template(request), reason=type(error).__name__)
    headers = {"Retry-After": str(AGAIN_SECONDS)}
    return problem(503, "away", "the database does not answer", "Try again in a moment.", headers=headers)


async def _broken(request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed", path=_template(request), reason=type(error).__name__, exc_info=error)
    return problem(500, "broken", "the request failed", "The server's log says why.")


def _template(request: Request) -> str:
    return str(getattr(request.scope.get("route"), "path", "none"))


class TooLarge(HTTPException):
    """The body exceeds the limit."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"a request has at most {most} bytes", {"Connection": "close"})


MOST_BODY_BYTES = 1_000_000
"""Of a request; chats, which bring pictures, and receipts may be larger."""


class BodyLimit:
    """Counts the bytes that arrive, whatever Content-Length says; `most` by path prefix, "" for all others."""

    def __init__(self, app: ASGIApp, most: Mapping[str, int]) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most, arrived, started = self._limit(scope["path"]), 0, False

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > most:
                raise TooLarge(most)
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if _announced(scope) > most:
                raise TooLarge(most)
            await self._app(scope, counted, noted)
        except TooLarge as error:
            if started:
                raise
            response = problem(413, "content-too-large", error.detail, headers=error.headers)
            await response(scope, receive, send)

    def _limit(self, path: str) -> int:
        return self._most[max((beginning for beginning in self._most if path.startswith(beginning)), key=len)]


class SecureHeaders:
    """Sets headers that forbid frames, caches, sniffing and other origins, unless the answer sets its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


class Measured:
    """Counts requests and records their spans by route template, never by path, which contains ids."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.perf_counter(), 500
        method = scope["method"] if scope["method"] in METHODS else "other"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with RequestSpan(scope, method) as span:
            try:
                await self._app(scope, receive, noted)
            finally:
                route = _route(scope)
                HTTP_REQUESTS.labels(route, method, f"{status // 100}xx").inc()
                HTTP_SECONDS.labels(route).observe(time.perf_counter() - began)
                span.answered(route, status)


def _route(scope: Scope) -> str:
    """Return the template of the request's route."""
    if scope["path"] in PLAIN_PATHS:
        return scope["path"]
    return str(getattr(scope.get("route"), "path_format", "none"))


def _announced(scope: Scope) -> int:
    said = dict(scope["headers"]).get(b"content-length", b"0")
    return int(said) if said.isdigit() else 0
