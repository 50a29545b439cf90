"""Limit the body of every request, set headers for browsers, and measure."""

import time
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eden_memory.api.http.problem import problem
from eden_memory.metrics import HTTP_REQUESTS, HTTP_SECONDS
from eden_memory.telemetry.spans import RequestSpan

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
PLAIN_PATHS = frozenset(
    (
        "/livez",
        "/readyz",
        "/health",
        "/metrics",
        "/openapi.json",
        "/mcp",
        "/v1/chat/completions",
        "/v1/models",
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


class TooLarge(HTTPException):
    """The body exceeds the limit."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"a request has at most {most} bytes", {"Connection": "close"})


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
