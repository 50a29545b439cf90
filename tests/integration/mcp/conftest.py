"""All doors on real HTTP over one namespace, and official MCP clients with keys of their own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from eden_memory.access.admission_store import ApiKeys
from eden_memory.api.http.serving import create_app
from eden_memory.api.service import Memory
from eden_memory.settings import MongoSettings, ServeSettings, Settings
from tests.integration.context.harness import Kit, kit_for, mapped
from tests.model_server.serving import Quiet, bound_socket, until
from tests.servers import TestServers


@pytest.fixture(scope="module")
async def kit(servers: TestServers) -> AsyncGenerator[Kit]:
    """One namespace for a file; sessions, agents, users and groups mapped."""
    uri = SecretStr(servers.mongodb_uri)
    mongodb = MongoSettings(uri=uri, database=f"t{uuid4().hex[:12]}")  # pyright: ignore[reportCallIssue]
    serve = ServeSettings(heartbeat_seconds=0.2)  # pyright: ignore[reportCallIssue]
    async with kit_for(mapped(Settings(mongodb=mongodb, serve=serve))) as kit:
        yield kit
        await kit.client.drop_database(mongodb.database)


@dataclass(frozen=True)
class McpServer:
    """Where it is, and who may ask."""

    url: str
    memory: Memory
    keys: ApiKeys

    async def key(self, name: str, **bound: Any) -> str:
        """The secret of a new key."""
        secret, _ = await self.keys.create(f"{name}-{uuid4().hex[:6]}", **bound)
        return secret

    @asynccontextmanager
    async def client(
        self, key: str | None = None, *, mode: str = "auto", **headers: str
    ) -> AsyncGenerator[Client]:
        """An official client; `headers`: agent, user, session."""
        sent = {f"x-eden-{name}": value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        async with httpx2.AsyncClient(headers=sent, timeout=30) as http:
            transport: Any = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, mode=mode, cache=None) as client:
                yield client


@asynccontextmanager
async def served(kit: Kit, **options: Any) -> AsyncGenerator[McpServer]:
    """The app of `eden serve`, in this event loop."""
    async with Memory(kit.settings, client=kit.client, **options) as memory:
        keys = ApiKeys(memory.database, kit.settings.names)
        app = create_app(memory, keys)
        config = uvicorn.Config(
            app, log_level="critical", lifespan="on", ws="none", timeout_graceful_shutdown=1
        )
        server = Quiet(config)
        with bound_socket() as bound:
            task = asyncio.create_task(server.serve([bound]))
            await until(lambda: server.started or task.done())
            try:
                yield McpServer(f"http://127.0.0.1:{bound.getsockname()[1]}", memory, keys)
            finally:
                app.state.doors.stopping.set()
                server.should_exit = True
                await task
