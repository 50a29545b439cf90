"""One world for the module, and all doors of it on real HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from eden_memory.access.admission_store import ApiKeys, RequestAdmission
from eden_memory.api.http.serving import create_app
from eden_memory.api.service import Memory
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import AgentsSettings, GatewaySettings, MongoSettings, Settings
from tests.integration.context.harness import Kit, kit_for, mapped
from tests.integration.doors.world import KEYS, fill
from tests.model_server.chat_upstream import ChatUpstream, chat_upstream
from tests.model_server.serving import Quiet, bound_socket, until
from tests.servers import TestServers


@dataclass(frozen=True)
class Doors:
    """All that is open."""

    kit: Kit
    memory: Memory
    keys: ApiKeys
    http: httpx2.AsyncClient
    secrets: dict[str, str]
    """Key's name → secret."""
    app: FastAPI

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")


@asynccontextmanager
async def doors_of(kit: Kit, *, operator: bool = False) -> AsyncGenerator[Doors]:
    """A server in this event loop, with operators' pages on request."""
    async with Memory(kit.settings, client=kit.client) as memory:
        keys = ApiKeys(memory.database, kit.settings.names)
        app = create_app(memory, keys, RequestAdmission(keys, kit.settings.serve), operator=operator)
        server = Quiet(uvicorn.Config(app, log_level="critical", lifespan="on", ws="none"))
        with bound_socket() as bound:
            task = asyncio.create_task(server.serve([bound]))
            await until(lambda: server.started or task.done())
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            async with httpx2.AsyncClient(base_url=url, timeout=30) as http:
                yield Doors(kit, memory, keys, http, {}, app)
            app.state.doors.stopping.set()
            server.should_exit = True
            await task


def namespaced(servers: TestServers, **groups: Any) -> Settings:
    """A namespace of its own."""
    uri = SecretStr(servers.mongodb_uri)
    mongodb = MongoSettings(uri=uri, database=f"t{uuid4().hex[:12]}")  # pyright: ignore[reportCallIssue]
    return mapped(Settings(mongodb=mongodb, **groups))


@pytest.fixture(scope="package")
async def upstream() -> AsyncGenerator[ChatUpstream]:
    """The provider behind the gateway."""
    async with chat_upstream() as upstream:
        yield upstream


@pytest.fixture(scope="package")
async def doors(servers: TestServers, upstream: ChatUpstream) -> AsyncGenerator[Doors]:
    """A filled world, and its keys."""
    gateway = GatewaySettings(upstream=upstream.openai_url, memory_seconds=60)  # pyright: ignore[reportCallIssue]
    settings = namespaced(servers, gateway=gateway, agents=AgentsSettings(default="s.a"))
    async with kit_for(settings) as kit:
        try:
            await fill(kit)
            async with doors_of(kit) as doors:
                for key in KEYS:
                    doors.secrets[key.name], _ = await doors.keys.create(
                        key.name,
                        agents=None if key.agents is None else [encode_id(one) for one in key.agents],
                        users=None if key.users is None else [encode_id(one) for one in key.users],
                        rights=key.rights,  # pyright: ignore[reportArgumentType]
                    )
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)
