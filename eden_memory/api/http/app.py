"""The app of `eden serve`: HTTP API, and the gateway and MCP beside it."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eden_memory.api.access import ApiKeys
from eden_memory.api.admission import Admission, Turned, secret_of
from eden_memory.api.http import openapi, problem
from eden_memory.api.http.doors import Doors
from eden_memory.api.http.middleware import BodyLimit, Measured, SecureHeaders
from eden_memory.api.http.routes import events, reading, searching, users, writing
from eden_memory.api.memory import Memory
from eden_memory.runtime.http import health_app
from eden_memory.runtime.process import Part

ROUTERS = (reading.router, searching.router, writing.router, events.router, users.router)
ASKED_HEADERS = ("Authorization", "X-Eden-Key", "Content-Type", "If-None-Match", "Last-Event-ID")
SHOWN_HEADERS = ("ETag", "Retry-After")


def create_app(
    memory: Memory,
    keys: ApiKeys | None = None,
    admission: Admission | None = None,
    parts: Callable[[], Sequence[Part]] = lambda: (),
) -> FastAPI:
    """All doors over one memory; `parts` tell /readyz how they stand. Nothing is connected here."""
    serve = memory.settings.serve
    keys = keys or ApiKeys(memory.database, memory.settings.mongodb.prefix, memory.clock)
    admission = admission or Admission(keys, serve)
    app = FastAPI(title=openapi.TITLE, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.doors = Doors(memory, admission)
    for router in ROUTERS:
        app.include_router(router)
    _health(app, admission, parts)
    problem.register(app)
    openapi.use(app)
    app.add_middleware(BodyLimit, most={"": serve.max_body_bytes})
    app.add_middleware(SecureHeaders)
    if serve.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=serve.cors_origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=ASKED_HEADERS,
            expose_headers=SHOWN_HEADERS,
        )
    app.add_middleware(Measured)
    return app


def _health(app: FastAPI, admission: Admission, parts: Callable[[], Sequence[Part]]) -> None:
    """`/livez` and `/readyz` for whoever asks, `/metrics` for those who are let in."""
    for route in health_app(parts).routes:
        path: str = getattr(route, "path", "")
        if path == "/metrics":
            app.router.routes.append(Route(path, LetIn(getattr(route, "app", None), admission)))
        else:
            app.router.routes.append(route)


class LetIn:
    """An app for callers only."""

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app: ASGIApp = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            await self._admission.admit(
                secret_of(scope["headers"]), headers.get("host"), headers.get("origin")
            )
        except Turned as error:
            return await problem.problem_of(error)(scope, receive, send)
        return await self._app(scope, receive, send)
