"""MCP over streamable HTTP, for many callers: the server of mcp_server.py as an ASGI application."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from eden_memory.access.admission_store import RequestAdmission, Turned, is_own_origin
from eden_memory.api.http.problem import MOST_BODY_BYTES, problem, problem_of
from eden_memory.api.mcp.mcp_connection import HEADERS, Connection
from eden_memory.api.mcp.mcp_server import mcp_server
from eden_memory.api.service import Memory
from eden_memory.directory.id_reader_store import IdKind
from eden_memory.errors import EdenError

CONNECTION = "eden.connection"
"""Where an HTTP request's scope holds whose it is."""


class McpApp:
    """The ASGI application: route it with `Route("/mcp", endpoint=app)` and keep `running()` entered.

    No session is kept between requests: each shows its own key, and any copy of the program can answer it.
    """

    def __init__(self, memory: Memory, admission: RequestAdmission, stopping: asyncio.Event) -> None:
        serve = memory.settings.serve
        self._admission, self._origins = admission, frozenset(serve.cors_origins)
        self._ids, self._running = memory.ids, False
        server = mcp_server(memory, self._who, stopping)
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=MOST_BODY_BYTES,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = server.session_manager

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while this is entered; once per process."""
        async with self._manager.run():
            self._running = True
            try:
                yield
            finally:
                self._running = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, once it is known whose it is."""
        try:
            scope[CONNECTION] = await self._connection(scope)
        except EdenError as error:
            await problem_of(error)(scope, receive, send)
            return
        if not self._running:
            await problem(503, "away", "this process does not serve MCP")(scope, receive, send)
            return
        if scope["method"] != "POST":  # the older protocol's GET stream would carry nothing, without end
            await problem(405, "method-not-allowed", "only POST is allowed here", headers={"Allow": "POST"})(
                scope, receive, send
            )
            return
        await self._manager.handle_request(scope, receive, send)

    async def _connection(self, scope: Scope) -> Connection:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        origin = headers.get("origin")
        caller = await self._admission.admit(scope["headers"])
        if (
            origin is not None
            and origin not in self._origins
            and not is_own_origin(origin, headers.get("host", ""))
        ):
            raise Turned("this Origin is not allowed", "EDEN_SERVE_CORS_ORIGINS lists the allowed ones.")
        fixed: dict[IdKind, str] = {
            name: headers[header] for name, header in HEADERS.items() if headers.get(header)
        }
        return await Connection.of(caller, fixed, self._ids)

    async def _who(self, request: ServerRequestContext[Any, Any]) -> Connection:
        """Return the admitted connection; Turned once its key is no longer valid: streams live long."""
        scope = cast("Request[Any]", request.request).scope
        await self._admission.still(scope["headers"])
        return scope[CONNECTION]
