"""Spans of requests and of the work inside them, by OpenTelemetry's conventions for HTTP servers; none until `begin`.

No URL is recorded, only the template of its route: paths and queries contain ids of users and texts of searches.
(OpenTelemetry's own instrumentation of ASGI records them, and cannot be told not to.)
"""

import time
from collections.abc import Mapping
from contextvars import Token
from secrets import randbits
from types import TracebackType
from typing import Any, Self

from eden_memory.telemetry.spans import CURRENT, TRACING, EndedSpan, SpanKind, SpanPlace
from eden_memory.tracing import PARTS

PROBES = frozenset(("/livez", "/readyz", "/health", "/metrics"))
"""Asked every few seconds; they leave no spans."""
SERVER_ERROR = 500


class OpenSpan:
    """A span of work in this process; entered, it is the parent of what happens inside."""

    def __init__(self, name: str, kind: SpanKind = "internal", parent: SpanPlace | None = None) -> None:
        self.name = name
        self.attributes: dict[str, str | int] = {}
        self.error: str | None = None
        self._kind: SpanKind = kind
        self._parent, self._begun = parent, 0
        self._token: Token[SpanPlace | None] | None = None

    def __enter__(self) -> Self:
        if TRACING.sink is not None:
            self._parent = self._parent or CURRENT.get()
            trace = randbits(128) if self._parent is None else self._parent.trace
            self._place, self._begun = SpanPlace(trace, randbits(64)), time.time_ns()
            self._token = CURRENT.set(self._place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        CURRENT.reset(self._token)
        sink = TRACING.sink
        if sink is not None and TRACING.samples(self._place.trace):
            sink.take(self._ended(self.error or (kind and kind.__name__)))

    def _ended(self, error: str | None) -> EndedSpan:
        parent = None if self._parent is None else self._parent.span
        ended = time.time_ns()
        return EndedSpan(
            self.name, self._kind, self._place, parent, self._begun, ended, self.attributes, error=error
        )


class RequestSpan(OpenSpan):
    """The span of an HTTP request, in the trace that its `traceparent` names; `scope` is ASGI's."""

    def __init__(self, scope: Mapping[str, Any], method: str) -> None:
        super().__init__(method, "server", _caller(scope))
        self._method, self._scope = method, scope

    def __enter__(self) -> Self:
        return self if self._scope["path"] in PROBES else super().__enter__()

    def answered(self, route: str, status: int) -> None:
        """Note the template of the route ("none": no such page) and the status of the answer."""
        if self._token is None:
            return
        shown = "HTTP" if self._method == "other" else self._method
        self.name = shown if route == "none" else f"{shown} {route}"
        self.attributes |= {
            "http.request.method": "_OTHER" if self._method == "other" else self._method,
            "http.response.status_code": status,
            "network.protocol.version": self._scope.get("http_version", "1.1"),
            "url.scheme": self._scope.get("scheme", "http"),
        }
        if route != "none":
            self.attributes |= {"http.route": route, "url.path": route}
        if status >= SERVER_ERROR:
            self.error = str(status)


def _caller(scope: Mapping[str, Any]) -> SpanPlace | None:
    """Return the span that the request names as its cause; None where it names none, or not by W3C's rules."""
    if TRACING.sink is None:
        return None
    given = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    parts = given.split(b"-")
    try:
        place = SpanPlace(int(parts[1], 16), int(parts[2], 16)) if len(parts) >= PARTS else None
    except ValueError:
        return None
    return place if place and 0 < place.trace < 2**128 and 0 < place.span < 2**64 else None
