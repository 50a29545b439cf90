"""The process of `eden serve`: all doors, until a signal."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from pymongo.errors import ConnectionFailure
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eden_memory.access.admission_store import ApiKeys, Refused, RequestAdmission, Turned, is_loopback
from eden_memory.api.gateway.chat_formats import FORMATS
from eden_memory.api.gateway.gateway import BODY_MEGABYTES, MEGABYTE, Gateway, gateway_router
from eden_memory.api.http import openapi, problem
from eden_memory.api.http.doors import Doors
from eden_memory.api.http.problem import MOST_BODY_BYTES, BodyLimit, Measured, SecureHeaders
from eden_memory.api.http.routes import ROUTERS
from eden_memory.api.mcp.mcp_app import McpApp
from eden_memory.api.service import Memory
from eden_memory.api.ui.inspector import inspector_router
from eden_memory.errors import EdenError
from eden_memory.logs import LibraryLogger
from eden_memory.settings import Settings
from eden_memory.stages.health_server import HealthServer, SignalLessServer, health_app
from eden_memory.stages.process import Process, ProcessPart, Signals, State
from eden_memory.tasks import end, first_of

ASKED_HEADERS = ("Authorization", "X-Eden-Key", "Content-Type", "If-None-Match", "Last-Event-ID")
SHOWN_HEADERS = ("ETag", "Retry-After")
log = LibraryLogger("eden.http")
BACKLOG = 2_048
MOST_RECEIPT_BYTES = 32_000_000
"""Of a user with some 100,000 messages."""
BODY_LIMITS = {
    "": MOST_BODY_BYTES,
    "/v1/receipts/": MOST_RECEIPT_BYTES,
    **{f"/v1{spoken.path}": int(BODY_MEGABYTES * MEGABYTE) for spoken in FORMATS},
}
"""Bytes of a request's body, by path prefix."""
ACCOUNT_SECONDS = 2.0
"""Seconds in which MongoDB may refuse the account, before requests are taken."""


def create_app(
    memory: Memory,
    keys: ApiKeys | None = None,
    admission: RequestAdmission | None = None,
    parts: Callable[[], Sequence[ProcessPart]] = lambda: (),
    *,
    operator: bool = False,
) -> FastAPI:
    """All doors over one memory; `parts` tell /readyz how they stand. Nothing is connected here.

    `operator`: with the inspector's pages for operators, which read Kafka.
    """
    serve = memory.settings.serve
    keys = keys or ApiKeys(memory.database, memory.settings.names, memory.clock)
    admission = admission or RequestAdmission(keys, serve)
    doors = Doors(memory, admission, operator=operator)
    mcp = McpApp(memory, admission, doors.stopping)
    app = FastAPI(
        title=openapi.TITLE, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=_running(mcp)
    )
    app.state.doors = doors
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(gateway_router(Gateway(memory, keys, memory.settings, admission)))
    app.include_router(inspector_router(operator=operator))
    app.router.routes.append(Route("/", endpoint=_to_inspector))
    app.router.routes.append(Route("/mcp", endpoint=mcp))
    _health(app, admission, memory.settings, parts)
    problem.register(app)
    openapi.use(app)
    app.add_middleware(BodyLimit, most=BODY_LIMITS)
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


async def _to_inspector(_: Request) -> RedirectResponse:
    """Lead a browser that names only the host to the inspector."""
    return RedirectResponse("/ui")


def _running(mcp: McpApp) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return a lifespan that runs MCP; the gateway has its own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        del app
        async with mcp.running():
            yield

    return lifespan


def _health(
    app: FastAPI, admission: RequestAdmission, settings: Settings, parts: Callable[[], Sequence[ProcessPart]]
) -> None:
    """`/livez` and `/readyz` for whoever asks, `/metrics` for those who may know of all agents."""
    for route in health_app(parts, settings.mongodb.database).routes:
        path: str = getattr(route, "path", "")
        if path == "/metrics":
            app.router.routes.append(Route(path, LetIn(getattr(route, "app", None), admission)))
        else:
            app.router.routes.append(route)


class LetIn:
    """Restricts an app to callers that are bound to no agent and no user, since it shows data of all."""

    def __init__(self, app: Any, admission: RequestAdmission) -> None:
        self._app: ASGIApp = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        try:
            caller = await self._admission.admit(scope["headers"])
            if caller.is_bound:
                raise Refused("metrics cover all agents and users", "Use a key that is bound to none.")
        except (Turned, Refused) as error:
            return await problem.problem_of(error)(scope, receive, send)
        return await self._app(scope, receive, send)


class DoorsServer:
    """A part that answers requests; on stop it ends event streams and finishes running requests."""

    name = "doors"

    def __init__(self, app: FastAPI, memory: Memory) -> None:
        settings = memory.settings
        self._doors: Doors = app.state.doors
        self._memory, self._where = memory, f"http://{settings.serve.host}:{settings.serve.port}"
        self.server = SignalLessServer(
            uvicorn.Config(
                app,
                host=settings.serve.host,
                port=settings.serve.port,
                log_config=None,
                access_log=False,
                lifespan="on",
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=int(settings.run.drain_seconds),
            ),
            "EDEN_SERVE_PORT",
        )

    async def run(self) -> None:
        """Serve until `stop`; raises what ended the following of changes."""
        log.info("listens", where=self._where, inspector=f"{self._where}/ui")
        serving = asyncio.create_task(self.server.serve())
        try:
            await first_of(serving, self._memory.unawaited.failed)
            self.stop()
            await serving
        finally:
            await end([serving])
        self._memory.unawaited.check()

    def stop(self) -> None:
        """Accept no new connections; open ones end with their answer."""
        self._doors.stopping.set()
        self.server.should_exit = True

    def state(self) -> State:
        """Return ready while the change stream of MongoDB is open."""
        live = self._memory.contexts.cache.live
        return State(live, self._where if live else "the change stream of MongoDB is not open")


async def serve(settings: Settings, signals: Signals, *, operator: bool = False) -> None:
    """Run the doors until a signal; `operator` as :func:`create_app`."""
    async with serving(settings, operator=operator) as parts:
        await Process(parts, signals, settings.run.drain_seconds + 5).run()


@asynccontextmanager
async def serving(
    settings: Settings, *, operator: bool = False, **options: Any
) -> AsyncGenerator[list[ProcessPart]]:
    """The parts, ready to run. EdenError where whoever reaches the port could not be told apart."""
    async with Memory(settings, **options) as memory:
        keys = ApiKeys(memory.database, settings.names, memory.clock)
        await demand_account(keys)
        await demand_key(settings, keys)
        parts: list[ProcessPart] = []
        app = create_app(
            memory, keys, RequestAdmission(keys, settings.serve), lambda: parts, operator=operator
        )
        parts.append(DoorsServer(app, memory))
        if settings.http.port is not None:
            doors = tuple(parts)
            where = settings.http.host, settings.http.port
            parts.append(HealthServer(lambda: doors, *where, settings.mongodb.database))
        yield parts


async def demand_account(keys: ApiKeys) -> None:
    """OperationFailure, if MongoDB does not let this program in or read; one that is away is waited for later."""
    with suppress(ConnectionFailure, TimeoutError):
        async with asyncio.timeout(ACCOUNT_SECONDS):
            await keys.any_valid()


async def demand_key(settings: Settings, keys: ApiKeys) -> None:
    """EdenError, if others than this machine can reach the port and there is no key that lets anybody in."""
    if is_loopback(settings.serve.host) or await keys.any_valid():
        return
    raise EdenError(
        f"{settings.serve.host} is reachable from other machines, and there is no API key",
        "Make one (eden keys create NAME), or leave EDEN_SERVE_HOST at 127.0.0.1.",
    )
