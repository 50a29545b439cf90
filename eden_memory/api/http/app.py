"""The app of `eden serve`: HTTP API, and the gateway and MCP beside it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eden_memory.access.admission import Admission, Turned, secret_of
from eden_memory.access.callers import ApiKeys, Refused
from eden_memory.api.gateway.router import gateway_router
from eden_memory.api.http import openapi, problem
from eden_memory.api.http.doors import Doors
from eden_memory.api.http.middleware import BodyLimit, Measured, SecureHeaders
from eden_memory.api.http.routes import events, reading, searching, users, writing
from eden_memory.api.mcp.server import McpApp, mcp_app
from eden_memory.api.memory import Memory
from eden_memory.app.system import namespace_of
from eden_memory.settings import Settings
from eden_memory.stages.health_server import health_app
from eden_memory.stages.process import ProcessPart

ROUTERS = (reading.router, searching.router, writing.router, events.router, users.router)
ASKED_HEADERS = ("Authorization", "X-Eden-Key", "Content-Type", "If-None-Match", "Last-Event-ID")
SHOWN_HEADERS = ("ETag", "Retry-After")


def create_app(
    memory: Memory,
    keys: ApiKeys | None = None,
    admission: Admission | None = None,
    parts: Callable[[], Sequence[ProcessPart]] = lambda: (),
) -> FastAPI:
    """All doors over one memory; `parts` tell /readyz how they stand. Nothing is connected here."""
    serve = memory.settings.serve
    keys = keys or ApiKeys(memory.database, memory.settings.names, memory.clock)
    admission = admission or Admission(keys, serve)
    doors = Doors(memory, admission)
    mcp = mcp_app(memory, keys, memory.settings, admission, doors.stopping)
    app = FastAPI(
        title=openapi.TITLE, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=_running(mcp)
    )
    app.state.doors = doors
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(gateway_router(memory, keys, memory.settings, admission))
    app.router.routes.append(Route("/mcp", endpoint=mcp))
    _health(app, admission, memory.settings, parts)
    problem.register(app)
    openapi.use(app)
    app.add_middleware(BodyLimit, most=_body_limits(memory.settings))
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


def _running(mcp: McpApp) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """MCP answers while the server runs; the gateway brings a lifespan of its own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        del app
        async with mcp.running():
            yield

    return lifespan


def _body_limits(settings: Settings) -> dict[str, int]:
    """By the beginning of the path: chats bring pictures."""
    return {
        "": settings.serve.max_body_bytes,
        "/v1/chat/": max(int(settings.gateway.body_megabytes * 1_000_000), settings.serve.max_body_bytes),
    }


def _health(
    app: FastAPI, admission: Admission, settings: Settings, parts: Callable[[], Sequence[ProcessPart]]
) -> None:
    """`/livez` and `/readyz` for whoever asks, `/metrics` for those who may know of all agents."""
    for route in health_app(parts, namespace_of(settings)).routes:
        path: str = getattr(route, "path", "")
        if path == "/metrics":
            app.router.routes.append(Route(path, LetIn(getattr(route, "app", None), admission)))
        else:
            app.router.routes.append(route)


class LetIn:
    """An app for callers that are bound to no agent and no user: what it shows is of all of them."""

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app: ASGIApp = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            caller = await self._admission.admit(
                secret_of(scope["headers"]), headers.get("host"), headers.get("origin")
            )
            if caller.is_bound:
                raise Refused("figures are of all agents and users", "Use a key that is bound to none.")
        except (Turned, Refused) as error:
            return await problem.problem_of(error)(scope, receive, send)
        return await self._app(scope, receive, send)
